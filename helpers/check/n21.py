"""Exercises of notebook 21, the same prompt: `from helpers.check import n21 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess


def lead(logits: Sequence[float]) -> float:
    """Return the top-2 margin."""
    last, best = sorted(logits)[-2:]
    return best - last


may_change = Exercise(
    name="may_change",
    todo="let may_change say whether another word can become the likeliest.",
    cases=[
        *[([10.3125, 10.25, 2.0], 0.0625), ([10.0, 9.9, 1.0], 0.06), ([10.0, 9.5, 1.0], 0.06)],
        *[([9.625, 3.0, 9.625], 0.0625), ([1.0, 5.0, 4.75], 0.2), ([8.0, 7.5, 7.4], 0.1)],
        ([4.0, 1.0, 3.99], 0.000001),
    ],
    right=lambda logits, difference: lead(logits) <= 2 * difference,
    wrong=[
        "both words may move: the first down and the second up, by the difference each.",
        lambda logits, difference: lead(logits) <= difference,
        "not only an exact tie: what is less than the two can move towards each other is enough.",
        lambda logits, difference: lead(logits) == 0,
        "it is the lead over the second likeliest that counts, wherever that stands in the list.",
        lambda logits, difference: abs(logits[0] - logits[1]) <= 2 * difference,
        lambda logits, difference: max(logits) - min(logits) <= 2 * difference,
        "the wrong way round: a large lead is safe.",
        lambda logits, difference: lead(logits) > 2 * difference,
    ],
    success="a lead of 0.1 is too small where each number may be 0.06 off, a lead of 0.5 is not.",
)

NARROW, WIDE = 2.0**-7, 2.0**-23  # bfloat16, float32


def over(
    most: float, unit: Callable[[float, float], float] = lambda largest, eps: 1.0
) -> Callable[[float, float, float], bool]:
    """Return an `is_bug`: whether a difference is more than so many units."""
    return lambda difference, largest, eps: difference / unit(largest, eps) > most


more_than_16_marks = over(16, lambda largest, eps: largest * eps)


is_bug = Exercise(
    name="is_bug",
    todo="let is_bug say whether rounding is too small a reason.",
    cases=[
        Case((difference, largest, eps), f"is_bug({difference:g}, {largest:g}, {eps:.2g})")
        for difference, largest, eps in [
            *[(0.125, 16.5, NARROW), (0.12, 16.5, WIDE), (6e-6, 16.5, WIDE), (12.0, 16.5, NARROW)],
            *[(1e-4, 900.0, WIDE), (0.002, 16.5, WIDE), (0.004, 0.25, NARROW)],
        ]
    ],
    right=more_than_16_marks,
    wrong=[
        "one bound cannot serve both formats: in bfloat16 the marks lie 65,536 times as far apart.",
        *(over(most) for most in (1e-4, 1e-3, 0.01, 0.1, 0.5)),
        *(over(most, lambda largest, eps: largest) for most in (1e-5, 1e-3, 0.01)),
        "the marks lie farther apart where the numbers are larger: multiply eps by the largest.",
        *(over(most, lambda largest, eps: eps) for most in (1, 10, 16, 50, 100)),
        "the wrong way round: a few marks are rounding.",
        lambda *numbers: not more_than_16_marks(*numbers),
    ],
    success="0.125 is one mark in bfloat16 at 16.5, and 0.12 is 61,000 marks in float32.",
)


def left_to_right(guess: Any) -> Guess:
    """Compare a guess with 512 + 0.4 + 0.4 + 0.4 + 0.4, three digits kept after each sum."""
    return Guess(guess, 512, "512.4 is kept as 512, four times. What is added is lost each time.")


def suspect(guess: Any) -> Guess:
    """Compare a guess with the pair of traces that has a bug."""
    why = "0.12 in float32 is thousands of its marks; 0.125 in bfloat16 is one."
    return Guess(guess, "B", why, options=["A", "B", "C"])
