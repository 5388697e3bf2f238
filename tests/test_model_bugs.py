"""Bugs of the PyTorch model, its caches, generation, training and loading: some shipped, some near misses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers import sampling
from helpers.model import attention, evaluate, generate, train
from helpers.model.attention import Attention
from helpers.model.cache import GrowingCache, KVCache, StaticCache, WindowedCache
from helpers.model.load import config, gguf, safetensors, weights
from helpers.model.transformer import RMSNorm, Transformer
from helpers.recording.model import ModelDecoder
from tests import (
    doubles,
    test_load,
    test_load_gguf,
    test_model_attention,
    test_model_cache,
    test_model_equal,
    test_model_generate,
    test_model_kinds,
    test_recording_model,
    test_shipped,
    test_train,
)
from tests.planted import Bug, Planted, edit, together

torch.set_num_threads(1)
planted = Planted()

ATTEND, ALONE = (
    test_model_attention.test_attend,
    test_model_attention.test_attend_sees_all_that_a_lone_query_may_see,
)
NOTHING = test_model_attention.test_a_row_with_nothing_to_pick_gives_0
SPLIT, MASK = test_model_cache.test_cached_equals_uncached, test_model_cache.test_positions_and_mask
FULL, RESET = test_model_cache.test_exactly_full_then_over, test_model_cache.test_reset_forgets_everything
HALF_WAY = test_model_cache.test_a_pass_that_fails_half_way_leaves_the_cache_as_before
GREEDY = test_model_generate.test_greedy_equals_running_everything_again
ROOM, EOS = test_model_generate.test_rows_allow_so_many_tokens, test_model_generate.test_stops_at_eos
FIELDS = test_model_generate.test_a_reply_read_back_field_by_field
IN_USE = test_model_generate.test_a_cache_in_use_is_refused_and_serves_again_after_reset
OTHER_USE = test_model_generate.test_a_cache_that_something_else_used_is_noticed
EQUAL, PLAIN = test_model_equal.test_equal_to_transformers, test_model_equal.test_equal_without_a_cache
LEAVE, RAGGED = (
    test_model_kinds.test_rows_leave_and_positions_stay,
    test_model_kinds.test_sequences_of_unequal_length,
)
BITS, NARROW = test_model_kinds.test_rows_stored_in_8_bits, test_model_kinds.test_values_narrower_than_keys
COUNTS, WEIGHTS = (
    test_recording_model.test_what_it_counts,
    test_recording_model.test_the_weights_are_those_of_the_model,
)
GOLDEN = test_recording_model.test_golden_numbers_through_the_real_core
BY_HAND = test_train.test_three_steps_by_hand
SIXTEEN = test_shipped.test_the_window_shows_sixteen_tokens_in_prefill_and_decode
REACH = test_shipped.test_the_window_cannot_reach_back_through_the_layers

# --- masks and positions ---

planted(
    "is_causal", reported="pytorch #103082 #108108 #144858; flax #5591", caught_by=[ALONE, ATTEND, EQUAL]
)(edit(attention.attend, "attn_mask=mask", "is_causal=True"))
planted("mask aligned top-left", reported="pytorch #103082", caught_by=[MASK, FULL])(
    edit(KVCache.mask, "self.positions(T)[", "torch.arange(T)[")
)
planted("no offset for several new tokens", reported="LLMs-from-scratch PR#697", caught_by=[MASK, EQUAL])(
    edit(KVCache.mask, "self.positions(T)[", "(self.positions(T) if T == 1 else torch.arange(T))[")
)
planted(
    "no mask at all",
    caught_by=[test_model_attention.test_a_later_token_changes_no_earlier_logit, PLAIN],
)(edit(KVCache.mask, "[:, None]", "[:, None] + T"))
planted("square mask with a cache", reported="llama #899", caught_by=[MASK, EQUAL])(
    edit(KVCache.mask, "torch.arange(self.length + T, device=self.device)", "self.positions(T)")
)
planted("positions restart at 0 in decode", reported="mlx-vlm #1983", caught_by=[GREEDY, EQUAL])(
    edit(Transformer.forward, "cache.positions(T)", "torch.arange(T)")
)
planted("positions count twice", reported="gpt-neox PR#363; tiny-llm PR#46", caught_by=[GREEDY, SPLIT])(
    edit(Transformer.forward, "cache.positions(T)", "cache.positions(T) + cache.length")
)
planted("rows kept used as position", reported="VeloxQuant-MLX #389", caught_by=[LEAVE])(
    edit(Transformer.forward, "cache.positions(T)", "cache.n_kept + torch.arange(T)")
)
planted("one position for all sequences", reported="unsloth #3699", caught_by=[RAGGED])(
    edit(Transformer.forward, "cache.positions(T)", "cache.length + torch.arange(T)")
)
planted("every layer has the mask of the first", caught_by=[LEAVE])(
    edit(Attention.forward, "cache.mask(x.shape[1], self.layer)", "cache.mask(x.shape[1])")
)

# --- counting, room, forgetting ---

planted("each layer advances the cache", reported="gpt-fast; nanochat", caught_by=[FULL, SPLIT])(
    together(
        edit(GrowingCache.append, "return self", "self.length += k.shape[2]; return self"),
        edit(StaticCache.append, "return self", "self.length += k.shape[2]; return self"),
        edit(KVCache.advance, "self.length += T", "pass"),
    )
)
planted("the cache is never advanced", caught_by=[FULL, ROOM])(
    edit(KVCache.advance, "self.length += T", "pass")
)
planted("advanced by the last layer", caught_by=[HALF_WAY])(
    together(
        edit(
            Attention.forward,
            "return ",
            "self.layer < cache.n_layers - 1 or cache.advance(x.shape[1]); return ",
        ),
        edit(Transformer.forward, "cache.advance(T)", "pass"),
    )
)
planted("advanced before the readout", caught_by=[HALF_WAY])(
    edit(
        Transformer.forward,
        *("cache.advance(T)", "pass", "logits = self.lm_head", "cache.advance(T); logits = self.lm_head"),
    )
)
planted("full a row too early", reported="transformers #37574", caught_by=[FULL, ROOM])(
    edit(KVCache.check_room, "> self.max_len", ">= self.max_len")
)
planted(
    "full a row too late",
    reported="transformers #37574",
    caught_by=[FULL, test_model_attention.test_tokens_that_cannot_run],
)(edit(KVCache.check_room, "> self.max_len", "> self.max_len + 1"))
planted("reset does nothing", reported="candle-vllm #6", caught_by=[RESET, IN_USE])(
    edit(KVCache.reset, "self.truncate(0)", "pass")
)
planted("a second prompt joins the first", reported="candle-vllm #6", caught_by=[IN_USE])(
    edit(generate.check_empty, "if cache.length:", "if False:")
)


@planted("one buffer for every cache", caught_by=[test_model_cache.test_two_caches_take_turns_on_one_model])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[Any, Any] = {}
    for kind in (GrowingCache, StaticCache):

        def allocate(self: Any, own: Any = kind.allocate) -> None:
            own(self)
            self.k, self.v = shared.setdefault((type(self), self.batch, self.dtype), (self.k, self.v))

        monkeypatch.setattr(kind, "allocate", allocate)


planted("rejected tokens left in the cache", reported="mlx-lm PR#1109", caught_by=[HALF_WAY, RESET])(
    edit(
        GrowingCache.append,
        *("self.k[layer][:, :, : self.length]", "self.k[layer]"),
        *("self.v[layer][:, :, : self.length]", "self.v[layer]"),
        *("return self.k[layer], self.v[layer]", "S = self.length + k.shape[2]; return ROWS"),
        *("ROWS", "self.k[layer][:, :, :S], self.v[layer][:, :, :S]"),
    )
)
planted("truncate does not forget", reported="mlx-lm PR#1109", caught_by=[RESET, MASK])(
    edit(KVCache.truncate, "self.length = length", "pass")
)
planted(
    "a negative trim lengthens",
    reported="mlx-lm #1868",
    caught_by=[test_model_cache.test_truncate_refuses_more_than_there_is],
)(edit(KVCache.truncate, "not 0 <= length <= self.length", "length > self.length"))
planted("only lengths are compared", caught_by=[OTHER_USE])(
    edit(KVCache.truncate, "self.changes += 1", "self.changes -= 1")  # cut back and filled again: no change
)


@planted("slots past the current position attended to", reported="tt-metal #41215", caught_by=[FULL, GREEDY])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(self: Any, T: int, layer: int = 0) -> Tensor:
        seen = KVCache.mask(self, T)
        return torch.nn.functional.pad(seen, (0, self.max_len - seen.shape[1]), value=True)

    edit(
        StaticCache.append,
        *("return self.k[layer, :, :, :S], self.v[layer, :, :, :S]", "return self.k[layer], self.v[layer]"),
    )(monkeypatch)
    monkeypatch.setattr(StaticCache, "mask", wide)


planted("growth moves the other layers' rows", reported="nanochat #187", caught_by=[FULL, EQUAL])(
    edit(GrowingCache.append, "self.check_rows(layer, k, v)", "self.v = [v.roll(1, 2) for v in self.v]")
)
planted("every layer uses layer 0's rows", caught_by=[PLAIN, LEAVE])(
    edit(GrowingCache.append, "return self.k[layer], self.v[layer]", "return self.k[0], self.v[0]")
)
planted("values from the list of keys", reported="transformers #34232", caught_by=[SPLIT, EQUAL])(
    edit(GrowingCache.append, "torch.cat([self.v[layer]", "torch.cat([self.k[layer]")
)
planted(
    "stored rows are changed by each use",
    reported="MemOS #2301",
    caught_by=[test_model_attention.test_attend_changes_nothing_it_was_given, FULL],
)(edit(attention.attend, "return F.", "out = F.", "gqa=True)", "gqa=True); v.mul_(0.999); return out"))
planted(
    "expanded heads cached under GQA",
    reported="SnapKV #16 #29",
    caught_by=[
        test_model_cache.test_bytes,
        test_model_cache.test_the_growing_cache_holds_no_more_than_it_says,
    ],
)(
    together(
        edit(KVCache.shapes, "self.batch, self.sizes.n_kv_heads", "self.batch, self.sizes.n_heads"),
        edit(
            GrowingCache.append,
            "self.check_rows(",
            "n = self.sizes.n_heads // self.sizes.n_kv_heads; "
            "k, v = (x.repeat_interleave(n, 1) for x in (k, v)); self.check_rows(",
        ),
    )
)
planted(
    "a cache for another pass is taken",
    caught_by=[
        test_model_cache.test_a_cache_made_for_another_pass_is_refused,
        test_model_generate.test_a_cache_that_does_not_fit_is_refused_at_once,
    ],
)(edit(KVCache.check_fits, "if mine != theirs:", "if False:"))
planted("trained through rows written in place", caught_by=[test_model_cache.test_gradients_through_a_cache])(
    edit(StaticCache.append, "if torch.is_grad_enabled() and", "if False and")
)

# --- caches of coming kinds ---

planted("values as wide as keys", caught_by=[NARROW])(
    edit(KVCache.shapes, "T, self.sizes.v_dim)", "T, self.sizes.k_dim)")
)
planted("a window one too narrow", reported="transformers #37574", caught_by=[LEAVE])(
    edit(doubles.RingCache.seen, "- self.windows[layer])", "- self.windows[layer] + 1)")
)
planted("a window one too wide", reported="transformers #37574", caught_by=[LEAVE])(
    edit(doubles.RingCache.seen, "- self.windows[layer])", "- self.windows[layer] - 1)")
)
planted("one window for all layers", caught_by=[LEAVE])(
    edit(doubles.RingCache.seen, "self.windows[layer]", "self.windows[0]")
)
planted("sinks leave with the others", caught_by=[LEAVE])(
    edit(doubles.RingCache.seen, "| (keys < self.sinks)", "")
)
planted("empty slots are looked at", caught_by=[LEAVE])(edit(doubles.RingCache.seen, "(keys >= 0) & ", ""))
planted("a ring breaks causality", reported="litgpt #2182", caught_by=[LEAVE])(
    edit(doubles.RingCache.seen, "(keys <= queries) & ", "")
)
planted("rows are let go of before the pass has looked", reported="mlx-lm #1914", caught_by=[LEAVE])(
    edit(doubles.RingCache.append, "return torch", "self.k[layer][:, :, 0] = 0; return torch")
)
planted("one scale for a whole chunk", caught_by=[BITS])(
    edit(doubles.to_8_bits, "amax(-1,", "amax((-2, -1),")
)
planted("8 bits of keys as values", caught_by=[BITS])(
    edit(doubles.EightBitCache.append, "enumerate((k, v))", "enumerate((k, k))")
)
planted("all sequences at one position", reported="unsloth #3699", caught_by=[RAGGED])(
    edit(doubles.RaggedCache.positions, "self.lengths[:, None]", "self.lengths.max().expand(self.batch, 1)")
)
planted("one mask for all sequences", caught_by=[RAGGED])(
    edit(doubles.RaggedCache.mask, "[..., None])[:, None]", "[..., None])[:1, None]")
)
planted("all sequences advance alike", caught_by=[RAGGED])(
    edit(
        doubles.RaggedCache.advance,
        "(self.batch,), T) if self.counts is None else self.counts",
        "(self.batch,), T)",
    )
)

# --- attention and the blocks ---

BY_HAND_CORE = """
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    lowest = LOWEST
    zeros = torch.zeros(mask.shape, dtype=q.dtype)
    added = mask if mask.is_floating_point() else zeros.masked_fill(~mask, lowest)
    return (q @ k.mT * scale + added.clamp(min=lowest)).softmax(-1) @ v
"""
SDPA = "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)"
planted("a fully masked row gives NaN", reported="pytorch #103749", caught_by=[NOTHING])(
    edit(attention.attend, SDPA, BY_HAND_CORE.strip().replace("LOWEST", "-math.inf"))
)
planted("a fully masked row averages the future", reported="pytorch #103963", caught_by=[NOTHING])(
    edit(attention.attend, SDPA, BY_HAND_CORE.strip().replace("LOWEST", "torch.finfo(q.dtype).min"))
)
planted("the sink's share is dealt out again", caught_by=[ATTEND, GOLDEN])(
    edit(attention.add_sink, "column = sink[", "column = torch.full_like(sink, -math.inf)[")
)
planted("the sink's row has a value", caught_by=[ATTEND])(
    edit(attention.attend, "F.pad(v, (0, 0, 0, 1))", "F.pad(v, (0, 0, 0, 1), value=1.0)")
)
planted("KV heads dealt out in turns", caught_by=[ATTEND, PLAIN])(
    edit(
        attention.attend,
        "return F.",
        "k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)); return F.",
    )
)
planted(
    "heads split without the transpose",
    caught_by=[test_model_attention.test_heads_are_split_along_the_width, PLAIN],
)(
    edit(
        Attention.split_heads,
        "x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)",
        "x.reshape(x.shape[0], -1, x.shape[1], self.head_dim)",
    )
)
planted("scores not divided by the root of the width", caught_by=[PLAIN, ATTEND])(
    edit(attention.attend, "scale=scale", "scale=1.0")
)
planted("keys are not rotated", caught_by=[PLAIN, EQUAL])(edit(Attention.forward, "rotate(k, *cos_sin)", "k"))
planted(
    "neighbours are rotated, as in the paper",
    caught_by=[test_model_attention.test_rotation_turns_pairs_half_a_head_apart, PLAIN],
)(
    edit(
        attention.rotate,
        *("x.chunk(2, dim=-1)", "x[..., ::2], x[..., 1::2]; n = x.shape[-1] // 2"),
        *("return x * cos + torch", "cos, sin = cos[..., :n], sin[..., :n]; return torch"),
        *(".cat([-b, a], dim=-1) * sin", ".stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)"),
    )
)
planted(
    "llama3 scaling is ignored",
    caught_by=[test_model_attention.test_llama3_scaling_leaves_fast_pairs_and_slows_slow_ones],
)(edit(attention.rope_frequencies, "if scaling is None else llama3_scaling(frequencies, scaling)", ""))
planted(
    "angles are rounded to bfloat16",
    caught_by=[test_model_attention.test_angles_stay_float32_in_a_narrow_model],
)(edit(attention.rotation, ".float() * frequencies", ".to(dtype) * frequencies.to(dtype)"))
planted("the norm runs over the tokens", caught_by=[PLAIN, SPLIT])(edit(RMSNorm.forward, "dim=-1", "dim=-2"))
planted(
    "the norm is taken in bfloat16",
    caught_by=[test_model_attention.test_the_norm_of_bfloat16_numbers_is_taken_in_float32],
)(
    edit(
        RMSNorm.forward,
        "wide.square().mean(dim=-1, keepdim=True)",
        "sum(x[..., n : n + 1].square() for n in range(x.shape[-1])) / x.shape[-1]",
    )
)
planted("biases are left out", caught_by=[PLAIN])(
    edit(Attention.forward, "self.split_heads(project(x))", "self.split_heads(x @ project.weight.T)")
)
planted("every layer calls the last block", reported="TrenTorch #141", caught_by=[PLAIN, SPLIT])(
    edit(Transformer.forward, "x = block(x", "x = self.layers[-1](x")
)
planted("a tied readout is its own", caught_by=[test_model_attention.test_a_tied_readout_is_the_embedding])(
    edit(Transformer.tie, "self.lm_head.weight = self.embed_tokens.weight", "pass")
)

# --- generation ---

ONE_ROW = test_model_generate.test_prefill_makes_one_row_of_logits
ONE_BY_ONE = test_model_generate.test_tokens_come_one_by_one

planted("prefill makes a row of logits for each token", caught_by=[ONE_ROW])(
    edit(
        Transformer.forward,
        *("x = x[:, -1:] if last_only else x", "pass"),
        *("return logits", "return logits[:, -1:] if last_only else logits"),
    )
)
planted("logits of the first position", caught_by=[ONE_ROW, GREEDY])(
    edit(Transformer.forward, "x[:, -1:]", "x[:, :1]")
)
planted("the whole history is fed again", caught_by=[ONE_BY_ONE, GREEDY])(
    edit(generate.steps, "torch.tensor([[token]])", "torch.cat([tokens, torch.tensor([[token]])], 1)")
)
planted(
    "the last prompt token is fed twice", reported="text-generation-webui PR#4145", caught_by=[GREEDY, FIELDS]
)(
    edit(
        generate.steps,
        "torch.tensor([[token]])",
        "tokens[:, -1:] if emitted == 1 else torch.tensor([[token]])",
    )
)
planted(
    "<eos> does not stop it",
    caught_by=[EOS, test_model_generate.test_which_reason_where_several_hold],
)(edit(generate.steps, "if token in ends:", "if False:"))
planted("only the first of several eos ids ends a reply", caught_by=[FIELDS])(
    edit(generate.generate, "frozenset(ends)", "frozenset(list(ends)[:1])")
)
planted(
    "one token too few from a full cache",
    caught_by=[ROOM, test_model_generate.test_a_model_is_full_at_its_longest],
)(edit(generate.steps, "cache.length == cache.max_len", "cache.length == cache.max_len - 1"))
planted("NaN goes on as a token", caught_by=[test_model_generate.test_no_numbers_in_the_logits])(
    edit(generate.choose_from, "if np.isfinite(row).all():", "if True:")
)
planted("chance without a seed", caught_by=[test_model_generate.test_sampling_repeats_with_its_seed, FIELDS])(
    edit(sampling.sample, "rng.choice", "np.random.default_rng().choice")
)
planted("the generator restarts for each token", caught_by=[FIELDS])(
    edit(sampling.chooser, "sample(logits, rng", "sample(logits, np.random.default_rng(seed)")
)
planted("a second wait a token", caught_by=[test_model_generate.test_one_wait_for_the_device_a_token])(
    edit(generate.choose_from, "if np.isfinite(row)", "if logits[0].isfinite()")
)

# --- recording, training, signing ---

planted("the uncached run keeps its rows", caught_by=[COUNTS])(
    edit(
        ModelDecoder.run,
        "kept = empty_cache(self.model) if cache is None else cache",
        "self.k = kept = getattr(self, 'k', None) or empty_cache(self.model)",
    )
)
planted("the recorder is told of other keys than were used", caught_by=[COUNTS, WEIGHTS])(
    edit(ModelDecoder.attended, "map(as_array, given)", "map(as_array, given); k = k[..., ::-1]")
)
planted("gradients add up from step to step", caught_by=[BY_HAND])(
    edit(train.update, "optimizer.zero_grad()", "pass")
)
planted("gradients are not shortened", caught_by=[BY_HAND])(
    edit(train.update, "nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)", "pass")
)
planted(
    "targets are the tokens themselves", caught_by=[test_train.test_the_target_of_a_token_is_the_one_after_it]
)(edit(train.next_token_loss, "texts[:, 1:]", "texts[:, :-1]"))
planted("signed right by the name alone", caught_by=[test_shipped.test_signed_right_is_name_and_city])(
    edit(evaluate.signs_right, 'said == [diary.name, "from", diary.city]', "said[0] == diary.name")
)
planted("decode ignores the sliding window", reported="nanochat #452", caught_by=[SIXTEEN])(
    edit(WindowedCache.mask, "return super()", "if T == 1: return super().mask(T, layer)\n    return super()")
)
planted("the window shows a token too few", reported="transformers #37574", caught_by=[SIXTEEN, REACH])(
    edit(WindowedCache.mask, "- self.WINDOW", "- self.WINDOW + 1")
)
planted("the window shows a token too many", reported="transformers #37574", caught_by=[SIXTEEN, REACH])(
    edit(WindowedCache.mask, "- self.WINDOW", "- self.WINDOW - 1")
)

# --- checkpoints ---

REFUSED, TENSOR = test_load.test_config_is_refused_by_name, test_load.test_a_tensor_is_refused_by_name
STRICT = "load_state_dict(weights, strict=True"

planted("a missing tensor keeps its random start", caught_by=[TENSOR])(
    edit(weights.assemble, STRICT, "load_state_dict(weights, strict=False")
)
planted("an unknown tensor is skipped", caught_by=[TENSOR])(
    edit(
        weights.assemble,
        STRICT,
        "load_state_dict({n: weights[n] for n in model.state_dict() if n in weights}, strict=True",
    )
)
planted("an index may point anywhere", caught_by=[test_load.test_a_path_that_climbs_out_of_the_folder])(
    edit(safetensors.read, "if not isinstance(file, str) or not re.full", "if False and not re.full")
)
planted(
    "the window of a checkpoint is ignored",
    reported="nanochat #452",
    caught_by=[REFUSED, test_load.test_a_window_can_be_stayed_inside_of],
)(edit(config.window_of, 'data["sliding_window"] is None', "True"))
planted(
    "the window of a checkpoint is one too short",
    reported="transformers #37574",
    caught_by=[test_load.test_it_is_the_model_that_transformers_makes_of_it],
)(edit(config.window_of, 'size(data, "sliding_window")', 'size(data, "sliding_window") - 1'))
planted("another kind of rope is read as plain", caught_by=[REFUSED])(
    edit(config.rope_of, 'if rope["rope_type"] not in ("default", "llama3"):', "if False:")
)
planted(
    "a save that fails leaves half a file", caught_by=[test_load.test_a_failed_save_leaves_the_old_checkpoint]
)(edit(safetensors.save, '(WEIGHTS + ".partial")', "WEIGHTS"))
planted(
    "rows of a GGUF file stay in pairs",
    caught_by=[test_load_gguf.test_every_weight_is_as_in_the_model_that_was_written],
)(edit(gguf.in_halves, "if rows % head_dim:", "if True:"))


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
