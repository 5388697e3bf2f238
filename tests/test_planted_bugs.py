"""Bugs of the toy and of sampling that real projects shipped, or nearly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import sampling, toy
from helpers.sampling import keep_top_p, softmax
from tests import test_sampling, test_toy
from tests.planted import Bug, Planted, instead

Cache = toy.KVCache
planted = Planted()
quiet = np.errstate(divide="ignore", invalid="ignore")

# --- the toy's cache: masks and positions ---

CACHED, DECODE = test_toy.test_cached_equals_uncached, test_toy.test_a_decode_step
MASK = APPEND = test_toy.test_toy_cache_interface
PROMPT = LATER = test_toy.test_contexts_of_the_prompt
NICE = test_toy.test_toy_generates_nice_and_stops
FAILS, FULL = test_toy.test_failed_call_leaves_toy_cache_unchanged, DECODE
TRUNCATE = test_toy.test_truncated_toy_cache_continues
NONE = test_sampling.test_softmax_of_a_fully_masked_row_is_zero
TOP_P = test_sampling.test_top_p_keeps_the_smallest_set
ORDER = test_sampling.test_temperature_then_top_k_then_top_p


def top_left(T: int, S: int) -> np.ndarray:
    return toy.causal_mask(S)[:T]


planted("mask aligned top-left", [MASK, DECODE], "pytorch #103082, flax #5591", of=Cache.mask)(
    lambda old, self, T: top_left(T, self.length + T)
)
planted("positions restart at 1 in decode", [DECODE, CACHED], "mlx-vlm #1983", of=toy.make_qkv)(
    lambda old, at, x: old(np.arange(1, len(x) + 1), x)
)

# --- the toy's cache: room, forgetting, sharing ---

planted("full a row too early", [FULL, CACHED], "transformers #37574", of=Cache.check_capacity)(
    lambda old, self, T: old(self, T + 1)
)
planted("full a row too late", [FULL, FAILS], "transformers #37574", of=Cache.check_capacity)(
    lambda old, self, T: old(self, T - 1 if T else T)
)
planted("truncate does not forget", [TRUNCATE, FULL], "mlx-lm PR#1109", of=Cache.truncate)(
    lambda old, self, length: old(self, self.length)
)


@planted("rejected rows left in the buffer", [TRUNCATE], "mlx-lm PR#1109", of=Cache.append)
def _(old: Any, self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> Any:
    self.k[layer], self.v[layer] = np.concatenate([self.k[layer], k]), np.concatenate([self.v[layer], v])
    return self.k[layer][: self.length + len(v)], self.v[layer][: self.length + len(v)]


planted("a negative trim lengthens", [FAILS], "mlx-lm #1868", of=Cache.truncate)(
    lambda old, self, n: old(self, n) if n >= 0 else self.__dict__.update(length=n)
)
planted("slots past the current position attended to", [CACHED, DECODE], "tt-metal #41215")(
    instead(Cache.mask, lambda old, *given: np.pad(old(*given), ((0, 0), (0, 2)), constant_values=True)),
    instead(Cache.append, lambda old, *new: [np.pad(x, [(0, 2), (0, 0)][: x.ndim]) for x in old(*new)]),
)

# --- the toy's cache: layers and rows ---


def append_and_count(old: Any, self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> Any:
    rows = old(self, layer, k, v)
    self.length += len(v)
    return rows


planted("each layer advances the cache", [APPEND, CACHED], "gpt-fast, nanochat")(
    instead(Cache.append, append_and_count), instead(Cache.advance, lambda old, self, T: None)
)


@planted("growth moves the other layers' rows", [CACHED, APPEND], "nanochat #187", of=Cache.append)
def _(old: Any, self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> Any:
    self.v = [np.roll(rows, 1) for rows in self.v]
    return old(self, layer, k, v)


@planted("stored rows are changed by each use", [DECODE, CACHED], "MemOS #2301", of=toy.attention)
def _(old: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, *more: Any) -> np.ndarray:
    contexts = old(q, k, v, *more)
    v *= 0.999
    return contexts


# --- softmax, sampling ---


@planted("a fully masked row gives NaN", [NONE], "pytorch #103749", of=sampling.softmax)
@quiet
def _(old: Any, scores: np.ndarray) -> np.ndarray:
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


@planted("top-p drops the word that crosses p", [TOP_P], of=keep_top_p)
def _(old: Any, logits: np.ndarray, p: float) -> np.ndarray:
    kept = old(logits, p)
    if softmax(logits)[np.isfinite(kept)].sum() > p + 1e-9:
        kept[np.where(np.isfinite(kept), kept, np.inf).argmin()] = -np.inf
    return kept


@planted("the temperature last", [ORDER], of=sampling.next_probabilities)
@quiet
def _(old: Any, logits: Any, temperature: float = 1.0, *kept: Any, **named: Any) -> Any:
    return old(np.log(old(logits, 1.0, *kept, **named)), temperature)


@planted("top-p before top-k", [ORDER], of=sampling.next_probabilities)
@quiet
def _(old: Any, x: Any, temperature: float = 1.0, top_k: Any = None, top_p: Any = None) -> Any:
    return old(np.log(old(x, temperature, None, top_p)), 1.0, top_k)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_planted_bug_fails_its_tests(bug: Bug) -> None:
    assert bug.missed_by() == []


def test_a_plant_that_changes_nothing_and_a_crash_of_the_harness_are_caught_by_no_test() -> None:
    for do in (lambda old, *given: old(*given), lambda old, *given: no_such_name):  # type: ignore[name-defined]  # noqa: F821
        bug = Bug("none", instead(Cache.mask, do), [DECODE, CACHED])
        assert bug.missed_by() == [DECODE.__name__, CACHED.__name__]
