"""Linear axes on a sheet, and the numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.plots.canvas import (
    FAINT,
    SMALL,
    SOFT,
    Sheet,
    text_width,
)


@dataclass(frozen=True)
class Frame:
    """Where numbers lie on a sheet: x from `low` to `high`, y from 0 to `most`, both linear.

    Attributes:
        left, right, top, base: edges of the plot, px; numbers stand left of it and below.
    """

    left: float
    right: float
    top: float
    base: float
    low: float
    high: float
    most: float

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return self.base - (self.base - self.top) * value / self.most

    def draw(self, sheet: Sheet, ticks: Sequence[float]) -> None:
        """Draw horizontal lines at round numbers and names of the ticks that have room, the largest first."""
        step = round_step(self.most)
        for n in range(math.floor(self.most / step + 1e-9) + 1):
            y = self.y(n * step)
            sheet.line((self.left, y), (self.right, y), colour=SOFT if n == 0 else FAINT, width=1)
            sheet.axes.lines[-1].set_zorder(1)  # bars lie over it
            sheet.note(self.left - 8, y, f"{n * step:,.10g}", at="right")
        free = math.inf
        for tick in sorted(ticks, reverse=True):
            name, x = f"{tick:,.10g}", self.x(tick)
            half = text_width(name, SMALL) / 2
            sheet.line((x, self.base), (x, self.base + 5), colour=SOFT, width=1)
            if x + half < free:
                sheet.note(x, self.base + 17, name, at="center")
                free = x - half - 10


def round_step(most: float) -> float:
    """Return 1, 2 or 5 times a power of ten, of which `most` holds two to five."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(step for step in (power * f for f in (0.2, 0.5, 1, 2, 5)) if most / step < 5.001)


def room_for(most: float) -> float:
    """Return how wide the numbers of an axis up to `most` are, px, at least 34."""
    step = round_step(most)
    return max(34.0, *(text_width(f"{n * step:,.10g}", SMALL) for n in range(6)))


def digits(x: float, n: int = 3) -> str:
    """Write a number with n digits, with commas and without an exponent: 0.0123, 1.5, 39.1, 2,070."""
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    return f"{x:,.{max(0, n - 1 - math.floor(math.log10(abs(x))))}f}"


def finite(name: str, values: Sequence[float], *, least: float = 0.0) -> list[float]:
    """Return values as floats. ValueError if there are none, or one is under `least` or not finite."""
    numbers = [float(x) for x in values]
    bad = [x for x in numbers if not (math.isfinite(x) and x >= least)]
    if bad or not numbers:
        got = f"{bad[0]}" if bad else "nothing"
        raise ValueError(f"{name}: got {got}; expected finite numbers, {least:g} or more")
    return numbers


def moving_median(values: Sequence[float], each_side: int) -> list[float]:
    """Return the median of each value and its neighbours, fewer of them near the ends."""
    sides = [min(i, each_side, len(values) - 1 - i) for i in range(len(values))]
    return [float(np.median(values[i - side : i + side + 1])) for i, side in enumerate(sides)]


def tenths(x: float) -> str:
    """Write a size with one decimal, or with three digits where it is small: 312.5, 39.1, 4.39, 0.00123."""
    return f"{x:,.1f}" if x >= 10 else digits(x)


def apart(places: Sequence[float], room: float, low: float, high: float) -> list[float]:
    """Move heights apart until `room` px lie between two, all from `low` to `high`, in the same order."""
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    moved = list(places)
    free = low
    for i in order:
        moved[i] = max(moved[i], free)
        free = moved[i] + room
    free = high
    for i in reversed(order):
        moved[i] = min(moved[i], free)
        free = moved[i] - room
    return moved
