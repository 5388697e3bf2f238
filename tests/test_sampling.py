"""From logits to the next word: properties, an independent reading of each setting, and bad input."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from helpers import sampling
from helpers.sampling import Sampling

FEW = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
numbers = st.integers(-3000, 3000).map(lambda n: n / 100)  # apart enough to stay apart when rounded
rows = st.lists(numbers, min_size=1, max_size=12).map(np.array)


def as_logits(weights: list[float]) -> np.ndarray:
    """Logits whose softmax is `weights`; 0 is a banned word."""
    return np.array([math.log(w) if w > 0 else -math.inf for w in weights])


def kept_words(kept: np.ndarray) -> list[int]:
    return np.flatnonzero(np.isfinite(kept)).tolist()


def expected_probabilities(
    logits: np.ndarray, temperature: float, top_k: int | None, top_p: float | None
) -> np.ndarray:
    """Temperature, then top-k, then top-p, in exact arithmetic: words are dropped one by one.

    The semantics of the warpers of `transformers`, in its order, written out another way: top-k drops the
    smallest until k are left; top-p drops the smallest while the rest still holds p of what top-k left.
    """
    weights = [Fraction(math.exp((x - max(logits)) / temperature)) for x in logits]
    ranked = sorted(range(len(weights)), key=lambda i: (-logits[i], i))[:top_k]
    whole = sum(weights[i] for i in ranked)
    while len(ranked) > 1 and sum(weights[i] for i in ranked[:-1]) >= Fraction(top_p or 2) * whole:
        ranked.pop()
    left = sum(weights[i] for i in ranked)
    return np.array([float(weights[i] / left) if i in ranked else 0.0 for i in range(len(weights))])


def near_a_tie(logits: np.ndarray, temperature: float, top_k: int | None, top_p: float | None) -> bool:
    """Whether some sum of probabilities is p to the rounding: then either reading is right."""
    if top_p is None:
        return False
    weights = np.sort(expected_probabilities(logits, temperature, top_k, None))[::-1]
    return bool((np.abs(np.cumsum(weights) - top_p) < 1e-6).any())


def test_softmax_of_known_weights() -> None:
    np.testing.assert_allclose(sampling.softmax(as_logits([0.5, 0.25, 0.25])), [0.5, 0.25, 0.25], rtol=1e-15)
    assert sampling.softmax(np.array([0, -np.inf, 0])).tolist() == [0.5, 0, 0.5]
    assert sampling.softmax(np.array([1e4, -1e4])).tolist() == [1, 0]
    logits = as_logits([0.5, 0.25, 0.25, 0.125, 0.375, 0.5]).reshape(2, 3)
    rows = logits + np.array([[1000], [-1000]])  # each row its own peak
    np.testing.assert_allclose(sampling.softmax(rows), [[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]], rtol=1e-9)


def test_softmax_of_a_fully_masked_row_is_zero() -> None:
    assert sampling.softmax(np.array([[[-np.inf] * 2, [0, 0]]])).tolist() == [[[0, 0], [0.5, 0.5]]]


def test_greedy_ties_go_to_the_first() -> None:
    assert sampling.greedy(np.array([1.0, 3, 3, 2])) == 1
    assert sampling.greedy(np.array([-np.inf, -5])) == 1
    assert isinstance(sampling.greedy([0, 1]), int)  # type: ignore[arg-type]


def test_top_k_ties_go_to_the_first() -> None:
    """And top-p."""
    for n in (3, 17, 100):
        assert kept_words(sampling.keep_top_k(np.ones(n), 2)) == [0, 1]
        assert kept_words(sampling.keep_top_p(np.ones(n), 1.5 / n)) == [0, 1]


@pytest.mark.parametrize(
    ("weights", "p", "kept"),
    [
        ([0.5, 0.3, 0.2], 0.8, [0, 1]),  # 0.5 + 0.3 reach 0.8, rounded or not
        ([0.5, 0.3, 0.2], 0.8001, [0, 1, 2]),
        ([0.5, 0.3, 0.2], 0.79, [0, 1]),  # the word that crosses p is kept
        ([0.1, 0.6, 0.3], 0.9, [1, 2]),
        ([0.1] * 10, 0.3, [0, 1, 2]),  # 0.1 + 0.1 + 0.1 is a hair over 0.3
        ([0.1] * 10, 0.8, list(range(8))),  # eight times 0.1 is a hair under 0.8
        ([0.25] * 4, 0.5, [0, 1]),  # equal ones: the first
        ([0.5, 0.3, 0.2], 1e-12, [0]),  # never none
        ([0.6, 0.4, 0], 0.999, [0, 1]),
    ],
)
def test_top_p_keeps_the_smallest_set(weights: list[float], p: float, kept: list[int]) -> None:
    assert kept_words(sampling.keep_top_p(as_logits(weights), p)) == kept


@FEW
@given(rows, st.floats(0.1, 10), st.none() | st.integers(1, 12), st.none() | st.floats(0.01, 1))
def test_probabilities_equal_an_independent_implementation(
    row: np.ndarray, temperature: float, k: int | None, p: float | None
) -> None:
    k = None if k is None else min(k, len(row))
    assume(not near_a_tie(row, temperature, k, p))
    got = sampling.next_probabilities(row, temperature, k, p)
    np.testing.assert_allclose(got, expected_probabilities(row, temperature, k, p), rtol=1e-9, atol=1e-12)


def test_temperature_then_top_k_then_top_p() -> None:
    logits = as_logits([0.4, 0.3, 0.2, 0.1])
    # Temperature before top-p: at 0.5 the weights are squared, 16 9 4 1 of 30, and two reach 0.8 (25/30).
    # (After top-p it would have kept three: 0.4 + 0.3 is under 0.8.)
    got = sampling.next_probabilities(logits, 0.5, top_p=0.8)
    np.testing.assert_allclose(got, [16 / 25, 9 / 25, 0, 0], atol=1e-12)
    # Top-k before top-p: of three, 4 3 2 of 9, two reach 0.75; of all four, 0.4 + 0.3 would not.
    got = sampling.next_probabilities(logits, 1.0, 3, 0.75)
    np.testing.assert_allclose(got, [4 / 7, 3 / 7, 0, 0], atol=1e-12)


@FEW
@given(st.lists(st.integers(-40, 40), min_size=1, max_size=12, unique=True))
def test_temperature_sharpens_and_flattens(row: list[int]) -> None:
    logits = np.array(row, dtype=float)
    assert sampling.next_probabilities(logits, 1e-9).tolist() == [x == max(row) for x in row]
    assert sampling.next_probabilities(logits, 5e-324).tolist() == [x == max(row) for x in row]
    flat = sampling.next_probabilities(logits, 1e9)
    np.testing.assert_allclose(flat, np.full(len(row), 1 / len(row)), rtol=1e-6)  # e**(80 / 1e9)
    np.testing.assert_allclose(sampling.next_probabilities(logits), sampling.softmax(logits), rtol=1e-12)


def test_banned_word_stays_banned() -> None:
    for k, p in ((None, None), (3, None), (None, 0.999999), (3, 1.0)):
        logits = np.array([1.0, -np.inf, 0.5])
        assert sampling.next_probabilities(logits, 100.0, k, p)[1] == 0
        assert logits.tolist() == [1, -np.inf, 0.5]


def test_chooser_uses_one_generator() -> None:
    logits, rng = np.array([1.0, 0.5, 0.2, -1]), np.random.default_rng(5)
    choose = sampling.make_chooser(Sampling(1.3, 3, 0.75, seed=5), 4)
    drawn = [choose(logits) for _ in range(40)]
    p = sampling.next_probabilities(logits, 1.3, 3, 0.75)
    assert drawn == [sampling.sample_index(p, rng) for _ in range(40)]
    assert set(drawn) == {0, 1}, "top-k counts: of all four, three reach 0.75"
    assert {sampling.make_chooser(Sampling(seed=seed), 4)(logits) for seed in range(5)} == {0}


def test_sampling_as_text() -> None:
    assert str(Sampling()) == "greedy"
    assert str(Sampling(0.8, 5)) == "sampled, temperature 0.8, top-k 5"
    assert str(Sampling(1.0, None, 0.95)) == "sampled, temperature 1, top-p 0.95"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"temperature": 0}, "temperature is 0; expected a number over 0, or None for the top token"),
        ({"temperature": math.nan}, "temperature is nan; expected a number over 0"),
        ({"temperature": True}, "temperature is True; expected a number over 0"),
        ({"temperature": 10**400}, "expected a number over 0"),
        ({"top_k": 0}, "top_k is 0; expected a whole number, 1 or more"),
        ({"top_k": 4}, "top_k is 4; expected at most 3, the vocabulary, or None"),
        ({"top_k": 1.5}, "top_k is 1.5; expected a whole number"),
        ({"top_p": 0.0}, "top_p is 0.0; expected a number over 0 and at most 1, or None"),
        ({"top_p": 1.01}, "top_p is 1.01; expected a number over 0 and at most 1"),
        ({"temperature": None, "top_k": 2}, "top_k or top_p is set without a temperature; expected one"),
        ({"seed": -1}, "seed is -1; expected a whole number, 0 or more"),
    ],
)
def test_sampling_settings_out_of_range(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        sampling.make_chooser(Sampling(**{"temperature": 1.0} | wrong), 3)
    if wrong.keys() <= {"top_k", "top_p"}:
        with pytest.raises(ValueError, match=re.escape(says)):
            sampling.next_probabilities(np.array([1.0, 2.0, 3.0]), **wrong)


@pytest.mark.parametrize(
    ("logits", "says"),
    [
        ([1, math.nan], "logits[1] is NaN; expected numbers: look for 0/0"),
        ([1, math.inf], "no +inf; every token is banned or one overflowed"),
        ([-math.inf, -math.inf], "need a finite number"),
        ([], "logits have shape (0,); expected (V,)"),
        ([[0, 1], [2, 3]], "logits have shape (2, 2); expected (V,): pass those of the last position"),
    ],
)
@pytest.mark.parametrize("choose", [sampling.greedy, sampling.next_probabilities])
def test_invalid_logits_are_refused(choose: Any, logits: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        choose(np.array(logits))
