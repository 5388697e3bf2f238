"""What drafts give and cost: closed forms against games played out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.cost import drafts


def free(words: int) -> float:
    """Return the time of a pass where a word more costs nothing."""
    return 1.0


def test_words_a_pass_are_those_of_games_played_out() -> None:
    rng = np.random.default_rng(0)
    for alpha, k in ((0.3, 1), (0.8, 4), (0.95, 8)):
        taken = rng.random((20_000, k)) < alpha
        counted = 1 + np.cumprod(taken, axis=1).sum(axis=1).mean()
        assert drafts.times_as_fast(alpha, k, 0.0, free) == pytest.approx(counted, rel=0.02)
    assert drafts.times_as_fast(1.0, 7, 0.0, free) == 8
    assert drafts.times_as_fast(0.0, 7, 0.0, free) == drafts.times_as_fast(0.9, 0, 0.0, free) == 1


def test_when_drafts_pay() -> None:
    assert drafts.times_as_fast(0.5, 1, 0.0, free) == 1.5
    assert drafts.times_as_fast(0.5, 2, 0.25, free) == pytest.approx(1.75 / 1.5)
    assert drafts.times_as_fast(1.0, 4, 0.0, float) == 1  # each word costs a pass


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: drafts.times_as_fast(1.1, 2, 0.0, free), "alpha is 1.1; expected a share"),
        (lambda: drafts.times_as_fast(-0.1, 2, 0.0, free), "alpha is -0.1"),
        (lambda: drafts.times_as_fast(0.5, -1, 0.0, free), "k is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(use: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use()
