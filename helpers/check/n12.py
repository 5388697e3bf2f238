"""Exercises of notebook 12, the least time of a step: `from helpers.check import n12 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.result import show
from helpers.cost import roofline
from helpers.cost.models import CARDS
from helpers.cost.roofline import Limits, Roof, Work

LAPTOP = Roof(flops_per_second=400e9, bytes_per_second=50e9)  # ridge 8


def by(operations: float, nbytes: float, machine: Limits) -> str:
    """Say what bounds work."""
    return roofline.bound_by(Work(operations, nbytes), machine)


def bound_case(T: int, each: float, machine: Limits, name: str) -> Case:
    """Return the work of T tokens times a matrix of Llama-3.1-8B's on a machine."""
    work = roofline.product(T, 4096, 14336, each)
    label = f"bound_by for {T:,} token{'s' * (T > 1)} at {each} bytes on {name}"
    return Case((work.operations, work.nbytes, machine), label)


bound_by = Exercise(
    name="bound_by",
    todo='let bound_by return "memory" or "arithmetic".',
    cases=[
        *[bound_case(T, 2, CARDS["H100"], "an H100") for T in (1, 128, 2048)],
        bound_case(8192, 2, CARDS["A100"], "an A100"),
        *[bound_case(T, 4, LAPTOP, "a laptop") for T in (8, 64)],
        bound_case(1, 0.5, CARDS["B200"], "a B200"),
    ],
    right=by,
    wrong=[
        "memory, whatever comes in: compare two times, that of the bytes and that of the operations.",
        lambda *_: "memory",
        "the other way round: few operations a byte leave the arithmetic waiting for the memory.",
        lambda *args: "memory" if by(*args) == "arithmetic" else "arithmetic",
        "arithmetic, whatever comes in, as with the ridge upside down: it is operations over bytes.",
        lambda *_: "arithmetic",
        lambda operations, nbytes, m: by(operations, nbytes, Roof(m.bytes_per_second, m.flops_per_second)),
        "bits for bytes: both counts are in bytes already.",
        lambda operations, nbytes, machine: by(operations, 8 * nbytes, machine),
        lambda operations, nbytes, machine: by(operations, nbytes / 8, machine),
        "1 operation a byte is no bound: the machine's ridge is.",
        lambda operations, nbytes, machine: "memory" if operations < nbytes else "arithmetic",
        lambda operations, nbytes, machine: "memory" if operations <= nbytes else "arithmetic",
        'the two words are "memory" and "arithmetic".',
        lambda *args: by(*args).replace("arithmetic", "compute"),
    ],
    said="128 tokens at 2 bytes keep an H100 waiting for its memory, 2,048 do not.",
)


def in_microseconds(function: Callable[..., Any], *args: Any) -> Any:
    """Return the microseconds of what a function gives in seconds, or that itself if it is no number."""
    seconds = function(*args)
    try:
        return 1e6 * seconds
    except TypeError:
        return seconds


predict_step = Exercise(
    name="predict_step",
    todo="let predict_step return seconds: operators to start, bytes to read.",
    cases=[
        Case((274, 2.5e-6, 3.05e6, 25e9), "predict_step for ours"),
        Case((1834, 2.5e-6, 538e6, 12e9), "predict_step for 135 M"),
        Case((1954, 4e-6, 15.01e9, 3.35e12), "predict_step for Llama-3.1-8B on an H100"),
    ],
    right=roofline.predict_step,
    run=in_microseconds,
    wrong=[
        "the start is left out: each operator takes its time before it has read a byte.",
        lambda operators, start, nbytes, bandwidth: nbytes / bandwidth,
        "the bytes are left out: every number has to come from the memory.",
        lambda operators, start, nbytes, bandwidth: operators * start,
        "one start for all: each operator has its own.",
        lambda operators, start, nbytes, bandwidth: start + nbytes / bandwidth,
        "not the larger of the two: an operator that starts does not read yet.",
        lambda operators, start, nbytes, bandwidth: max(operators * start, nbytes / bandwidth),
        "bytes are divided by bytes a second.",
        lambda operators, start, nbytes, bandwidth: operators * start + bandwidth / nbytes,
        lambda operators, start, nbytes, bandwidth: operators * start + nbytes * bandwidth,
        "milliseconds: everything that comes in is in seconds.",
        lambda operators, start, nbytes, bandwidth: 1000 * (operators * start + nbytes / bandwidth),
    ],
    said="0.81 ms for ours, most of it starting; 49.42 ms for 135 M, most of it bytes.",
    shown=lambda microseconds: f"{show(microseconds / 1000)} ms",
)


def batch(machine: Any, each: float, operations: float = 2, rounded: Any = math.ceil) -> float:
    """Return the tokens at the ridge, with so many operations for each number of the matrix."""
    return rounded(roofline.ridge(machine) * each / operations)


batch_at_ridge = Exercise(
    name="batch_at_ridge",
    todo="let batch_at_ridge return a whole number of tokens.",
    cases=[
        Case((CARDS["H100"], 2), "batch_at_ridge of an H100 at 2 bytes"),
        Case((CARDS["A100"], 2), "batch_at_ridge of an A100 at 2 bytes"),
        Case((CARDS["H100"], 1), "batch_at_ridge of an H100 at 1 bytes"),
        Case((LAPTOP, 4), "batch_at_ridge of a laptop at 4 bytes"),
        Case((Roof(40e9, 50e9), 4), "batch_at_ridge of a machine that computes little at 4 bytes"),
    ],
    right=batch,
    wrong=[
        "each number of the matrix gives 2 operations a token, no more and no fewer.",
        partial(batch, operations=1),
        partial(batch, operations=4),
        "the size of a number is left out: fewer bytes to read need fewer tokens.",
        lambda machine, each: batch(machine, 1),
        lambda machine, each: batch(machine, 2),
        "rounded down or not at all: a part of a token does not come, and one less is still too few.",
        *[partial(batch, rounded=rounded) for rounded in (math.floor, float, round)],
        "one too many where it comes out even: round up, and no further.",
        partial(batch, rounded=lambda tokens: math.floor(tokens) + 1),
        "2T / s has to reach the ridge: so T is the ridge times s / 2, not times 2 / s.",
        lambda machine, each: batch(machine, 4 / each),
        "the ridge upside down: it is operations a second over bytes a second.",
        lambda m, each: batch(Roof(m.bytes_per_second, m.flops_per_second), each),
    ],
    said="296 tokens on an H100 at 2 bytes, 148 at 1 byte (with the same arithmetic), 16 on a laptop at 4.",
)
