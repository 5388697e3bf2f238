"""Exercises of notebook 14, fewer rows and fewer bits: `from helpers.check import n14 as check`."""

from __future__ import annotations

from helpers.check.exercise import Exercise


def kept(length: int, window: int, sinks: int) -> list[int]:
    """Return the positions that are sinks or among the newest."""
    return [at for at in range(length) if at < sinks or at >= length - window]


kept_rows = Exercise(
    name="kept_rows",
    todo="let kept_rows return the positions of the rows that stay, as a list.",
    cases=[
        *[(10, 4, 0), (10, 4, 2), (4, 4, 0), (5, 4, 0), (6, 4, 1)],
        *[(3, 4, 0), (5, 4, 2), (1, 4, 2), (100, 1, 1)],
    ],
    right=kept,
    wrong=[
        "counted anew from 0: a row keeps the position at which its key was turned.",
        lambda *args: [*range(len(kept(*args)))],
        "the sinks are counted inside the window: they come on top of it.",
        lambda length, window, sinks: kept(length, max(window - sinks, 0), sinks),
        lambda length, window, sinks: kept(length, window - sinks, sinks),
        "off by one: the newest `window` rows are those from length - window on.",
        lambda length, window, sinks: kept(length, window - 1, sinks),
        lambda length, window, sinks: kept(length, window + 1, sinks),
        "a position twice: where the text is short, a sink is in the window too.",
        lambda length, window, sinks: [*range(sinks), *kept(length, window, 0)],
        lambda length, window, sinks: [*range(min(sinks, length)), *kept(length, window, 0)],
    ],
    success="6 to 9 of ten rows with a window of 4, and 0 and 1 too with two sinks.",
)
