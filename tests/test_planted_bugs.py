"""Bugs of the toy, of sampling and of the record: real projects shipped some, others are near misses."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from helpers import sampling, toy
from helpers.recording import loop, recorder
from helpers.recording.recorder import Recorder
from helpers.trace import record
from tests import test_recorder, test_sampling, test_toy, test_trace, test_trace_compare
from tests.planted import Bug, Planted, edit, together

compare = importlib.import_module("helpers.trace.compare")  # the package's `compare` is the function
Base, Cache = toy.CacheBase, toy.KVCache
planted = Planted()

# --- the toy's cache: masks and positions ---

MASK, CACHED = test_toy.test_the_mask_of_the_cache, test_toy.test_cached_equals_uncached
DECODE, INTERFACE = test_toy.test_the_decode_step, test_toy.test_the_interface_of_the_cache
PROMPT, RESET = test_toy.test_contexts_of_the_prompt, test_toy.test_reset_and_use_again
LATER, NICE = test_toy.test_a_later_token_changes_no_earlier_row, test_toy.test_it_says_nice_and_stops
FAILS, FULL = test_toy.test_what_fails_leaves_the_cache_as_it_was, test_toy.test_exactly_full_and_one_more
APPEND = test_toy.test_append_returns_all_rows_and_advance_counts_them
TRUNCATE, LONG = test_toy.test_truncate_and_go_on_elsewhere, test_toy.test_the_long_run
COUNTS = test_trace.test_a_run_fits_itself

planted("mask aligned top-left", reported="pytorch #103082, flax #5591", caught_by=[MASK, DECODE])(
    edit(Cache.mask, "self.positions(T)[:, None]", "np.arange(1, T + 1)[:, None]")
)
planted("no offset for several new tokens", reported="LLMs-from-scratch PR#697", caught_by=[MASK, CACHED])(
    edit(Cache.mask, "self.positions(T)[", "(self.positions(T) if T == 1 else np.arange(1, T + 1))[")
)
planted("no mask at all", caught_by=[test_toy.test_causal_mask, MASK, LATER])(
    together(edit(Cache.mask, "[:, None]", "[:, None] + T"), edit(toy.causal_mask, "np.tril(", "("))
)
planted("square mask with a cache", reported="llama #899", caught_by=[MASK, CACHED])(
    edit(Cache.mask, "np.arange(1, self.length + T + 1)", "self.positions(T)")
)
planted("positions restart at 1 in decode", reported="mlx-vlm #1983", caught_by=[DECODE, CACHED])(
    edit(toy.run_pass, "mask = kept.positions(len(x))", "mask = np.arange(1, len(x) + 1)")
)
planted("positions count twice", reported="gpt-neox PR#363, tiny-llm PR#46", caught_by=[CACHED, DECODE])(
    edit(toy.run_pass, "mask = kept.positions(len(x))", "mask = kept.positions(len(x)) + kept.length")
)
planted("positions start at 0", caught_by=[PROMPT])(
    edit(toy.run_pass, "mask = kept.positions(len(x))", "mask = kept.positions(len(x)) - 1")
)

# --- the toy's cache: room, forgetting, sharing ---

planted("full a row too early", reported="transformers #37574", caught_by=[FULL, CACHED])(
    edit(Base.check_room, "> self.max_len", ">= self.max_len")
)
planted("full a row too late", reported="transformers #37574", caught_by=[FULL, FAILS])(
    edit(Base.check_room, "> self.max_len", "> self.max_len + 1")
)
planted("reset does nothing", reported="candle-vllm #6", caught_by=[RESET])(
    edit(Base.reset, "self.truncate(0)", "pass")
)


@planted(
    "one cache for everybody",
    reported="candle-vllm #6",
    caught_by=[test_toy.test_two_caches_do_not_mix, NICE],
)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, Any] = {}
    shared = lambda n_layers=1, max_len=1024: made.setdefault(n_layers, Cache(n_layers))  # noqa: E731
    monkeypatch.setattr(toy, "KVCache", shared)
    monkeypatch.setattr("helpers.recording.toy.KVCache", shared)


planted("truncate does not forget", reported="mlx-lm PR#1109", caught_by=[TRUNCATE, FULL])(
    edit(Base.truncate, "self.length = int(length)", "pass")
)
planted("rejected rows left in the buffer", reported="mlx-lm PR#1109", caught_by=[TRUNCATE, RESET])(
    edit(
        Cache.append,
        *("self.k[layer][: self.length]", "self.k[layer]", "self.v[layer][: self.length]", "self.v[layer]"),
        *("return self.k[layer], self.v[layer]", "n = self.length + len(v); return KV"),
        *("KV", "self.k[layer][:n], self.v[layer][:n]"),
    )
)
planted("a negative trim lengthens", reported="mlx-lm #1868", caught_by=[FAILS])(
    edit(Base.truncate, "not 0 <= length <= self.length", "length > self.length")
)
planted(
    "slots past the current position attended to", reported="tt-metal #41215", caught_by=[CACHED, DECODE]
)(
    together(
        edit(
            Cache.mask,
            *("return ", "seen = "),
            *("[:, None]", "[:, None]; return np.pad(seen, ((0, 0), (0, 2)), constant_values=True)"),
        ),
        edit(
            Cache.append,
            "return self.k[layer], self.v[layer]",
            "return np.pad(self.k[layer], ((0, 2), (0, 0))), np.pad(self.v[layer], (0, 2))",
        ),
    )
)

# --- the toy's cache: layers and rows ---

planted("each layer advances the cache", reported="gpt-fast, nanochat", caught_by=[APPEND, CACHED])(
    together(
        edit(Cache.append, "return self", "self.length += len(v); return self"),
        edit(Cache.advance, "self.length += T", "pass"),
    )
)
planted("the cache is never advanced", caught_by=[DECODE, test_toy.test_the_long_run])(
    edit(Cache.advance, "self.length += T", "pass")
)
planted("attended before appending", caught_by=[DECODE, CACHED])(
    edit(
        toy.attention,
        "scores = np",
        "n = len(k) - q.shape[1] or len(k); k, v, mask = k[:n], v[:n], mask[:, :n]; scores = np",
    )
)
planted("every layer uses layer 0's rows", caught_by=[CACHED, test_toy.test_the_two_layer_toy_says_the_same])(
    edit(Cache.append, "return self.k[layer], self.v[layer]", "return self.k[0], self.v[0]")
)
planted("growth moves the other layers' rows", reported="nanochat #187", caught_by=[CACHED, APPEND])(
    edit(Cache.append, "self.check_rows(k, v)", "self.v = [np.roll(v, 1) for v in self.v]")
)
planted("stored rows are changed by each use", reported="MemOS #2301", caught_by=[DECODE, CACHED])(
    edit(toy.attention, "return (weights @ v).T", "out = (weights @ v).T; v *= 0.999; return out")
)
planted("decode runs one layer of two", caught_by=[DECODE, CACHED])(
    together(
        edit(toy.run_pass, "in range(n_layers):", "in range(1 if kept.length else n_layers):"),
        edit(toy.check_advance, "if len(set(rows)) > 1:", "if False:"),
    )
)
planted("a cache of another depth is taken", caught_by=[FAILS])(
    edit(toy.run_pass, "if kept.n_layers != n_layers:", "n_layers = kept.n_layers\n    if False:")
)
planted("rows are counted before they fit", caught_by=[FAILS])(
    edit(Base.check_room, "> self.max_len:", "> self.max_len:\n        self.length += T")
)
planted("memory of every query head", reported="SnapKV #16", caught_by=[INTERFACE])(
    edit(Base.nbytes, "return sum(", "return len(HEADS) * sum(")
)
planted("the whole history is fed again", caught_by=[LONG, COUNTS])(
    edit(
        loop.record_run,
        *("first = len(tokens) - 1 if emitted and cache is not None else 0", "first = 0"),
        *("len(tokens)), cache)", "len(tokens)), None)", "tokens[first:], cache)", "tokens[first:], None)"),
    )
)

# --- the toy: masks, softmax, sink, heads ---

ATTEND, SINK = (
    test_toy.test_attend_masks_before_the_softmax,
    test_toy.test_the_sink_score_gives_even_something_to_spend_on,
)
NOTHING = test_toy.test_a_row_with_nothing_to_pick_gives_zero_where_plain_softmax_gives_nan
PASSES = test_toy.test_passes_of_three_new_words

planted("masked scores are 0", caught_by=[ATTEND, PROMPT])(edit(toy.attend, "scores, -np.inf", "scores, 0"))
planted("mask after the softmax", caught_by=[ATTEND, PROMPT])(
    edit(toy.attend, "softmax(masked)", "(softmax(scores) * causal_mask(len(values)))")
)
planted(
    "a fully masked row gives NaN",
    reported="pytorch #103749",
    caught_by=[NOTHING, test_sampling.test_softmax_gives_zeros_for_a_row_with_nothing_to_pick],
)(
    edit(
        sampling.softmax,
        *("exps = np", "np.seterr(invalid='ignore'); exps = np"),
        *("np.where(np.isfinite(peak), peak, 0)", "peak"),
        *("return np.divide(exps, total, out=np.zeros_like(exps), where=total != 0)", "return exps / total"),
    )
)
planted("a fully masked row averages the future", reported="pytorch #103963", caught_by=[PROMPT, LATER])(
    edit(toy.attend, "scores, -np.inf)", "np.maximum(scores, -1e300), -1e300)")
)
planted("the sink's share is dealt out again", caught_by=[SINK, PROMPT])(
    edit(
        toy.attention,
        "return (weights",
        "weights = weights / weights.sum(-1, keepdims=True); return (weights",
    )
)
planted("the sink is kept and a key dropped", caught_by=[SINK, DECODE])(
    edit(toy.attention, "[..., :-1]", "[..., 1:]")
)


@planted(
    "the sink keeps a share, which decides ties",
    caught_by=[
        test_toy.test_dots_weigh_exactly_as_the_rules,
        test_toy.test_dots_and_rules_say_the_same_word,
        test_toy.test_dots_and_rules_choose_alike_whatever_the_numbers,
        test_toy.test_nothing_to_pick_is_0_whatever_the_numbers,
    ],
)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    blunt = np.array([20, -np.inf, -np.inf, -np.inf])  # as with BETA = 40
    monkeypatch.setattr(toy, "QUERIES", toy.QUERIES * 40 / toy.BETA)
    monkeypatch.setattr(toy, "SINK", blunt)
    monkeypatch.setattr(toy.attention, "__defaults__", (blunt,))


planted("even counts from 0", caught_by=[PROMPT])(edit(toy.four_heads, "visible[1::2]", "visible[::2]"))
planted("logits from the first row", caught_by=[test_toy.test_logits_and_probabilities, NICE])(
    edit(toy.step, "[-1]", "[0]")
)
planted(
    "layer 2 gets one head, not the mean",
    caught_by=[test_toy.test_layer_2_starts_from_the_means_of_layer_1, test_toy.test_stale_rows],
)(edit(toy.run_pass, "contexts.mean(axis=1)", "contexts[:, 3]"))


@planted("<eos> is run", caught_by=[PASSES, NICE])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    edit(toy.generate, "if word == EOS:", "if False:")(monkeypatch)
    monkeypatch.setitem(toy.NUMBERS, "<eos>", 0)


planted("a pass too many", caught_by=[PASSES])(
    edit(toy.generate, "return words[len", "words[-1] == EOS or step(words)\n    return words[len")
)
planted("a wrong number gets in", caught_by=[test_toy.test_bad_input, FAILS])(
    edit(toy._check_number, "size = abs(", "return\n    size = abs(")
)

# --- sampling ---

TOP_P, ORDER = (
    test_sampling.test_top_p_keeps_the_fewest_that_reach_p,
    test_sampling.test_the_order_is_temperature_then_top_k_then_top_p,
)
SEED = [test_sampling.test_a_seed_reproduces, test_toy.test_sampling_with_a_seed_reproduces]

for name, kept in {
    "top-p drops the word that crosses p": "np.cumsum(weights) <= p + 1e-9",
    "top-p keeps one word too many": "before <= p + 1e-9",
    "top-p stumbles over rounding": "before < p",
    "a tiny top-p keeps no word": "before < p - 1e-9",
}.items():
    planted(name, caught_by=[TOP_P])(edit(sampling.keep_top_p, "before < p * (1 - ROUNDING)", kept))
planted("top-k keeps all that tie", caught_by=[test_sampling.test_top_k_of_equals_keeps_the_first])(
    edit(
        sampling.keep_top_k,
        'np.argsort(-logits, kind="stable")[:k]',
        "np.flatnonzero(logits >= np.sort(logits)[-k])",
    )
)
planted("the temperature last", caught_by=[ORDER])(
    edit(
        sampling.next_probabilities,
        *("(logits - peak) / temperature", "logits - peak"),
        *("return softmax(logits)", "return softmax(logits / temperature)"),
    )
)
planted("top-p before top-k", caught_by=[ORDER])(
    edit(
        sampling.next_probabilities,
        *("    logits = keep_top_k(logits, top_k)", "    pass"),
        *("softmax(logits)", "softmax(keep_top_k(logits, top_k or len(logits)))"),
    )
)
planted("temperature multiplies", caught_by=[ORDER, test_sampling.test_temperature_from_sharp_to_flat])(
    edit(sampling.next_probabilities, "/ temperature", "* temperature")
)
planted(
    "greedy takes the last of equals",
    caught_by=[test_sampling.test_greedy_takes_the_first_of_equals, test_toy.test_ties_go_to_the_first_word],
)(edit(sampling.greedy, "return int(", "return len(logits) - 1 - int(", "(logits)))", "(logits)[::-1]))"))
planted("chance without a seed", caught_by=SEED)(
    edit(sampling.sample, "rng.ch", "np.random.default_rng().ch")
)
planted(
    "the generator restarts for each token",
    caught_by=[test_sampling.test_a_chooser_draws_on_and_on_from_one_generator],
)(edit(sampling.chooser, "sample(logits, rng", "sample(logits, np.random.default_rng(seed)"))

# --- the record and its comparison ---

REFUSES, DIFFERENCE = (
    test_recorder.test_refuses,
    test_trace_compare.test_one_planted_difference_is_named,
)

planted("masked pairs are counted", caught_by=[COUNTS, LONG])(
    edit(Recorder._count, "int(mask.sum())", "int(mask.size)")
)
planted("training counts as run", caught_by=[test_trace.test_a_run_fits_itself])(
    edit(Recorder.close_pass, 'if self._pass.phase != "training":', "if True:")
)


@planted("KV heads dealt out in turns", caught_by=[test_recorder.test_grouped_heads])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    in_turns = lambda rows, n_heads: np.tile(rows, (1, n_heads // rows.shape[1], 1, 1))  # noqa: E731
    monkeypatch.setattr(recorder, "_per_query_head", in_turns)


planted(
    "the recorder believes the output",
    caught_by=[REFUSES, test_recorder.test_rounding_passes_and_a_small_lie_does_not],
)(edit(Recorder._check_output, "if len(wrong):", "if False:"))
planted("one layer's counts stand for all", caught_by=[REFUSES])(
    edit(Recorder._count, "if visible != self._part.visible:", "if False:")
)
planted("compare skips what a head says", caught_by=[DIFFERENCE])(
    edit(compare._result, "in trace.recorded:", "in []:")
)
planted("compare takes NaN for equal", caught_by=[DIFFERENCE])(
    edit(
        compare._alike,
        *("bool((np", "not bool((np", "y) <=", "y) >", "np.abs(x))).all()", "np.abs(x))).any()"),
    )
)
planted(
    "a broken write leaves half a file", caught_by=[test_trace.test_a_save_that_fails_leaves_the_old_file]
)(edit(record.write_whole, 'path.with_name(path.name + ".partial")', "path"))


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []


def test_an_edit_that_changes_nothing_and_a_crash_of_the_harness_are_caught_by_no_test() -> None:
    for change in ("mask(len(x))", "mask(no_such_name)"):
        bug = Bug("none", edit(toy.run_pass, "mask(len(x))", change), [DECODE, CACHED])
        assert bug.missed_by() == [DECODE.__name__, CACHED.__name__]
