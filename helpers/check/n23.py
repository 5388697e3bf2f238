"""Exercises of notebook 23, a state instead of rows: `from helpers.check import n23 as check`."""

from __future__ import annotations

from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess


def least(state: int, row: int, n_layers: int, with_rows: int, beside: int = 0) -> int | None:
    """Return from how many tokens on a model with states keeps fewer bytes than one with rows everywhere.

    `beside`: layers more in which a token's row is counted.
    """
    with_state = n_layers - with_rows
    return with_state * state // ((with_state + beside) * row) + 1 if with_state else None


pays_from = Exercise(
    name="pays_from",
    todo="let pays_from return a number of tokens, or None.",
    cases=[
        *[(16384, 512, 4, 0), (16384, 512, 4, 1), (1000, 300, 6, 2), (4096, 64, 12, 3)],
        Case((16384, 512, 4, 4), trap="where every layer keeps rows, give None."),
    ],
    right=least,
    wrong=[
        "at that number both keep as many bytes; the first at which the state keeps fewer is asked for.",
        lambda *sizes: None if (n := least(*sizes)) is None else n - 1,
        lambda state, row, L, R: None if L == R else -(-state // row),
        "a row was counted in layers that keep rows anyway: in those layers nothing is saved.",
        lambda state, row, L, R: least(state, row, L, R, beside=R),
        "a state in every layer was counted: some layers keep rows.",
        lambda state, row, L, R: None if L == R else L * state // ((L - R) * row) + 1,
    ],
    said="33 tokens with 16 KiB a state and 512 bytes a row, in one layer or in four.",
)  # fmt: skip


def runs(snapshots: list[int], length: int, to: int, states: bool) -> int:
    """Return how many tokens run again to go back from `length` to `to`."""
    if to == length or not states:
        return 0
    return to - max([0, *(at for at in snapshots if at <= to)])


run_again = Exercise(
    name="run_again",
    todo="let run_again return a number of tokens.",
    cases=[
        *[([100, 200, 300], 340, 250, True), ([100, 200, 300], 340, 200, True), ([], 340, 250, True)],
        *[([300], 340, 250, True), ([100, 200], 340, 340, True), ([200, 100], 340, 299, True)],
        Case(([100, 200, 300], 340, 250, False), trap="rows can be cut off anywhere."),
    ],
    right=runs,
    wrong=[
        "a snapshot behind the place has taken in what should be gone: look before it only.",
        lambda snapshots, length, to, states: (
            runs(snapshots, length, to, states)
            if not states or to == length
            else abs(to - min([0, *snapshots], key=lambda at: (abs(at - to), -at)))
        ),
        lambda snapshots, length, to, states: max(0, to - max([0, *snapshots])) if states else 0,
        "without a snapshot before it the text runs again from its first token.",
        lambda snapshots, length, to, states: (
            runs(snapshots, length, to, states) if not states or any(at <= to for at in snapshots) else 0
        ),
        "the nearest snapshot before the place is the newest one there, not the oldest.",
        lambda snapshots, length, to, states: (
            0 if not states or to == length else to - next((at for at in sorted(snapshots) if at <= to), 0)
        ),
        "rows can be cut off: where no layer keeps a state, nothing runs again.",
        lambda snapshots, length, to, states: runs(snapshots, length, to, True),
        "it is there already: nothing has to be taken back.",
        lambda snapshots, length, to, states: (
            0 if not states else to - max([0, *(at for at in snapshots if at <= to)])
        ),
    ],
    said="50 from a snapshot at 200 to the place 250, all 250 without one, and none where rows are kept.",
)


def reading(guess: Any, read: Any) -> Guess:
    """Compare a guess of what a query reads."""
    return Guess(guess, read, "The two values that came in with this key were added, and stay added.")


def facts_found(guess: Any, share: float) -> Guess:
    """Compare a guess with how many of 128 facts are found, of 0, 32, 64, 96 and 128 the nearest."""
    said = f"{128 * share:.0f} of 128, on average."
    return Guess(guess, min(range(0, 129, 32), key=lambda n: abs(n - 128 * share)), said)
