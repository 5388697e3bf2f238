"""Bugs of the toy, of sampling and of the record: real projects shipped some, others are near misses."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from helpers import sampling, toy
from helpers.recording import loop, recorder
from helpers.recording.recorder import Recorder
from helpers.trace import document
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

planted("mask aligned top-left", [MASK, DECODE], "pytorch #103082, flax #5591")(
    edit(Cache.mask, "self.positions(T)[:, None]", "np.arange(1, T + 1)[:, None]")
)
planted("no offset for several new tokens", [MASK, CACHED], "LLMs-from-scratch PR#697")(
    edit(Cache.mask, "self.positions(T)[", "(self.positions(T) if T == 1 else np.arange(1, T + 1))[")
)
planted("no mask at all", [test_toy.test_causal_mask, MASK, LATER])(
    together(edit(Cache.mask, "[:, None]", "[:, None] + T"), edit(toy.causal_mask, "np.tril(", "("))
)
planted("square mask with a cache", [MASK, CACHED], "llama #899")(
    edit(Cache.mask, "np.arange(1, self.length + T + 1)", "self.positions(T)")
)
planted("positions restart at 1 in decode", [DECODE, CACHED], "mlx-vlm #1983")(
    edit(toy.run_pass, "mask = kept.positions(len(x))", "mask = np.arange(1, len(x) + 1)")
)
planted("positions count twice", [CACHED, DECODE], "gpt-neox PR#363, tiny-llm PR#46")(
    edit(toy.run_pass, "mask = kept.positions(len(x))", "mask = kept.positions(len(x)) + kept.length")
)

# --- the toy's cache: room, forgetting, sharing ---

planted("full a row too early", [FULL, CACHED], "transformers #37574")(
    edit(Base.check_room, "> self.max_len", ">= self.max_len")
)
planted("full a row too late", [FULL, FAILS], "transformers #37574")(
    edit(Base.check_room, "> self.max_len", "> self.max_len + 1")
)
planted("reset does nothing", [RESET], "candle-vllm #6")(edit(Base.reset, "self.truncate(0)", "pass"))


@planted("one cache for everybody", [test_toy.test_two_caches_do_not_mix, NICE], "candle-vllm #6")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[int, Any] = {}
    shared = lambda n_layers=1, max_len=1024: made.setdefault(n_layers, Cache(n_layers))  # noqa: E731
    monkeypatch.setattr(toy, "KVCache", shared)
    monkeypatch.setattr("helpers.recording.toy.KVCache", shared)


planted("truncate does not forget", [TRUNCATE, FULL], "mlx-lm PR#1109")(
    edit(Base.truncate, "self.length = int(length)", "pass")
)
planted("rejected rows left in the buffer", [TRUNCATE, RESET], "mlx-lm PR#1109")(
    edit(
        Cache.append,
        *("self.k[layer][: self.length]", "self.k[layer]", "self.v[layer][: self.length]", "self.v[layer]"),
        *("return self.k[layer], self.v[layer]", "n = self.length + len(v); return KV"),
        *("KV", "self.k[layer][:n], self.v[layer][:n]"),
    )
)
planted("a negative trim lengthens", [FAILS], "mlx-lm #1868")(
    edit(Base.truncate, "not 0 <= length <= self.length", "length > self.length")
)
planted("slots past the current position attended to", [CACHED, DECODE], "tt-metal #41215")(
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

planted("each layer advances the cache", [APPEND, CACHED], "gpt-fast, nanochat")(
    together(
        edit(Cache.append, "return self", "self.length += len(v); return self"),
        edit(Cache.advance, "self.length += T", "pass"),
    )
)
planted("attended before appending", [DECODE, CACHED])(
    edit(
        toy.attention,
        "scores = np",
        "n = len(k) - q.shape[1] or len(k); k, v, mask = k[:n], v[:n], mask[:, :n]; scores = np",
    )
)
planted("growth moves the other layers' rows", [CACHED, APPEND], "nanochat #187")(
    edit(Cache.append, "self.check_rows(k, v)", "self.v = [np.roll(v, 1) for v in self.v]")
)
planted("stored rows are changed by each use", [DECODE, CACHED], "MemOS #2301")(
    edit(toy.attention, "return (weights @ v).T", "out = (weights @ v).T; v *= 0.999; return out")
)
planted("memory of every query head", [INTERFACE], "SnapKV #16")(
    edit(Base.nbytes, "return sum(", "return len(HEADS) * sum(")
)


@planted("the whole history is fed again", [LONG, COUNTS])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(recorder: Recorder, run: Any, voice: Any, cache: Any, *rest: Any) -> None:
        loop.record_run(recorder, run, voice, None, *rest)
        if cache is not None:
            recorder.trace.runs[-1].name, recorder.trace.runs[-1].cache = "cached", "growing"

    monkeypatch.setattr("helpers.recording.toy.record_run", without)


# --- the toy: masks, softmax, sink, heads ---

ATTEND = test_toy.test_attend_masks_before_the_softmax
SINK = test_toy.test_the_sink_score_gives_even_something_to_spend_on
NOTHING = test_toy.test_a_row_with_nothing_to_pick_gives_zero_where_plain_softmax_gives_nan
PASSES = test_toy.test_passes_of_three_new_words

planted("masked scores are 0", [ATTEND, PROMPT])(edit(toy.attend, "scores, -np.inf", "scores, 0"))
planted("mask after the softmax", [ATTEND, PROMPT])(
    edit(toy.attend, "softmax(masked)", "(softmax(scores) * causal_mask(len(values)))")
)
planted(
    "a fully masked row gives NaN",
    [NOTHING, test_sampling.test_softmax_gives_zeros_for_a_row_with_nothing_to_pick],
    "pytorch #103749",
)(
    edit(
        sampling.softmax,
        *("exps = np", "np.seterr(invalid='ignore'); exps = np"),
        *("np.where(np.isfinite(peak), peak, 0)", "peak"),
        *("return np.divide(exps, total, out=np.zeros_like(exps), where=total != 0)", "return exps / total"),
    )
)
planted("a fully masked row averages the future", [PROMPT, LATER], "pytorch #103963")(
    edit(toy.attend, "scores, -np.inf)", "np.maximum(scores, -1e300), -1e300)")
)
planted("the sink's share is dealt out again", [SINK, PROMPT])(
    edit(
        toy.attention,
        "return (weights",
        "weights = weights / weights.sum(-1, keepdims=True); return (weights",
    )
)
planted("the sink is kept and a key dropped", [SINK, DECODE])(edit(toy.attention, "[..., :-1]", "[..., 1:]"))


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
    edit(toy.generate, "if word == EOS:", "if False:")(monkeypatch)
    monkeypatch.setitem(toy.NUMBERS, "<eos>", 0)


planted("a pass too many", [PASSES])(
    edit(toy.generate, "return words[len", "words[-1] == EOS or step(words)\n    return words[len")
)

# --- sampling ---

TOP_P = test_sampling.test_top_p_keeps_the_fewest_that_reach_p
ORDER = test_sampling.test_the_order_is_temperature_then_top_k_then_top_p
SEED = [test_sampling.test_a_seed_reproduces, test_toy.test_sampling_with_a_seed_reproduces]

for name, kept in {
    "top-p drops the word that crosses p": "np.cumsum(weights) <= p + 1e-9",
    "top-p keeps one word too many": "before <= p + 1e-9",
    "top-p stumbles over rounding": "before < p",
    "a tiny top-p keeps no word": "before < p - 1e-9",
}.items():
    planted(name, [TOP_P])(edit(sampling.keep_top_p, "before < p * (1 - ROUNDING)", kept))
planted("top-k keeps all that tie", [test_sampling.test_top_k_of_equals_keeps_the_first])(
    edit(
        sampling.keep_top_k,
        'np.argsort(-logits, kind="stable")[:k]',
        "np.flatnonzero(logits >= np.sort(logits)[-k])",
    )
)
planted("the temperature last", [ORDER])(
    edit(
        sampling.next_probabilities,
        *("(logits - peak) / temperature", "logits - peak"),
        *("return softmax(logits)", "return softmax(logits / temperature)"),
    )
)
planted("top-p before top-k", [ORDER])(
    edit(
        sampling.next_probabilities,
        *("    logits = keep_top_k(logits, top_k)", "    pass"),
        *("softmax(logits)", "softmax(keep_top_k(logits, top_k or len(logits)))"),
    )
)
planted(
    "greedy takes the last of equals",
    [test_sampling.test_greedy_takes_the_first_of_equals, test_toy.test_ties_go_to_the_first_word],
)(edit(sampling.greedy, "return int(", "return len(logits) - 1 - int(", "(logits)))", "(logits)[::-1]))"))
planted("chance without a seed", SEED)(edit(sampling.draw, "rng.ch", "np.random.default_rng().ch"))
planted(
    "the generator restarts for each token", [test_sampling.test_a_chooser_draws_on_and_on_from_one_generator]
)(edit(sampling.chooser, "(logits), rng", "(logits), np.random.default_rng(sampling.seed)"))

# --- the record and its comparison ---

REFUSES, DIFFERENCE = (
    test_recorder.test_refuses,
    test_trace_compare.test_one_planted_difference_is_named,
)

planted("masked pairs are counted", [COUNTS, LONG])(
    edit(Recorder._count, "int(mask.sum())", "int(mask.size)")
)
planted("training counts as run", [test_trace.test_a_run_fits_itself])(
    edit(Recorder.close_pass, 'if self._pass.phase != "training":', "if True:")
)


@planted("KV heads dealt out in turns", [test_recorder.test_grouped_heads])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    in_turns = lambda rows, n_heads: np.tile(rows, (1, n_heads // rows.shape[1], 1, 1))  # noqa: E731
    monkeypatch.setattr(recorder, "_per_query_head", in_turns)


planted(
    "the recorder believes the output",
    [REFUSES, test_recorder.test_rounding_passes_and_a_small_lie_does_not],
)(edit(Recorder._check_output, "if len(wrong):", "if False:"))
planted("one layer's counts stand for all", [REFUSES])(
    edit(Recorder._count, "if visible != part.visible:", "if False:")
)
planted("compare skips what a head says", [DIFFERENCE])(edit(compare._result, "in trace.recorded:", "in []:"))
planted("compare takes NaN for equal", [DIFFERENCE])(
    edit(
        compare._alike,
        *("bool((np", "not bool((np", "y) <=", "y) >", "np.abs(x))).all()", "np.abs(x))).any()"),
    )
)
planted("a broken write leaves half a file", [test_trace.test_a_save_that_fails_leaves_the_old_file])(
    edit(document.write_whole, 'path.with_name(path.name + ".partial")', "path")
)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []


def test_an_edit_that_changes_nothing_and_a_crash_of_the_harness_are_caught_by_no_test() -> None:
    for change in ("mask(len(x))", "mask(no_such_name)"):
        bug = Bug("none", edit(toy.run_pass, "mask(len(x))", change), [DECODE, CACHED])
        assert bug.missed_by() == [DECODE.__name__, CACHED.__name__]
