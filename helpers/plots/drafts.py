"""A figure of speculation: speed against the share of drafts that are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from helpers.cost.drafts import times_as_fast
from helpers.drawing.canvas import Picture, Sheet, apart
from helpers.drawing.words import digits, told

Point = tuple[float, float]
SHARES = [n / 50 for n in range(51)]


def speed_by_acceptance(
    draft: float, verify: Callable[[int], float], dots: Mapping[str, Point], title: str
) -> Picture:
    """Draw how many times as fast a reply is against the share of drafts taken, a line for each k.

    Args:
        draft, verify: the time of a drafted word, and of a pass over so many words, as in
            `helpers.cost.drafts.times_as_fast`.
        dots: (share taken, times as fast) of what was measured, by name.
        title: which drafts.
    """
    lines = {k: [times_as_fast(share, k, draft, verify) for share in SHARES] for k in (1, 2, 4, 8)}
    most = 1.1 * max(*(line[-1] for line in lines.values()), *(y for _, y in dots.values()), 1.0)

    def draw(sheet: Sheet) -> None:
        right = sheet.width - 80
        sheet.heading(title)
        sheet.note(18, 42, "dashed: word by word; dots: measured")
        axes = sheet.plot(44, 64, right, 324, "share of the drafts that are taken")
        axes.set(xlim=(0, 1), ylim=(0, most))
        level = sheet.at(axes, 0, 1)[1]
        sheet.line((44, level), (right, level), colour="soft", dashes=(0, (5, 4)))
        ends = [sheet.at(axes, 1, line[-1])[1] for line in lines.values()]
        for (k, line), y in zip(lines.items(), apart(ends, 18, 60, 320), strict=True):
            axes.plot(SHARES, line, color="ink", lw=1.6)
            sheet.note(right + 8, y, f"k = {k}", colour="ink")
        axes.plot(*zip(*dots.values(), strict=True), "o", color="query", ms=9)
        places = [sheet.at(axes, *dot) for dot in dots.values()]
        heights = apart([y + 9 for _, y in places], 17, 72, 316)
        for name, (x, _), y in zip(dots, places, heights, strict=True):
            sheet.note(x + 9, y, name, colour="query")

    said = "; ".join(f"k = {k} from {digits(y[0])} at 0 to {digits(y[-1])} at 1" for k, y in lines.items())
    drawn = "; ".join(f"{told(name)}: {digits(y)} times at {digits(x)}" for name, (x, y) in dots.items())
    alt = f"{told(title)}: times as fast against the share of drafts taken. {said}. Dots: {drawn}."
    return Picture(draw, alt)
