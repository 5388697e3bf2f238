"""Bugs that real projects shipped, and near misses of this code, planted one by one.

A planted bug counts as caught when ordinary, named tests fail with it and pass without it. The table
below is the list that runs: a bug, where it was reported (FACTS has the links), and under it the tests that
catch it, without their `test_`. Not here, because this code has no window, no eviction, no padding and no
batch: the reported bugs of ring buffers, sliding windows, left-padded rows and positions after eviction.

mask aligned top-left [pytorch #103082, flax #5591]
    toy.the_mask_of_the_cache
    toy.the_decode_step
mask without the offset for several new tokens [LLMs-from-scratch PR#697]
    toy.the_mask_of_the_cache
    toy.cached_equals_uncached
no mask at all
    toy.causal_mask
    toy.the_mask_of_the_cache
    toy.a_later_token_changes_no_earlier_row
square mask with a cache [llama #899]
    toy.the_mask_of_the_cache
    toy.cached_equals_uncached
positions restart at 1 in decode [mlx-vlm #1983]
    toy.the_decode_step
    toy.reset_and_use_again
positions count twice [gpt-neox PR#363, tiny-llm PR#46]
    toy.the_interface_of_the_cache
    toy.cached_equals_uncached
positions start at 0
    toy.contexts_of_the_prompt
    toy.the_interface_of_the_cache
full a row too early [transformers #37574]
    toy.exactly_full_and_one_more
    toy.cached_equals_uncached
full a row too late [transformers #37574]
    toy.exactly_full_and_one_more
    toy.what_fails_leaves_the_cache_as_it_was
reset does nothing [candle-vllm #6]
    toy.reset_and_use_again
one cache for everybody [candle-vllm #6]
    toy.two_caches_do_not_mix
    toy.it_says_nice_and_stops
truncate does not forget [mlx-lm PR#1109]
    toy.truncate_and_go_on_elsewhere
    toy.exactly_full_and_one_more
rejected rows left in the buffer [mlx-lm PR#1109]
    toy.truncate_and_go_on_elsewhere
    toy.reset_and_use_again
slots past the current position attended to [tt-metal #41215]
    toy.cached_equals_uncached
    toy.the_decode_step
each layer advances the cache [gpt-fast, nanochat]
    toy.append_returns_all_rows_and_advance_counts_them
    toy.cached_equals_uncached
the cache is never advanced
    toy.the_decode_step
    toy.it_says_nice_and_stops
attended before appending
    toy.the_decode_step
    toy.cached_equals_uncached
every layer uses layer 0's rows
    toy.cached_equals_uncached
    toy.the_two_layer_toy_says_the_same
growth moves the other layers' rows [nanochat #187]
    toy.cached_equals_uncached
    toy.append_returns_all_rows_and_advance_counts_them
stored rows are changed by each use [MemOS #2301]
    toy.one_token_after_another_in_the_long_run
    toy.the_decode_step
a cache of another depth is taken
    toy.what_fails_leaves_the_cache_as_it_was
rows are counted before they fit
    toy.what_fails_leaves_the_cache_as_it_was
memory of every query head [SnapKV #16]
    toy.the_interface_of_the_cache
the whole history is fed again
    toy.the_long_run
    recorder.counts_of_every_pass
masked scores are 0
    toy.attend_masks_before_the_softmax
    toy.contexts_of_the_prompt
mask after the softmax
    toy.attend_masks_before_the_softmax
    toy.contexts_of_the_prompt
a fully masked row gives NaN [pytorch #103749]
    toy.a_row_with_nothing_to_pick_gives_zero_where_plain_softmax_gives_nan
    sampling.softmax_gives_zeros_for_a_row_with_nothing_to_pick
a fully masked row averages the future [pytorch #103963]
    toy.contexts_of_the_prompt
    toy.a_later_token_changes_no_earlier_row
the sink's share is dealt out again
    toy.the_sink_score_gives_even_something_to_spend_on
    toy.contexts_of_the_prompt
the sink is kept and a key dropped
    toy.the_sink_score_gives_even_something_to_spend_on
    toy.the_decode_step
the sink keeps a share, which decides ties
    toy.dots_weigh_exactly_as_the_rules
    toy.dots_and_rules_say_the_same_word
    toy.dots_and_rules_choose_alike_whatever_the_numbers
    toy.nothing_to_pick_is_0_whatever_the_numbers
    toy.a_tie_is_a_tie_in_every_form
even counts from 0
    toy.contexts_of_the_prompt
logits from the first row
    toy.logits_and_probabilities
    toy.it_says_nice_and_stops
layer 2 gets one head, not the mean
    toy.layer_2_starts_from_the_means_of_layer_1
    toy.stale_rows
<eos> is run
    toy.passes_of_three_new_words
    toy.it_says_nice_and_stops
a pass too many
    toy.passes_of_three_new_words
a wrong number gets in
    toy.bad_input
    toy.what_fails_leaves_the_cache_as_it_was
top-p drops the word that crosses p
    sampling.top_p_keeps_the_fewest_that_reach_p
top-p keeps one word too many
    sampling.top_p_keeps_the_fewest_that_reach_p
top-p stumbles over rounding
    sampling.top_p_keeps_the_fewest_that_reach_p
a tiny top-p keeps no word
    sampling.top_p_keeps_the_fewest_that_reach_p
top-k keeps all that tie
    sampling.top_k_of_equals_keeps_the_first
top-p before the temperature
    sampling.the_order_is_temperature_then_top_k_then_top_p
top-p before top-k
    sampling.the_order_is_temperature_then_top_k_then_top_p
temperature multiplies
    sampling.the_order_is_temperature_then_top_k_then_top_p
greedy takes the last of equals
    sampling.greedy_takes_the_first_of_equals
    toy.ties_go_to_the_first_word
chance without a seed
    sampling.a_seed_reproduces
    toy.sampling_with_a_seed_reproduces
masked pairs are counted
    recorder.counts_of_every_pass
    toy.the_long_run
training counts as run
    recorder.the_training_pass
KV heads dealt out in turns
    recorder.grouped_heads
    recorder.a_gqa_trace_is_valid_json
the recorder believes the output
    recorder.refuses
    recorder.rounding_passes_and_a_small_lie_does_not
one layer's counts stand for all
    recorder.refuses
compare skips what a head says
    compare.one_planted_difference_of_the_result_is_named
compare takes NaN for equal
    compare.one_planted_difference_of_the_result_is_named
the validator takes any weights
    format.what_does_not_fit_is_named
the validator takes any counts
    format.what_does_not_fit_is_named
    format.a_missing_field_is_named
a broken write leaves half a file
    format.save_to_a_folder_that_is_not_there
    format.a_failing_write_leaves_the_old_file_and_no_other
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import sampling, toy
from helpers.recording.toy import record_toy
from helpers.trace import Recorder, Trace, compare, format, record, recorder
from tests.planted import Planted, cases

compare_module = importlib.import_module("helpers.trace.compare")
TESTS = {
    "toy": "tests.test_toy",
    "sampling": "tests.test_sampling",
    "recorder": "tests.test_trace_recorder",
    "compare": "tests.test_trace_compare",
    "format": "tests.test_trace_format",
}

BUGS = Planted(__doc__, TESTS, tmp_path=Path)
plants = BUGS.plants
Cache: Any = toy.KVCache


@pytest.mark.parametrize("bug", BUGS.caught_by)
def test_a_planted_bug_is_caught_by_the_tests_that_the_table_names(bug: str) -> None:
    assert BUGS.failing_anyway(bug) == []
    assert BUGS.missed_by(bug) == []


def test_the_table_lists_every_planted_bug_and_no_other() -> None:
    assert list(BUGS.caught_by) == list(BUGS.planted)
    assert all(BUGS.caught_by.values())


# --- the cache: masks and positions ---


@plants("mask aligned top-left")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "mask", lambda self, T: np.tri(T, self.length + T, dtype=bool))


@plants("mask without the offset for several new tokens")
def _(patch: pytest.MonkeyPatch) -> None:
    def mask(self: Any, T: int) -> np.ndarray:
        S = self.length + T
        return np.ones((1, S), dtype=bool) if T == 1 else np.tri(T, S, dtype=bool)

    patch.setattr(Cache, "mask", mask)


@plants("no mask at all")
def _(patch: pytest.MonkeyPatch) -> None:
    def everything(self: Any, T: int) -> np.ndarray:
        self.check_room(T)
        return np.ones((T, self.length + T), dtype=bool)

    patch.setattr(Cache, "mask", everything)
    patch.setattr(toy, "causal_mask", lambda T: np.ones((T, T), dtype=bool))


@plants("square mask with a cache")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "mask", lambda self, T: np.tri(T, dtype=bool))


def with_positions(patch: pytest.MonkeyPatch, positions: Callable[[Any, int], np.ndarray]) -> None:
    """Other positions for the keys; the mask stays right."""

    def mask(self: Any, T: int) -> np.ndarray:
        self.check_room(T)
        return np.arange(self.length + T) <= np.arange(self.length, self.length + T)[:, None]

    def checked(self: Any, T: int) -> np.ndarray:
        self.check_room(T)
        return positions(self, T)

    patch.setattr(Cache, "mask", mask)
    patch.setattr(Cache, "positions", checked)


@plants("positions restart at 1 in decode")
def _(patch: pytest.MonkeyPatch) -> None:
    with_positions(patch, lambda self, T: np.arange(1, T + 1))


@plants("positions count twice")
def _(patch: pytest.MonkeyPatch) -> None:
    with_positions(patch, lambda self, T: np.arange(1, T + 1) + 2 * self.length)


@plants("positions start at 0")
def _(patch: pytest.MonkeyPatch) -> None:
    with_positions(patch, lambda self, T: np.arange(T) + self.length)


# --- the cache: room, forgetting, sharing ---


@plants("full a row too early")
def _(patch: pytest.MonkeyPatch) -> None:
    check = Cache.check_room

    def early(self: Any, T: int) -> None:
        check(self, T + 1)

    patch.setattr(toy.CacheBase, "check_room", early)


@plants("full a row too late")
def _(patch: pytest.MonkeyPatch) -> None:
    check = Cache.check_room

    def late(self: Any, T: int) -> None:
        check(self, T - 1)

    patch.setattr(toy.CacheBase, "check_room", late)


@plants("reset does nothing")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(toy.CacheBase, "reset", lambda self: None)


@plants("one cache for everybody")
def _(patch: pytest.MonkeyPatch) -> None:
    made: dict[int, Any] = {}
    patch.setattr(toy, "KVCache", lambda n_layers=1, max_len=1024: made.setdefault(n_layers, Cache(n_layers)))


@plants("truncate does not forget")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(toy.CacheBase, "truncate", lambda self, length: None)


@plants("rejected rows left in the buffer")
def _(patch: pytest.MonkeyPatch) -> None:
    def append(self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.check_rows(k, v)
        self.k[layer] = np.concatenate([self.k[layer], k])  # not cut to the rows that count
        self.v[layer] = np.concatenate([self.v[layer], v])
        n = self.length + len(v)
        return self.k[layer][:n], self.v[layer][:n]

    patch.setattr(Cache, "append", append)


@plants("slots past the current position attended to")
def _(patch: pytest.MonkeyPatch) -> None:
    append, mask = Cache.append, Cache.mask

    def whole(self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = append(self, layer, k, v)
        return np.concatenate([keys, np.zeros((2, 2))]), np.concatenate([values, np.zeros(2)])

    def wide(self: Any, T: int) -> np.ndarray:
        return np.concatenate([mask(self, T), np.ones((T, 2), dtype=bool)], axis=1)

    patch.setattr(Cache, "append", whole)
    patch.setattr(Cache, "mask", wide)


# --- the cache: layers and rows ---


@plants("each layer advances the cache")
def _(patch: pytest.MonkeyPatch) -> None:
    append = Cache.append

    def moves_on(self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = append(self, layer, k, v)
        self.length += len(v)
        return rows

    patch.setattr(Cache, "append", moves_on)
    patch.setattr(Cache, "advance", lambda self, T: None)


@plants("the cache is never advanced")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "advance", lambda self, T: None)


@plants("attended before appending")
def _(patch: pytest.MonkeyPatch) -> None:
    attention = toy.attention

    def early(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, *rest: Any) -> np.ndarray:
        T, S = mask.shape
        n = S - T if S > T else S
        return attention(q, k[:n], v[:n], mask[:, :n], *rest)

    patch.setattr(toy, "attention", early)


@plants("every layer uses layer 0's rows")
def _(patch: pytest.MonkeyPatch) -> None:
    append = Cache.append

    def first(self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        append(self, layer, k, v)
        return self.k[0], self.v[0]

    patch.setattr(Cache, "append", first)


@plants("growth moves the other layers' rows")
def _(patch: pytest.MonkeyPatch) -> None:
    append = Cache.append

    def grows(self: Any, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        for other in range(self.n_layers):
            if other != layer:
                self.v[other] = np.roll(self.v[other], 1)
        return append(self, layer, k, v)

    patch.setattr(Cache, "append", grows)


@plants("stored rows are changed by each use")
def _(patch: pytest.MonkeyPatch) -> None:
    attention = toy.attention

    def in_place(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, *rest: Any) -> np.ndarray:
        contexts = attention(q, k, v, mask, *rest)
        v *= 0.999
        return contexts

    patch.setattr(toy, "attention", in_place)


@plants("a cache of another depth is taken")
def _(patch: pytest.MonkeyPatch) -> None:
    run_pass = toy.run_pass

    def takes(numbers: Any, cache: Any = None, *, n_layers: int = 1, **rest: Any) -> np.ndarray:
        return run_pass(numbers, cache, n_layers=n_layers if cache is None else cache.n_layers, **rest)

    patch.setattr(toy, "run_pass", takes)


@plants("rows are counted before they fit")
def _(patch: pytest.MonkeyPatch) -> None:
    check = Cache.check_room

    def counted(self: Any, T: int) -> None:
        try:
            check(self, T)
        except ValueError:
            self.length += T
            raise

    patch.setattr(toy.CacheBase, "check_room", counted)


@plants("memory of every query head")
def _(patch: pytest.MonkeyPatch) -> None:
    nbytes = vars(toy.CacheBase)["nbytes"].fget
    patch.setattr(toy.CacheBase, "nbytes", property(lambda self: len(toy.HEADS) * nbytes(self)))


@plants("the whole history is fed again")
def _(patch: pytest.MonkeyPatch) -> None:
    record_run = toy._record_run

    def again(recorder: Any, numbers: Any, cache: Any, *rest: Any, **named: Any) -> None:
        record_run(recorder, numbers, None, *rest, **named)
        recorder.trace.runs[-1].name = "uncached" if cache is None else "cached"

    patch.setattr(toy, "_record_run", again)


# --- masks, softmax, sink, heads ---


@plants("masked scores are 0")
def _(patch: pytest.MonkeyPatch) -> None:
    def attend(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
        return toy.softmax(np.where(toy.causal_mask(len(values)), scores, 0)) @ values

    patch.setattr(toy, "attend", attend)


@plants("mask after the softmax")
def _(patch: pytest.MonkeyPatch) -> None:
    def attend(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
        return (toy.softmax(scores) * toy.causal_mask(len(values))) @ values

    patch.setattr(toy, "attend", attend)


@plants("a fully masked row gives NaN")
def _(patch: pytest.MonkeyPatch) -> None:
    def plain(scores: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return exps / exps.sum(axis=-1, keepdims=True)

    patch.setattr(toy, "softmax", plain)
    patch.setattr(sampling, "softmax", plain)


@plants("a fully masked row averages the future")
def _(patch: pytest.MonkeyPatch) -> None:
    smallest = np.finfo(np.float64).min

    def attend(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
        visible = np.where(toy.causal_mask(len(values)), scores, smallest)
        return toy.softmax(np.maximum(visible, smallest)) @ values

    patch.setattr(toy, "attend", attend)


def with_sink(patch: pytest.MonkeyPatch, drop: Callable[[np.ndarray], np.ndarray]) -> None:
    def attention(
        q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, sink: np.ndarray = toy.SINK
    ) -> np.ndarray:
        scores = np.where(mask, q @ k.T, -np.inf)
        extra = np.broadcast_to(sink[:, None, None], (*scores.shape[:2], 1))
        return (drop(toy.softmax(np.concatenate([scores, extra], axis=-1))) @ v).T

    patch.setattr(toy, "attention", attention)


@plants("the sink's share is dealt out again")
def _(patch: pytest.MonkeyPatch) -> None:
    with_sink(patch, lambda w: w[..., :-1] / w[..., :-1].sum(axis=-1, keepdims=True))


@plants("the sink is kept and a key dropped")
def _(patch: pytest.MonkeyPatch) -> None:
    with_sink(patch, lambda weights: weights[..., 1:])


@plants("the sink keeps a share, which decides ties")
def _(patch: pytest.MonkeyPatch) -> None:
    blunt = np.array([20, -np.inf, -np.inf, -np.inf])  # as with BETA = 40
    patch.setattr(toy, "QUERIES", toy.QUERIES * 40 / toy.BETA)
    patch.setattr(toy, "SINK", blunt)
    patch.setattr(toy.attention, "__defaults__", (blunt,))


@plants("even counts from 0")
def _(patch: pytest.MonkeyPatch) -> None:
    four_heads = toy.four_heads

    def from_0(visible: Any) -> list[float]:
        return [sum(visible[::2]) / len(visible[::2]), *four_heads(visible)[1:]]

    patch.setattr(toy, "four_heads", from_0)


@plants("logits from the first row")
def _(patch: pytest.MonkeyPatch) -> None:
    prefill = toy.prefill_matrix
    patch.setattr(toy, "prefill_matrix", lambda numbers: prefill(numbers)[::-1])


@plants("layer 2 gets one head, not the mean")
def _(patch: pytest.MonkeyPatch) -> None:
    class OneHead(np.ndarray):
        def mean(self, axis: Any = None, **named: Any) -> Any:  # type: ignore[override]
            return np.asarray(self)[:, 3]

    attention = toy.attention
    patch.setattr(toy, "attention", lambda *given: attention(*given).view(OneHead))


@plants("<eos> is run")
def _(patch: pytest.MonkeyPatch) -> None:
    def generate(step: Callable[[list[str]], np.ndarray], prompt: Any, max_new: int) -> list[str]:
        words = list(prompt)
        while len(words) < len(prompt) + max_new:
            words.append(toy.VOCABULARY[sampling.greedy(step(words))])
        return words[len(prompt) :]

    patch.setattr(toy, "generate", generate)
    patch.setitem(toy.NUMBERS, "<eos>", 0)


@plants("a pass too many")
def _(patch: pytest.MonkeyPatch) -> None:
    generate = toy.generate

    def once_more(step: Callable[[list[str]], np.ndarray], prompt: Any, max_new: int) -> list[str]:
        new = generate(step, prompt, max_new)
        if new[-1] != "<eos>":
            step([*prompt, *new])
        return new

    patch.setattr(toy, "generate", once_more)


@plants("a wrong number gets in")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(toy, "_check_number", lambda n, number: None)


# --- sampling ---


def with_top_p(patch: pytest.MonkeyPatch, keep: Callable[[np.ndarray, float], np.ndarray]) -> None:
    """keep(weights from the largest down, p) says which of them stay."""

    def keep_top_p(logits: np.ndarray, p: float) -> np.ndarray:
        order = np.argsort(-logits, kind="stable")
        best = order[keep(sampling.softmax(logits)[order], p)]
        kept = np.full_like(logits, -np.inf)
        kept[best] = logits[best]
        return kept

    patch.setattr(sampling, "keep_top_p", keep_top_p)


@plants("top-p drops the word that crosses p")
def _(patch: pytest.MonkeyPatch) -> None:
    with_top_p(patch, lambda weights, p: np.cumsum(weights) <= p + 1e-9)


@plants("top-p keeps one word too many")
def _(patch: pytest.MonkeyPatch) -> None:
    with_top_p(patch, lambda weights, p: np.cumsum(weights) - weights <= p + 1e-9)


@plants("top-p stumbles over rounding")
def _(patch: pytest.MonkeyPatch) -> None:
    with_top_p(patch, lambda weights, p: np.cumsum(weights) - weights < p)


@plants("a tiny top-p keeps no word")
def _(patch: pytest.MonkeyPatch) -> None:
    with_top_p(patch, lambda weights, p: np.cumsum(weights) - weights < p - 1e-9)


@plants("top-k keeps all that tie")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        sampling, "keep_top_k", lambda logits, k: np.where(logits >= np.sort(logits)[-k], logits, -np.inf)
    )


def in_order(patch: pytest.MonkeyPatch, steps: str) -> None:
    """The three settings in another order: T, k and p."""

    def next_probabilities(
        logits: Any, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
    ) -> np.ndarray:
        logits = np.asarray(logits, dtype=float)
        for letter in steps:
            if letter == "T":
                logits = logits / temperature
            elif letter == "k" and top_k is not None:
                logits = sampling.keep_top_k(logits, top_k)
            elif letter == "p" and top_p is not None:
                logits = sampling.keep_top_p(logits, top_p)
        return sampling.softmax(logits)

    patch.setattr(sampling, "next_probabilities", next_probabilities)


@plants("top-p before the temperature")
def _(patch: pytest.MonkeyPatch) -> None:
    in_order(patch, "kpT")


@plants("top-p before top-k")
def _(patch: pytest.MonkeyPatch) -> None:
    in_order(patch, "Tpk")


@plants("temperature multiplies")
def _(patch: pytest.MonkeyPatch) -> None:
    right = sampling.next_probabilities
    patch.setattr(
        sampling,
        "next_probabilities",
        lambda x, temperature=1.0, *rest, **named: right(x, 1 / temperature, *rest, **named),
    )


@plants("greedy takes the last of equals")
def _(patch: pytest.MonkeyPatch) -> None:
    def last(logits: Any) -> int:
        return len(logits) - 1 - int(np.argmax(np.asarray(logits)[::-1]))

    patch.setattr(sampling, "greedy", last)
    patch.setattr(toy, "greedy", last)


@plants("chance without a seed")
def _(patch: pytest.MonkeyPatch) -> None:
    real, chance = sampling.sample, np.random.default_rng()

    def unseeded(logits: Any, rng: Any, *rest: Any) -> int:
        return real(logits, chance, *rest)

    patch.setattr(sampling, "sample", unseeded)
    patch.setattr(toy, "sample", unseeded)


# --- the record, its check and its comparison ---


@plants("masked pairs are counted")
def _(patch: pytest.MonkeyPatch) -> None:
    attention = Recorder.attention

    def counts_all(self: Any, layer: int, **given: Any) -> None:
        attention(self, layer, **given)
        self._open.counts[-1]["pairs"] = int(given["mask"].size)

    patch.setattr(Recorder, "attention", counts_all)


@plants("training counts as run")
def _(patch: pytest.MonkeyPatch) -> None:
    close = Recorder.close_pass

    def remembers(self: Any, *given: Any, **named: Any) -> None:
        tokens = list(self._open.tokens)
        close(self, *given, **named)
        self._seen.update(tokens)

    patch.setattr(Recorder, "close_pass", remembers)


@plants("KV heads dealt out in turns")
def _(patch: pytest.MonkeyPatch) -> None:
    def tiled(rows: np.ndarray, n_heads: int) -> np.ndarray:
        return np.tile(rows, (1, n_heads // rows.shape[1], 1, 1))

    patch.setattr(recorder, "_per_query_head", tiled)


@plants("the recorder believes the output")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recorder, "_check_output", lambda self, *given: None)


@plants("one layer's counts stand for all")
def _(patch: pytest.MonkeyPatch) -> None:
    close = Recorder.close_pass

    def of_the_first(self: Any, *given: Any, **named: Any) -> None:
        n = len(self._open.counts)
        self._open.counts, self._open.visible = self._open.counts[:1] * n, self._open.visible[:1] * n
        close(self, *given, **named)

    patch.setattr(Recorder, "close_pass", of_the_first)


@plants("compare skips what a head says")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compare_module, "_row_differences", lambda *given: [])


@plants("compare takes NaN for equal")
def _(patch: pytest.MonkeyPatch) -> None:
    far_apart = compare_module._far_apart

    def forgiving(place: str, a: Any, b: Any, tolerance: float, relative: bool = False) -> Any:
        if a is None or b is None or np.isnan(b).any() or np.isnan(a).any():
            return iter(())
        return far_apart(place, a, b, tolerance, relative)

    patch.setattr(compare_module, "_far_apart", forgiving)


@plants("the validator takes any weights")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(format, "WEIGHT_SUM", 1e9)


@plants("the validator takes any counts")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(format, "_check_counts", lambda *given: None)


@plants("a broken write leaves half a file")
def _(patch: pytest.MonkeyPatch) -> None:
    def careless(path: Any, text: str) -> None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")

    patch.setattr(record, "write_whole", careless)


def test_an_ordinary_test_is_run_with_all_its_cases() -> None:
    from tests import test_toy

    assert len(list(cases(test_toy.test_cached_equals_uncached))) == 3 * 6
    assert len(list(cases(test_toy.test_the_decode_step))) == 1
    assert compare(record_toy(), Trace.from_json(record_toy().to_json()))  # the code itself is not planted
