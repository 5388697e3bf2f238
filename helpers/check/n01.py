"""Exercises of notebook 01, four heads by hand: `from helpers.check import n01 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.result import NotRightError, describe
from helpers.sampling import softmax

CARRIED = [toy.NUMBERS[word] for word in toy.PROMPT]
T = len(CARRIED)


def mean(numbers: Sequence[float]) -> float:
    """Return the average; 0 of nothing."""
    return sum(numbers) / len(numbers) if len(numbers) else 0.0


pick_even = Exercise(
    name="pick_even",
    todo="let pick_even return the average of the numbers at positions 2, 4, 6, …",
    cases=[
        *[(CARRIED,), (CARRIED[:3],)],
        Case((CARRIED[:1],), trap="no visible token stands at an even position: there the answer is 0."),
        ([3, 5, 2, 8, 5, 4],),
    ],
    right=lambda visible: mean(visible[1::2]),
    wrong=[
        "counted from 0. Positions count from 1, so position 2 is visible[1].",
        lambda visible: mean(visible[::2]),
        lambda visible: mean(visible[2::2]),
        "all visible numbers were averaged, not those at even positions.",
        mean,
        "the sum is divided by another number than how many were picked.",
        lambda visible: sum(visible[1::2]) / len(visible),
        lambda visible: sum(visible[1::2]) / 2,
        "even numbers were picked; the head picks even positions, whatever number stands there.",
        lambda visible: mean([number for number in visible if number % 2 == 0]),
        "added up, not averaged.",
        lambda visible: sum(visible[1::2]),
    ],
    said="12.5 at `so`, 0 at `Today`, and 5.67 on a list of six.",
)


HEADS = {"even": pick_even.right, "newest": lambda numbers: numbers[-1], "first": lambda numbers: numbers[0]}


def table_with(**otherwise: Callable[[Sequence[float]], float]) -> dict[str, list[float]]:
    """Return the table of the prompt, a row for each word, but for the heads that are given."""
    heads = HEADS | {"all": mean} | otherwise
    return {word: [heads[name](CARRIED[:t]) for name in toy.HEADS] for t, word in enumerate(toy.PROMPT, 1)}


def read_cell(table: dict[str, list[float]], word: str, head: int) -> Any:
    """Return one cell of a reader's table, or raise NotRightError if there is none."""
    if not isinstance(table, dict) or word not in table:
        raise NotRightError(f"there is no line `{word}`; expected a dict with {', '.join(toy.PROMPT)}.")
    row = table[word]
    if row is not ... and (not isinstance(row, list | tuple) or len(row) != len(toy.HEADS)):
        names = ", ".join(toy.HEADS)
        raise NotRightError(f"line `{word}` is {describe(row)}; expected four numbers: {names}.")
    return row if row is ... else row[head]


def cell(word: str, head: int) -> Case:
    """Return the case of one cell; what belongs there is said in words."""
    name, visible = toy.HEADS[head], CARRIED[: toy.PROMPT.index(word) + 1]
    picked = [visible[1::2], visible[-1:], visible[:1], visible][head]
    numbers = " and ".join([", ".join(map(str, picked[:-1])), *map(str, picked[-1:])])
    wanted = f"the average of {numbers}" if picked[1:] else f"{sum(picked)}, all there is to pick"
    return Case((word, head), f"`{word}` under `{name}`", wanted=wanted if picked else "0, nothing to pick")


table = Exercise(
    name="table",
    todo="fill in the table, a line of four numbers for each word.",
    cases=[cell(word, head) for word in ("weather", "is", "so", "Today") for head in range(len(toy.HEADS))],
    run=read_cell,
    right=table_with(),
    wrong=[
        f"divided by the prompt's length, {T}; divide by how many tokens are visible from here.",
        table_with(all=lambda visible: sum(visible) / T),
        "it sees the future: a token may look at itself and at what stands before it.",
        dict.fromkeys(toy.PROMPT, table_with()["so"]),
        "positions count from 1: `Today` stands at an odd one, `weather` at an even one.",
        table_with(even=lambda visible: mean(visible[::2])),
        "added up, not averaged.",
        table_with(even=lambda visible: sum(visible[1::2]), all=sum),
        "`newest` and `first` go by position: the latest token, and the one at position 1.",
        table_with(newest=lambda visible: visible[0], first=lambda visible: visible[-1]),
        table_with(newest=max, first=min),
        "rounded too far: keep two digits after the point.",
        table_with(all=lambda visible: round(mean(visible), 1)),
    ],
    said="all 16 cells, 12.5, 5, 10, 9 in the line of `so`, and 0 where nothing is picked.",
)


def masked(scores: np.ndarray, hidden: float = -np.inf) -> np.ndarray:
    """Return scores in which the future is hidden."""
    return np.where(toy.causal_mask(len(scores)), scores, hidden)


PROMPT = np.array(CARRIED, dtype=float)
RULES = dict(zip(toy.HEADS, toy.rule_scores(T), strict=True))
THREE = np.array([[0.0, 1, 2], [2, 0, 1], [1, 1, 0]]), np.array([3.0, 6, 12])
NOTHING = "token 1 has nothing to pick: its scores are all -inf, and a plain softmax divides 0 by 0."
attend = Exercise(
    name="attend",
    todo="let attend mask the scores, take the softmax, and average the values.",
    cases=[
        Case((RULES["all"], PROMPT), "attend under `all`"),
        Case(THREE, "attend with the scores [0 1 2], [2 0 1], [1 1 0] on 3, 6, 12"),
        Case((RULES["even"], PROMPT), "attend under `even`", NOTHING),
        Case((toy.rule_scores(6)[1], np.array([3.0, 8, 2, 6, 4, 7])), "attend under `newest` on six numbers"),
    ],
    right=toy.attend,
    wrong=[
        "weights multiplied by the mask after the softmax: only the last line sums to 1.",
        lambda scores, values: softmax(scores) * toy.causal_mask(len(scores)) @ values,
        "masked scores set to 0. A score of 0 still gets weight, as e^0 is 1; -inf gets none.",
        lambda scores, values: softmax(masked(scores, 0.0)) @ values,
        lambda scores, values: softmax(scores * toy.causal_mask(len(scores))) @ values,
        "no mask: every token sees the whole prompt.",
        lambda scores, values: softmax(scores) @ values,
        "a large negative number, not -inf: a line with nothing else left averages what is masked.",
        lambda scores, values: softmax(masked(scores, -1e9)) @ values,
        "the softmax or the average goes down a column; a line, one query, has weights that sum to 1.",
        lambda scores, values: softmax(masked(scores).T).T @ values,
        lambda scores, values: values @ softmax(masked(scores)),
        f"the mask is made for {T} tokens; there may be more or fewer, as many as values.",
        lambda scores, values: softmax(np.where(toy.causal_mask(T), scores, -np.inf)) @ values,
    ],
    said="10, 15, 10.33, 9 under `all`, and 0, 20, 20, 12.5 under `even`, 0 where nothing is picked.",
)
