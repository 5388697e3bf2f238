"""Exercises of notebook 20, a fleet: `from helpers.check import n20 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from helpers.check.exercise import Case, Exercise


def needed(*numbers: float, rounded: Callable[[float], float] = math.ceil) -> tuple[float, float]:
    """Return the machines for prompts, and for replies without their first words."""
    requests, prompt, reply, prefill_rate, decode_rate, load = numbers
    work = requests * prompt / prefill_rate, requests * (reply - 1) / decode_rate
    return rounded(work[0] / load), rounded(work[1] / load)


machines_needed = Exercise(
    name="machines_needed",
    todo="let machines_needed return two whole numbers: machines for prefill, and for decode.",
    cases=[
        (10, 1000, 201, 20_000, 2_000, 0.5),
        (7, 500, 101, 3_000, 650, 0.8),
        (20, 999, 501, 10_000, 1_000, 0.7),
    ],
    right=needed,
    wrong=[
        "rounded down or not at all: a part of a machine cannot be had.",
        *[partial(needed, rounded=rounded) for rounded in (math.floor, float, round)],
        "the first word of each reply comes from prefill: decode says one word less.",
        lambda requests, prompt, reply, *others: needed(requests, prompt, reply + 1, *others),
        "a machine that is busy for half of the time runs half of its rate: divide by load.",
        lambda *numbers: needed(*numbers[:-1], 1),
        lambda *numbers: needed(*numbers[:-1], 1 / numbers[-1]),
        "the two rates are swapped.",
        lambda requests, prompt, reply, a, b, load: needed(requests, prompt, reply, b, a, load),
        "the machines of one request a second: there are more.",
        lambda requests, *others: needed(1, *others),
        "rounded up for one request, and then multiplied: machines serve several at a time.",
        lambda requests, *others: tuple(requests * n for n in needed(1, *others)),
    ],
    said="10 requests a second need 1 and 2, and 20 with longer replies need 3 and 15.",
)


Waits = dict[int, list[tuple[float, float]]]


def fewest_of(
    waits: Waits, first: float, between: float, of: Callable[[list[bool]], bool] = all, kinds: str = "fb"
) -> int | None:
    """Return the fewest cards with which the waits of these kinds hold, at all or at any of the seeds."""
    limits = dict(zip("fb", (first, between), strict=True))
    for n in sorted(waits):
        pairs = [dict(zip("fb", pair, strict=True)) for pair in waits[n]]
        if of([all(pair[kind] <= limits[kind] for kind in kinds) for pair in pairs]):
            return n
    return None


def mean_of(waits: Waits, first: float, between: float) -> int | None:
    """Return the fewest with which the means hold."""
    means = {n: [(sum(kind) / len(kind) for kind in zip(*pairs, strict=True))] for n, pairs in waits.items()}
    return fewest_of({n: [(a, b)] for n, ((a, b),) in means.items()}, first, between)


SEEN: Waits = {
    24: [(74, 16), (73, 16)],
    14: [(919, 19), (945, 20)],
    15: [(345, 19), (260, 18)],
    16: [(161, 19), (178, 18)],
}
fewest_cards = Exercise(
    name="fewest_cards",
    todo="let fewest_cards return a number of cards, or None.",
    cases=[
        Case(
            (waits, first, between),
            f"fewest_cards for {first} ms to the first word and {between} between two",
        )
        for waits, first, between in [
            (SEEN, 300, 50),
            (SEEN, 310, 50),
            (SEEN, 178, 19),
            (SEEN, 80, 10),
            (SEEN, 1000, 18.5),
            ({8: [(50, 90), (60, 40)], 9: [(50, 30), (60, 40)]}, 60, 50),
        ]
    ],
    right=fewest_of,
    wrong=[
        "one lucky run is not enough: the waits must hold each time.",
        partial(fewest_of, of=any),
        "on average: the unluckier run is the one that people complain of.",
        mean_of,
        "the first word alone: nobody may wait too long between two words either.",
        partial(fewest_of, kinds="f"),
        "the wait between two words alone: the first word has a limit, too.",
        partial(fewest_of, kinds="b"),
        "the most cards: each costs money.",
        lambda waits, *most: -(fewest_of({-n: pairs for n, pairs in waits.items()}, *most) or 0) or None,
    ],
    said="16 cards for a first word within 0.3 s each time; 15 would be late in one of two runs.",
)
