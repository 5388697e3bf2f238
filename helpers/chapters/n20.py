"""Notebook 20, a fleet: the search for the smallest fleet, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import printable
from helpers.plots.measured import set_log_scale
from helpers.serve import fleet

BUDGETS, WHOLE = (256, 512, 1024), 10**6  # tokens per step; a budget that any prompt fits into
LEAST = 4  # minimum number of cards for replies; with fewer, those in the notebook are overloaded


class Tried(NamedTuple):
    """A fleet that was simulated, and its 99th-percentile waits.

    Attributes:
        cards: number of cards.
        how: how the cards are used, such as "512 tokens" (the budget) or "6 + 4" (for prompts, for replies).
        first: wait for the first word, in milliseconds.
        gap: longest wait between two words of a reply, in milliseconds.
    """

    cards: int
    how: str
    first: float
    gap: float


def tried(cards: int, how: str, times: list[fleet.Times]) -> Tried:
    """Return a fleet with the 99th percentiles of the waits of its requests.

    Args:
        cards, how: as in `Tried`.
        times: the times of each request.
    """
    first, gap = fleet.p99_waits(times)
    return Tried(cards, how, first, gap)


def in_chunks(
    machine: fleet.Machine, arrivals: fleet.Arrivals, cards: int, budgets: Sequence[int] = BUDGETS
) -> list[Tried]:
    """Simulate cards that each run prompts in chunks together with replies, once for each token budget."""
    return [
        tried(
            cards,
            "whole prompts" if budget == WHOLE else f"{budget:,} tokens",
            fleet.colocated(replace(machine, budget=budget), arrivals, cards),
        )
        for budget in budgets
    ]


def disaggregated(machine: fleet.Machine, arrivals: fleet.Arrivals, cards: int) -> list[Tried]:
    """Simulate each way to divide cards between prompts and replies.

    At least half of the cards are for prompts, and at least `LEAST` cards are for replies.
    """
    return [
        tried(cards, f"{n} + {cards - n}", fleet.disaggregated(machine, arrivals, n, cards - n))
        for n in range((cards + 1) // 2, cards - LEAST + 1)
    ]


def fewest(
    way: Callable[[fleet.Machine, fleet.Arrivals, int], Sequence[Tried]],
    machine: fleet.Machine,
    arrivals: fleet.Arrivals,
    start: int,
    first: float,
    gap: float,
) -> Tried:
    """Return the smallest fleet whose waits are both short enough.

    Of several such fleets of the same size, return that with the shortest wait for the first word.

    Args:
        way: `in_chunks` or `disaggregated`.
        machine: one card of the fleet.
        arrivals: the requests and their arrival times.
        start: the number of cards to try first.
        first: longest wait for the first word that is allowed, in milliseconds.
        gap: longest wait between two words that is allowed, in milliseconds.

    Raises:
        ValueError: no number of cards is enough. Even requests so far apart that they never wait for each
            other exceed the limits.
    """
    apart = [
        (1e6 * n, replace(one, max_new_tokens=min(2, one.max_new_tokens)))
        for n, (_, one) in enumerate(arrivals)
    ]
    alone = next(each for cards in count(start) if (each := way(machine, apart, cards)))
    if not any(one.first <= first and one.gap <= gap for one in alone):
        least = ", ".join(f"{one.how}: {one.first:.0f} and {one.gap:.0f}" for one in alone)
        raise ValueError(
            f"a first word within {first} ms and {gap} ms between two are never reached: where no request "
            f"waits for another, 99 of 100 wait up to {least}"
        )
    return next(
        min(fine, key=lambda one: one.first)
        for cards in count(start)
        if (fine := [one for one in way(machine, arrivals, cards) if one.first <= first and one.gap <= gap])
    )


def waits(ways: Mapping[str, Sequence[Tried]], first: float, gap: float) -> Picture:
    """Draw a dot for each fleet, at its wait for the first word (x) and between two words (y).

    The waits within both limits are shaded.

    Args:
        ways: the fleets tried, for each of two ways to use the cards, by name. Labels are to the left of the
            first way's dots and to the right of the second way's.
        first, gap: the promised limits on the two waits, in milliseconds.
    """
    every = [one for found in ways.values() for one in found]
    gaps = [one.gap for one in every]

    def draw(sheet: Sheet) -> None:
        left, top, right, base = 52.0, 114.0, sheet.width - 18.0, 408.0
        axes = sheet.add_axes(left, top, right, base, "ms to a first word, 99 of 100")
        set_log_scale(axes.yaxis)
        axes.set(xlim=(0, 1.35 * max(first, *(one.first for one in every))))
        axes.set(ylim=(min(gap, *gaps) / 1.4, 1.6 * max(gap, *gaps)))
        x, y = sheet.data_to_sheet(axes, first, gap)
        sheet.box(left, y, x - left, base - y, fill="value fill", radius=0)
        sheet.note(18, 98, "ms between two words, 99 of 100")
        sheet.box(18, 62, 12, 12, fill="value fill", radius=0)
        sheet.note(
            36,
            68,
            f"promise: {format_digits(first, 3)} and {format_digits(gap, 2)} ms",
            colour="ink",
        )
        for k, ((way, found), fill) in enumerate(zip(ways.items(), ("ink", "paper"), strict=True)):
            sheet.disc(24, 20 + 24 * k, 4, fill, "ink")
            sheet.note(36, 20 + 24 * k, way, colour="ink")
            for one in found:
                x, y = sheet.data_to_sheet(axes, one.first, one.gap)
                sheet.disc(x, y, 4, fill, "ink")
                sheet.note(x + (9 if k else -9), y, one.how, at="left" if k else "right", colour="ink")

    sentence = ". ".join(
        f"{printable(way)}: "
        + ", ".join(
            f"{one.how} {format_digits(one.first, 3)} and {format_digits(one.gap, 2)}" for one in found
        )
        for way, found in ways.items()
    )
    return Picture(
        draw,
        f"Milliseconds to a first word, and between two, on {every[0].cards} cards. {sentence}. "
        f"Promised: {format_digits(first, 3)} and {format_digits(gap, 2)}.",
    )
