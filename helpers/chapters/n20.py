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
    """Try cards that run each prompt in one step, beside the replies."""
    for n in cards:
        times = fleet.together(replace(machine, budget=10**6), arrivals, n)
        yield tried(n, "whole prompts", times)


def in_chunks(
    machine: fleet.Machine, arrivals: fleet.Arrivals, cards: Sequence[int] = CARDS
) -> Iterator[Tried]:
    """Try cards that run prompts in chunks beside the replies, with each budget."""
    for n in cards:
        for budget in BUDGETS:
            times = fleet.together(replace(machine, budget=budget), arrivals, n)
            yield tried(n, f"{budget:,} tokens", times)


def disaggregated(
    machine: fleet.Machine, arrivals: fleet.Arrivals, cards: Sequence[int] = CARDS
) -> Iterator[Tried]:
    """Try cards for prompts beside cards for replies, half of them or up to two more."""
    for n in cards:
        for prefill in range(n // 2, n // 2 + 3):
            times = fleet.disaggregated(machine, arrivals, prefill, n - prefill)
            yield tried(n, f"{prefill} + {n - prefill}", times)


def fewest(found: Sequence[Tried], first: float, gap: float) -> Tried | None:
    """Return the fleet of the fewest cards with which both waits are short enough, ms; or None."""
    fine = [one for one in found if one.first <= first and one.gap <= gap]
    return min(fine, key=lambda one: (one.cards, one.first), default=None)


def wins(one: Sequence[Tried], other: Sequence[Tried], firsts: Sequence[float], gaps: Sequence[float]) -> int:
    """Return with how many pairs of SLOs, ms, the other way takes fewer cards."""
    return sum(cards_of(fewest(other, a, b)) < cards_of(fewest(one, a, b)) for a in firsts for b in gaps)


def targets(
    name: str,
    one: Sequence[Tried],
    other: Sequence[Tried],
    firsts: Sequence[float],
    gaps: Sequence[float],
) -> Picture:
    """Draw the fewest cards of two ways, by both SLOs; filled where the second way takes fewer.

    Args:
        name: of both ways, in their order.
        one, other: what was tried of each.
        firsts, gaps: SLOs, ms: to a first word, and between two.
    """
    cards = {(a, b): [cards_of(fewest(found, a, b)) for found in (one, other)] for a in firsts for b in gaps}

    def draw(sheet: Sheet) -> None:
        sheet.text(12, 20, shorten(name, sheet.width - 28, bold=True), bold=True)
        sheet.note(58, 46, "ms to a first word")
        sheet.note(12, 68, "between")
        wide = (sheet.width - 80) / len(firsts)
        for k, a in enumerate(firsts):
            sheet.note(66 + wide * (k + 0.5), 68, f"{a:,}", at="center", colour="ink")
        for m, b in enumerate(gaps):
            top = 84 + 34 * m
            sheet.note(58, top + 17, f"{b:,}", at="right", colour="ink")
            for k, a in enumerate(firsts):
                first, second = cards[a, b]
                fewer = second < first
                fill, edge = ("generated fill", "generated") if fewer else ("none", "line")
                left = 66 + wide * k
                sheet.box(left + 1, top + 1, wide - 2, 32, fill=fill, edge=edge)
                text = f"{shown(first)} : {shown(second)}"
                sheet.note(left + wide / 2, top + 17, text, at="center", colour="ink", bold=fewer)

    told = "; ".join(f"{a:,} and {b:,}: {shown(n)} or {shown(m)}" for (a, b), (n, m) in cards.items())
    fewer = f"The second takes fewer in {wins(one, other, firsts, gaps)} of {len(cards)}"
    return Picture(draw, f"Fewest cards by ms to a first word and between two. {name}: {told}. {fewer}.")


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
