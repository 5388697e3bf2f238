"""What notebook 20, a fleet, uses beside `serve.fleet`: the search over cards, and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from helpers.drawing.canvas import Picture, Sheet, apart
from helpers.drawing.words import SMALL, digits, plain, shorten
from helpers.plots.measured import STYLES, log_axes
from helpers.serve import fleet

CARDS, BUDGETS = (7, 8, 10, 12, 14, 16), (256, 512, 1024)  # that are searched


class Tried(NamedTuple):
    """A fleet: its cards, how they are used, and the ms that 99 of 100 do not wait longer.

    Attributes:
        first, gap: to a first word, and between two.
    """

    cards: int
    how: str
    first: float
    gap: float


def tried(cards: int, how: str, times: list[fleet.Times]) -> Tried:
    """Return how long people waited."""
    first, _, gap = fleet.slowest(times)
    return Tried(cards, how, first, gap)


def whole(machine: fleet.Machine, arrivals: fleet.Arrivals, cards: Sequence[int] = CARDS) -> Iterator[Tried]:
    """Try cards that run each prompt in one step, beside the replies; one card is watched."""
    for n in cards:
        times = fleet.together(replace(machine, budget=10**6), arrivals, n, watched=1)
        yield tried(n, "whole prompts", times)


def in_chunks(
    machine: fleet.Machine, arrivals: fleet.Arrivals, cards: Sequence[int] = CARDS
) -> Iterator[Tried]:
    """Try cards that run prompts in chunks beside the replies, with each budget; one card is watched."""
    for n in cards:
        for budget in BUDGETS:
            times = fleet.together(replace(machine, budget=budget), arrivals, n, watched=1)
            yield tried(n, f"{budget:,} tokens", times)


def disaggregated(
    machine: fleet.Machine, arrivals: fleet.Arrivals, cards: Sequence[int] = CARDS
) -> Iterator[Tried]:
    """Try cards for prompts beside cards for replies, half of them or up to two more; one is watched."""
    for n in cards:
        for prefill in range(n // 2, n // 2 + 3):
            times = fleet.disaggregated(machine, arrivals, prefill, n - prefill, watched=1)
            yield tried(n, f"{prefill} + {n - prefill}", times)


def fewest(found: Sequence[Tried], first: float, gap: float) -> Tried | None:
    """Return the fleet of the fewest cards with which both waits are short enough, ms; or None."""
    fine = [one for one in found if one.first <= first and one.gap <= gap]
    return min(fine, key=lambda one: (one.cards, one.first), default=None)


def targets(
    pairs: Mapping[str, tuple[Sequence[Tried], Sequence[Tried]]],
    firsts: Sequence[float],
    gaps: Sequence[float],
) -> Picture:
    """Draw the fewest cards of two ways, by both SLOs; filled where the second way takes fewer.

    Args:
        pairs: what was tried of both ways, by what is written above.
        firsts, gaps: SLOs, ms: to a first word, and between two.
    """
    boxes = {
        name: {(a, b): tuple(cards_of(fewest(found, a, b)) for found in ways) for a in firsts for b in gaps}
        for name, ways in pairs.items()
    }

    def draw(sheet: Sheet) -> None:
        beside = 1 if sheet.width < 600 else len(pairs)
        room = (sheet.width - 18) / beside
        for n, (name, each) in enumerate(boxes.items()):
            x, y = 12 + room * (n % beside), 20 + (n // beside) * (112 + 34 * len(gaps))
            sheet.text(x, y, shorten(name, room - 10, bold=True), bold=True)
            sheet.note(x + 46, y + 26, "ms to a first word")
            sheet.note(x, y + 48, "between")
            wide = (room - 62) / len(firsts)
            for k, a in enumerate(firsts):
                sheet.note(x + 54 + wide * (k + 0.5), y + 48, f"{a:,}", at="center", colour="ink")
            for m, b in enumerate(gaps):
                top = y + 64 + 34 * m
                sheet.note(x + 46, top + 17, f"{b:,}", at="right", colour="ink")
                for k, a in enumerate(firsts):
                    one, other = each[a, b]
                    wins = other < one
                    fill, edge = ("generated fill", "generated") if wins else ("none", "line")
                    left = x + 54 + wide * k
                    sheet.box(left + 1, top + 1, wide - 2, 32, fill=fill, edge=edge)
                    text = f"{shown(one)} : {shown(other)}"
                    sheet.note(left + wide / 2, top + 17, text, at="center", colour="ink", bold=wins)

    sentences = []
    for name, each in boxes.items():
        lines = [f"{a:,} and {b:,}: {shown(one)} or {shown(other)}" for (a, b), (one, other) in each.items()]
        wins = sum(other < one for one, other in each.values())
        sentences.append(f"{name}: {'; '.join(lines)}. The second takes fewer in {wins} of {len(each)}.")
    return Picture(draw, f"Fewest cards by ms to a first word and between two. {' '.join(sentences)}")


def cards_of(one: Tried | None) -> float:
    """Return the cards; without end if none suffice."""
    return one.cards if one else float("inf")


def shown(cards: float) -> str:
    """Write a number of cards; none suffice as a dash."""
    return "–" if cards == float("inf") else f"{cards:.0f}"


def to_first_word(cards: Sequence[int], ms: Mapping[str, Sequence[float]], slo: float) -> Picture:
    """Draw how long 99 of 100 people wait for a first word, over the SLO.

    Args:
        cards: that serve them, growing.
        ms: for each, by the way they are used; at most 4 ways.
        slo: ms.
    """
    low, high = min(map(min, ms.values())), max(map(max, ms.values()))

    def draw(sheet: Sheet) -> None:
        right, base = sheet.width - 176.0, 296.0
        sheet.heading("ms to a first word, 99 of 100")
        axes = sheet.plot(66, 46, right, base, "cards")
        log_axes(axes.yaxis)
        axes.set(xlim=(cards[0] - 0.8, cards[-1] + 0.5), ylim=(low / 3, 1.5 * high), xticks=cards)
        ends = {f"SLO {digits(slo, 2)}": slo}
        ends |= {f"{shorten(way, 122, SMALL)} {digits(y[-1], 2)}": y[-1] for way, y in ms.items()}
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
