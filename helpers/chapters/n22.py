"""The grids, the guesses and the exercises of notebook 22, the museum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from helpers import plots
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture
from helpers.museum import EXHIBITS, Exhibit, ExhibitPrompt

# Texts that are not shown in any notebook.
UNSEEN_TEXTS = (
    "Tomas lives in Berlin . Saturday is windy in Berlin . Tomas saw a bird in the garden . "
    "Tomas swam in the river . A cat slept in the harbor . Signed",
    "This is the diary of Amir from Istanbul . Amir walked to the garden in Istanbul . The morning in "
    "Istanbul was rainy . Tuesday is snowy in Istanbul . There was thunder over the river . Signed",
)


def grid(room: Exhibit) -> Picture:
    """Draw how far the two runs of an exhibit differ, in each pass and layer."""
    passes = room.run_both(room.failing_prompt).buggy.trace.runs[0].passes
    n_prefill = sum(one.phase == "prefill" for one in passes)
    return plots.fingerprint_grid(room.fingerprint().max_differences, n_prefill, room.tolerance)


def recorded(room: Exhibit) -> list[dict[str, list[list[Tensor]]]]:
    """Return what the two runs of an exhibit computed, without and with the bug.

    Each is a dict from "visible tokens", "attention weights" and "context" to tensors by [pass][layer], which
    have a row for each token of the pass.
    """
    return [
        {kind: [[layer[kind] for layer in one] for one in run.recorded] for kind in run.recorded[0][0]}
        for run in room.run_both(room.failing_prompt)
    ]


class LetterGuess(Guess):
    """A guess of a letter ("a", "b" or "c") that the reader writes in the cell that compares it."""

    def __repr__(self) -> str:
        asked = 'Write "a", "b" or "c" in place of None, and run the cell again. The answer is folded below.'
        return asked if self.guess is None else super().__repr__()


def check_cause_guess(exhibit: Exhibit, guess: str | None) -> Guess:
    """Compare a guess with the letter of the right cause of an exhibit's bug."""
    return LetterGuess(
        guess,
        "abc"[exhibit.correct_cause],
        f"{exhibit.causes[exhibit.correct_cause]}.".capitalize(),
        options=["a", "b", "c"],
    )


def mask_with_padding(T: int, n_cached: int, n_padding: int, after_cached: bool = True) -> Tensor:
    """Return the attention mask for T new tokens, of shape (T, n_cached + T).

    It is True where a query (row) may attend to a key (column).

    Args:
        T: number of new tokens.
        n_cached: number of cached tokens.
        n_padding: number of padding tokens at the start of the cache. No query may attend to them.
        after_cached: whether the positions of the queries follow those of the cached tokens. False gives the
            mask of a typical bug.
    """
    keys, at = torch.arange(n_cached + T), torch.arange(T)[:, None] + n_cached * after_cached
    return (keys <= at) & (keys >= n_padding)


def run_or_repair_exhibit(answer: Callable[..., Any], *args: Any) -> Any:
    """Call the reader's mask function, or run an exhibit that uses it to repair its bug.

    Args:
        answer: the reader's function.
        args: either the function's arguments, or the name of an exhibit and a prompt. In the second case, the
            reply of the repaired exhibit is returned.
    """
    if not isinstance(args[0], str):
        return answer(*args)
    name, text = args
    return EXHIBITS[name].answer(ExhibitPrompt(text), with_bug=True, mask_function=answer).reply_text


visible = Exercise(
    name="visible",
    todo="let visible return a tensor of bools, (T, length + T).",
    cases=[
        *[(3, 0, 0), (2, 3, 0), (1, 6, 0), (1, 6, 3), (2, 4, 2)],
        Case(
            ("bug_mask_aligned_top_left", UNSEEN_TEXTS[0]),
            "the repaired room 1, with a text that you have not seen,",
        ),
        Case(
            ("bug_padding_visible_in_decode", UNSEEN_TEXTS[1]),
            "the repaired room 2, with a text that you have not seen,",
        ),
    ],
    right_answer=mask_with_padding,
    run_case=run_or_repair_exhibit,
    wrong_answers=[
        "the diagonal begins at the first entry, but the new tokens come after `length` stored ones.",
        lambda T, length, pads: mask_with_padding(T, length, pads, after_cached=False),
        "the padding is visible to a single token: hide it in every pass, not in prefill alone.",
        lambda T, length, pads: mask_with_padding(T, length, pads if T > 1 else 0),
        "the padding is visible: the first `pads` columns belong to no word.",
        lambda T, length, pads: mask_with_padding(T, length, 0),
        "tokens attend to later ones of the same pass.",
        lambda T, length, pads: (torch.arange(length + T) >= pads).expand(T, -1),
    ],
    success="one mask repairs both rooms: it begins after the stored entries and hides the padding.",
)


def count_wrong_exhibits(text: str) -> int:
    """Return how many of two exhibits give a wrong result for a text."""
    rooms = [EXHIBITS[name] for name in ("bug_padding_visible_in_decode", "bug_entry_count_as_position")]
    return sum(room.first_difference(ExhibitPrompt(text)) != "equal" for room in rooms)


second = Exercise(
    name="second",
    todo="write a text of words that the model knows.",
    cases=[Case((), "the number of rooms that go wrong")],
    right_answer="Today weather is so",
    run_case=count_wrong_exhibits,
    wrong_answers=[
        "room 3 drops entries of this text, and room 2 pads it: try a much shorter one, or a longer one.",
        UNSEEN_TEXTS[0],
    ],
    success="a text that one of the two causes cannot touch tells them apart.",
)
