"""Exercises of notebook 14, smaller caches: `from helpers.check import n14 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.model.cache import quantized


def kept(length: int, window: int, sinks: int) -> list[int]:
    """Return the positions that are sinks or among the newest."""
    return [at for at in range(length) if at < sinks or at >= length - window]


kept_rows = Exercise(
    name="kept_rows",
    todo="let kept_rows return the positions of the rows that stay, as a list.",
    cases=[(10, 4, 0), (10, 4, 2), (3, 4, 0), (5, 4, 2), (1, 4, 2), (100, 1, 1)],
    right=kept,
    wrong=[
        "counted anew from 0: a row keeps the position at which its key was turned.",
        lambda *args: [*range(len(kept(*args)))],
        "the sinks are counted inside the window: they come on top of it.",
        lambda length, window, sinks: kept(length, max(window - sinks, 0), sinks),
        lambda length, window, sinks: kept(length, window - sinks, sinks),
        "off by one: the newest `window` rows are those from length - window on.",
        lambda length, window, sinks: kept(length, window - 1, sinks),
        lambda length, window, sinks: kept(length, window + 1, sinks),
        "a position twice: where the text is short, a sink is in the window too.",
        lambda length, window, sinks: [*range(sinks), *kept(length, window, 0)],
        lambda length, window, sinks: [*range(min(sinks, length)), *kept(length, window, 0)],
        "positions that are not there: a text shorter than the window keeps every row, from 0.",
        lambda length, window, sinks: [*range(length - window, length)],
        lambda length, window, sinks: sorted({*range(sinks), *range(length - window, length)}),
        lambda length, window, sinks: sorted({*range(sinks), *kept(length, window, 0)}),
        "the sinks are left out.",
        lambda length, window, sinks: kept(length, window, 0),
    ],
    said="6 to 9 of ten rows with a window of 4, and 0 and 1 too with two sinks.",
)


def rounding(
    levels: Callable[[int], int] = lambda bits: 2**bits - 1,
    rounded: Callable[[Tensor], Tensor] = torch.round,
    before: Callable[[Tensor], Tensor] = lambda x: x,
    axis: Callable[[int], Any] = lambda dim: dim,
) -> Callable[..., tuple[Tensor, ...]]:
    """Return a `quantize`: steps from end to end, what makes levels whole, what comes first, the axis."""

    def quantize(x: Tensor, bits: int, dim: int) -> tuple[Tensor, ...]:
        low, high = (edge(x, axis(dim), keepdim=True) for edge in (torch.amin, torch.amax))
        step = (high - low) / levels(bits)
        return rounded((before(x) - low) / step.where(step > 0, 1)), low, step

    return quantize


def comes_back(quantize: Callable[[Tensor, int, int], Any], x: Tensor, bits: int, dim: int) -> dict[str, Any]:
    """Return the levels, as plain numbers, and the numbers that they stand for."""
    levels, low, step = quantize(x, bits, dim)
    back = quantized.dequantize(levels, low, step)
    return {"gives levels": levels.float(), "gives numbers that come back as": back}


NO_STEP = "where all numbers are equal the step is 0: do not divide by it."
ROWS = torch.tensor([[0.0, 0.9, 2.1, 3.0], [-1.0, -1.0, 5.0, 2.5], [10.0, 30.0, 20.0, 14.0]])
EQUAL = torch.tensor([[7.0, 7.0, 7.0], [1.0, 2.0, 9.0]])
quantize = Exercise(
    name="quantize",
    todo="let quantize return levels, smallest numbers and steps.",
    cases=[
        Case((ROWS, 2, -1), "quantize of three rows, 2 bits, by token (dim=-1)"),
        Case((ROWS, 2, -2), "quantize of three rows, 2 bits, by channel (dim=-2)"),
        Case((ROWS, 8, -1), "quantize of three rows, 8 bits, by token (dim=-1)"),
        Case((ROWS, 1, -1), "quantize of three rows, 1 bit, by token (dim=-1)"),
        Case((EQUAL, 4, -1), "quantize of a row of equal numbers", NO_STEP),
    ],
    right=quantized.quantize,
    run=comes_back,
    wrong=[
        "one scale for all: each row, or each column, has its own smallest number and step.",
        rounding(axis=lambda dim: (-2, -1)),
        "dim is not used: by token it is -1, by channel -2.",
        rounding(axis=lambda dim: -1),
        "2 ** bits levels have 2 ** bits - 1 steps between them.",
        rounding(levels=lambda bits: 2**bits),
        rounding(levels=lambda bits: 2**bits, rounded=torch.floor),
        "rounded before the smallest number was taken off.",
        rounding(before=torch.round),
        "a level is the nearest whole number: neither cut off nor left a fraction.",
        rounding(rounded=torch.floor),
        rounding(rounded=lambda x: x),
        "the smallest number is not taken off: it has level 0.",
        lambda x, bits, dim: rounding(before=lambda x: x + x.amin(dim, keepdim=True))(x, bits, dim),
    ],
    said="with 2 bits the row 0, 0.9, 2.1, 3 has the levels 0 to 3, and comes back as 0, 1, 2, 3.",
)


def best(
    budget: float,
    variants: Sequence[tuple[str, float, float, float]],
    order: Callable[..., Any] = lambda nbytes, signed, loss: (-signed, loss, nbytes),
) -> str | None:
    """Return the name of the first that fits, in an order."""
    found = sorted([one for one in variants if one[1] <= budget], key=lambda one: order(*one[1:]))
    return found[0][0] if found else None


CANDIDATES = [
    *[("A", 4000, 18, 0.7), ("B", 2048, 20, 0.71), ("C", 256, 0, 1.49)],
    *[("D", 320, 16, 0.9), ("E", 704, 20, 1.26), ("F", 800, 20, 0.71)],
]
best_under = Exercise(
    name="best_under",
    todo="let best_under return a name, or None.",
    cases=[
        *[Case((budget, CANDIDATES), f"best_under({budget:,}, …)") for budget in (4096, 800, 750, 320, 300)],
        Case((100, CANDIDATES), "best_under(100, …)", "where none fits, give None."),
    ],
    right=best,
    wrong=[
        "the budget is left out.",
        lambda budget, variants: best(math.inf, variants),
        "what takes the whole budget fits too.",
        lambda budget, variants: best(budget - 1, variants),
        "of those that sign equally many, take the one with the lowest loss.",
        partial(best, order=lambda nbytes, signed, loss: -signed),
        partial(best, order=lambda nbytes, signed, loss: (-signed, nbytes)),
        partial(best, order=lambda nbytes, signed, loss: (-signed, -loss)),
        "of those that sign equally many at the same loss, take the one with the fewest bytes.",
        partial(best, order=lambda nbytes, signed, loss: (-signed, loss)),
        partial(best, order=lambda nbytes, signed, loss: (-signed, loss, -nbytes)),
        "the smallest, the largest or the one with the lowest loss; that which signs most is asked for.",
        partial(best, order=lambda nbytes, signed, loss: nbytes),
        partial(best, order=lambda nbytes, signed, loss: -nbytes),
        partial(best, order=lambda nbytes, signed, loss: loss),
        "the whole line; its name is asked for.",
        lambda *args: next((v for v in CANDIDATES if v[0] == best(*args)), None),
    ],
    said="F under 4,096 bytes and under 800, E under 750, D under 320, C under 300, none under 100.",
)


def scores(q: Tensor, to_k: Tensor, latents: Tensor, width: float = 0) -> Tensor:
    """Return the scores (T, S), divided by the square root of a width, that of a key unless told."""
    return q @ to_k @ latents.T * (width or len(to_k)) ** -0.5


def latent_case(T: int, D: int, rank: int, S: int) -> Case:
    """Return queries, the matrix that makes keys of latents, and latents."""
    drawn = torch.Generator().manual_seed(D)
    args = tuple(torch.randn(shape, generator=drawn) for shape in ((T, D), (D, rank), (S, rank)))
    return Case(args, f"absorb of {T} queries of {D} numbers, {S} latents of {rank}")


absorb = Exercise(
    name="absorb",
    todo="let absorb return scores, a line for each query and a column for each latent.",
    cases=[latent_case(1, 8, 3, 5), latent_case(4, 2, 6, 3), latent_case(3, 5, 5, 2)],
    right=scores,
    wrong=[
        "the scale stays that of the keys, 1 / √D, though the lists multiplied are rank numbers long.",
        lambda q, to_k, latents: scores(q, to_k, latents, width=to_k.shape[1]),
        "not scaled: 1 / √D is left out.",
        partial(scores, width=1),
        "the other way round: a line is a query, a column a latent.",
        lambda *args: scores(*args).T,
        "the matrix on its head: a key is to_k times a latent, so it comes back transposed.",
        lambda q, to_k, latents: q @ to_k.T @ latents.T * len(to_k) ** -0.5,
        "the weights, after the softmax; the scores are asked for.",
        lambda *args: scores(*args).softmax(-1),
    ],
    said="the same scores as with the keys made. In the absorbed form none is made.",
)
