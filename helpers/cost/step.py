"""One equation for the time of a step: a decode step, a verification of drafted tokens, or a prefill."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from helpers.cost.experts import expected_experts_read
from helpers.cost.layers import Full, Latent, LayerType, State, layer_types_of
from helpers.cost.models import PublishedModel
from helpers.cost.roofline import Hardware
from helpers.validate import check_whole, is_number

if TYPE_CHECKING:
    from helpers.model.config import ModelConfig

CachedAndNew = tuple[int, int]  # the numbers of a request's cached and new tokens


@dataclass(frozen=True)
class StepSeconds:
    """The time of a step on a card, in seconds, split into terms.

    Attributes:
        kv_cache, weights: to read the KV entries, and to read the weights, at the card's bandwidth.
        attention, products: to compute attention (scores and contexts), and the products with the weights.
        launch, collectives: launch overhead, and sums over several cards; these are added to the other terms.
        overlap: whether KV entries are read while matrices are multiplied.
        requests, tokens: number of requests in the step, and of new tokens in all of them together.
    """

    kv_cache: float
    weights: float
    attention: float
    products: float
    launch: float
    collectives: float
    overlap: bool
    requests: int
    tokens: int

    @property
    def total(self) -> float:
        """The duration of the step, in seconds."""
        if self.overlap:
            longer = max(self.kv_cache + self.weights, self.attention + self.products)
        else:
            longer = max(self.kv_cache, self.attention) + max(self.weights, self.products)
        return longer + self.launch + self.collectives

    @property
    def throughput(self) -> float:
        """New tokens per second, for all users together."""
        return self.tokens / self.total


def step_time(
    model: ModelConfig | PublishedModel,
    card: Hardware,
    tokens: int | Iterable[CachedAndNew],
    users: int = 1,
    *,
    new_tokens: int = 1,
    logits: int | None = 1,
    weight_bits: float = 16,
    kv_bits: float = 16,
    overlap: bool = False,
    bandwidth_reached: float = 1.0,
    compute_reached: float = 1.0,
    launch: float = 0.0,
    cards: int = 1,
    collective: float = 0.0,
) -> StepSeconds:
    """Return max(kv_cache, attention) + max(weights, products) + launch + collectives, in seconds.

    Not counted: the embedding, activations, the scales of low-precision formats, and the faster arithmetic
    that such formats allow. Tokens are assumed to choose experts at random.

    Args:
        tokens: number of cached tokens of each user; or a pair (cached, new) for each of several requests.
        users: how many users send each request.
        new_tokens: new tokens of each request, if `tokens` is a number: 1 in a decode step, k + 1 in a
            verification of k drafted tokens, those of the prompt in a prefill.
        logits: how many new tokens of each request go through the LM head; None for all, as in a
            verification.
        weight_bits, kv_bits: bits per number of the weights and of the KV cache.
        overlap: whether KV entries are read while matrices are multiplied. If so, the first two terms are
            replaced by max(kv_cache + weights, attention + products).
        bandwidth_reached, compute_reached: fractions of the card's peak; 1 gives a lower bound of the time.
        launch: launch overhead of the whole step, in seconds.
        cards: how many cards share each layer (tensor parallelism). Weights, operations and KV heads are
            divided among them. If there are more cards than KV heads, some cards store copies of a head;
            every card reads the whole latent (MLA).
        collective: seconds of one sum over the cards; each layer has two.

    Raises:
        ValueError: an argument is out of range, or there are no requests.
    """
    check_counts(users=users, new_tokens=new_tokens, logits=1 if logits is None else logits, cards=cards)
    check_between(0, math.inf, weight_bits=weight_bits, kv_bits=kv_bits)
    check_between(0, 1, bandwidth_reached=bandwidth_reached, compute_reached=compute_reached)
    check_between(-1e-9, math.inf, launch=launch, collective=collective)
    requests = [*tokens] if isinstance(tokens, Iterable) else [(tokens, new_tokens)]
    check_requests(requests)
    n_kv, n_weights, attention, products = step_work(model, requests, users, logits, cards)
    bandwidth = cards * bandwidth_reached * card.bytes_per_second
    compute = cards * compute_reached * card.flops_per_second
    kv_cache, weights = n_kv * kv_bits / 8 / bandwidth, n_weights * weight_bits / 8 / bandwidth
    collectives = 2 * model.n_layers * collective if cards > 1 else 0.0
    terms = kv_cache, weights, attention / compute, products / compute, launch, collectives
    return StepSeconds(*terms, overlap, users * len(requests), users * sum(new for _, new in requests))


class StepWork(NamedTuple):
    """The work of a step, in total over all cards."""

    kv_numbers: float  # how many numbers of the KV cache are moved
    weight_numbers: float  # how many weights are read
    attention_operations: float
    product_operations: float  # of the products with the weights


def step_work(
    model: ModelConfig | PublishedModel,
    requests: Sequence[CachedAndNew],
    users: int,
    logits: int | None,
    cards: int = 1,
) -> StepWork:
    """Return the work of a step; arguments as in `step_time`."""
    work_of_request, attention, new = kv_and_attention_work(model, cards), 0, 0
    kv_numbers = 0.0
    for cached_and_new in requests:
        request_numbers, request_attention = work_of_request(*cached_and_new)
        kv_numbers += request_numbers
        attention, new = attention + request_attention, new + cached_and_new[1]
    new *= users
    through_head = new if logits is None else users * len(requests) * logits
    head, active = model.vocab_size * model.hidden_size, active_parameters(model)
    products = 2 * (new * (active - head) + through_head * head)
    weights = active + extra_expert_parameters(model, new)
    return StepWork(users * kv_numbers, weights, users * attention, products)


@cache
def kv_and_attention_work(
    model: ModelConfig | PublishedModel, cards: int
) -> Callable[[int, int], tuple[float, int]]:
    """Return a function that computes the work of attention from a request's cached and new tokens.

    The function takes the numbers of cached and of new tokens. It returns how many numbers of the KV cache
    are moved, and how many operations attention takes. The results depend only on the model and the number of
    cards, and are memoized. The function raises ValueError unless both arguments are whole numbers, cached at
    least 0 and new at least 1.
    """
    layers = Counter(layer_types_of(model)).items()

    @lru_cache(2**14)
    def of_request(cached: int, new: int) -> tuple[float, int]:
        check_whole("tokens", cached, minimum=0)
        check_whole("new tokens", new)
        numbers = sum(
            n * layer.n_copies(cards) * layer.entry_size * (layer.n_entries(cached) + layer.n_entries(new))
            for layer, n in layers
        )
        operations = sum(
            n * attention_pairs(layer, cached, new) * operations_per_pair(layer, model.n_heads)
            for layer, n in layers
        )
        return numbers, operations

    return of_request


def operations_per_pair(layer: LayerType, n_heads: int) -> int:
    """Return a layer's operations for one query-key pair, in all heads; for a state, those for one token.

    The score and the context each take two operations per number. A latent is not expanded into keys and
    values, as in decode. A state is updated and read.
    """
    if isinstance(layer, State):
        return 4 * layer.numbers
    if isinstance(layer, Latent):
        return 2 * n_heads * (layer.entry_size + layer.rank)
    assert isinstance(layer, Full)
    return 2 * n_heads * (layer.k_dim + layer.v_dim)


def attention_pairs(layer: LayerType, cached: int, new: int) -> int:
    """Return the number of (query, key) pairs of a pass, for one head of a layer.

    The queries are those of `new` tokens after `cached` cached ones. A state counts one pair per new token.
    """
    limit = layer.n_entries(cached + new)
    growing = max(0, min(new, limit - cached))  # queries that see one key more than the query before
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * limit


def active_parameters(model: ModelConfig | PublishedModel) -> int:
    """Return the number of weights used for one token.

    An untied embedding is not counted, because it is only looked up.
    """
    embedding = model.vocab_size * model.hidden_size
    return getattr(model, "n_active", None) or model.n_parameters - (not model.tied) * embedding


def extra_expert_parameters(model: ModelConfig | PublishedModel, tokens: int) -> float:
    """Return the expected number of weights in the experts that only later tokens of a pass use.

    The experts that the first token uses are not counted. Each token is assumed to choose its experts at
    random.
    """
    if not isinstance(model, PublishedModel) or model.experts is None or model.n_active is None:
        return 0
    n_experts, n_chosen = model.experts
    embedding = model.vocab_size * model.hidden_size
    unused = model.n_parameters - (not model.tied) * embedding - model.n_active
    return unused / (n_experts - n_chosen) * (expected_experts_read(n_experts, n_chosen, tokens) - n_chosen)


def check_requests(requests: Sequence[CachedAndNew]) -> None:
    """Raise ValueError if there are no requests. Their numbers are checked where the work is counted."""
    if not requests:
        raise ValueError("tokens is empty; expected a pair (cached, new) for each request of the step")


def check_counts(**counts: int) -> None:
    """Raise ValueError unless each argument is a whole number of at least 1."""
    for name, count in counts.items():
        check_whole(name, count)


def check_between(above: float, limit: float, **numbers: float) -> None:
    """Raise ValueError unless each of `numbers` is finite, greater than `above` and at most `limit`."""
    for name, x in numbers.items():
        if not is_number(x) or not above < x <= limit:
            raise ValueError(
                f"{name} is {x!r}; expected a finite number, over {above:g} and at most {limit:g}"
            )
