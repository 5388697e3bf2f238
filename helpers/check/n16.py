"""Exercises of notebook 16, serving many: `from helpers.check import n16 as check`."""

from __future__ import annotations

import operator
from functools import partial

from helpers.check.exercise import Case, Exercise


def dealt(waiting: list[int], running: int, budget: int, whole: bool = False, by: bool = False) -> list[int]:
    """Deal out a budget; where prompts go `whole` or not at all, those that fit may pass others `by`."""
    left, given = budget - running, []
    for tokens in waiting:
        fits = tokens <= left
        given.append(tokens if fits else 0 if whole else left)
        left -= given[-1] if fits or by or not whole else left
    return given


next_step = Exercise(
    name="next_step",
    todo="let next_step return a list: how many tokens each prompt runs.",
    cases=[
        *[([5, 12, 4], 3, 10), ([20], 2, 8), ([3, 3], 4, 16)],
        *[([4, 2], 6, 6), ([7, 2], 1, 6), ([], 2, 4)],
    ],
    right=dealt,
    wrong=[
        "the running come first: each takes one token of the budget.",
        lambda waiting, running, budget: dealt(waiting, 0, budget),
        "a prompt that does not fit runs in chunks: it gets what is left.",
        partial(dealt, whole=True),
        partial(dealt, whole=True, by=True),
        "the whole of each: what one gets, the next cannot get too.",
        lambda waiting, running, budget: [min(n, budget - running) for n in waiting],
        lambda waiting, running, budget: [*waiting],
        "shared out evenly: the one who came first gets all it can use.",
        lambda waiting, running, budget: [min(n, (budget - running) // len(waiting)) for n in waiting],
    ],
    success="3 who run and a budget of 10 leave 7: 5 for the first prompt, 2 for the second.",
)

KNOBS = {
    "people wait in line": "more slots",
    "words stall": "smaller budget",
    "a long first wait": "larger budget",
    "slow and full": "another machine",
}


def turning(complaint: str, *others: str) -> list[dict[str, str]]:
    """Return answers in which one complaint gets another choice."""
    return [KNOBS | {complaint: other} for other in others]


knobs = Exercise(
    name="knobs",
    todo="write one of CHOICES for each complaint.",
    cases=[Case((complaint,), complaint, wanted="another choice") for complaint in KNOBS],
    right=KNOBS,
    run=operator.getitem,
    wrong=[
        "those in line have no slot; a budget deals out the tokens of those who have one.",
        *turning("people wait in line", "smaller budget", "larger budget"),
        "one step with the whole book takes 130 ms, on any number of slots: a smaller budget cuts it up.",
        *turning("words stall", "more slots", "larger budget", "another machine"),
        "slots are free and nobody waits but for this prompt: its chunks are too small.",
        *turning("a long first wait", "more slots", "smaller budget", "another machine"),
        "words are late without any prompt beside them: no budget changes that, and the machine is full.",
        *turning("slow and full", "smaller budget", "larger budget"),
    ],
    success="a line wants slots, stalls a smaller budget, slow prompts a larger one, a full machine another.",
)
