"""What A2, the rest of the museum, uses: its exercise."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.chapters.n22 import HIDDEN, run_in_room
from helpers.chapters.n22 import cause as cause
from helpers.check.exercise import Case, Exercise


def newest(at: Sequence[Sequence[int]]) -> int:
    """Return where the next token stands."""
    return max((layer[-1] + 1 for layer in at if len(layer)), default=0)


next_position = Exercise(
    name="next_position",
    todo="let next_position return a whole number.",
    cases=[
        Case(([[0, 1, 2], [0, 1, 2]],)),
        Case(([[3, 4, 5], [0, 1, 2, 3, 4, 5]],)),
        Case(([[0, 1, 2, 3, 4, 5, 6], [4, 5, 6]],)),
        Case(([[3, 4, 5], [3, 4, 5]],)),
        Case(([[0, 1, 7, 8, 9], [0, 1, 7, 8, 9]],)),
        Case(([[], []],), trap="an empty cache keeps no row: the first token stands at 0."),
        Case(
            ("rows_kept_taken_for_position", HIDDEN[0]), "the repaired room 3, asked what you have not seen,"
        ),
        Case(
            ("length_asked_of_the_window_layer", HIDDEN[1]),
            "the repaired room 9, asked what you have not seen,",
        ),
    ],
    right=newest,
    run=run_in_room,
    wrong=[
        "layer 0 was asked how many rows it keeps; it keeps a window.",
        lambda at: len(at[0]),
        "rows were counted; where all layers let rows go, no layer's count is the position.",
        lambda at: max(map(len, at)),
        "where the newest token stands; the next one stands one further.",
        lambda at: max((layer[-1] for layer in at if len(layer)), default=0),
        "rows were counted from the oldest on; between two rows others may have left.",
        lambda at: at[0][0] + len(at[0]) if len(at[0]) else 0,
    ],
    success="the newest row knows where it stands, however many others have left.",
)
