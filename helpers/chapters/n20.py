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

BUDGETS, WHOLE_PROMPT_BUDGET = (256, 512, 1024), 10**6  # tokens per step; a budget that any prompt fits into
MIN_REPLY_CARDS = 4  # minimum number of cards for replies; with fewer, those in the notebook are overloaded


class SimulatedFleet(NamedTuple):
    """A fleet that was simulated, and its 99th-percentile waits.

    Attributes:
        n_cards: number of cards.
        usage: how the cards are used, such as "512 tokens" (the budget) or "6 + 4" (for prompts, for
            replies).
        first_word_ms: wait for the first word, in milliseconds.
        gap_ms: longest wait between two words of a reply, in milliseconds.
    """

    n_cards: int
    usage: str
    first_word_ms: float
    gap_ms: float


def summarize_fleet(n_cards: int, usage: str, times: list[fleet.RequestTimes]) -> SimulatedFleet:
    """Return a fleet with the 99th percentiles of the waits of its requests.

    Args:
        n_cards, usage: as in `SimulatedFleet`.
        times: the times of each request.
    """
    first, gap = fleet.p99_waits(times)
    return SimulatedFleet(n_cards, usage, first, gap)


def simulate_chunked(
    machine: fleet.Machine, arrivals: fleet.Arrivals, n_cards: int, budgets: Sequence[int] = BUDGETS
) -> list[SimulatedFleet]:
    """Simulate cards that each run prompts in chunks together with replies, once for each token budget."""
    return [
        summarize_fleet(
            n_cards,
            "whole prompts" if budget == WHOLE_PROMPT_BUDGET else f"{budget:,} tokens",
            fleet.colocated(replace(machine, token_budget=budget), arrivals, n_cards),
        )
        for budget in budgets
    ]


def simulate_disaggregated(
    machine: fleet.Machine, arrivals: fleet.Arrivals, n_cards: int
) -> list[SimulatedFleet]:
    """Simulate each way to divide cards between prompts and replies.

    At least half of the cards are for prompts, and at least `MIN_REPLY_CARDS` cards are for replies.
    """
    return [
        summarize_fleet(
            n_cards, f"{n} + {n_cards - n}", fleet.disaggregated(machine, arrivals, n, n_cards - n)
        )
        for n in range((n_cards + 1) // 2, n_cards - MIN_REPLY_CARDS + 1)
    ]


def smallest_fleet(
    simulate: Callable[[fleet.Machine, fleet.Arrivals, int], Sequence[SimulatedFleet]],
    machine: fleet.Machine,
    arrivals: fleet.Arrivals,
    min_cards: int,
    max_first_word_ms: float,
    max_gap_ms: float,
) -> SimulatedFleet:
    """Return the smallest fleet whose two waits are within their limits.

    Of several such fleets of the same size, return that with the shortest wait for the first word.

    Args:
        simulate: `simulate_chunked` or `simulate_disaggregated`.
        machine: one card of the fleet.
        arrivals: the requests and their arrival times.
        min_cards: the number of cards to try first.
        max_first_word_ms: longest wait for the first word that is allowed, in milliseconds.
        max_gap_ms: longest wait between two words that is allowed, in milliseconds.

    Raises:
        ValueError: no number of cards is enough. Even requests so far apart that they never wait for each
            other exceed the limits.
    """
    apart = [
        (1e6 * n, replace(one, max_new_tokens=min(2, one.max_new_tokens)))
        for n, (_, one) in enumerate(arrivals)
    ]
    alone = next(each for cards in count(min_cards) if (each := simulate(machine, apart, cards)))
    if not any(one.first_word_ms <= max_first_word_ms and one.gap_ms <= max_gap_ms for one in alone):
        least = ", ".join(f"{one.usage}: {one.first_word_ms:.0f} and {one.gap_ms:.0f}" for one in alone)
        raise ValueError(
            f"a first word within {max_first_word_ms} ms and {max_gap_ms} ms between two are never reached: "
            f"where no request waits for another, 99 of 100 wait up to {least}"
        )
    return next(
        min(fine, key=lambda one: one.first_word_ms)
        for cards in count(min_cards)
        if (
            fine := [
                one
                for one in simulate(machine, arrivals, cards)
                if one.first_word_ms <= max_first_word_ms and one.gap_ms <= max_gap_ms
            ]
        )
    )


def fleet_waits(
    fleets: Mapping[str, Sequence[SimulatedFleet]], max_first_word_ms: float, max_gap_ms: float
) -> Picture:
    """Draw a dot for each fleet, at its wait for the first word (x) and between two words (y).

    The waits within both limits are shaded.

    Args:
        fleets: the fleets tried, for each of two ways to use the cards, by name. Labels are to the left of
            the first way's dots and to the right of the second way's.
        max_first_word_ms, max_gap_ms: the promised limits on the two waits, in milliseconds.
    """
    every = [one for found in fleets.values() for one in found]
    gaps = [one.gap_ms for one in every]

    def draw(sheet: Sheet) -> None:
        left, top, right, base = 52.0, 114.0, sheet.width - 18.0, 408.0
        axes = sheet.add_axes(left, top, right, base, "ms to a first word, 99 of 100")
        set_log_scale(axes.yaxis)
        axes.set(xlim=(0, 1.35 * max(max_first_word_ms, *(one.first_word_ms for one in every))))
        axes.set(ylim=(min(max_gap_ms, *gaps) / 1.4, 1.6 * max(max_gap_ms, *gaps)))
        x, y = sheet.data_to_sheet(axes, max_first_word_ms, max_gap_ms)
        sheet.box(left, y, x - left, base - y, fill="value fill", radius=0)
        sheet.note(18, 98, "ms between two words, 99 of 100")
        sheet.box(18, 62, 12, 12, fill="value fill", radius=0)
        sheet.note(
            36,
            68,
            f"promise: {format_digits(max_first_word_ms, 3)} and {format_digits(max_gap_ms, 2)} ms",
            colour="ink",
        )
        for k, ((way, found), fill) in enumerate(zip(fleets.items(), ("ink", "paper"), strict=True)):
            sheet.disc(24, 20 + 24 * k, 4, fill, "ink")
            sheet.note(36, 20 + 24 * k, way, colour="ink")
            for one in found:
                x, y = sheet.data_to_sheet(axes, one.first_word_ms, one.gap_ms)
                sheet.disc(x, y, 4, fill, "ink")
                sheet.note(x + (9 if k else -9), y, one.usage, at="left" if k else "right", colour="ink")

    sentence = ". ".join(
        f"{printable(way)}: "
        + ", ".join(
            f"{one.usage} {format_digits(one.first_word_ms, 3)} and {format_digits(one.gap_ms, 2)}"
            for one in found
        )
        for way, found in fleets.items()
    )
    return Picture(
        draw,
        f"Milliseconds to a first word, and between two, on {every[0].n_cards} cards. {sentence}. "
        f"Promised: {format_digits(max_first_word_ms, 3)} and {format_digits(max_gap_ms, 2)}.",
    )
