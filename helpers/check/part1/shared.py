"""What the checkers of several notebooks need."""

from __future__ import annotations

from collections.abc import Sequence

from helpers import toy

CARRIED = [toy.NUMBERS[word] for word in toy.PROMPT]
T = len(CARRIED)


def mean(numbers: Sequence[float]) -> float:
    """Return the average; 0 of nothing."""
    return sum(numbers) / len(numbers) if len(numbers) else 0.0


def pick_even(visible: Sequence[float]) -> float:
    """Return the average of the numbers at even positions, counted from 1; 0 if there are none."""
    return mean(visible[1::2])
