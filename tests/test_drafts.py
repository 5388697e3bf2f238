"""What drafts give and cost: closed forms against games played out, and the explorer of 18."""

from __future__ import annotations

import itertools
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from helpers import explorers
from helpers.cost import drafts
from helpers.explorers.drafts import MOST, SHARES, verify
from tests.test_explorers import plain

FREE = partial(verify, more=0.0)  # a word more in a pass costs nothing


def test_words_a_pass_are_those_of_games_played_out() -> None:
    rng = np.random.default_rng(0)
    for alpha, k in ((0.3, 1), (0.8, 4), (0.95, 8)):
        taken = rng.random((20_000, k)) < alpha
        counted = 1 + np.cumprod(taken, axis=1).sum(axis=1).mean()
        assert drafts.times_as_fast(alpha, k, 0.0, FREE) == pytest.approx(counted, rel=0.02)
    assert drafts.times_as_fast(1.0, 7, 0.0, FREE) == 8
    assert drafts.times_as_fast(0.0, 7, 0.0, FREE) == drafts.times_as_fast(0.9, 0, 0.0, FREE) == 1


def test_when_drafts_pay() -> None:
    assert drafts.times_as_fast(0.5, 1, 0.0, FREE) == 1.5
    assert drafts.times_as_fast(0.5, 2, 0.25, FREE) == pytest.approx(1.75 / 1.5)
    assert drafts.times_as_fast(1.0, 4, 0.0, partial(verify, more=1.0)) == 1  # each word costs a pass


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: drafts.times_as_fast(1.1, 2, 0.0, FREE), "alpha is 1.1; expected a share"),
        (lambda: drafts.times_as_fast(-0.1, 2, 0.0, FREE), "alpha is -0.1"),
        (lambda: drafts.times_as_fast(0.5, -1, 0.0, FREE), "k is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(use: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use()


def test_drafts_that_pay() -> None:
    explorer = explorers.drafts_that_pay()
    first: dict[str, Any] = {"k": 4, "alpha": 0.7, "draft": 0.15, "more": 0.05}
    assert plain(explorer.say(**first)) == (
        "2.77 words on average in the time of 1.80 passes: 1.54 times, faster . A draft more brings 0.17 "
        "words, and has to bring more than 0.20 passes × 1.54 = 0.31: it does not pay."
    )
    assert explorer.say(**first | {"k": 2}).endswith("= 0.31: it pays.")
    assert "slower" in explorer.say(**first | {"draft": 1.0})
    assert "k = 4 1.54 times k = 5" in plain(explorer.draw(**first))
    for k, alpha, draft, more in itertools.product((1, MOST), (0.0, 1.0), SHARES[::5], SHARES[::5]):
        html = explorer.draw(k=k, alpha=alpha, draft=draft, more=more)
        assert max(float(width) for width in re.findall(r"width:([\d.]+)%", html)) == 100
