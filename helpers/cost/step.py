"""One equation for the time of a step: a decode step, a verification of drafts, or a prefill."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from helpers.cost.experts import experts_read
from helpers.cost.layers import Full, Kind, Latent, State, layers_of
from helpers.cost.models import PublishedModel
from helpers.cost.roofline import Limits
from helpers.validate import check_whole, is_number

if TYPE_CHECKING:
    from helpers.model.config import ModelConfig

MEMORY, COMPUTE, ON_TOP = ("rows", "weights"), ("attention", "products"), ("launch", "collectives")


def pairs_of_terms(overlap: bool) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return terms of memory and terms of compute that run at the same time."""
    return [(MEMORY, COMPUTE)] if overlap else [((a,), (b,)) for a, b in zip(MEMORY, COMPUTE, strict=True)]


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of a step on a card, by term: `rows` and `weights` at its bandwidth, `attention` (scores and
    contexts) and `products` (with the weights) at its compute, and what comes on top.

    Attributes:
        overlap: rows are read while matrices multiply.
        texts, tokens: texts in the step, and new tokens of all.
    """

    rows: float
    weights: float
    attention: float
    products: float
    launch: float
    collectives: float
    overlap: bool
    texts: int
    tokens: int

    @property
    def counted(self) -> dict[str, float]:
        """The terms that add to the total: of what runs together the longer, and what comes on top."""
        longer = [a if self._sum(a) > self._sum(b) else b for a, b in pairs_of_terms(self.overlap)]
        return {term: getattr(self, term) for term in (*chain(*longer), *ON_TOP)}

    def _sum(self, terms: Iterable[str]) -> float:
        return sum(getattr(self, term) for term in terms)

    @property
    def parts(self) -> tuple[float, float]:
        """Seconds that memory and compute add to the total."""
        counted = self.counted
        return sum(counted.get(term, 0.0) for term in MEMORY), sum(counted.get(term, 0.0) for term in COMPUTE)

    @property
    def total(self) -> float:
        """Seconds of the step."""
        if self.overlap:
            longer = max(self.rows + self.weights, self.attention + self.products)
        else:
            longer = max(self.rows, self.attention) + max(self.weights, self.products)
        return longer + self.launch + self.collectives

    @property
    def bound(self) -> str:
        """Which of the two adds more: "memory-bound" or "compute-bound"."""
        memory, compute = self.parts
        return "memory-bound" if memory > compute else "compute-bound"

    @property
    def longest(self) -> str:
        """Name of the term that takes longest, of those that count."""
        return max(self.counted, key=self.counted.__getitem__)

    @property
    def throughput(self) -> float:
        """Tokens processed a second, of all users."""
        return self.tokens / self.total

    @property
    def per_user(self) -> float:
        """Tokens processed a second, of one user (the mean)."""
        return self.throughput / self.texts


def step_time(
    model: ModelConfig | PublishedModel,
    card: Limits,
    tokens: int | Iterable[tuple[int, int]],
    users: int = 1,
    *,
    new_tokens: int = 1,
    logits: int | None = 1,
    weight_bits: float = 16,
    row_bits: float = 16,
    overlap: bool = False,
    bandwidth_reached: float = 1.0,
    compute_reached: float = 1.0,
    launch: float = 0.0,
    cards: int = 1,
    collective: float = 0.0,
) -> StepSeconds:
    """Return max(rows, attention) + max(weights, products) + launch + collectives, in seconds.

    Left out: the embedding, activations, scales of narrow formats, and their faster arithmetic. Tokens choose
    experts at random.

    Args:
        tokens: in the cache of each user; or pairs (in the cache, new), one for each of several texts.
        users: how many of each text.
        new_tokens: 1 in a decode step, k + 1 in a verification, in a prefill those of the prompt.
        logits: new tokens of each text that meet the LM head; None for all, as in a verification.
        overlap: rows are read while matrices multiply: max(rows + weights, attention + products).
        bandwidth_reached, compute_reached: shares of the card's; 1 gives the lower bound.
        launch, collective: seconds of launch overhead in all, and of a sum over the cards, two a layer.
        cards: that share each layer (tensor parallel): weights, operations and KV heads are divided among
            them. More cards than KV heads read copies of a head, and of a latent (MLA) each reads all.

    Raises:
        ValueError: one of these out of range, or no text.
    """
    check_counts(users=users, new_tokens=new_tokens, logits=1 if logits is None else logits, cards=cards)
    check_between(0, math.inf, weight_bits=weight_bits, row_bits=row_bits)
    check_between(0, 1, bandwidth_reached=bandwidth_reached, compute_reached=compute_reached)
    check_between(-1e-9, math.inf, launch=launch, collective=collective)
    texts = [*tokens] if isinstance(tokens, Iterable) else [(tokens, new_tokens)]
    check_texts(texts)
    n_rows, n_weights, attention, products = work_of(model, texts, users, logits, cards)
    bandwidth = cards * bandwidth_reached * card.bytes_per_second
    compute = cards * compute_reached * card.flops_per_second
    rows, weights = n_rows * row_bits / 8 / bandwidth, n_weights * weight_bits / 8 / bandwidth
    collectives = 2 * model.n_layers * collective if cards > 1 else 0.0
    terms = rows, weights, attention / compute, products / compute, launch, collectives
    return StepSeconds(*terms, overlap, users * len(texts), users * sum(new for _, new in texts))


def work_of(
    model: ModelConfig | PublishedModel,
    texts: Sequence[tuple[int, int]],
    users: int,
    logits: int | None,
    cards: int = 1,
) -> tuple[float, float, float, float]:
    """Return the numbers of rows and of weights to move, and operations: of attention, and of products.

    They are those of all cards together.
    """
    of_text, attention, new = rows_and_attention(model, cards), 0, 0
    rows = 0.0
    for text in texts:
        its_rows, its_attention = of_text(*text)
        rows, attention, new = rows + its_rows, attention + its_attention, new + text[1]
    new *= users
    heads = new if logits is None else users * len(texts) * logits
    table, used = model.vocab_size * model.hidden_size, numbers_used(model)
    products = 2 * (new * (used - table) + heads * table)
    return users * rows, used + numbers_of_others(model, new), users * attention, products


@cache
def rows_and_attention(
    model: ModelConfig | PublishedModel, cards: int
) -> Callable[[int, int], tuple[float, int]]:
    """Return a function of a text (tokens before, and new): numbers in its rows, operations of attention.

    Both depend on the model and the number of cards alone, and are remembered. The function raises ValueError
    unless tokens are whole numbers, those before 0 or more.
    """
    kinds = Counter(layers_of(model)).items()

    @lru_cache(2**14)
    def of_text(before: int, new: int) -> tuple[float, int]:
        check_whole("tokens", before, minimum=0)
        check_whole("new tokens", new)
        rows = sum(n * one.copies(cards) * one.row * (one.rows(before) + one.rows(new)) for one, n in kinds)
        return rows, sum(
            n * pairs_of(one, before, new) * operations_of(one, model.n_heads) for one, n in kinds
        )

    return of_text


def operations_of(layer: Kind, n_heads: int) -> int:
    """Return the operations of a query-key pair in all heads; of a state, those of a token.

    A score and a share of the context take two for each number: of a latent's row, absorbed as in decode. A
    state is updated and read.
    """
    if isinstance(layer, State):
        return 4 * layer.numbers
    if isinstance(layer, Latent):
        return 2 * n_heads * (layer.row + layer.rank)
    assert isinstance(layer, Full)
    return 2 * n_heads * (layer.k_dim + layer.v_dim)


def pairs_of(layer: Kind, before: int, new: int) -> int:
    """Return the pairs of a new query and a key that it may see, of one head of a layer."""
    most = layer.rows(before + new)
    growing = max(0, min(new, most - before))  # queries that see one more than the one before
    return growing * before + growing * (growing + 1) // 2 + (new - growing) * most


def numbers_used(model: ModelConfig | PublishedModel) -> int:
    """Return the numbers in the weights that one token meets: all but an embedding that is looked up."""
    table = model.vocab_size * model.hidden_size
    return getattr(model, "n_active", None) or model.n_parameters - (not model.tied) * table


def numbers_of_others(model: ModelConfig | PublishedModel, tokens: int) -> float:
    """Return the numbers in experts that a pass reads beyond one token's, if each token chose at random."""
    if not isinstance(model, PublishedModel) or model.experts is None or model.n_active is None:
        return 0
    n_experts, chosen = model.experts
    table = model.vocab_size * model.hidden_size
    each = (model.n_parameters - (not model.tied) * table - model.n_active) / (n_experts - chosen)
    return each * (experts_read(n_experts, chosen, tokens) - chosen)


def check_texts(texts: Sequence[tuple[int, int]]) -> None:
    """Raise ValueError if there is no pair; what is in a pair is checked where its work is counted."""
    if not texts:
        raise ValueError("tokens holds no pair; expected one (in the cache, new) for each text of the step")


def check_counts(**counts: int) -> None:
    """Raise ValueError unless each is a whole number over 0."""
    for name, count in counts.items():
        check_whole(name, count)


def check_between(over: float, most: float, **numbers: float) -> None:
    """Raise ValueError unless each is a finite number over the one and not over the other."""
    for name, x in numbers.items():
        if not is_number(x) or not over < x <= most:
            raise ValueError(f"{name} is {x!r}; expected a finite number, over {over:g} and at most {most:g}")
