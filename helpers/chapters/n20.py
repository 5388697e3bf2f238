"""The simulations and the figure of notebook 20, a fleet, with a search for the smallest fleet."""

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

BUDGETS, WHOLE_PROMPT_BUDGET = (256, 512, 1024), 10**6  # tokens per step; the last fits any prompt
MIN_REPLY_CARDS = 4  # minimum number of cards for replies; fewer are overloaded in the notebook


class SimulatedFleet(NamedTuple):
    """A fleet that was simulated, with the 99th percentiles of two waits over all requests.

    Attributes:
        n_cards: number of cards.
        usage: how the cards are used, such as "512 tokens" (the token budget of each card) or "6 + 4" (6
            cards for prompts and 4 for replies).
        first_word_ms: 99th percentile of the wait for the first word, in milliseconds.
        gap_ms: 99th percentile of the longest wait between two words of a reply, in milliseconds.
    """

    n_cards: int
    usage: str
    first_word_ms: float
    gap_ms: float


def summarize_fleet(n_cards: int, usage: str, times: list[fleet.RequestTimes]) -> SimulatedFleet:
    """Compute the 99th percentiles of a fleet's waits.

    Args:
        n_cards, usage: as in `SimulatedFleet`.
        times: the times of each request that the fleet served.
    """
    first, gap = fleet.p99_waits(times)
    return SimulatedFleet(n_cards, usage, first, gap)


def simulate_chunked(
    machine: fleet.Machine, arrivals: fleet.Arrivals, n_cards: int, budgets: Sequence[int] = BUDGETS
) -> list[SimulatedFleet]:
    """Simulate a fleet whose cards each process prompts, in chunks, together with replies.

    There is one simulation per token budget.
    """
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
    """Simulate a fleet in which some cards process only prompts and the others generate only replies.

    There is one simulation for each way to divide the cards. At least half of them process prompts, and at
    least MIN_REPLY_CARDS generate replies.
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
    """Return the fleet that keeps two waits within their limits with the fewest cards.

    If several fleets do so with equally many cards, return the one with the shortest wait for the first word.

    Args:
        simulate: `simulate_chunked` or `simulate_disaggregated`.
        machine: one card of the fleet.
        arrivals: the requests and their arrival times.
        min_cards: number of cards in the first fleet to simulate.
        max_first_word_ms: limit on the wait for the first word, in milliseconds.
        max_gap_ms: limit on the longest wait between two words, in milliseconds.

    Raises:
        ValueError: no number of cards is sufficient. The limits are exceeded even if the requests arrive so
            far apart that none waits for another.
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
    """Draw one dot per fleet. Its x is the wait for the first word, its y the longest wait between two words.

    The area in which both waits are within their limits is shaded.

    Args:
        fleets: maps the names of two ways to use the cards to the fleets that were simulated. The first way's
            dots have their labels on the left, the second way's on the right.
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
