"""The two pictures of notebook 20, a fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import printable
from helpers.plots.measured import set_log_scale

SIDE, STEP = 20.0, 26.0  # of the square that stands for a card, and from one square to the next, px
Waits = tuple[float, float]  # of one draw: 99th percentiles of TTFT and of ITL, in milliseconds


def fleets(
    tokens: Mapping[str, int], colocated: Mapping[str, int], disaggregated: Mapping[str, tuple[int, int]]
) -> Picture:
    """Draw what is left of a prompt, and the cards of the smallest colocated and disaggregated fleet.

    Args:
        tokens: how many tokens of a prompt are left to process, on average, by what is found. The first
            number is that of the whole prompt.
        colocated: the number of cards of a colocated fleet, by what is found.
        disaggregated: the numbers of cards for prompts and for replies, by what is found.
    """
    longest = next(iter(tokens.values()))

    def card(sheet: Sheet, x: float, y: float, prompts: bool, replies: bool) -> None:
        width = SIDE / (prompts + replies)
        if prompts:
            sheet.box(x, y - SIDE / 2, width, SIDE, fill="ink", edge="ink", radius=0)
        if replies:
            left = x + SIDE - width
            sheet.box(left, y - SIDE / 2, width, SIDE, fill="generated fill", edge="generated", radius=0)

    def draw(sheet: Sheet) -> None:
        x = 18.0
        for name, *runs in (("prompts", True, False), ("replies", False, True), ("both", True, True)):
            card(sheet, x, 20, *runs)
            sheet.note(x + 28, 20, name)
            x += 110
        y = 28.0
        for found, left in tokens.items():
            y += 38
            sheet.text(18, y, f"{found} found", bold=True)
            y, wide, right = y + 26, 170.0, sheet.width - 18
            filled = wide * left / longest
            sheet.note(18, y, "left of a prompt")
            sheet.box(140, y - 6, wide, 12, fill="panel", edge="soft", radius=0)
            sheet.box(140, y - 6, filled, 12, fill="ink", radius=0)
            sheet.note(right, y, f"{left:,} tokens", at="right")
            for kind, parts in (("colocated", (colocated[found],)), ("disaggregated", disaggregated[found])):
                y, x = y + 30, 140.0
                sheet.note(18, y, kind)
                for k, n in enumerate(parts):
                    for _ in range(n):
                        card(sheet, x, y, k == 0, k == 1 or kind == "colocated")
                        x += STEP
                    x += 8
                sheet.note(right, y, f"{sum(parts)} cards", at="right", colour="ink", bold=True)

    sentence = "; ".join(
        f"{found} found: {left:,} tokens left of a prompt, colocated {colocated[found]} cards, disaggregated "
        + " + ".join(map(str, disaggregated[found]))
        for found, left in tokens.items()
    )
    return Picture(draw, f"Cards for prompts and for replies. {sentence}.")


def ttft_and_itl(
    fleets: Mapping[str, Mapping[str, Sequence[Waits]]], max_ttft_ms: float, max_itl_ms: float
) -> Picture:
    """Draw one dot per fleet: its x is TTFT, its y is ITL, both the medians of several draws.

    Lines through a dot go from the smallest to the largest value of the draws. The area in which both SLOs
    are kept is shaded.

    Args:
        fleets: maps the names of two fleets to the waits of each draw, by the name of a setting. The
            first fleet's dots have their labels on the left and the second's on the right.
        max_ttft_ms, max_itl_ms: the SLOs, in milliseconds.
    """
    columns = {
        kind: {name: [*zip(*draws, strict=True)] for name, draws in those.items()}
        for kind, those in fleets.items()
    }
    ttfts, itls = (
        [ms for those in columns.values() for both in those.values() for ms in both[k]] for k in (0, 1)
    )

    def draw(sheet: Sheet) -> None:
        left, top, right, base = 52.0, 114.0, sheet.width - 18.0, 408.0
        axes = sheet.add_axes(left, top, right, base, "TTFT in ms, 99 of 100")
        set_log_scale(axes.yaxis)
        axes.set(xlim=(0, 1.12 * max(max_ttft_ms, *ttfts)))
        axes.set(ylim=(min(max_itl_ms, *itls) / 1.4, 1.6 * max(max_itl_ms, *itls)))
        x, y = sheet.data_to_sheet(axes, max_ttft_ms, max_itl_ms)
        sheet.box(left, y, x - left, base - y, fill="value fill", radius=0)
        sheet.note(18, 98, "ITL in ms, 99 of 100")
        sheet.box(18, 62, 12, 12, fill="value fill", radius=0)
        slos = f"SLOs: {format_digits(max_ttft_ms, 4)} and {format_digits(max_itl_ms, 2)} ms"
        sheet.note(36, 68, slos, colour="ink")
        for k, ((kind, those), fill) in enumerate(zip(columns.items(), ("ink", "paper"), strict=True)):
            sheet.disc(24, 20 + 24 * k, 4, fill, "ink")
            sheet.note(36, 20 + 24 * k, kind, colour="ink")
            for name, (ttft, itl) in those.items():
                x, y = sheet.data_to_sheet(axes, median(ttft), median(itl))
                low, high = (sheet.data_to_sheet(axes, end(ttft), median(itl))[0] for end in (min, max))
                ends = [sheet.data_to_sheet(axes, median(ttft), end(itl)) for end in (min, max)]
                sheet.line((low, y), (high, y), colour="soft")
                sheet.line(*ends, colour="soft")
                sheet.disc(x, y, 4, fill, "ink")
                sheet.note(high + 9 if k else low - 9, y, name, at="left" if k else "right", colour="ink")

    sentence = ". ".join(
        f"{printable(kind)}: "
        + ", ".join(
            f"{name} {format_digits(median(ttft), 3)} and {format_digits(median(itl), 2)}"
            for name, (ttft, itl) in those.items()
        )
        for kind, those in columns.items()
    )
    return Picture(
        draw,
        f"TTFT and ITL in milliseconds, medians of {len(next(iter(next(iter(fleets.values())).values())))} "
        f"draws. {sentence}. SLOs: {format_digits(max_ttft_ms, 4)} and {format_digits(max_itl_ms, 2)}.",
    )
