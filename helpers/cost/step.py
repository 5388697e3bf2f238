"""Compute the duration of a step of decode, of verification of drafted tokens, or of prefill.

One equation applies to all of these steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from helpers.cost.experts import expected_experts_read
from helpers.cost.layers import Full, Indexer, Latent, LayerType, Selected, State, layer_types_of
from helpers.cost.models import PublishedModel
from helpers.cost.roofline import Hardware
from helpers.validate import check_whole, is_number

if TYPE_CHECKING:
    from helpers.model.config import ModelConfig

CachedAndNew = tuple[int, int]  # of one request: (number of cached tokens, number of new tokens)


@dataclass(frozen=True)
class StepSeconds:
    """The terms of a step's duration on a card, in seconds.

    Attributes:
        kv_cache: time to read and write KV entries.
        weights: time to read the weights.
        attention: time to compute scores and contexts.
        products: time to multiply hidden states by weight matrices.
        launch: launch overhead, which is added to the other terms.
        collectives: time to sum results over several cards, which is added to the other terms.
        overlap: whether KV entries are read while matrices are multiplied.
        requests: number of requests in the step.
        tokens: number of new tokens in the step, over all requests.
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
        """The number of new tokens per second, over all requests."""
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
    """Return the terms of a step's duration, in seconds.

    The duration is max(kv_cache, attention) + max(weights, products) + launch + collectives. Tokens are
    assumed to choose experts at random. Not included are the embedding lookup, activations, the scales of
    low-precision formats, and the faster arithmetic that such formats allow.

    Args:
        model: the model that runs.
        card: the card that runs the model, or the roofline of another machine.
        tokens: number of cached tokens per user, if each user sends one request; or, for several requests,
            one pair per request: (number of cached tokens, number of new tokens).
        users: number of users, each of whom sends all of these requests.
        new_tokens: number of new tokens per request, used only if `tokens` is a single number: 1 in a decode
            step, k + 1 in a verification of k drafted tokens, the length of the prompt in a prefill.
        logits: number of new tokens per request for which the LM head computes logits; None for all of them,
            as in a verification.
        weight_bits, kv_bits: bits per weight, and bits per value in the KV cache.
        overlap: whether KV entries are read while matrices are multiplied. If so, the first two terms of the
            sum are replaced by max(kv_cache + weights, attention + products).
        bandwidth_reached, compute_reached: fractions of the card's peak bandwidth and peak compute. With 1
            for both, the result is a lower bound on the duration.
        launch: launch overhead of the whole step, in seconds.
        cards: number of cards that share each layer (tensor parallelism). Weights, operations and KV heads
            are divided among the cards. If there are more cards than KV heads, several cards store the same
            KV head. With MLA, every card reads the whole latent.
        collective: duration of one sum over the cards, in seconds. Each layer has two such sums.

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
    """The values moved and the operations computed in a step, in total over all cards."""

    kv_numbers: float  # number of values read from or written to the KV cache
    weight_numbers: float  # number of weights read
    attention_operations: float
    product_operations: float  # number of operations to multiply by weight matrices


def step_work(
    model: ModelConfig | PublishedModel,
    requests: Sequence[CachedAndNew],
    users: int,
    logits: int | None,
    cards: int = 1,
) -> StepWork:
    """Return the work of a step.

    `requests` has one pair per request: (number of cached tokens, number of new tokens). The other arguments
    are as in `step_time`.
    """
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
    """Return a function that computes the work of attention for one request.

    The function takes the number of cached tokens and the number of new tokens. It returns the number of
    values read from or written to the KV cache, and the number of operations that attention takes. Results
    are memoized. The function raises ValueError unless the number of cached tokens is a whole number of at
    least 0 and the number of new tokens is a whole number of at least 1.
    """
    layers = Counter(layer_types_of(model)).items()

    @lru_cache(2**14)
    def of_request(cached: int, new: int) -> tuple[float, int]:
        check_whole("tokens", cached, minimum=0)
        check_whole("new tokens", new)
        numbers = sum(
            n * (layer.n_read(cached, new, cards) + layer.n_stored(new, cards)) for layer, n in layers
        )
        operations = sum(n * attention_operations(layer, model.n_heads, cached, new) for layer, n in layers)
        return numbers, operations

    return of_request


def attention_operations(layer: LayerType, n_heads: int, cached: int, new: int) -> int:
    """Return the number of operations that attention takes in one layer, including those of an indexer.

    The arguments are as in `operations_per_pair` and `attention_pairs`.
    """
    operations = attention_pairs(layer, cached, new) * operations_per_pair(layer, n_heads)
    if isinstance(layer, Selected) and layer.indexer:
        operations += attention_operations(layer.indexer, layer.indexer.n_heads, cached, new)
    return operations


def operations_per_pair(layer: LayerType, n_heads: int) -> int:
    """Return the number of operations per query-key pair, over all heads of a layer.

    The score takes two operations per channel of the key, and the context two per channel of the value. In
    MLA, all query heads attend to the latent itself, as in decode: it is not expanded into keys and values.
    In a layer with an indexer, the pairs are those that it selects; the indexer itself computes only scores.
    For a layer with a state, the result is the number of operations per token, which updates and reads the
    state.
    """
    if isinstance(layer, State):
        return 4 * layer.numbers
    if isinstance(layer, Latent):
        return 2 * n_heads * (layer.entry_size + layer.rank)
    if isinstance(layer, Indexer):
        return 2 * n_heads * layer.k_dim
    if isinstance(layer, Selected):
        return operations_per_pair(layer.entry, n_heads)
    assert isinstance(layer, Full)
    return 2 * n_heads * (layer.k_dim + layer.v_dim)


def attention_pairs(layer: LayerType, cached: int, new: int) -> int:
    """Return the number of (query, key) pairs in a pass, for one head of a layer.

    The pass runs `new` tokens that follow `cached` cached tokens. For a layer with a state, the result is
    `new`, one pair per new token.
    """
    limit = layer.n_attended(cached + new)
    growing = max(0, min(new, limit - cached))  # queries that see one key more than the query before
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * limit


def active_parameters(model: ModelConfig | PublishedModel) -> int:
    """Return the number of weights that are read for one token.

    An embedding that the LM head does not share is not counted, because only one of its rows is looked up.
    """
    embedding = model.vocab_size * model.hidden_size
    return getattr(model, "n_active", None) or model.n_parameters - (not model.tied) * embedding


def extra_expert_parameters(model: ModelConfig | PublishedModel, tokens: int) -> float:
    """Return the expected number of weights that a pass reads in addition to those for its first token.

    These are the weights of experts that later tokens choose and the first token does not. Each token is
    assumed to choose its experts at random. The result is 0 for a dense model.
    """
    if not isinstance(model, PublishedModel) or model.experts is None or model.n_active is None:
        return 0
    n_experts, n_chosen = model.experts
    embedding = model.vocab_size * model.hidden_size
    unused = model.n_parameters - (not model.tied) * embedding - model.n_active
    return unused / (n_experts - n_chosen) * (expected_experts_read(n_experts, n_chosen, tokens) - n_chosen)


def check_requests(requests: Sequence[CachedAndNew]) -> None:
    """Raise ValueError if there are no requests.

    The number of tokens in each request is checked later, by the function that `kv_and_attention_work`
    returns.
    """
    if not requests:
        raise ValueError("tokens is empty; expected a pair (cached, new) for each request of the step")


def check_counts(**counts: int) -> None:
    """Raise ValueError unless each argument is a whole number of at least 1."""
    for name, count in counts.items():
        check_whole(name, count)


def check_between(above: float, limit: float, **numbers: float) -> None:
    """Raise ValueError unless each value in `numbers` is finite, greater than `above` and at most `limit`."""
    for name, x in numbers.items():
        if not is_number(x) or not above < x <= limit:
            raise ValueError(
                f"{name} is {x!r}; expected a finite number, over {above:g} and at most {limit:g}"
            )
