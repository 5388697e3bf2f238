"""Exercises of notebook 01, four heads by hand: `from helpers.check import n01 as check`."""

from __future__ import annotations

from collections.abc import Sequence

from helpers import toy
from helpers.check.exercise import Case, Exercise, Wrong

CARRIED = [toy.NUMBERS[word] for word in toy.PROMPT]
T = len(CARRIED)


def mean(numbers: Sequence[float]) -> float:
    """Return the average; 0 of nothing."""
    return sum(numbers) / len(numbers) if len(numbers) else 0.0


pick_even = Exercise(
    name="pick_even",
    todo="let pick_even return the average of the numbers at positions 2, 4, 6, …",
    cases=[
        Case((CARRIED,)),
        Case((CARRIED[:3],)),
        Case((CARRIED[:1],), trap="no visible token stands at an even position: there the answer is 0."),
        Case(([3, 5, 2, 8, 5, 4],)),
    ],
    right=lambda visible: mean(visible[1::2]),
    wrong=[
        Wrong(
            "counted from 0. Positions count from 1, so position 2 is visible[1].",
            lambda visible: mean(visible[::2]),
            lambda visible: mean(visible[2::2]),
        ),
        Wrong("all visible numbers were averaged, not those at even positions.", mean),
        Wrong(
            "the sum is divided by another number than how many were picked.",
            lambda visible: sum(visible[1::2]) / len(visible),
            lambda visible: sum(visible[1::2]) / 2,
        ),
        Wrong(
            "even numbers were picked; the head picks even positions, whatever number stands there.",
            lambda visible: mean([number for number in visible if number % 2 == 0]),
        ),
        Wrong("added up, not averaged.", lambda visible: sum(visible[1::2])),
    ],
    said="12.5 at `so`, 0 at `Today`, and 5.67 on a list of six.",
)
