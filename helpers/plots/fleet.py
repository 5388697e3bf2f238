"""Figures of a fleet: what cards do at the same time, and how long people wait for a first word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helpers.drawing.canvas import Picture, Sheet, apart
from helpers.drawing.words import SMALL, digits, plain, shorten
from helpers.plots.measured import STYLES, log_axes


def lanes(lines: Mapping[str, Mapping[str, tuple[float, float]]]) -> Picture:
    """Draw how long cards read, and how long they compute meanwhile; they take the longer of the two.

    Args:
        lines: by name, what is done, one behind the other: the ms that a card reads for it, and computes.
    """
    takes = {name: sum(map(max, done.values())) for name, done in lines.items()}

    def draw(sheet: Sheet) -> None:
        scale, x = (sheet.width - 100) / max(takes.values()), 18.0
        for name, colour in {"it reads": "query", "it computes": "value", "idle": "none"}.items():
            sheet.box(x, 14, 12, 12, fill=colour, edge="line" if colour == "none" else "none", radius=0)
            sheet.note(x + 18, 20, name)
            x += 112
        y = 54.0
        for name, done in lines.items():
            left = 18.0
            sheet.text(left, y, shorten(name, sheet.width - 36))
            for what, both in done.items():
                for dy, ms, colour in zip((14, 32), both, ("query", "value"), strict=True):
                    sheet.box(left, y + dy, scale * max(both), 18, edge="line", radius=0)
                    sheet.box(left, y + dy, scale * ms, 18, fill=colour, radius=0)
                sheet.note(left, y + 62, what)
                left += scale * max(both) + 3 * (len(done) > 1)
            sheet.text(left + 8, y + 32, f"{digits(takes[name], 3)} ms", size=SMALL, bold=True)
            y += 98 if any(done) else 76

    sentence = "; ".join(
        f"{plain(name)}, {digits(takes[name], 3)} ms: "
        + ", then ".join(
            f"{what} reads {digits(reads, 3)} and computes {digits(computes, 3)}".strip()
            for what, (reads, computes) in done.items()
        )
        for name, done in lines.items()
    )
    return Picture(draw, f"Milliseconds that a card reads, and meanwhile computes. {sentence}.")


def to_first_word(cards: Sequence[int], ms: Mapping[str, Sequence[float]], slo: float) -> Picture:
    """Draw how long 99 of 100 people wait for a first word, over the SLO.

    Args:
        cards: that serve them, growing.
        ms: for each, by the way they are used; at most 4 ways.
        slo: ms.
    """
    low, high = min(map(min, ms.values())), max(map(max, ms.values()))

    def draw(sheet: Sheet) -> None:
        right, base = sheet.width - 130.0, 296.0
        sheet.heading("ms to a first word, 99 of 100")
        axes = sheet.plot(66, 46, right, base, "cards")
        log_axes(axes.yaxis)
        axes.set(xlim=(cards[0] - 0.8, cards[-1] + 0.5), ylim=(low / 3, 1.5 * high), xticks=cards)
        ends = {f"SLO {digits(slo, 2)}": slo}
        ends |= {f"{shorten(way, 78, SMALL)} {digits(y[-1], 2)}": y[-1] for way, y in ms.items()}
        heights = [sheet.at(axes, cards[-1], y)[1] for y in ends.values()]
        sheet.line((66, heights[0]), (right, heights[0]), colour="soft", dashes=(0, (5, 4)))
        for (fill, dashes), y in zip(STYLES, ms.values(), strict=False):
            axes.plot(cards, y, color="ink", lw=1.6, ls=dashes, marker="o", mfc=fill, mec="ink", ms=6)
        for name, end, place in zip(ends, heights, apart(heights, 20, 46, base - 8), strict=True):
            sheet.line((right + 2, end), (right + 16, place), colour="soft", width=1)
            sheet.note(right + 20, place, name, colour="ink")

    sentence = "; ".join(
        f"{plain(way)}: {', '.join(f'{digits(t, 2)} with {n}' for n, t in zip(cards, y, strict=True))}"
        for way, y in ms.items()
    )
    return Picture(draw, f"Milliseconds to a first word, by the cards. {sentence}. SLO: {digits(slo, 2)}.")
