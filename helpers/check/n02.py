"""Exercises of notebook 02, prefill: `from helpers.check import n02 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess

NUMBERS = [float(toy.NUMBERS[word]) for word in toy.PROMPT]
T = len(NUMBERS)


Prefill = Callable[[Sequence[float]], np.ndarray]


def prefill_that(sees: Callable[[int, int, str], int]) -> Prefill:
    """Return a prefill whose row t of n sees so many tokens in a head: as many as it should, or too many."""

    def row(t: int, x: Sequence[float]) -> list[float]:
        return [toy.four_heads([*x[: sees(t, len(x), name)]])[h] for h, name in enumerate(toy.HEADS)]

    return lambda numbers: np.array([row(t, numbers) for t in range(1, len(numbers) + 1)])


PREFILLS: dict[str, Prefill] = {  # those after the first two look ahead
    "the right prefill": toy.prefill_matrix,
    "a masked prefill of other heads": lambda numbers: -toy.prefill_matrix(numbers),
    "a prefill that has no causal mask": prefill_that(lambda t, n, head: n),
    "a prefill whose tokens see one too many": prefill_that(lambda t, n, head: min(t + 1, n)),
    "a prefill whose first token sees all": prefill_that(lambda t, n, head: n if t == 1 else t),
    "a prefill whose middle token sees all": prefill_that(lambda t, n, head: n if t == (n + 1) // 2 else t),
    "a prefill whose `newest` sees all": prefill_that(lambda t, n, head: n if head == "newest" else t),
    "a prefill whose `all` sees all": prefill_that(lambda t, n, head: n if head == "all" else t),
    "a prefill whose first two lines move, but no column's sum": lambda x: (
        toy.prefill_matrix(x) + x[-1] * np.array([1, -1, *[0] * (len(x) - 2)])[:, None]
    ),
}


def two_runs(rows: Callable[..., Any], last: float = 500.0) -> Callable[[Prefill], bool]:
    """Return a test that changes the last number and compares some of the table."""
    changed = [*NUMBERS[:-1], last]
    return lambda prefill: bool(np.allclose(rows(prefill(NUMBERS)), rows(prefill(changed))))


change_future = Exercise(
    name="test_future",
    todo="let test_future return True or False.",
    cases=[Case((prefill,), f"test_future with {name}") for name, prefill in PREFILLS.items()],
    right=two_runs(lambda table: table[:-1]),
    wrong=[
        "the line of the changed number, or one after it, is compared too; those may change.",
        two_runs(lambda table: table),
        two_runs(lambda table: table[-1]),
        "True each time: are the two lists of numbers different (`b = a` is no copy)? Is all compared?",
        two_runs(lambda table: table, last=NUMBERS[-1]),
        "not every earlier line is compared.",
        *[two_runs(lambda table, rows=rows: table[rows]) for rows in (0, slice(2), -2)],
        "not all four columns are compared.",
        *[two_runs(lambda table, head=head: table[:-1, head]) for head in (0, 1, 3)],
    ],
    success="your test passes two prefills with a mask, and catches all seven that look ahead.",
)


def lines_changed(guess: Any) -> Guess:
    """Compare a guess with the lines, from 1, that change when *so* carries 500."""
    changed = toy.prefill_matrix([*NUMBERS[:-1], 500.0]) != toy.prefill_matrix(NUMBERS)
    guess = [guess] if isinstance(guess, int) else guess  # 4 is as good as [4]
    return Guess(guess, [int(t) for t in np.flatnonzero(changed.any(axis=1)) + 1])
