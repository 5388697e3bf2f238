"""A recorded report, and the predictions and the exercises of notebook 24, only valid words."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.constrained import grammar

# The reply of the cell `c24-loop`, which the first picture shows before the page has built what writes it.
WEEK = (
    "Monday is windy in Oslo . Tuesday is stormy in Oslo . Wednesday is cloudy in Oslo . "
    "Thursday is stormy in Oslo . Friday is rainy in Oslo . "
    "Saturday is rainy in Oslo . Sunday is snowy in Oslo . Signed by Mia from Oslo . <eos>"
).split()
CHOSEN = range(2, 42, 6)  # the indices of the words that the model chose: one in each sentence of six words

NONE = grammar.NONE

# The table of a grammar with two texts. Their first word leads from state 0 to state 1, in which two words
# are allowed. After the first of these, two more words follow, and after the second, one. Both texts end in
# state 5.
FORK_TABLE = np.full((6, 4), NONE)
FORK_TABLE[[0, 1, 1, 2, 3, 4], [1, 0, 2, 3, 1, 2]] = [1, 2, 4, 3, 5, 5]
END_AT_ZERO_TABLE = np.array(
    [[NONE, NONE], [0, NONE], [NONE, 1]]
)  # two words lead from state 2 to the end, state 0


def forced_words_or_states(
    table: np.ndarray, state: int, max_words: int = 9, return_states: bool = False
) -> list[int]:
    """Return the forced words that follow a state, or the states after these words.

    Args:
        table: the table of the grammar.
        state: the state from which the words are forced.
        max_words: maximum number of words.
        return_states: whether to return the states, which is a typical wrong answer.
    """
    run = grammar.forced_words(table, state)[:max_words]
    return grammar.states_after(table, state, run) if return_states else run


def first_allowed_words(table: np.ndarray, state: int) -> list[int]:
    """Return the words from a state to the end of a text. In each state, the first allowed word is chosen."""
    run = list[int]()
    while len(may := np.flatnonzero(table[state] != NONE)):
        run.append(int(may[0]))
        state = table[state, run[-1]]
    return run


must_come = Exercise(
    name="must_come",
    todo="let must_come return the words that must come next.",
    cases=[
        Case((FORK_TABLE, 0), "must_come from state 0"),
        Case((FORK_TABLE, 2), "must_come from state 2"),
        Case((FORK_TABLE, 4), "must_come from state 4"),
        Case((END_AT_ZERO_TABLE, 2), "must_come from state 2 of another table, whose end is state 0"),
        Case((FORK_TABLE, 1), "must_come from state 1, a choice", failure_hint="no word is forced: give []."),
        Case(
            (FORK_TABLE, 5),
            "must_come from state 5, the end",
            failure_hint="at the end no word may come: give [].",
        ),
    ],
    right_answer=grammar.forced_words,
    wrong_answers=[
        "go on from the state after the word: several in a row may be forced.",
        lambda table, state: forced_words_or_states(table, state, max_words=1),
        "stop before a state where several words may come: there is a choice.",
        first_allowed_words,
        "return the words, the columns of the table, not the states after them.",
        lambda table, state: forced_words_or_states(table, state, return_states=True),
        "the model chooses only where several words may come.",
        lambda table, state: np.flatnonzero(table[state] != NONE).tolist(),
    ],
    success="one word before a choice, two to the end, and none where two may come or nothing follows.",
)


def check_warm_texts_guess(guess: Any) -> Guess:
    """Compare a guess of whether rejection sampling gives more texts "warm" than masking does.

    Rejection sampling generates texts again until they are valid. Masking prevents invalid words. The guess
    says whether 100 valid texts contain "more", "fewer" or "as many" texts "warm" with rejection sampling.
    """
    why = "A whole text counts. delicious after nice is so rare that nice delicious hardly ever comes."
    return Guess(guess, "more", why, options=["more", "fewer", "as many"])
