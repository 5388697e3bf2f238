"""A figure of speculation: speed against the share of drafts that are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from helpers.cost.drafts import times_as_fast
from helpers.plots.canvas import Picture, Sheet, apart
from helpers.plots.words import digits, need, shorten, told

Point = tuple[float, float]
SHARES = [n / 50 for n in range(51)]


def speed_by_acceptance(
    draft: float,
    verify: Callable[[int], float],
    dots: Mapping[str, Point],
    title: str,
    ks: Sequence[int] = (1, 2, 4, 8),
) -> Picture:
    """Draw how many times as fast a reply is against the share of drafts taken, a line for each k.

    Args:
        draft, verify: the time of a drafted word, and of a pass over so many words, as in
            `helpers.cost.drafts.times_as_fast`.
        dots: (share taken, times as fast) of what was measured, by name.
        title: which drafts.
        ks: words drafted for a pass.

    Raises:
        ValueError: there are no dots, a share is not from 0 to 1, or a speed is not over 0.
    """
    need(bool(dots), "no dots; expected one or more")
    inside = all(0 <= x <= 1 and 0 < y < 100 for x, y in dots.values())
    need(inside, f"dots are {dict(dots)}; expected shares from 0 to 1, and speeds over 0")
    lines = {k: [times_as_fast(share, k, draft, verify) for share in SHARES] for k in ks}
    most = 1.1 * max(*(line[-1] for line in lines.values()), *(y for _, y in dots.values()), 1.0)

    def draw(sheet: Sheet) -> None:
        right = sheet.width - 80
        sheet.text(18, 20, shorten(title, sheet.width - 36, bold=True), bold=True)
        sheet.note(18, 42, "dashed: word by word; dots: measured")
        axes = sheet.plot(44, 64, right, 324)
        axes.set(xlim=(0, 1), ylim=(0, most))
        sheet.note(right, 366, "share of the drafts that are taken", at="right")
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
    return Picture(draw, alt, {name: (round(x, 2), round(y, 2)) for name, (x, y) in dots.items()})
