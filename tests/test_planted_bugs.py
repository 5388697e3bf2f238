"""Bugs of the toy, of sampling and of the record: real projects shipped some, others are near misses."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import sampling, toy
from helpers.recording import loop, recorder
from helpers.recording.recorder import Recorder
from helpers.sampling import keep_top_p, softmax
from helpers.trace import document
from tests import test_recorder, test_sampling, test_toy, test_trace, test_trace_compare
from tests.planted import Bug, Planted, instead

compare = importlib.import_module("helpers.trace.compare")  # the package's `compare` is the function
Base, Cache = toy.CacheBase, toy.KVCache
planted = Planted()
quiet = np.errstate(divide="ignore", invalid="ignore")

# --- the toy's cache: masks and positions ---

MASK, CACHED = test_toy.test_the_mask_of_the_cache, test_toy.test_cached_equals_uncached
DECODE, INTERFACE = test_toy.test_the_decode_step, test_toy.test_the_interface_of_the_cache
PROMPT, RESET = test_toy.test_contexts_of_the_prompt, test_toy.test_reset_and_use_again
LATER, NICE = test_toy.test_a_later_token_changes_no_earlier_row, test_toy.test_it_says_nice_and_stops
FAILS, FULL = test_toy.test_what_fails_leaves_the_cache_as_it_was, test_toy.test_exactly_full_and_one_more
APPEND = test_toy.test_append_returns_all_rows_and_advance_counts_them
TRUNCATE, LONG = test_toy.test_truncate_and_go_on_elsewhere, test_toy.test_the_long_run
COUNTS = test_trace.test_a_run_fits_itself
RUN = "cached", "growing"


def top_left(T: int, S: int) -> np.ndarray:
    return toy.causal_mask(S)[:T]


planted("mask aligned top-left", [MASK, DECODE], "pytorch #103082, flax #5591", of=Cache.mask)(
    lambda old, self, T: top_left(T, self.length + T)
)
planted("no offset for several new tokens", [MASK, CACHED], "LLMs-from-scratch PR#697", of=Cache.mask)(
    lambda old, self, T: old(self, T) if T == 1 else top_left(T, self.length + T)
)
planted("no mask at all", [test_toy.test_causal_mask, MASK, LATER])(
    instead(Cache.mask, lambda old, self, T: old(self, T) | True),
    instead(toy.causal_mask, lambda old, T: old(T) | True),
)
planted("square mask with a cache", [MASK, CACHED], "llama #899", of=Cache.mask)(
    lambda old, self, T: old(self, T)[:, self.length :]
)
planted("positions restart at 1 in decode", [DECODE, CACHED], "mlx-vlm #1983", of=toy.make_qkv)(
    lambda old, at, x: old(np.arange(1, len(x) + 1), x)
)
planted("positions count twice", [CACHED, DECODE], "gpt-neox PR#363, tiny-llm PR#46", of=toy.make_qkv)(
    lambda old, at, x: old(at + at[0] - 1, x)
)

# --- the toy's cache: room, forgetting, sharing ---

planted("full a row too early", [FULL, CACHED], "transformers #37574", of=Base.check_room)(
    lambda old, self, T: old(self, T + 1)
)
planted("full a row too late", [FULL, FAILS], "transformers #37574", of=Base.check_room)(
    lambda old, self, T: old(self, T - 1 if T else T)
)
planted("reset does nothing", [RESET], "candle-vllm #6", of=Base.reset)(lambda old, self: None)


@planted("one cache for everybody", [test_toy.test_two_caches_do_not_mix, NICE], "candle-vllm #6")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, Any] = {}
    shared = lambda n_layers=1, max_len=1024: made.setdefault(n_layers, Cache(n_layers))  # noqa: E731
    monkeypatch.setattr(toy, "KVCache", shared)
    monkeypatch.setattr("helpers.recording.toy.KVCache", shared)


planted("truncate does not forget", [TRUNCATE, FULL], "mlx-lm PR#1109", of=Base.truncate)(
    lambda old, self, length: old(self, self.length)
)


@planted("rejected rows left in the buffer", [TRUNCATE, RESET], "mlx-lm PR#1109", of=Cache.append)
def _(old: Any, self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> Any:
    self.k[layer], self.v[layer] = np.concatenate([self.k[layer], k]), np.concatenate([self.v[layer], v])
    return self.k[layer][: self.length + len(v)], self.v[layer][: self.length + len(v)]


planted("a negative trim lengthens", [FAILS], "mlx-lm #1868", of=Base.truncate)(
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


@planted("attended before appending", [DECODE, CACHED], of=toy.attention)
def _(old: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    n = len(k) - q.shape[1] or len(k)
    return old(q, k[:n], v[:n], mask[:, :n])


@planted("growth moves the other layers' rows", [CACHED, APPEND], "nanochat #187", of=Cache.append)
def _(old: Any, self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> Any:
    self.v = [np.roll(rows, 1) for rows in self.v]
    return old(self, layer, k, v)


@planted("stored rows are changed by each use", [DECODE, CACHED], "MemOS #2301", of=toy.attention)
def _(old: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, *more: Any) -> np.ndarray:
    contexts = old(q, k, v, *more)
    v *= 0.999
    return contexts


planted("memory of every query head", [INTERFACE], "SnapKV #16", of=Base.nbytes)(
    lambda old, self: len(toy.HEADS) * old(self)
)
planted("the whole history is fed again", [LONG, COUNTS])(
    instead(loop.record_run, lambda old, to, run, voice, cache, *more: old(to, run, voice, None, *more)),
    instead(Recorder.begin_run, lambda old, self, *kind: old(self, *(kind if self.trace.runs else RUN))),
)

# --- the toy: masks, softmax, sink, heads ---

ATTEND = test_toy.test_attend_masks_before_the_softmax
SINK = test_toy.test_the_sink_score_gives_even_something_to_spend_on
NOTHING = test_toy.test_a_row_with_nothing_to_pick_gives_zero_where_plain_softmax_gives_nan
PASSES = test_toy.test_passes_of_three_new_words


def masked(scores: np.ndarray, least: float) -> np.ndarray:
    return np.where(toy.causal_mask(scores.shape[-1]), np.maximum(scores, least), least)


planted("masked scores are 0", [ATTEND, PROMPT], of=toy.attend)(
    lambda old, x, v: softmax(np.where(toy.causal_mask(len(v)), x, 0)) @ v
)
planted("mask after the softmax", [ATTEND, PROMPT], of=toy.attend)(
    lambda old, x, v: (softmax(x) * toy.causal_mask(len(v))) @ v
)


@planted(
    "a fully masked row gives NaN",
    [NOTHING, test_sampling.test_softmax_gives_zeros_for_a_row_with_nothing_to_pick],
    "pytorch #103749",
    of=sampling.softmax,
)
@quiet
def _(old: Any, scores: np.ndarray) -> np.ndarray:
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


planted("a fully masked row averages the future", [PROMPT, LATER], "pytorch #103963", of=toy.attend)(
    lambda old, x, v: softmax(masked(x, -1e300)) @ v
)
planted("the sink's share is dealt out again", [SINK, PROMPT], of=toy.attention)(
    lambda old, *given, sink=0: old(*given[:4], toy.SINK - np.inf)
)
planted("each weight goes to the row before", [SINK, DECODE], of=toy.attention)(
    lambda old, q, k, v, *more, **sink: old(q, k, np.roll(v, 1), *more, **sink)
)


@planted(
    "the sink keeps a share, which decides ties",
    [test_toy.test_dots_weigh_exactly_as_the_rules, test_toy.test_dots_and_rules_say_the_same_word],
)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    blunt = np.array([20, -np.inf, -np.inf, -np.inf])  # as with BETA = 40
    monkeypatch.setattr(toy, "QUERIES", toy.QUERIES * 40 / toy.BETA)
    monkeypatch.setattr(toy, "SINK", blunt)
    monkeypatch.setattr(toy.attention, "__defaults__", (blunt,))


@planted("<eos> is run", [PASSES, NICE])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "EOS", None)
    monkeypatch.setitem(toy.NUMBERS, "<eos>", 0)


@planted("a pass too many", [PASSES], of=toy.generate)
def _(old: Any, step: Any, prompt: Any, max_new: int) -> list[str]:
    words = old(step, prompt, max_new)
    if words[-1] != toy.EOS:
        step([*prompt, *words])
    return words


# --- sampling ---

TOP_P = test_sampling.test_top_p_keeps_the_fewest_that_reach_p
ORDER = test_sampling.test_the_order_is_temperature_then_top_k_then_top_p
SEED = [test_sampling.test_a_seed_reproduces, test_toy.test_sampling_with_a_seed_reproduces]


@planted("top-p drops the word that crosses p", [TOP_P], of=keep_top_p)
def _(old: Any, logits: np.ndarray, p: float) -> np.ndarray:
    kept = old(logits, p)
    if softmax(logits)[np.isfinite(kept)].sum() > p + 1e-9:
        kept[np.where(np.isfinite(kept), kept, np.inf).argmin()] = -np.inf
    return kept


planted("top-p keeps one word too many", [TOP_P], of=keep_top_p)(
    lambda old, logits, p: old(logits, p * (1 + 1e-6))
)
planted("top-p stumbles over rounding", [TOP_P])(lambda patch: patch.setattr(sampling, "ROUNDING", 0))
planted("a tiny top-p keeps no word", [TOP_P], of=keep_top_p)(lambda old, logits, p: old(logits, p - 1e-9))
planted(
    "top-k keeps all that tie", [test_sampling.test_top_k_of_equals_keeps_the_first], of=sampling.keep_top_k
)(lambda old, x, k: np.where(x >= np.sort(x)[-k], x, -np.inf))


@planted("the temperature last", [ORDER], of=sampling.next_probabilities)
@quiet
def _(old: Any, logits: Any, temperature: float = 1.0, *kept: Any, **named: Any) -> Any:
    return old(np.log(old(logits, 1.0, *kept, **named)), temperature)


@planted("top-p before top-k", [ORDER], of=sampling.next_probabilities)
@quiet
def _(old: Any, x: Any, temperature: float = 1.0, top_k: Any = None, top_p: Any = None) -> Any:
    return old(np.log(old(x, temperature, None, top_p)), 1.0, top_k)


planted(
    "greedy takes the last of equals",
    [test_sampling.test_greedy_takes_the_first_of_equals, test_toy.test_ties_go_to_the_first_word],
    of=sampling.greedy,
)(lambda old, logits: len(logits) - 1 - old(logits[::-1]))
planted("chance without a seed", SEED, of=sampling.draw)(
    lambda old, weights, rng: old(weights, np.random.default_rng())
)
planted(
    "the generator restarts for each token",
    [test_sampling.test_a_chooser_draws_on_and_on_from_one_generator],
    of=sampling.chooser,
)(lambda old, *given: lambda logits: old(*given)(logits))

# --- the record and its comparison ---

REFUSES, DIFFERENCE = test_recorder.test_refuses, test_trace_compare.test_one_planted_difference_is_named


planted("masked pairs are counted", [COUNTS, LONG], of=Recorder._count)(
    lambda old, *given: old(*given) | {"pairs": given[-1].size}
)


@planted("training counts as run", [test_trace.test_a_run_fits_itself], of=Recorder.close_pass)
def _(old: Any, self: Any) -> None:
    old(self)
    for n, tokens in self._tokens.items():
        self._seen[n].update(tokens)


planted("KV heads dealt out in turns", [test_recorder.test_grouped_heads], of=recorder._per_query_head)(
    lambda old, x, H: np.tile(x, (1, H // x.shape[1], 1, 1))
)
planted(
    "the recorder believes the output",
    [REFUSES, test_recorder.test_rounding_passes_and_a_small_lie_does_not],
    of=Recorder._check_output,
)(lambda old, *given: None)


@planted("one layer's counts stand for all", [REFUSES], of=Recorder._count)
def _(old: Any, self: Any, layer: int, part: Any, mask: np.ndarray) -> dict[str, int]:
    T, S = mask.shape
    counts = {"positions": T, "kv_rows": T, "rows_read": S - T, "pairs": int(mask.sum())}
    return counts if layer else old(self, layer, part, mask)


planted("compare skips what a head says", [DIFFERENCE], of=compare._result)(
    lambda old, *a, **b: (said for said in old(*a, **b) if ", head" not in said[0])
)


@planted("compare takes NaN for equal", [DIFFERENCE], of=compare._alike)
def _(old: Any, x: Any, y: Any, tolerance: float) -> bool:
    arrays = isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.shape == y.shape
    return old(x, y, tolerance) or (arrays and bool((np.isnan(x) | np.isnan(y)).any()))


planted(
    "a broken write leaves half a file",
    [test_trace.test_a_save_that_fails_leaves_the_old_file],
    of=document.write_whole,
)(lambda old, path, text: Path(path).write_text(text, encoding="utf-8"))


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []


def test_a_plant_that_changes_nothing_and_a_crash_of_the_harness_are_caught_by_no_test() -> None:
    for do in (lambda old, *given: old(*given), lambda old, *given: no_such_name):  # type: ignore[name-defined]  # noqa: F821
        bug = Bug("none", instead(Cache.mask, do), [DECODE, CACHED])
        assert bug.missed_by() == [DECODE.__name__, CACHED.__name__]
