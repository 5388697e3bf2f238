"""Checkers of notebook 07, prefill and decode for real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.check import cases
from helpers.check.cases import Case, Mistakes, compare, with_reason
from helpers.check.part2.shared import alike, call, drawn, read_bools, read_number, read_tensor, say
from helpers.check.result import NotRightError, exercise, show

APPEND_TODO = "let append write k and v into the cache and return views of all rows so far."
N_LAYERS, B, HKV, D, MAX_LEN = 3, 2, 3, 4, 6
CHUNKS = (3, 1, 2)  # exactly full at the end
CUT_TO, CHUNKS_AFTER = 2, (1, 3)  # then cut back, and full again over what still stands there


@dataclass
class Buffers:
    """What the reader's `append` writes into.

    Attributes:
        k: keys, (L, B, Hkv, max_len, D); nothing but the first `length` rows has been stored.
        v: values, the same.
        length: rows stored in every layer; whoever runs the model counts it up after the last layer.
    """

    k: Tensor
    v: Tensor
    length: int = 0

    @property
    def max_len(self) -> int:
        """Rows that fit."""
        return self.k.shape[3]

    def __repr__(self) -> str:
        return f"cache({self.length} of {self.max_len} rows)"


def _new_buffers(max_len: int = MAX_LEN) -> Buffers:
    shape = (N_LAYERS, B, HKV, max_len, D)
    return Buffers(torch.zeros(shape), torch.zeros(shape))


def _rows(start: int, T: int, layer: int) -> tuple[Tensor, Tensor]:
    """Return the keys and values of T tokens from position `start` on, (B, Hkv, T, D); none like another."""
    k, v = drawn(10 + layer, 2, B, HKV, 2 * MAX_LEN, D)[:, :, :, start : start + T].unbind()
    return k.clone(), v.clone()


def _states(cache: Buffers) -> tuple[Tensor, Tensor]:
    return cache.k.clone(), cache.v.clone()


def _span(rows: Sequence[int]) -> str:
    """Write some rows, as a range where they are one."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    if list(rows) == list(range(rows[0], rows[0] + len(rows))):
        return f"rows {rows[0]} to {rows[-1]}"
    return f"rows {show(rows)}"


def _append_once(function: Any, cache: Buffers, layer: int, rows: tuple[Tensor, Tensor], label: str) -> Any:
    """Call the reader's append with new rows of this layer; keys and values must come out unchanged."""
    return call(function, Case(label, (cache, layer, *rows)), APPEND_TODO)


SHAPE_ERRORS = dict.fromkeys(
    ("The expanded size of the tensor", "number of sizes provided", "must match the size of tensor"),
    "the place is not of k's shape: T = k.shape[2] rows of cache.k[layer], along its axis of max_len.",
)
OWN_COUNT = f"cache.length says {CUT_TO} again: go on from there, not from a count of your own."


def _check_chunk(function: Any, cache: Buffers, layer: int, T: int, cut: bool) -> None:
    """Append one chunk in one layer, and raise unless buffers, counter and answer are right.

    Args:
        cut: the cache was full and has been cut back, so that old rows stand where the new ones go.
    """
    start, S = cache.length, cache.length + T
    label = (
        f"append{f' to a cache cut back to {CUT_TO} rows' * cut}, {_span(range(start, S))}, layer {layer},"
    )
    rows = _rows(start + MAX_LEN * cut, T, layer)  # others than those that stand there
    before, places = _states(cache), (cache.k.data_ptr(), cache.v.data_ptr())
    try:
        value = _append_once(function, cache, layer, rows, label)
    except NotRightError as stop:
        full = f"{S} rows fit into {MAX_LEN}: only more than max_len are too many."
        refused = "raises ValueError" in stop.message
        told = with_reason(stop, SHAPE_ERRORS).reason
        reason = full if refused and S == MAX_LEN else OWN_COUNT if refused and cut else told
        raise NotRightError(stop.message, reason) from None
    if cache.length != start:
        message = f"{label} leaves cache.length at {cache.length}; expected {start}."
        raise NotRightError(message, _advanced_reason(function) if cache.length > start else "")
    if (cache.k.data_ptr(), cache.v.data_ptr()) != places or cache.k.shape != before[0].shape:
        reason = "write into the rows that are laid out already; that is what they are for."
        raise NotRightError(f"{label} puts other tensors in place of cache.k or cache.v.", reason)
    for name, now, was, new in zip("kv", (cache.k, cache.v), before, rows, strict=True):
        wanted, added = was.clone(), was.clone()
        wanted[layer, :, :, start:S] = new
        added[layer, :, :, start:S] += new
        if alike(now, added) and not alike(now, wanted):
            reason = "added to what stood there, which is 0 only in a new cache: assign with =, not with +=."
            raise NotRightError(f"{label} adds {name} to cache.{name}; expected it in its place.", reason)
        if not alike(now, wanted):
            _raise_written(name, (now != was).nonzero(), layer, range(start, S), label)
    _check_returned(value, cache, layer, T, label)


def _advanced_reason(function: Any) -> str:
    """Say which layers count up cache.length, which is not for them to do."""
    advancing = []
    for layer in range(N_LAYERS):
        cache = _new_buffers()
        _append_once(function, cache, layer, _rows(0, 1, layer), "append")
        if cache.length:
            advancing.append(layer)
    if advancing == [N_LAYERS - 1]:
        return "advanced by the last layer: append only writes rows; whoever runs the model counts, after it."
    if advancing == [0]:
        return "advanced by layer 0: the others would write behind it. Count once, after the last layer."
    if len(advancing) == N_LAYERS:
        return "advanced in each layer: the next would write behind it. Count once, after the last layer."
    return ""


def _raise_written(name: str, changed: Tensor, layer: int, wanted: range, label: str) -> None:
    """Raise, and say which rows of cache.k or cache.v have changed instead of the wanted ones.

    Args:
        changed: places of the numbers that are not what they were, (n, 5).
    """
    layers, rows = sorted(set(changed[:, 0].tolist())), sorted(set(changed[:, 3].tolist()))
    expected = f"expected {_span(wanted)} of layer {layer}"
    if not rows:
        message = f"{label} leaves cache.{name} as it was; {expected} to change."
        reason = "a copy was written to, or nothing: assign into cache.k[layer] by a slice."
    elif (layers, rows) == ([layer], list(wanted)):
        message = f"{label} writes other numbers into cache.{name} than those of {name}."
        reason = "k goes into cache.k and v into cache.v, each row into its own place."
    else:
        some = f"layer{'s' * (len(layers) > 1)} {show(layers)}"
        message = f"{label} changes {_span(rows)} of {some} in cache.{name}; {expected}."
        reason = _written_reason(layers, rows, layer, wanted)
    raise NotRightError(message, reason)


def _written_reason(layers: list[int], rows: list[int], layer: int, wanted: range) -> str:
    """Say why other rows have changed than those that had to."""
    T = len(wanted)
    if layers != [layer]:
        return "each layer has rows of its own: write to cache.k[layer] and cache.v[layer]."
    if wanted[0] and rows == list(range(T)):
        return "positions restarted at 0: the first rows are overwritten. New rows begin at cache.length."
    if rows == [row + 1 for row in wanted]:
        return "one row too far: the first free row is cache.length, as rows count from 0."
    if rows == list(range(MAX_LEN - T, MAX_LEN)):
        return "written at the end of the buffer; the first free row is cache.length."
    return ""


def _check_returned(value: Any, cache: Buffers, layer: int, T: int, label: str) -> None:
    """Raise unless append returned views of the keys and values of all rows so far."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise NotRightError(f"{label} gives {say(value)}; expected keys and values.")
    S = cache.length + T
    hints = {
        (B, HKV, MAX_LEN, D): "the whole buffer: rows that nobody has written yet would be attended to.",
        (B, HKV, T, D): "the new rows alone: attention needs the stored ones too.",
        (B, HKV, cache.length, D): "the rows from before: the new ones are missing.",
        (N_LAYERS, B, HKV, S, D): "all layers; only this one is asked for.",
    }
    hints.pop((B, HKV, S, D), None)
    for name, part, buffer in zip(("keys", "values"), value, (cache.k, cache.v), strict=True):
        rows = read_tensor(part, label, (B, HKV, S, D), hints, name)
        if not alike(rows, buffer[layer, :, :, :S]):
            swapped = any(alike(rows, other[layer, :, :, :S]) for other in (cache.k, cache.v))
            reason = "keys and values are swapped: keys come first." if swapped else ""
            message = f"{label} gives {name} that are not {_span(range(S))} of cache.{name[0]}[{layer}]."
            raise NotRightError(message, reason)
        if cache.length and rows.data_ptr() != buffer[layer].data_ptr():  # at 0 it may be the new rows alone
            reason = "every row is copied again at each step; a slice of the buffer is a view: no copy."
            raise NotRightError(f"{label} gives {name} that are a copy; expected a view.", reason)


TOO_LATE = "compare S with cache.max_len before anything is written."
OVERFLOW_ERRORS = {
    "raises AssertionError": "python -O skips every assert, so it guards nothing: raise ValueError.",
    "The expanded size of the tensor": TOO_LATE,
    "is out of bounds for dimension": TOO_LATE,
    "must match the size of tensor": TOO_LATE,
}


def _check_overflow(function: Any, stored: int, T: int, max_len: int) -> None:
    """Raise unless append refuses T rows behind `stored` ones with a ValueError, and writes nothing."""
    cache = _new_buffers(max_len)
    for layer in range(N_LAYERS):
        k, v = _rows(0, stored, layer)
        cache.k[layer, :, :, :stored], cache.v[layer, :, :, :stored] = k, v
    cache.length, before = stored, _states(cache)
    label = f"append of {T} row{'s' * (T > 1)} to {stored} of {max_len}"
    try:
        _append_once(function, cache, 0, _rows(stored, T, 0), label)
    except NotRightError as stop:
        if "raises ValueError" not in stop.message:
            found = stop.message.removesuffix(".")
            raise NotRightError(
                f"{found}; expected a ValueError.",
                with_reason(NotRightError(stop.message), OVERFLOW_ERRORS).reason,
            ) from None
    else:
        lost = "a slice past the end is empty, so these rows are lost without a word: " * (stored == max_len)
        reason = f"{lost}check S against cache.max_len first, and raise ValueError."
        raise NotRightError(f"{label} raises nothing; expected a ValueError.", reason)
    if not (alike(cache.k, before[0]) and alike(cache.v, before[1])) or cache.length != stored:
        reason = "written before it was checked: after an error the cache has to be as it was."
        raise NotRightError(
            f"{label} raises ValueError and changes the cache; expected it as it was.", reason
        )


@exercise
def append(answer: Any) -> str:
    """07: `append(cache, layer, k, v)` writes k and v (B, Hkv, T, D) into the buffers of one layer.

    It returns views of all rows of that layer, and raises ValueError before writing if they do not fit.
    """
    cases.check_function(answer, APPEND_TODO)
    cache = _new_buffers()
    for start, chunks in ((0, CHUNKS), (CUT_TO, CHUNKS_AFTER)):
        cache.length = start
        for T in chunks:
            for layer in range(N_LAYERS):
                _check_chunk(answer, cache, layer, T, cut=start > 0)
            cache.length += T
    _check_overflow(answer, MAX_LEN, 1, MAX_LEN)
    _check_overflow(answer, MAX_LEN - 3, 3, MAX_LEN - 1)
    full = f"{' + '.join(map(str, CHUNKS))} rows fill the {MAX_LEN} of each layer exactly"
    return f"{full}; more are refused before anything is written."


DIFFER_TODO = "let may_differ return a bool for each row of logits."
HALF = "the margin was held against the difference once: the best may fall by it and the second rise by it."


def _top_two(a: Tensor) -> tuple[Tensor, Tensor]:
    best, second = a.topk(2).values.unbind(-1)
    return best, second


def _margin(a: Tensor) -> Tensor:
    best, second = _top_two(a)
    return best - second


def _gap(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs()


def _differ_right(a: Tensor, b: Tensor) -> Tensor:
    return _margin(a) <= 2 * _gap(a, b).max()


DIFFER_MISTAKES: Mistakes = {
    HALF: [lambda a, b: _margin(a) <= _gap(a, b).max()],
    "that is where the two choose differently now; asked is where they may.": [
        lambda a, b: a.argmax(-1) != b.argmax(-1)
    ],
    "the other way round: a small margin is the one that may flip.": [
        lambda a, b: ~_differ_right(a, b),
    ],
    "the largest difference of each row was taken; the largest of all rows may come in any row.": [
        lambda a, b: _margin(a) <= 2 * _gap(a, b).amax(-1),
        lambda a, b: _margin(a) <= _gap(a, b).amax(-1),
    ],
    "the best logits alone were compared; the largest difference may come in any logit.": [
        lambda a, b: _margin(a) <= 2 * (a.amax(-1) - b.amax(-1)).abs().max(),
        lambda a, b: _margin(a) <= 2 * (a.topk(2).values - b.topk(2).values).abs().max(),
        lambda a, b: _margin(a) <= 2 * _gap(a, b).gather(1, a.argmax(1, keepdim=True)).max(),
    ],
    "the mean difference was taken; the largest counts.": [
        lambda a, b: _margin(a) <= 2 * _gap(a, b).mean(),
        lambda a, b: _margin(a) <= _gap(a, b).mean(),
    ],
    "differences without their sign: abs() before max(), as a logit may also fall.": [
        lambda a, b: _margin(a) <= 2 * (a - b).max(),
        lambda a, b: _margin(a) <= 2 * (b - a).max(),
        lambda a, b: _margin(a) <= 2 * ((a - b).max()).abs(),
    ],
    "the margin is from the best logit to the second, not to the mean of all.": [
        lambda a, b: a.amax(-1) - a.mean(-1) <= 2 * _gap(a, b).max()
    ],
    "the margin is from the best logit to the second, not to the smallest.": [
        lambda a, b: a.amax(-1) - a.amin(-1) <= 2 * _gap(a, b).max()
    ],
    "the two largest logits are not the first two: sort them, or take topk(2).": [
        lambda a, b: a[:, 0] - a[:, 1] <= 2 * _gap(a, b).max(),
        lambda a, b: (a[:, 0] - a[:, 1]).abs() <= 2 * _gap(a, b).max(),
    ],
    "sorted upwards: the first two are the smallest.": [
        lambda a, b: a.sort(-1).values.diff(dim=-1)[:, 0] <= 2 * _gap(a, b).max()
    ],
    "the best logit of all rows was taken; each row has its own.": [
        lambda a, b: a.max() - _top_two(a)[1] <= 2 * _gap(a, b).max()
    ],
    "True for every row: the margin is the best less the second, never below 0.": [
        lambda a, b: -_margin(a) <= 2 * _gap(a, b).max()
    ],
    "the best logit itself is held against the difference; its margin over the second counts.": [
        lambda a, b: a.amax(-1) <= 2 * _gap(a, b).max()
    ],
    "softmax is not needed: margin and difference are those of the logits.": [
        lambda a, b: _margin(a.softmax(-1)) <= 2 * _gap(a.softmax(-1), b.softmax(-1)).max(),
        lambda a, b: _margin(a) <= 2 * _gap(a.log_softmax(-1), b.log_softmax(-1)).max(),
    ],
    "the margins are those of a; b only tells how far a logit may move.": [
        lambda a, b: _margin(b) <= 2 * _gap(a, b).max(),
        lambda a, b: torch.minimum(_margin(a), _margin(b)) <= 2 * _gap(a, b).max(),
        lambda a, b: _top_two(a)[0] - _top_two(b)[1] <= 2 * _gap(a, b).max(),
        lambda a, b: _top_two(b)[0] - _top_two(a)[1] <= 2 * _gap(a, b).max(),
    ],
    "twice the difference, not twice the margin.": [lambda a, b: 2 * _margin(a) <= _gap(a, b).max()],
    "four times the difference: the best falls by it, the second rises by it, that is twice.": [
        lambda a, b: _margin(a) <= 4 * _gap(a, b).max()
    ],
}


def _differ_cases() -> list[Case]:
    """Logits with margins around once, twice and four times the largest difference; some rows do differ."""
    a = torch.tensor(
        [
            [1.0, 2.5, -3.0, 2.35, 0.0, 0.4],  # margin 0.15: between once and twice
            [4.0, 1.0, 3.0, -2.0, 0.5, 1.5],  # 1.0: safe
            [0.2, 0.3, 5.0, 1.0, 4.94, 0.0],  # 0.06: under once
            [-1.0, -0.65, -4.0, -0.4, -2.0, -3.0],  # 0.25: between twice and four times
            [2.0, 0.1, 1.84, 0.3, 0.4, 0.5],  # 0.16: between once and twice
        ]
    )
    moved = torch.zeros_like(a)  # a - moved says another word in row 2
    moved[1, 5], moved[4, 0], moved[0, 2], moved[2, 4] = 0.1, 0.1, 0.02, -0.07
    moved[3, 1], moved[3, 3] = -0.07, 0.06  # the margin of row 3 is 0.12 in a - moved
    small = torch.zeros_like(a)
    small[3, 2] = 0.1  # neither the best nor the second
    flat = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.2, 0.1], [0.5, 0.4, 0.3, -0.4, 0.2, 0.3]])
    level = torch.cat([a[[1, 3, 0]], flat])
    rough = 8 * drawn(31, 7, 11)
    return [
        Case("may_differ on 5 rows of 6 logits", (a, a - moved)),
        Case("may_differ on 5 rows of 6 logits, b larger,", (a, a + moved)),
        Case("may_differ on 7 rows and their bfloat16", (rough, rough.bfloat16().float())),
        Case("may_differ on 5 other rows, all moved by 0.4,", (level, level - 0.4)),
        Case("may_differ on 5 rows of 6 logits, the smallest of row 3 moved,", (a, a - small)),
    ]


def _differ_once(function: Any, case: Case) -> np.ndarray:
    return read_bools(call(function, case, DIFFER_TODO), case.label, (len(case.args[0]),))


def _tell_differ(case_args: dict[int, tuple[Tensor, Tensor]], got: Any, expected: Any) -> str:
    """Name the first row that is wrong, with its margin and the largest difference."""
    a, b = case_args[id(expected)]
    row = int((got != expected).argmax())
    margin, largest = show(float(_margin(a)[row])), show(float(_gap(a, b).max()))
    sizes = f"margin {margin}, largest difference {largest}"
    return f"gives {bool(got[row])} for row {row} ({sizes}); expected {bool(expected[row])}"


@exercise
def may_differ(answer: Any) -> str:
    """07: `may_differ(a, b)` says for each row of logits (T, V) whether greedy may choose another word.

    Any logit may move by the largest difference between a and b, wherever that is.
    """
    differ_cases = _differ_cases()
    args: dict[int, tuple[Tensor, Tensor]] = {}

    def right(a: Tensor, b: Tensor) -> np.ndarray:
        expected = _differ_right(a, b).numpy()
        args[id(expected)] = (a, b)
        return expected

    expected = compare(
        answer,
        differ_cases,
        attempt=_differ_once,
        right=right,
        mistakes=DIFFER_MISTAKES,
        tell=partial(_tell_differ, args),
    )
    first, rough = (int(rows.sum()) for rows in (expected[0], expected[2]))
    return f"{first} of 5 rows may differ, where the margin is at most twice 0.1; {rough} of 7 in bfloat16."


TPOT_TODO = "let predict_tpot fit a line to the measured times and return the one at `context`."
Points = Sequence[float]


def _line(contexts: Points, milliseconds: Points, context: float, degree: int = 1) -> float:
    return float(np.polyval(np.polyfit(contexts, milliseconds, degree), context))


def _through(i: int, j: int) -> Callable[[Points, Points, float], float]:
    """Return a prediction by the line through two of the points."""
    return lambda x, y, context: _line([x[i], x[j]], [y[i], y[j]], context)


def _slope(contexts: Points, milliseconds: Points) -> float:
    return float(np.polyfit(contexts, milliseconds, 1)[0])


def _through_zero(contexts: Points, milliseconds: Points, context: float) -> float:
    x, y = np.array(contexts, dtype=float), np.array(milliseconds)
    return float(x @ y / (x @ x) * context)


PROPORTIONAL = (
    "proportional: the line does not go through 0. A step reads the weights whatever the context is."
)
TWO_POINTS = "a line through two of the points: each is off a little; least squares weighs all of them."
TPOT_MISTAKES: Mistakes = {
    PROPORTIONAL: [
        lambda x, y, context: y[-1] / x[-1] * context,
        lambda x, y, context: y[0] / x[0] * context,
        lambda x, y, context: float(np.mean(np.divide(y, x))) * context,
        lambda x, y, context: float(np.mean(y) / np.mean(x)) * context,
        _through_zero,
    ],
    "the last time was repeated; a longer context has more rows to read.": [lambda x, y, context: y[-1]],
    "the mean of the times, which is the time at a context among the measured ones.": [
        lambda x, y, context: float(np.mean(y))
    ],
    TWO_POINTS: [_through(0, -1), _through(-2, -1), _through(0, 1)],
    "the fixed part is left out: slope · context is only what the rows cost.": [
        lambda x, y, context: _slope(x, y) * context
    ],
    "the rows are left out: that is the time at context 0.": [lambda x, y, context: _line(x, y, 0)],
    "np.polyfit gives the slope first, then the value at 0.": [
        lambda x, y, context: _slope(x, y) + _line(x, y, 0) * context
    ],
    "contexts and times are swapped: np.polyfit(contexts, milliseconds, 1).": [
        lambda x, y, context: _line(y, x, context)
    ],
    "a curve was fitted, which bends away beyond the measured contexts; a line has degree 1.": [
        lambda x, y, context: _line(x, y, context, 2)
    ],
    "seconds; the times are in milliseconds.": [lambda x, y, context: _line(x, y, context) / 1000],
    "the slope's part was added to a measured time as if it had been measured at 0.": [
        lambda x, y, context: y[0] + _slope(x, y) * context,
        lambda x, y, context: y[-1] + _slope(x, y) * context,
    ],
    "np.interp does not go on beyond the points: it repeats the last one.": [
        lambda x, y, context: float(np.interp(context, x, y))
    ],
}


def _tpot_cases() -> list[Case]:
    measured: list[tuple[list[int], list[float], int]] = [
        ([128, 256, 512, 1024], [3.4, 3.7, 4.9, 6.8], 2048),
        ([100, 200, 400], [21.5, 21.0, 23.5], 3000),
        ([64, 128, 192, 256, 512], [1.5, 1.9, 1.7, 2.4, 3.1], 1024),
        ([50, 500], [8.0, 9.8], 5000),
    ]
    return [
        Case(
            f"predict_tpot({contexts}, {milliseconds}, {context})",
            (contexts, milliseconds, context),
        )
        for contexts, milliseconds, context in measured
    ]


def _tell_tpot(got: float, expected: float) -> str:
    return f"gives {show(got)} ms; expected {show(expected)} ms"


@exercise
def predict_tpot(answer: Any) -> str:
    """07: `predict_tpot(contexts, milliseconds, context)` fits a line by least squares and reads it there."""
    expected = compare(
        answer,
        _tpot_cases(),
        attempt=lambda function, case: read_number(call(function, case, TPOT_TODO), case.label),
        right=_line,
        mistakes=TPOT_MISTAKES,
        tell=_tell_tpot,
    )
    return (
        f"{show(expected[0])} ms at 2048, less than twice the 6.8 ms at 1024: the weights are read in both."
    )
