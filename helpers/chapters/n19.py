"""What notebook 19, two machines, uses: published runs over several cards, a figure, its exercise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from helpers.chapters.n12 import LLAMA_2_70B
from helpers.check.exercise import Case, Exercise
from helpers.cost.models import CARDS, MODELS
from helpers.cost.step import step_time
from helpers.drawing.canvas import Picture, Sheet

# Tokens a second for one user in 16 bits, by how many A100s (limited to 330 W) share each layer:
# https://github.com/pytorch-labs/gpt-fast (README of 2024). Its tp.py leaves the LM head whole on each card.
SPEEDS = (
    (MODELS["Llama-2-7B"], {1: 104.9, 2: 168.84, 4: 254.02, 8: 328.43}),
    (MODELS["Llama-3.1-8B"], {1: 93.83, 2: 149.10, 4: 217.21, 8: 276.01}),
    (LLAMA_2_70B, {2: 21.32, 4: 38.01, 8: 62.50}),
)
BANDWIDTH = 1.7e12  # bytes a second that its authors reached at most


def over_cards(fixed: float, collective: float) -> dict[str, tuple[dict[str, tuple[float, float]], float]]:
    """Return the parts of a step by the equation, and the published milliseconds, by model and cards.

    Args:
        fixed: seconds beside the reading, on any number of cards, of 32 layers; of others in proportion.
        collective: seconds of an all-reduce.
    """
    card, bars = CARDS["A100"], {}
    reached = BANDWIDTH / card.bytes_per_second
    for model, speeds in SPEEDS:
        head = 2 * model.vocab_size * model.hidden_size / BANDWIDTH
        for n, speed in speeds.items():
            step = step_time(model, card, 100, bandwidth_reached=reached, cards=n, collective=collective)
            reading = step.rows + step.weights + head * (1 - 1 / n)
            seconds = reading, fixed * model.n_layers / 32, step.collectives
            ends = pairwise(1000 * end for end in accumulate(seconds, initial=0.0))
            parts = dict(zip(("reading", "fixed", "collectives"), ends, strict=True))
            bars[f"{model.name}, {n} card{'s' * (n > 1)}"] = parts, 1000 / speed
    return bars


def cut_mlp(n_in: int, inner: int) -> Picture:
    """Draw an MLP that two ranks share, from what goes in to the sum of what comes out.

    Args:
        n_in, inner: numbers of a token outside of it, and between its matrices.
    """
    half = inner // 2

    def draw(sheet: Sheet) -> None:
        wide, gap = min(240.0, (sheet.width - 48) / 2), 12.0
        steps = [("gate_proj, up_proj", f"{half} of {inner} out"), ("down_proj", f"{half} of {inner} in")]
        for y, text in ((8, f"{n_in} numbers, to both"), (262, f"all-reduce: {n_in} + {n_in}")):
            sheet.box(18, y, 2 * wide + gap, 30, edge="ink", line=1.4)
            sheet.note(18 + wide + gap / 2, y + 15, text, at="center", colour="ink")
        for rank, colour in enumerate(("query", "value")):
            x = 18 + rank * (wide + gap)
            middle = x + wide / 2
            sheet.arrow(middle, 40, middle, 58, "ink")
            for n, (matrix, size) in enumerate(steps):
                y = 60 + 102 * n
                sheet.box(x, y, wide, 76, fill=f"{colour} fill", edge=colour, line=1.4)
                sheet.note(middle, y + 16, f"rank {rank}", at="center", colour="ink", bold=True)
                sheet.note(middle, y + 38, matrix, at="center", colour="ink")
                sheet.note(middle, y + 58, size, at="center", colour="ink")
                sheet.arrow(middle, y + 78, middle, y + 100, "ink")

    alt = (
        f"{n_in} numbers go to both ranks. Each has the part of gate_proj and up_proj that {half} of {inner} "
        f"numbers come out of, and the part of down_proj that those go into. All-reduce: {n_in} + {n_in}."
    )
    return Picture(draw, alt)


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
