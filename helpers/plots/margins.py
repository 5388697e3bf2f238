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
    low_x, high_x = _powers([m for _, margin in clouds.values() for m in margin])
    low_y, high_y = _powers([d for difference, _ in clouds.values() for d in difference])
    sheet = Sheet(700, BASE + 62)

    def at_x(x: float) -> float:
        return LEFT + (RIGHT - LEFT) * (max(math.log10(x) if x > 0 else low_x, low_x) - low_x) / (
            high_x - low_x
        )

    def at_y(y: float) -> float:
        return BASE - (BASE - TOP) * (max(math.log10(y) if y > 0 else low_y, low_y) - low_y) / (
            high_y - low_y
        )

    sheet.text(18, 24, "largest difference of a token's logits", size=SMALL)
    for power in range(high_y, low_y - 1, -max(1, -(-(high_y - low_y) // 6))):
        sheet.line((LEFT, at_y(10.0**power)), (RIGHT, at_y(10.0**power)), colour=FAINT, width=1)
        sheet.note(LEFT - 10, at_y(10.0**power), _name(power), at="right")
    for power in range(low_x, high_x + 1):
        sheet.line((at_x(10.0**power), BASE), (at_x(10.0**power), BASE + 5), colour=SOFT, width=1)
        sheet.note(at_x(10.0**power), BASE + 17, _name(power), at="center")
    sheet.note(RIGHT, BASE + 42, "its top-2 margin", at="right")
    ends = [max(10.0**low_y, 10.0**low_x / 2), min(10.0**high_y, 10.0**high_x / 2)]
    if ends[0] < ends[1]:  # the line margin = 2 × difference crosses the picture
        sheet.line(
            (at_x(2 * ends[0]), at_y(ends[0])), (at_x(2 * ends[1]), at_y(ends[1])), colour=INK, width=1.4
        )
        sheet.note(at_x(2 * ends[0]) + 10, at_y(ends[0]) + 15, "left of the line greedy may differ")
    at_risk = {name: int((m <= 2 * d).sum()) for name, (d, m) in clouds.items()}
    for name, (difference, margin) in clouds.items():
        sheet.axes.plot(
            [at_x(x) for x in margin], [at_y(y) for y in difference], "o", color=INK, ms=3.2, alpha=0.5
        )
        y = at_y(float(np.median(difference)))
        sheet.text(RIGHT + 14, y - 8, name, bold=True)
        sheet.note(RIGHT + 14, y + 10, f"{at_risk[name]} may differ")
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


def _powers(numbers: list[float]) -> tuple[int, int]:
    """Powers of ten around the numbers that are not 0."""
    above = [x for x in numbers if x > 0] or [1.0]
    low, high = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
    return (low, high) if low < high else (low, low + 1)


def _name(power: int) -> str:
    return f"{10.0**power:g}".replace("e-0", "e-")
