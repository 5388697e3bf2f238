"""Exercises of notebook 13, to the floor: `from helpers.check import n13 as check`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess


def milliseconds(guess: Any, before: float, after: float) -> Guess:
    """Compare the guess how many milliseconds a step takes after a change: within a quarter is right."""
    near = isinstance(guess, int | float) and after / 1.25 <= guess <= after * 1.25
    why = f"{before:.2f} ms became {after:.2f}. A guess counts as right within a quarter of that."
    return Guess(guess, guess if near else f"{after:.2f}", why)


def bits(
    fits: Callable[[float, float], bool] = operator.le,
    order: tuple[int, ...] = (32, 16, 8),
    otherwise: int | None = None,
    shrink: tuple[bool, bool, bool] = (False, True, False),
    counts: tuple[int, int, int] = (1, 1, 1),
) -> Callable[..., int | None]:
    """Return a `most_bits`: which of starts, bytes and arithmetic shrink with the bits, and which count."""

    def chosen(limit: float, *parts: float) -> int | None:
        for one in order:
            ms = [
                n * part * (one / 32 if less else 1)
                for n, part, less in zip(counts, parts, shrink, strict=True)
            ]
            if fits(sum(ms), limit):
                return one
        return otherwise

    return chosen


most_bits = Exercise(
    name="most_bits",
    todo="let most_bits return 32, 16, 8 or None.",
    cases=[
        Case(args, "most_bits({}, {}, {}, {})".format(*args))
        for args in [
            (20, 0.1, 12, 2),
            (10, 0.1, 12, 2),
            (5.5, 0.5, 12, 2),
            (5, 0.5, 12, 2),
            (8.1, 0.1, 12, 2),
            (13.5, 0.5, 12, 2),
            (6.5, 2, 10, 1),
            (11.5, 3, 8, 2),
        ]
    ],
    right=bits(),
    wrong=[
        "fewer bits than the limit asks for: rounding loses something, so take the most that keep it.",
        bits(order=(8, 16, 32)),
        "half the bits is not half the time: starts and arithmetic stay as long as they were.",
        bits(shrink=(True, True, True)),
        "the starts are left out.",
        bits(counts=(0, 1, 1)),
        "the arithmetic is left out: just as many numbers have to be multiplied.",
        bits(counts=(1, 1, 0)),
        "exactly the limit is within it.",
        bits(fits=operator.lt),
        "where even 8 bits take too long, the answer is None.",
        bits(otherwise=8),
        bits(otherwise=0),
    ],
    said="20 ms leave room for 32 bits, 10 for 16, 5.5 for 8, and 5 for none of them.",
)
