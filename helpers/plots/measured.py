"""Line charts of measured series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axis import XAxis, YAxis
from matplotlib.ticker import LogLocator, NullLocator

from helpers.drawing.canvas import Picture, Sheet, spread_apart
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, TEXT, printable, shorten, text_width

# One style per line, (fill of its discs, dashes), so that the lines can be told apart without colours.
STYLES: list[tuple[str, Any]] = [
    ("ink", "-"), ("paper", (0, (5, 2.5))), ("ink", (0, (1.5, 1.5))), ("paper", (0, (6, 2, 1.5, 2)))
]  # fmt: skip


def line_chart(
    title: str, unit: str, x_label: str, xs: Sequence[float], series: Mapping[str, Sequence[float]],
    log_axes: str = "",
) -> Picture:  # fmt: skip
    """Draw one line per series.

    The last value is written at the end of the line, and the series names above the chart.

    Args:
        title: the heading.
        unit: the unit of the y values, or "".
        x_label: the label of the x axis.
        xs: the x values in ascending order, the same for all series.
        series: maps the name of each series, up to 4, to the y values, one for each of `xs`.
        log_axes: the logarithmic axes: "x", "y", "xy" or "" for none. The values on them must be above 0.
    """
    lines = {name: np.asarray(y, dtype=float) for name, y in series.items()}
    above = 1.6 if "y" in log_axes else 1.08  # room for the discs of the largest values
    most = above * max(y.max() for y in lines.values())
    lasts = [f"{format_digits(y[-1], 2)} {unit}".strip() for y in lines.values()]

    def draw(sheet: Sheet) -> None:
        top = 62.0 + 22 * len(lines)
        right = sheet.width - 22 - max(text_width(last, TEXT, bold=True) for last in lasts)
        base = top + 226
        sheet.heading(title)
        axes = sheet.add_axes(66, top, right, base, x_label)
        for axis in log_axes:  # a short range of x has few powers of ten
            set_log_scale(
                getattr(axes, f"{axis}axis"), base=2 if axis == "x" and xs[-1] < 100 * xs[0] else 10
            )
        axes.set(ylim=(min(y.min() for y in lines.values()) / 1.5, most) if "y" in log_axes else (0, most))
        low = 0 if 4 * xs[0] < xs[-1] else xs[0] - 0.06 * (xs[-1] - xs[0])  # far from 0: no empty half
        axes.set_xlim((xs[0] / 1.15, xs[-1] * 1.15) if "x" in log_axes else (low, xs[-1] * 1.03))
        ends = [sheet.data_to_sheet(axes, xs[-1], y[-1])[1] for y in lines.values()]
        places = spread_apart(ends, 20, top - 20, base - 10)
        for k, ((name, y), place) in enumerate(zip(lines.items(), places, strict=True)):
            fill, dashes = STYLES[k]
            style: dict[str, Any] = {"marker": "o", "mfc": fill, "mec": "ink", "ms": 6}
            axes.plot(xs, y, color="ink", lw=1.6, ls=dashes, **style)
            if lasts[k] not in lasts[:k]:  # equal values are written once
                sheet.text(right + 8, place, lasts[k], bold=True)
            key = 46.0 + 22 * k
            sheet.line((18, key), (46, key), width=1.6, dashes=dashes)
            sheet.disc(32, key, 3, fill, "ink", 1)
            sheet.note(56, key, shorten(name, sheet.width - 74, SMALL), colour="ink")

    sentence = "; ".join(
        f"{printable(name)}: "
        + ", ".join(f"{format_digits(t, 2)} at {x:,.12g}" for x, t in zip(xs, y, strict=True))
        for name, y in lines.items()
    )
    return Picture(draw, f"{printable(title)} against {x_label}. {sentence}.")


def set_log_scale(axis: XAxis | YAxis, base: int = 10) -> None:
    """Make a matplotlib axis logarithmic, with at most 7 labels at powers of `base`."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(base, numticks=7))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,.12g}")
