"""Exercises of notebook 23, a state instead of rows: `from helpers.check import n23 as check`."""

from __future__ import annotations

from functools import partial
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess


def newest_before(snapshots: list[int], to: int) -> int:
    """Return the newest snapshot that is not behind the place; 0 without one."""
    return max([0, *(at for at in snapshots if at <= to)])


def runs(snapshots: list[int], length: int, to: int, states: bool, begin: Any = newest_before) -> int:
    """Return how many tokens are processed again to go back from `length` to `to`."""
    return abs(to - begin(snapshots, to)) if states and to != length else 0


recomputed = Exercise(
    name="recomputed",
    todo="let recomputed return a number of tokens.",
    cases=[
        *[([100, 200, 300], 340, 250, True), ([100, 200, 300], 340, 200, True), ([], 340, 250, True)],
        *[([300], 340, 250, True), ([100, 200], 340, 340, True), ([200, 100], 340, 299, True)],
        Case(([100, 200, 300], 340, 250, False), trap="rows can be cut off anywhere."),
    ],
    right=runs,
    wrong=[
        "a snapshot behind the place has taken in what should be gone: look before it only.",
        partial(runs, begin=lambda snapshots, to: min([0, *snapshots], key=lambda at: (abs(at - to), -at))),
        partial(runs, begin=lambda snapshots, to: min(to, max([0, *snapshots]))),
        "without a snapshot before it the text is recomputed from its first token.",
        partial(runs, begin=lambda snapshots, to: newest_before(snapshots, to) or to),
        "the nearest snapshot before the place is the newest one there, not the oldest.",
        partial(runs, begin=lambda snapshots, to: next((at for at in sorted(snapshots) if at <= to), 0)),
        "rows can be cut off: where no layer keeps a state, nothing is recomputed.",
        lambda snapshots, length, to, states: runs(snapshots, length, to, True),
    ],
    success="50 from a snapshot at 200 to the place 250, all 250 without one, and none where rows are kept.",
)


def reading(guess: Any, read: Any) -> Guess:
    """Compare a guess of what a query reads."""
    return Guess(guess, read, "The two values that came in with this key were added, and stay added.")


def facts_found(guess: Any, share: float) -> Guess:
    """Compare a guess with how many of 128 facts are found, of 0, 32, 64, 96 and 128 the nearest."""
    sentence = f"{128 * share:.0f} of 128, on average."
    options = range(0, 129, 32)
    return Guess(guess, min(options, key=lambda n: abs(n - 128 * share)), sentence, options=options)
