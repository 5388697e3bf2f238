"""Exercises of notebook 13, to the lower bound: `from helpers.check import n13 as check`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess


def milliseconds(guess: Any, lower_bound: float, measured: float) -> Guess:
    """Compare the guess of the milliseconds of a step after a change: from its lower bound to the clock."""
    near = isinstance(guess, int | float) and lower_bound / 1.1 <= guess <= 1.1 * measured
    why = f"The lower bound is {lower_bound:.2f} ms, the clock says {measured:.2f}."
    why += " Right is all between, and a tenth more."
    return Guess(guess, guess if near else f"{lower_bound:.2f} to {measured:.2f}", why, like=measured)


def bits(
    enough: Callable[[float, float], bool] = operator.le,
    read: Callable[[float, int], float] = lambda weights, n: weights * n / 32,
    otherwise: int | None = 8,
) -> Callable[[float, float], int | None]:
    """Return an `enough_bits`: the most whose reading is short enough beside the arithmetic."""
    return lambda weights, arithmetic: next(
        (n for n in (32, 16, 8) if enough(read(weights, n), arithmetic)), otherwise
    )


enough_bits = Exercise(
    name="enough_bits",
    todo="let enough_bits return 32, 16 or 8.",
    cases=[
        Case(args, "enough_bits({}, {})".format(*args))
        for args in [(12, 4), (12, 8), (12, 20), (12, 12), (12, 6), (12, 2), (3, 1)]
    ],
    right=bits(),
    wrong=[
        "fewer bits lose something: where reading takes no longer than the arithmetic already, keep them.",
        lambda weights, arithmetic: 8,
        "where both take equally long, fewer bits make the step no shorter.",
        bits(enough=operator.lt),
        "with 8 bits the reading may still be the longer: then 8, the fewest, make the shortest step.",
        bits(otherwise=None),
        bits(otherwise=32),
        "reading with n bits takes n / 32 of what it takes with 32.",
        bits(read=lambda weights, n: weights / n),
        bits(read=lambda weights, n: weights),
    ],
    success="with 12 ms for the weights, 20 ms of arithmetic leave 32 bits, 8 leave 16, and 4 leave 8.",
)
