"""Figures of what was measured: the loss of a training run, the time of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from helpers.plots.axes import Frame, apart, digits, finite, moving_median, room_for, round_step
from helpers.plots.canvas import (
    INK,
    LINE,
    PAPER,
    SMALL,
    SOFT,
    Picture,
    Sheet,
    counted,
    shorten,
    told,
    with_settings,
)


@with_settings
def loss_curve(
    losses: Sequence[float], level: float | None = None, marks: Mapping[str, int] | None = None
) -> Picture:
    """Draw the loss of a training run against its steps.

    Args:
        losses: one for each step, at least 2.
        level: where a model that knows nothing stands, ln V; None draws no such line.
        marks: steps to name on the curve, by name; steps count from 1.

    Returns:
        The losses, pale, under their moving median, and the median of the last few (20 at most) as a number.

    Raises:
        ValueError: there are too few losses, one is not finite, or a mark lies outside.
    """
    raw = finite("losses", losses)
    steps = len(raw)
    if steps < 2:
        raise ValueError("1 loss; expected at least 2 to draw a curve")
    smooth = moving_median(raw, min(12, steps // 24))
    end = float(np.median(raw[-max(1, min(20, steps // 10)) :]))
    most = 1.06 * max(*raw, level or 0) or 1.0
    frame = Frame(26 + room_for(most), 606, 44, 268, 1, steps, most)
    sheet = Sheet(700, 324)
    sheet.text(18, 22, "loss", bold=True)
    step = max(1.0, round_step(steps))
    frame.draw(sheet, [1, *np.arange(step, steps + 0.5, step)[step == 1 :]])
    sheet.note(606, 306, "steps of training", at="right")
    sheet.line(*[(frame.x(n + 1), frame.y(x)) for n, x in enumerate(raw)], colour=LINE, width=1.2)
    sheet.line(*[(frame.x(n + 1), frame.y(x)) for n, x in enumerate(smooth)], width=2.4)
    sheet.text(614, frame.y(end), digits(end, 2), bold=True)
    said = f"The loss of {steps:,} steps falls" if end < raw[0] else f"The loss of {steps:,} steps goes"
    alt = f"{said} from {digits(raw[0], 2)} to {digits(end, 2)}."
    if level is not None:
        y = frame.y(level)
        sheet.axes.plot((frame.left, 606), (y, y), color=SOFT, lw=1.2, ls=(0, (5, 4)))
        name = f"a model that has learned nothing: ln V = {digits(level, 2)}"
        sheet.note(600, y + (-12 if y > 58 else 14), name, at="right")
        alt += f" A dashed line at ln V = {digits(level, 2)}: a model that has learned nothing."
    for name, step in (marks or {}).items():
        if not 1 <= step <= steps:
            raise ValueError(f"{name!r} is at step {step}; expected one from 1 to {steps}")
        x, y = frame.x(step), frame.y(smooth[step - 1])
        sheet.line((x, y - 8), (x, y - 32), colour=SOFT)
        at = "left" if x < 333 else "right"
        sheet.text(x + (4 if at == "left" else -4), y - 30, shorten(name, 240, SMALL), at=at, size=SMALL)
        alt += f" At step {step}, {told(name)}: {digits(smooth[step - 1], 2)}."
    numbers = {"first": round(raw[0], 2), "last": round(end, 2)}
    return Picture(sheet.figure, alt, numbers)


STYLES = [("o", INK, "-"), ("o", PAPER, (0, (5, 2.5))), ("s", INK, "-"), ("s", PAPER, (0, (2, 2)))]


@with_settings
def time_per_token(contexts: Sequence[int], series: Mapping[str, Sequence[float]], title: str) -> Picture:
    """Draw milliseconds against the tokens of context, a line for each way to do the same.

    Args:
        contexts: tokens before the step, growing; at least 2.
        series: milliseconds at each context, by name; up to 4.
        title: what is timed.

    Returns:
        Lines over linear axes from 0, named at their ends.

    Raises:
        ValueError: the lengths differ, contexts do not grow, or a time is negative or not finite.
    """
    times = {name: finite(name, y) for name, y in series.items()}
    n = len(contexts)
    if (
        n < 2
        or contexts[0] < 0
        or list(contexts) != sorted(set(contexts))
        or not 1 <= len(times) <= len(STYLES)
    ):
        raise ValueError(
            f"{counted(n, 'context')} and {len(times)} series; expected 2 or more contexts "
            f"that grow from 0 or more, and 1 to {len(STYLES)} series"
        )
    for name, y in times.items():
        if len(y) != n:
            raise ValueError(f"{name}: {counted(len(y), 'time')} for {counted(n, 'context')}; expected {n}")
    most = 1.08 * max(map(max, times.values())) or 1.0
    frame = Frame(26 + room_for(most), 520, 56, 282, 0, contexts[-1], most)
    sheet = Sheet(700, 338)
    sheet.text(18, 22, shorten(title, 500), bold=True)
    sheet.note(18, 40, "milliseconds")
    frame.draw(sheet, contexts)
    sheet.note(520, 320, "tokens of context", at="right")
    for (marker, fill, dashes), y in zip(STYLES, times.values(), strict=False):
        xs, ys = [frame.x(c) for c in contexts], [frame.y(t) for t in y]
        sheet.axes.plot(xs, ys, color=INK, lw=1.6, ls=dashes, marker=marker, mfc=fill, mec=INK, ms=5)
    ends = apart([frame.y(y[-1]) for y in times.values()], 44, 30, 300)
    for place, (name, y) in zip(ends, times.items(), strict=True):
        sheet.text(532, place - 9, shorten(name, 160), size=SMALL)
        sheet.text(532, place + 10, f"{digits(y[-1], 2)} ms", bold=True)
    said = "; ".join(
        f"{told(name)}: {', '.join(f'{digits(t, 2)} at {c:,}' for c, t in zip(contexts, y, strict=True))}"
        for name, y in times.items()
    )
    alt = f"{told(title)}, in milliseconds, against tokens of context. {said}."
    numbers = {name: [float(f"{t:.3g}") for t in y] for name, y in times.items()}
    return Picture(sheet.figure, alt, {"contexts": list(contexts), **numbers})
