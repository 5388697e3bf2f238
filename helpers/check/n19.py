"""Exercises of notebook 19, two machines: `from helpers.check import n19 as check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise


def found(scores: list[float]) -> tuple[Tensor, Tensor]:
    """Return the contexts of two heads over rows of these scores, and the logs of their sums.

    The second head's scores are the first one's from the last on, at half their size.
    """
    s = torch.tensor([scores, [score / 2 for score in scores[::-1]]], dtype=torch.float64)
    rows = torch.tensor([[10.0, 1], [20, 2], [1, 3], [5, 4]], dtype=torch.float64)[: len(scores)]
    return s.softmax(-1) @ rows, s.logsumexp(-1)


def merge_case(label: str, one: list[float], two: list[float], trap: str = "") -> Case:
    """Return two parts of the rows, by their scores."""
    return Case((*found(one), *found(two)), f"merge for {label}", trap)


def weighing(weights: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    """Return a `merge` with such weights, from both lse."""
    return lambda o1, a, o2, b: sum(w[:, None] * o for w, o in zip(weights(a, b), (o1, o2), strict=True))


OVERFLOW = "e to the power of 1,000 is infinite: take the larger lse off both first, as softmax does."
merge = Exercise(
    name="merge",
    todo="let merge return the contexts over the rows of both, (H, D).",
    cases=[
        merge_case("2 and 2 rows", [1.0, 3.0], [2.0, 0.0]),
        merge_case("3 rows and none", [0.5, 1.0, 2.0], [], "lse -inf is a weight of 0."),
        merge_case("1 row and 4", [0.5], [1.0, 1.0, 1.0, 1.0]),
        merge_case("negative scores", [-4.0, -2.0, -3.0], [-5.0, -1.0]),
        merge_case("scores around 1,000", [1000.0, 1001.0], [1002.0], OVERFLOW),
    ],
    right=weighing(lambda a, b: torch.stack([a, b]).softmax(0)),
    wrong=[
        "averaged: the part with the larger scores counts for more.",
        weighing(lambda a, b: (torch.full_like(a, 0.5), torch.full_like(b, 0.5))),
        "lse is a logarithm: the weights are its exponentials.",
        weighing(lambda a, b: (a / (a + b), b / (a + b))),
        "the weights do not sum to 1: divide by the sum of both.",
        weighing(lambda a, b: (a.exp(), b.exp())),
        "the weights are the wrong way round.",
        weighing(lambda a, b: torch.stack([b, a]).softmax(0)),
    ],
    success="the context over all rows, as if they had lain together.",
)
