"""Exercises of notebook 14, fewer rows and fewer bits: `from helpers.check import n14 as check`."""

from __future__ import annotations

from collections.abc import Callable

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


def best(rows: Tensor, bits: int, better: Callable[..., int] = min) -> int:
    """Return the axis along which numbers should share a scale."""

    def of(dim: int) -> float:
        return float((quantized.dequantize(*quantized.quantize(rows, bits, dim)) - rows).abs().max())

    return better((-1, -2), key=of)


ALIKE = torch.tensor([[0.0, 1.0, 0.5, 0.2], [0.9, 0.1, 0.4, 1.0], [0.3, 0.8, 0.0, 0.6]])
LARGE_CHANNEL, LARGE_TOKEN = ALIKE + torch.tensor([0.0, 50, 0, 0]), ALIKE + torch.tensor([[0.0], [50], [0]])
best_dim = Exercise(
    name="best_dim",
    todo="let best_dim return -1 or -2.",
    cases=[
        Case((LARGE_CHANNEL, 2), "best_dim of three keys, one channel large in every token, 2 bits"),
        Case((LARGE_TOKEN, 2), "best_dim of three keys, one large in every channel, 2 bits"),
        Case((LARGE_CHANNEL, 8), "best_dim of three keys, one channel large in every token, 8 bits"),
        Case((-LARGE_TOKEN, 1), "best_dim of three keys, one large and negative in every channel, 1 bit"),
    ],
    right=best,
    wrong=[
        "always by token: a channel that is large in every token then widens the scale of each.",
        lambda rows, bits: -1,
        "always by channel: a token that is large in every channel then widens the scale of each.",
        lambda rows, bits: -2,
        "that is where the largest error is larger.",
        lambda rows, bits: best(rows, bits, better=max),
        "whether the axis is one, not which: give -1 for by token, -2 for by channel.",
        lambda rows, bits: 1 + best(rows, bits) // -2,
    ],
    said="-2 where a channel stands out in every token, -1 where a token does in every channel.",
)
