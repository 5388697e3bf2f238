"""Exercises and guesses of notebook 22, the museum: `from helpers.check import n22 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.museum import EXHIBITS, Exhibit, Prompt

# Texts that the notebook does not show.
HIDDEN = (
    "Tomas lives in Berlin . Saturday is windy in Berlin . Tomas saw a bird in the garden . "
    "Tomas swam in the river . A cat slept in the harbor . Signed",
    "This is the diary of Amir from Istanbul . Amir walked to the garden in Istanbul . The morning in "
    "Istanbul was rainy . Tuesday is snowy in Istanbul . There was thunder over the river . Signed",
)


class Letter(Guess):
    """A guess that stands in the cell that compares it."""

    def __repr__(self) -> str:
        asked = 'Write "a", "b" or "c" in place of None, and run the cell again. The answer is folded below.'
        return asked if self.guess is None else super().__repr__()


def cause(exhibit: Exhibit, guess: str | None) -> Guess:
    """Compare a letter with that of an exhibit's cause."""
    return Letter(
        guess, "abc"[exhibit.cause], f"{exhibit.causes[exhibit.cause]}.".capitalize(), options=["a", "b", "c"]
    )


def mask(T: int, length: int, pads: int, offset: bool = True) -> Tensor:
    """Return who may look at whom: (T, length + T)."""
    keys, at = torch.arange(length + T), torch.arange(T)[:, None] + length * offset
    return (keys <= at) & (keys >= pads)


def run_in_room(answer: Callable[..., Any], *args: Any) -> Any:
    """Return what a function gives, or the reply of an exhibit, (name, text), that is repaired by it."""
    if not isinstance(args[0], str):
        return answer(*args)
    name, text = args
    return EXHIBITS[name].answer(Prompt(text), shipped=True, repair=answer).text


visible = Exercise(
    name="visible",
    todo="let visible return a tensor of bools, (T, length + T).",
    cases=[
        *[(3, 0, 0), (2, 3, 0), (1, 6, 0), (1, 6, 3), (2, 4, 2)],
        Case(("mask_is_aligned_top_left", HIDDEN[0]), "the repaired room 3, asked what you have not seen,"),
        Case(("padding_is_seen_in_decode", HIDDEN[1]), "the repaired room 4, asked what you have not seen,"),
    ],
    right=mask,
    run=run_in_room,
    wrong=[
        "the mask begins at the first row; the new tokens stand behind `length` rows that are there.",
        lambda T, length, pads: mask(T, length, pads, offset=False),
        "the padding is seen by a single token: hide it in every pass.",
        lambda T, length, pads: mask(T, length, pads if T > 1 else 0),
        "the padding is seen: columns before `pads` are nobody's words.",
        lambda T, length, pads: mask(T, length, 0),
        "tokens look ahead, at those after them in the same pass.",
        lambda T, length, pads: (torch.arange(length + T) >= pads).expand(T, -1),
    ],
    success="one mask for both rooms: behind the rows that are there, and never the padding.",
)


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
            ("rows_kept_taken_for_position", HIDDEN[0]), "the repaired room 5, asked what you have not seen,"
        ),
        Case(
            ("length_asked_of_the_window_layer", HIDDEN[1]),
            "the repaired room 6, asked what you have not seen,",
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


def which(text: str) -> str:
    """Say which of two exhibits goes wrong on a text."""
    rooms = [EXHIBITS[name] for name in ("padding_is_seen_in_decode", "rows_kept_taken_for_position")]
    wrong = [room for room in rooms if room.first_difference(Prompt(text)) != "equal"]
    return ("none goes wrong", "exactly one goes wrong", "both go wrong")[len(wrong)]


second = Exercise(
    name="second",
    todo="write a text of words that the model knows.",
    cases=[Case((), "rooms 4 and 5: of the two")],
    right="Today weather is so",
    run=which,
    wrong=[
        "the window drops rows of this text, and it is padded: try a much shorter one, or a longer one.",
        HIDDEN[0],
    ],
    success="a text that one of the two causes cannot touch tells them apart.",
)
