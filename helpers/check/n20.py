"""Exercises of notebook 20, a fleet: `from helpers.check import n20 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from helpers.check.exercise import Exercise


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
    ],
    success="10 requests a second need 1 and 2, and 20 with longer replies need 3 and 15.",
)
