"""Exercises of notebook 09, the pause and the drip: `from helpers.check import n09 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.check.result import is_tensor, show

N_LAYERS, B, HKV, D = 3, 2, 4, 5
Clock = Callable[[int], float]  # from tokens to milliseconds


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
        appending(spare=-math.inf),
        "exactly full is allowed: only more than max_len rows are too many.",
        appending(spare=1),
    ],
    said="3 + 1 + 2 rows fill the 6 of each layer exactly; more are refused before anything is written.",
    tell=lambda got, expected: "gives other rows than those stored so far and the new ones behind them",
)


def largest(a: Tensor, b: Tensor) -> Tensor:
    """Return the largest difference, NaN if there is one."""
    return (a - b).abs().max()


def times(
    steps: int = -1,
    first: int = 0,
    again: int = 0,
    one_pause: bool = False,
    one_step: bool = False,
) -> Callable[..., tuple[float, float]]:
    """Return a `reply_ms`: steps and pauses over n, rows over P at the first step, what never changes."""

    def reply_ms(pause: Clock, step: Clock, P: int, n: int) -> tuple[float, float]:
        behind = [P if one_step else P + first + i for i in range(n + steps)]
        lengths = [P if one_pause else P + i for i in range(n + again)]
        return pause(P) + sum(map(step, behind)), sum(map(pause, lengths))

    return reply_ms


reply_ms = Exercise(
    name="reply_ms",
    todo="let reply_ms return two times, with the rows kept and with nothing kept.",
    cases=[
        Case((lambda T: 1 + T * T / 10, lambda t: 1 + t / 8, P, n), f"reply_ms for P = {P}, n = {n}")
        for P, n in [(4, 8), (10, 3), (7, 1), (2, 2)]
    ],
    right=times(),
    wrong=[
        "the first word comes out of the pause, so n words take n - 1 steps.",
        times(steps=0),
        "the pause is not a step: with the rows kept there is one pause, and then n - 1 steps.",
        lambda pause, step, P, n: (sum(step(P + i) for i in range(n)), times()(pause, step, P, n)[1]),
        "with nothing kept, the words that have come run again too: each pause is a token longer.",
        times(one_pause=True),
        "each step leaves a row: the next one stands behind one more.",
        times(one_step=True),
        "the first step stands behind the P rows of the prompt; its own row comes with it.",
        times(first=1),
        "the last word is not run, with nothing kept either: n words take n passes.",
        times(again=1),
    ],
    said="15.7 and 57.2 ms for 8 words behind 4 tokens; a single word is one pause either way.",
)


def row_nbytes(guess: Any, config: Any) -> Guess:
    """Compare a guess with the bytes that one token leaves in all layers, in float32."""
    numbers = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    why = f"2 (a key and a value) · 4 layers · 2 KV heads · 32 numbers = {numbers}, of 4 bytes each."
    return Guess(guess, 4 * numbers, why)


def copied(guess: Any, growing: Sequence[int]) -> Guess:
    """Compare a guess with the rows that a growing cache wrote, counted in each step."""
    why = f"{growing[0]} + {growing[1]} + … + {growing[-1]}: each step copies all the rows before it."
    return Guess(guess, sum(growing), why)
