"""Exercises of notebook 09, prefill and decode for real: `from helpers.check import n09 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.result import is_tensor, show

N_LAYERS, B, HKV, D = 3, 2, 4, 5


def run_append(function: Any, layer: int, length: int, T: int, max_len: int) -> dict[str, Any]:
    """Append T rows behind `length` others in one layer of a cache that is full of older ones."""
    generator = torch.Generator().manual_seed(1)
    buffers, (k, v) = (
        torch.randn(2, *shape, D, generator=generator) for shape in [(N_LAYERS, B, HKV, max_len), (B, HKV, T)]
    )
    before, fits = buffers.clone(), length + T <= max_len
    cache = SimpleNamespace(k=buffers[0], v=buffers[1], length=length, max_len=max_len)  # (L, B, Hkv, S, D)
    try:
        value, raised = function(cache, layer, k.clone(), v.clone()), "nothing"
    except Exception as error:
        if fits:
            raise
        value, raised = (), "ValueError" if isinstance(error, ValueError) else type(error).__name__
    seen = {"raises": raised, "leaves cache.length at": cache.length}
    seen["changes"] = rows_changed(before, buffers)
    if fits:
        parts = value if isinstance(value, list | tuple) else ()
        starts = [part.data_ptr() for part in parts if is_tensor(part)]
        views = starts == [buffer.data_ptr() for buffer in buffers[:, layer]]
        seen |= {"gives": value, "gives rows that are": "views" if views else "copies, or out of their order"}
    return seen


def rows_changed(before: Tensor, now: Tensor) -> str:
    """Say which rows of cache.k and cache.v (2, L, B, Hkv, max_len, D) changed."""
    changed = (now != before).any(dim=-1).any(dim=3).any(dim=2)  # (2, L, max_len)
    told = [
        f"row{'s' * (int(rows.sum()) > 1)} {show(rows.nonzero().flatten().tolist())} of cache.{name}[{layer}]"
        for name, buffer in zip("kv", changed, strict=True)
        for layer, rows in enumerate(buffer)
        if rows.any()
    ]
    return ", ".join(told) or "no row"


def appending(
    start: int | None = None,
    spare: float = 0,
    counts_in: Sequence[int] = (),
    rows: Callable[[int, int], slice] = lambda length, S: slice(S),
) -> Callable[..., tuple[Tensor, ...]]:
    """Return an `append`: where it writes, rows kept spare, layers that count cache.length up, rows given."""

    def append(cache: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        length, T = cache.length, k.shape[2]
        if length + T > cache.max_len - spare:
            raise ValueError("too many rows")
        first = length if start is None else start
        for buffer, new in ((cache.k, k), (cache.v, v)):
            buffer[layer, :, :, first : first + T] = new
        cache.length += T * (layer in counts_in)
        return tuple(buffer[layer, :, :, rows(length, length + T)] for buffer in (cache.k, cache.v))

    return append


append = Exercise(
    name="append",
    todo="let append write k and v into the cache and return views of all rows so far.",
    cases=[
        Case((at, n, T, room), f"append of {T} row{'s' * (T > 1)} to {n} of {room}, layer {at},")
        for n, T, room in [(3, 1, 6), (0, 3, 6), (4, 2, 6), (6, 1, 6), (5, 3, 6), (3, 3, 5)]
        for at in range(N_LAYERS)
    ],
    run=run_append,
    right=appending(),
    wrong=[
        "counted up here; whoever runs the model counts, once, after the last layer.",
        *[appending(counts_in=layers) for layers in (range(N_LAYERS), [0], [N_LAYERS - 1])],
        "the whole buffer: rows that nobody has written yet would be attended to.",
        appending(rows=lambda length, S: slice(None)),
        "positions restarted at 0: new rows begin at cache.length.",
        appending(start=0),
        "the new rows alone: attention needs the stored ones too.",
        appending(rows=lambda length, S: slice(length, S)),
        "the room is not checked: compare with cache.max_len first.",
        appending(spare=-np.inf),
        "exactly full is allowed: only more than max_len rows are too many.",
        appending(spare=1),
    ],
    said="3 + 1 + 2 rows fill the 6 of each layer exactly; more are refused before anything is written.",
    tell=lambda got, expected: "gives other rows than those stored so far and the new ones behind them",
)


def margin(logits: Tensor) -> Tensor:
    """Return by how much the best logit of each row leads the second."""
    return -logits.topk(2).values.diff(dim=-1).squeeze(-1)


def largest(a: Tensor, b: Tensor) -> Tensor:
    """Return the largest difference, NaN if there is one."""
    return (a - b).abs().max()


def differ_cases() -> list[Case]:
    """Return logits with margins around once, twice and four times the largest difference."""
    rows = [
        [1.0, 2.5, -3.0, 2.35, 0.0, 0.4],  # margin 0.15: between once and twice
        [4.0, 1.0, 3.0, -2.0, 0.5, 1.5],  # 1.0: safe
        [0.2, 0.3, 5.0, 1.0, 4.94, 0.0],  # 0.06: under once
        [-1.0, -0.65, -4.0, -0.4, -2.0, -3.0],  # 0.25: between twice and four times
        [2.0, 0.1, 1.84, 0.3, 0.4, 0.5],  # 0.16: between once and twice
    ]
    a = torch.tensor(rows)
    moved, small = torch.zeros_like(a), torch.zeros_like(a)  # a - moved says another word in row 2
    moved[1, 5], moved[4, 0], moved[0, 2], moved[2, 4] = 0.1, 0.1, 0.02, -0.07
    moved[3, 1], moved[3, 3] = -0.07, 0.06  # the margin of row 3 is 0.12 in a - moved
    small[3, 2] = 0.1  # neither the best nor the second
    exact = torch.tensor([[0.0, 2.0, 1.5, 1.0], [3.0, 0.0, 1.0, 2.0], [1.0, 1.25, 0.0, 0.0]])
    pairs = [(a, a - moved), (a, a + moved), (a, a - small), (exact, exact - 0.25)]
    told = "may_differ on margins {} and a largest difference of {:.2g}"
    return [Case((a, b), told.format(show(margin(a).tolist()), largest(a, b))) for a, b in pairs]


may_differ = Exercise(
    name="may_differ",
    todo="let may_differ return a bool for each token.",
    cases=differ_cases(),
    right=lambda a, b: (margin(a) <= 2 * largest(a, b)).numpy(),
    wrong=[
        "twice: the best may fall by it, the second rise by it.",
        lambda a, b: margin(a) <= largest(a, b),
        "that is where the two differ now, not where they may.",
        lambda a, b: a.argmax(-1) != b.argmax(-1),
        "the other way round: a small margin may flip.",
        lambda a, b: margin(a) > 2 * largest(a, b),
        "the largest difference of each token was taken; the largest of all may come at any token.",
        lambda a, b: margin(a) <= 2 * (a - b).abs().amax(dim=-1),
        "differences without their sign: abs() before max(), as a logit may also fall.",
        lambda a, b: margin(a) <= 2 * (a - b).max(),
        lambda a, b: margin(a) <= 2 * (b - a).max(),
        "a margin of exactly twice the difference may be used up: the two are then level. <=, not <.",
        lambda a, b: margin(a) < 2 * largest(a, b),
    ],
    said="3 of 5 tokens may differ, where the margin is at most twice 0.1; so may one that is exactly twice.",
    tell=lambda got, right: f"gives {got[t := (got != right).argmax()]} for token {t}; expected {right[t]}",
)


def line(contexts: Sequence[float], milliseconds: Sequence[float], context: float) -> float:
    """Fit a line, and read it at `context`."""
    return float(np.polyval(np.polyfit(contexts, milliseconds, 1), context))


predict_tpot = Exercise(
    name="predict_tpot",
    todo="let predict_tpot fit a line to the measured times and return the one at `context`.",
    cases=[
        ([128, 256, 512, 1024], [3.4, 3.7, 4.9, 6.8], 2048),
        ([100, 200, 400], [21.5, 21.0, 23.5], 3000),
        ([64, 128, 192, 256, 512], [1.5, 1.9, 1.7, 2.4, 3.1], 1024),
        ([50, 500], [8.0, 9.8], 5000),
    ],
    right=line,
    wrong=[
        "proportional: the line does not go through 0. A step reads the weights whatever the context is.",
        lambda x, y, context: y[-1] / x[-1] * context,
        lambda x, y, context: y[0] / x[0] * context,
        lambda x, y, context: np.mean(np.divide(y, x)) * context,
        lambda x, y, context: np.dot(x, y) / np.dot(x, x) * context,
        "the last time was repeated; a longer context has more rows to read.",
        lambda x, y, context: y[-1],
        "a line through two of the points: each is off a little; least squares weighs all of them.",
        lambda x, y, context: line([x[0], x[-1]], [y[0], y[-1]], context),
        lambda x, y, context: line(x[-2:], y[-2:], context),
        lambda x, y, context: line(x[:2], y[:2], context),
        "the fixed part is left out: slope · context is only what the rows cost.",
        lambda x, y, context: line(x, y, context) - line(x, y, 0),
        "np.polyfit gives the slope first, then the value at 0.",
        lambda x, y, context: np.polyfit(x, y, 1) @ [1, context],
    ],
    said="10.79 ms at 2048, less than twice the 6.8 ms at 1024: the weights are read in both.",
    shown=lambda milliseconds: f"{show(milliseconds)} ms",
)
