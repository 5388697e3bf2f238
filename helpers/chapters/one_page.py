"""The exercise of one_page.ipynb."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.check.exercise import Exercise
from helpers.check.result import format_value


def drop_first_tokens(entries: np.ndarray, n: int) -> np.ndarray:
    """Return a layer's K or V, (heads, S, D), without the entries of the first n tokens."""
    return entries[:, n:]


def numbered_entries(n_tokens: int) -> np.ndarray:
    """Return rows for a test, (2, n_tokens, 3), in which each number is the position of its token, from 1."""
    return np.tile(np.arange(1.0, n_tokens + 1)[:, None], (2, 1, 3))


def token_positions_in_words(rows: np.ndarray) -> str:
    """Return the token positions of entries from `numbered_entries` as text."""
    return format_value(np.unique(rows).astype(int))


forget = Exercise(
    name="forget",
    todo="let forget return the rows without those of the first n tokens.",
    cases=[(numbered_entries(5), 2), (numbered_entries(4), 3), (numbered_entries(3), 0)],
    right_answer=drop_first_tokens,
    wrong_answers=[
        "heads were cut off, not tokens: in (2, S, 32) the second axis counts tokens.",
        lambda rows, n: rows[n:],
        "the first n rows were kept; they are the ones to forget.",
        lambda rows, n: rows[:, :n],
        "the newest n rows went; the first n are to be forgotten.",
        lambda rows, n: rows[:, : rows.shape[1] - n],
        "numbers of each row were cut off, not rows.",
        lambda rows, n: rows[..., n:],
    ],
    success="3 of 5 rows are left when 2 are forgotten.",
    describe_difference=lambda got, expected: (
        f"leaves tokens {token_positions_in_words(got)}; expected {token_positions_in_words(expected)}"
    ),
)


def reader_answer_or_solution(answer: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the reader's `forget` if it is right, and `drop_first_tokens` if not."""
    return answer if forget(answer).solved else drop_first_tokens
