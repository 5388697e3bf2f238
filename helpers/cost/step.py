"""One equation for the time of a step: a decode step, a verification of drafts, or a prefill."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.arguments import check_whole, is_number
from helpers.cost.bytes import Kind, experts_read, layers_of
from helpers.cost.models import PublishedModel
from helpers.cost.roofline import Limits

if TYPE_CHECKING:
    from helpers.model.config import ModelConfig


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step on a card, by term: `rows` and `weights` at its bandwidth, `attention` (scores and
    contexts) and `products` (with the weights) at its compute, and what comes on top.

    Attributes:
        total: seconds of the step.
        bound: "memory-bound" or "compute-bound", by the terms that `total` counts.
        per_user, throughput: tokens run a second, of one user (the mean) and of all.
    """

    rows: float
    weights: float
    attention: float
    products: float
    launch: float
    collectives: float
    total: float
    bound: str
    per_user: float
    throughput: float


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
) -> StepTime:
    """Return max(rows, attention) + max(weights, products) + launch + collectives, in seconds.

    In a decode step attention computes in less time than its rows take, so the first term is the rows. Left
    out: the embedding, activations, scales of narrow formats, copies of KV heads where there are more cards
    than KV heads, and narrow formats' faster arithmetic. Experts are chosen at random.

    Args:
        card: one card, published or measured.
        tokens: those of each user in the cache; or pairs (in the cache, new), one for each of several texts.
        users: how many of each text.
        new_tokens: 1 in a decode step, k + 1 in a verification, in a prefill those of the prompt.
        logits: new tokens of each text that meet the LM head; None for all, as in a verification.
        overlap: rows are read while matrices multiply: max(rows + weights, attention + products).
        bandwidth_reached, compute_reached: shares of the card's; 1 gives the lower bound.
        launch: seconds of launch overhead of the whole step.
        cards: that share each layer (tensor parallel); `collective`: seconds of a sum over them, two a layer.

    Raises:
        ValueError: a count, a share, bits or seconds out of range.
    """
    check_counts(users=users, new_tokens=new_tokens, logits=logits or 1, cards=cards)
    check_between(0, math.inf, weight_bits=weight_bits, row_bits=row_bits)
    check_between(0, 1, bandwidth_reached=bandwidth_reached, compute_reached=compute_reached)
    check_between(-1e-9, math.inf, launch=launch, collective=collective)
    texts = [*tokens] if isinstance(tokens, Iterable) else [(check_whole("tokens", tokens, 0), new_tokens)]
    bandwidth = cards * bandwidth_reached * card.bytes_per_second
    compute = cards * compute_reached * card.flops_per_second
    kinds, new = Counter(layers_of(model)), users * sum(new for _, new in texts)
    heads = new if logits is None else users * len(texts) * logits
    table, used = model.vocab_size * model.hidden_size, numbers_used(model)
    kept = sum(n * one.row * (one.rows(a) + one.rows(b)) for one, n in kinds.items() for a, b in texts)
    pairs = sum(n * pairs_of(one, *text) for one, n in kinds.items() for text in texts)
    rows = users * kept * row_bits / 8 / bandwidth
    weights = (used + numbers_of_others(model, new)) * weight_bits / 8 / bandwidth
    attention = 4 * users * pairs * model.n_heads * model.head_dim / compute
    products = 2 * (new * (used - table) + heads * table) / compute
    collectives = 2 * model.n_layers * collective if cards > 1 else 0.0

    parts = [(rows + weights, attention + products)] if overlap else [(rows, attention), (weights, products)]
    memory = sum(read for read, computed in parts if read > computed)
    computing = sum(computed for read, computed in parts if read <= computed)
    total = memory + computing + launch + collectives
    bound = "memory-bound" if memory > computing else "compute-bound"
    rates = new / total / (users * len(texts)), new / total
    return StepTime(rows, weights, attention, products, launch, collectives, total, bound, *rates)


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
    each = (model.n_read - model.n_active) / (n_experts - chosen)
    return each * (experts_read(n_experts, chosen, tokens) - chosen)


def check_counts(**counts: int) -> None:
    """Raise ValueError unless each is a whole number over 0."""
    for name, count in counts.items():
        check_whole(name, count)


def check_between(over: float, most: float, **numbers: float) -> None:
    """Raise ValueError unless each is a finite number over the one and not over the other."""
    for name, x in numbers.items():
        if not is_number(x) or not over < x <= most:
            raise ValueError(f"{name} is {x!r}; expected a finite number, over {over:g} and at most {most:g}")
