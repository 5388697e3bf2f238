"""Exercises of notebook 01, four heads by hand: `from helpers.check import n01 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.check.result import NotRightError, describe

CARRIED = [toy.NUMBERS[word] for word in toy.PROMPT]
T = len(CARRIED)


def mean(numbers: Sequence[float]) -> float:
    """Return the average; 0 of nothing."""
    return sum(numbers) / len(numbers) if len(numbers) else 0.0


def newest_at_weather(guess: Any) -> Guess:
    """Compare a guess with what `newest` gives at `weather`."""
    return Guess(guess, CARRIED[1])


def weight_of_weather(guess: Any) -> Guess:
    """Compare a guess with the weight that `all` gives `weather` at `so`, whatever it carries."""
    return Guess(guess, 1 / T, "Scores are made of places. What a token carries plays no part in them.")


HEADS = {
    "even": lambda numbers: mean(numbers[1::2]),
    "newest": lambda numbers: numbers[-1],
    "first": lambda numbers: numbers[0],
}


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
    ],
    success="all 16 cells, 12.5, 5, 10, 9 in the line of `so`, and 0 where nothing is picked.",
)
