"""The four-head toy compared with numbers computed by hand, and its forms with each other."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import sampling, toy
from helpers.recording.toy import record_toy
from helpers.sampling import Sampling

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
SUMS = 1e-12  # float64 sums of 512 numbers, in another order: 512 × 2e-16, as a share of the largest

CONTEXTS = [[0, 10, 10, 10], [20, 20, 10, 15], [20, 1, 10, 31 / 3], [12.5, 5, 10, 9]]

carried = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=512)
few_carried = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=24)


def by_hand(numbers: list[float]) -> np.ndarray:
    """The table of contexts by the four rules, in nothing but Python's exact sums; (T, H)."""
    rows: list[list[float]] = []
    for t in range(1, len(numbers) + 1):
        even = numbers[1:t:2]
        average = math.fsum(numbers[:t]) / t
        rows.append([math.fsum(even) / len(even) if even else 0, numbers[t - 1], numbers[0], average])
    return np.array(rows, dtype=float)


def by_hand_layers(numbers: list[float], n_layers: int) -> np.ndarray:
    """Contexts of the last layer; each layer hands on the mean of a token's four contexts."""
    for _ in range(n_layers - 1):
        numbers = by_hand(numbers).mean(axis=1).tolist()
    return by_hand(numbers)


def close(got: Any, expected: Any, allowed: float) -> None:
    np.testing.assert_allclose(np.asarray(got, dtype=float), expected, rtol=0, atol=allowed)


def run(numbers: list[float], cache: Any = None, n_layers: int = 1) -> np.ndarray:
    return toy.run_pass(numbers, cache, n_layers=n_layers)


def test_contexts_of_the_prompt() -> None:
    """And a later token changes no earlier row."""
    close(run([10, 20, 1, 5]), CONTEXTS, 20 * SUMS)
    after = run([10, 20, 1, 500])
    close(after[:3], CONTEXTS[:3], 500 * SUMS)
    assert np.abs(after[3] - CONTEXTS[3]).max() > 1


@pytest.mark.parametrize(
    ("words", "probabilities"),
    [
        ("", [0.723, 0.266, 0.002, 0.009]),
        ("nice", [0.134, 0.049, 0.004, 0.812]),
        ("warm", [0.34, 0.125, 0.006, 0.529]),
        ("delicious", [0.224, 0.083, 0.005, 0.688]),
    ],
)
def test_probabilities(words: str, probabilities: list[float]) -> None:
    got = sampling.softmax(toy.step([*toy.PROMPT, *words.split()]))
    assert np.round(got, 3).tolist() == probabilities


def test_ties_go_to_the_first_word() -> None:
    trace = record_toy(["a"], [0], max_new_tokens=1)  # all contexts are 0, so are all four logits
    out = trace.run("cached").passes[1].parts[0].out[0]
    assert [logit for _, logit, _ in out.top] == [0, 0, 0, 0]
    assert trace.sequences[0].tokens[out.chosen].text == "nice"


def test_toy_generates_nice_and_stops() -> None:
    prompt = list(toy.PROMPT)
    assert toy.generate(toy.step, prompt, 8) == ["nice", "<eos>"]
    assert prompt == list(toy.PROMPT)
    trace = record_toy()
    assert [token.text for token in trace.sequences[0].tokens] == [*toy.PROMPT, "nice", "<eos>"]
    for recorded in trace.runs:
        assert [p.phase for p in recorded.passes] == ["training", "prefill", "decode"]
        assert recorded.passes[0].parts[0].target == [1, 2, 3, 4]


@pytest.mark.parametrize(("eos", "expected"), [(True, [4, 5]), (False, [4, 5, 6])])
def test_tokens_per_pass_with_three_new_words(eos: bool, expected: list[int]) -> None:
    """`<eos>` is never run, and a pass whose logits are not read is a pass too many."""
    lengths = []

    def step(words: list[str]) -> np.ndarray:
        lengths.append(len(words))
        return toy.step(words) - (0 if eos else np.array([0, 0, 0, np.inf]))

    assert toy.generate(step, toy.PROMPT, 3) == (["nice", "<eos>"] if eos else ["nice"] * 3)
    assert lengths == expected
    trace = record_toy(max_new_tokens=3, ban_eos=not eos, training=False)
    assert [p.counts["positions"] for p in trace.run("uncached").passes] == expected


def test_two_layer_toy_equals_paper() -> None:
    trace = record_toy(n_layers=2, training=False)
    at_so, at_nice = [p.parts[0].out[0].top for p in trace.run("uncached").passes]
    assert [round(logit, 2) for _, logit, _ in at_so] == [5.83, 5.08, 1.10, 4.56]
    assert [round(p, 3) for *_, p in at_so] == [0.567, 0.268, 0.005, 0.160]
    assert [round(logit, 2) for _, logit, _ in at_nice] == [5.35, 4.60, 1.33, 5.81]
    assert round(at_nice[3][2], 3) == 0.517
    assert [token.text for token in trace.sequences[0].tokens[4:]] == ["nice", "<eos>"]


@FEW
@given(carried)
def test_dot_products_equal_the_rules(numbers: list[float]) -> None:
    """And so does the plain form of the pages, as far as its exponentials go."""
    rules, allowed = by_hand(numbers), SUMS * max(1, *map(abs, numbers))
    close(run(numbers), rules, allowed)
    keys = [toy.key(position) for position in range(1, 18)]
    for t in range(1, min(len(numbers), 17) + 1):
        close(toy.four_heads(keys[:t], numbers[:t]), rules[t - 1], allowed)


@FEW
@given(few_carried, st.integers(1, 3), st.data())
def test_cached_equals_uncached(numbers: list[float], n_layers: int, data: Any) -> None:
    """However the tokens are split between passes, the last of which fills the cache."""
    cuts = data.draw(st.sets(st.integers(1, len(numbers))), label="cuts")
    edges = sorted({0, *cuts, len(numbers)})
    cache = toy.KVCache(n_layers, max_len=len(numbers))
    rows = [run(numbers[i:j], cache, n_layers) for i, j in itertools.pairwise(edges)]
    allowed = n_layers * SUMS * max(1, *map(abs, numbers))
    close(np.concatenate(rows), run(numbers, n_layers=n_layers), allowed)
    close(np.concatenate(rows), by_hand_layers(numbers, n_layers), allowed)
    assert cache.length == cache.max_len


def snapshot(cache: Any) -> tuple[Any, ...]:
    return cache.length, repr(cache), [part[: cache.length].tolist() for part in (*cache.k, *cache.v)]


def filled(n_layers: int = 1, max_len: int = 1024) -> Any:
    cache = toy.KVCache(n_layers, max_len)
    toy.run_pass([10, 20, 1, 5], cache, n_layers=n_layers)
    return cache


def test_toy_cache_interface() -> None:
    cache = toy.KVCache(n_layers=2, max_len=6)
    for kept, T in ((0, 4), (4, 1), (4, 2)):
        if kept > cache.length:
            toy.run_pass([10, 20, 1, 5], cache, n_layers=2)
        assert cache.positions(T).tolist() == [*range(kept + 1, kept + T + 1)]
        assert np.array_equal(cache.mask(T), np.tri(T, kept + T, kept))
    assert repr(cache) == "KVCache(4 of 6 entries, layers: 2)"
    k, v = cache.append(0, np.array([[0.0, 5]]), np.array([14.0]))
    assert k.tolist() == [[0, 1], [1, 2], [0, 3], [1, 4], [0, 5]]
    assert v.tolist() == [10, 20, 1, 5, 14]
    cache.append(1, np.array([[0.0, 5]]), np.array([11.625]))
    assert cache.length == 4  # not before the pass is over
    cache.advance(1)
    assert cache.length == 5


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_a_decode_step(n_layers: int) -> None:
    """It runs every layer, and returns the last one's contexts of the new token alone; it fills the cache."""
    cache, numbers = filled(n_layers, max_len=5), [10, 20, 1, 5, 14.0]
    for _ in range(2):
        close(run([14], cache, n_layers)[-1], by_hand_layers(numbers, n_layers)[-1], 20 * SUMS)
        for layer in range(n_layers):
            carried = numbers if layer == 0 else by_hand_layers(numbers, layer).mean(axis=1)
            close(cache.v[layer], carried, 20 * SUMS)
            assert cache.k[layer].tolist() == [[0, 1], [1, 2], [0, 3], [1, 4], [0, 5]]
        before = snapshot(cache)
        with pytest.raises(ValueError, match="1 new entries after 5 make 6; expected at most 5"):
            run([14], cache, n_layers)
        assert snapshot(cache) == before
        cache.truncate(4)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("length", [0, 2, 4])
def test_truncated_toy_cache_continues(n_layers: int, length: int) -> None:
    """Rejected rows are gone: what follows sees the first ones and its own, as in a fresh cache."""
    cache = filled(n_layers)
    cache.truncate(length)
    numbers: list[float] = [*[10, 20, 1, 5][:length], 7, 9]
    close(run([7, 9], cache, n_layers), by_hand_layers(numbers, n_layers)[length:], 60 * SUMS)
    assert cache.v[0].tolist() == numbers


def breaking(*given: np.ndarray) -> np.ndarray:
    """Attend in the first layer, whose rows carry whole numbers, and break in the second."""
    if given[2][-1] % 1:
        raise ValueError("out of memory")
    return toy.attention(*given)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda c: run([1] * 5, c, 2), "5 new entries after 4 make 9; expected at most 8: make a KVCache"),
        (lambda c: run([1, math.nan], c, 2), "number 2 is nan; expected a finite number"),
        (lambda c: toy.run_pass([98], c, n_layers=2, attention=breaking), "out of memory"),
        (lambda c: c.truncate(5), "length is 5; expected 0 to 4"),
        (lambda c: c.truncate(-1), "length is -1; expected 0 to 4"),
        (lambda c: c.mask(5), "5 new entries after 4 make 9"),
    ],
)
def test_failed_call_leaves_toy_cache_unchanged(spoil: Callable[[Any], Any], says: str) -> None:
    cache = filled(2, max_len=8)
    before = snapshot(cache)
    with pytest.raises(ValueError, match=re.escape(says)):
        spoil(cache)
    assert snapshot(cache) == before
    close(run([14], cache, 2), by_hand_layers([10, 20, 1, 5, 14], 2)[4:], 60 * SUMS)


record: Any = record_toy  # so that the type checker lets wrong types through


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: record([]), "the prompt is empty; expected at least one token, such as ['Today'"),
        (lambda: record("Today is"), "one text, 'Today is'; expected a list of tokens: split it, ['Today',"),
        (lambda: record(["a", "b"], [1]), "2 tokens and 1 numbers; expected one number for each"),
        (lambda: record(["Today", 3]), "token 2 is 3; expected text"),
        (lambda: record(["Today", "Oslo"]), "token 2, 'Oslo', has no number; expected one of"),
        (lambda: record(["so"] * 513), "513 tokens; expected at most 512: leave some out"),
        (
            lambda: toy.generate(toy.step, toy.PROMPT, 0),
            "max_new_tokens is 0; expected a whole number, 1 or more",
        ),
        (lambda: record(n_layers=0), "n_layers is 0; expected a whole number, 1 or more"),
        (lambda: record(sampling=Sampling(1.0, 5)), "top_k is 5; expected at most 4"),
        (
            lambda: record(max_new_tokens=1022, ban_eos=True),
            "1025 new entries after 0 make 1025; expected at most",
        ),
        (lambda: toy.run_pass([]), "there are no numbers; expected one for each token"),
        (lambda: toy.run_pass([1, math.nan]), "number 2 is nan; expected a finite number"),
        (lambda: toy.run_pass(["1"]), "number 1 is '1'; expected a finite number"),  # type: ignore[list-item]
        (lambda: toy.run_pass([True]), "number 1 is True; expected a finite number"),
    ],
)
def test_bad_input(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        call()


@pytest.mark.parametrize(("ban", "how"), [(False, "greedy"), (True, "greedy, <eos> banned")])
def test_banned_eos_leaves_probabilities_unchanged(ban: bool, how: str) -> None:
    out = record_toy(max_new_tokens=2, ban_eos=ban).run("cached").passes[2].parts[0].out[0]
    assert out.how == how
    assert [round(p, 3) for *_, p in out.top] == [0.134, 0.049, 0.004, 0.812]
