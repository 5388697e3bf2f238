"""Where rounding can change greedy's word: one dot a token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from helpers.plots.canvas import FAINT, INK, SMALL, SOFT, Picture, Sheet, counted, told, with_settings

LEFT, RIGHT, TOP, BASE = 92.0, 560.0, 56.0, 356.0


@with_settings
def margins(tokens: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Picture:
    """Draw each token's top-2 margin against the largest difference of its logits, both logarithmic.

    Args:
        tokens: for each number format, up to 4: (differences, margins), one of each a token.

    Returns:
        One dot a token. Left of the line, where the margin is at most twice the difference, greedy may choose
        another word; a margin or difference of 0 lies on the edge.

    Raises:
        ValueError: there is nothing to draw, or too much, the counts differ, or a number is negative or not
            finite.
    """
    if not 1 <= len(tokens) <= 4:
        raise ValueError(f"{counted(len(tokens), 'number format')}; expected 1 to 4")
    clouds = {name: _checked(name, *pair) for name, pair in tokens.items()}
    x = Scale([m for _, margin in clouds.values() for m in margin], LEFT, RIGHT)
    y = Scale([d for difference, _ in clouds.values() for d in difference], BASE, TOP)
    sheet = Sheet(700, BASE + 62)
    _axes(sheet, x, y)
    at_risk = {name: int((m <= 2 * d).sum()) for name, (d, m) in clouds.items()}
    for name, (difference, margin) in clouds.items():
        sheet.axes.plot(
            [x.at(m) for m in margin], [y.at(d) for d in difference], "o", color=INK, ms=3.2, alpha=0.5
        )
        middle = y.at(float(np.median(difference)))
        sheet.text(RIGHT + 14, middle - 8, name, bold=True)
        sheet.note(RIGHT + 14, middle + 10, f"{at_risk[name]} may differ")
    said = "; ".join(f"{told(name)}: {at_risk[name]} of {len(clouds[name][0])} tokens" for name in clouds)
    alt = (
        f"One dot a token: its top-2 margin against its largest difference. Where greedy may differ, {said}."
    )
    return Picture(sheet.figure, alt, at_risk)


def _checked(
    name: str, difference: Sequence[float], margin: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    d, m = np.asarray(difference, dtype=float), np.asarray(margin, dtype=float)
    if d.shape != m.shape or d.ndim != 1 or not len(d):
        raise ValueError(
            f"{name}: got {d.shape} differences and {m.shape} margins; expected one of each a token"
        )
    if not (np.isfinite(d).all() and np.isfinite(m).all() and (d >= 0).all() and (m >= 0).all()):
        raise ValueError(
            f"{name}: got a number that is negative or not finite; expected differences and margins"
        )
    return d, m


class Scale:
    """A logarithmic axis over the powers of ten around some numbers, drawn between two places.

    0 lies on the axis' low end.
    """

    def __init__(self, numbers: list[float], start: float, end: float) -> None:
        above = [x for x in numbers if x > 0] or [1.0]
        self.low, high = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
        self.high = max(high, self.low + 1)
        self.start, self.end = start, end

    def at(self, x: float) -> float:
        """Where a number lies on the sheet."""
        power = max(math.log10(x), self.low) if x > 0 else self.low
        return self.start + (self.end - self.start) * (power - self.low) / (self.high - self.low)


def _axes(sheet: Sheet, x: Scale, y: Scale) -> None:
    """Both axes, and the line where the margin is twice the difference."""
    sheet.text(18, 24, "largest difference of a token's logits", size=SMALL)
    for power in range(y.high, y.low - 1, -max(1, -(-(y.high - y.low) // 6))):
        height = y.at(10.0**power)
        sheet.line((LEFT, height), (RIGHT, height), colour=FAINT, width=1)
        sheet.note(LEFT - 10, height, _name(power), at="right")
    for power in range(x.low, x.high + 1):
        sheet.line((x.at(10.0**power), BASE), (x.at(10.0**power), BASE + 5), colour=SOFT, width=1)
        sheet.note(x.at(10.0**power), BASE + 17, _name(power), at="center")
    sheet.note(RIGHT, BASE + 42, "its top-2 margin", at="right")
    first, last = max(10.0**y.low, 10.0**x.low / 2), min(10.0**y.high, 10.0**x.high / 2)
    if first < last:
        sheet.line((x.at(2 * first), y.at(first)), (x.at(2 * last), y.at(last)), colour=INK, width=1.4)
        sheet.note(x.at(2 * first) + 10, y.at(first) + 15, "left of the line greedy may differ")


def _name(power: int) -> str:
    return f"{10.0**power:g}".replace("e-0", "e-")
