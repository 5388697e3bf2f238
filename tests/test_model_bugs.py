"""Bugs of the PyTorch model, its caches, generation, training and loading: some shipped, some near misses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.model import attention, generate, train
from helpers.model.attention import Attention
from helpers.model.cache import GrowingCache, KVCache, StaticCache
from helpers.model.load import config
from helpers.model.transformer import Transformer
from helpers.recording.recorder import Recorder
from tests import test_load, test_train
from tests import test_model_attention as parts
from tests import test_model_cache as caches
from tests import test_model_equal as equal
from tests import test_model_generate as replies
from tests import test_model_kinds as kinds
from tests import test_model_smaller as smaller
from tests import test_recording_model as recording
from tests.planted import Bug, Planted, edit, together

torch.set_num_threads(1)
planted = Planted()

ATTEND, ALONE = parts.test_attend, parts.test_attend_sees_all_that_a_lone_query_may_see
NOTHING = parts.test_a_row_with_nothing_to_pick_gives_0
SPLIT, MASK = caches.test_cached_equals_uncached, caches.test_positions_and_mask
FULL, RESET = caches.test_exactly_full_then_over, caches.test_reset_forgets_everything
HALF_WAY = kinds.test_a_pass_that_fails_half_way_leaves_the_cache_as_before
GREEDY = replies.test_greedy_equals_running_everything_again
ROOM = replies.test_rows_allow_so_many_tokens
FIELDS = replies.test_a_reply_read_back_field_by_field
IN_USE = replies.test_a_cache_in_use_is_refused_and_serves_again_after_reset
EQUAL, PLAIN = equal.test_equal_to_transformers, equal.test_equal_without_a_cache
NARROW = kinds.test_values_narrower_than_keys_or_none
COUNTS, WEIGHTS = recording.test_what_it_counts, recording.test_the_weights_are_those_of_the_model
GOLDEN = recording.test_golden_numbers_through_the_real_core
BY_HAND = test_train.test_three_steps_by_hand

# --- masks and positions ---

planted("is_causal", [ALONE, ATTEND, EQUAL], "pytorch #103082 #108108 #144858; flax #5591")(
    edit(attention.attend, "attn_mask=mask", "is_causal=True")
)
planted("mask aligned top-left", [MASK, FULL], "pytorch #103082")(
    edit(KVCache.mask, "self.positions(T)[", "torch.arange(T)[")
)
planted("no offset for several new tokens", [MASK, EQUAL], "LLMs-from-scratch PR#697")(
    edit(KVCache.mask, "self.positions(T)[", "(self.positions(T) if T == 1 else torch.arange(T))[")
)
planted("no mask at all", [parts.test_a_later_token_changes_no_earlier_logit, PLAIN])(
    edit(KVCache.mask, "[:, None]", "[:, None] + T")
)
planted("square mask with a cache", [MASK, EQUAL], "llama #899")(
    edit(KVCache.mask, "torch.arange(self.length + T, device=self.device)", "self.positions(T)")
)
planted("positions restart at 0 in decode", [GREEDY, EQUAL], "mlx-vlm #1983")(
    edit(Transformer.forward, "cache.positions(T)", "torch.arange(T)")
)
planted("positions count twice", [GREEDY, SPLIT], "gpt-neox PR#363; tiny-llm PR#46")(
    edit(Transformer.forward, "cache.positions(T)", "cache.positions(T) + cache.length")
)
planted("every layer has the mask of the first", [smaller.test_a_window_is_the_model_under_a_mask])(
    edit(Attention.forward, "cache.mask(x.shape[1], self.layer)", "cache.mask(x.shape[1])")
)

# --- counting, room, forgetting ---

planted("each layer advances the cache", [FULL, SPLIT], "gpt-fast; nanochat")(
    together(
        edit(GrowingCache.append, "return self", "self.length += k.shape[2]; return self"),
        edit(StaticCache.append, "return self", "self.length += k.shape[2]; return self"),
        edit(KVCache.advance, "self.length += T", "pass"),
    )
)
planted("full a row too early", [FULL, ROOM], "transformers #37574")(
    edit(KVCache.check_room, "> self.max_len", ">= self.max_len")
)
planted("full a row too late", [FULL, parts.test_tokens_that_cannot_run], "transformers #37574")(
    edit(KVCache.check_room, "> self.max_len", "> self.max_len + 1")
)
planted("reset does nothing", [RESET, IN_USE], "candle-vllm #6")(
    edit(KVCache.reset, "self.truncate(0)", "pass")
)


planted("rejected tokens left in the cache", [HALF_WAY, RESET], "mlx-lm PR#1109")(
    edit(
        GrowingCache.append,
        *("self.k[layer][:, :, :n]", "self.k[layer]"),
        *("self.v[layer][:, :, :n]", "self.v[layer]"),
        *("return self.k[layer], self.v[layer]", "S = self.length + k.shape[2]; return ROWS"),
        *("ROWS", "self.k[layer][:, :, :S], self.v[layer][:, :, :S]"),
    )
)
planted("truncate does not forget", [RESET, MASK], "mlx-lm PR#1109")(
    edit(KVCache.truncate, "self.length = int(length)", "pass")
)
planted("a negative trim lengthens", [kinds.test_only_what_can_be_counted_counts], "mlx-lm #1868")(
    edit(KVCache.check_length, "not 0 <= length <= self.length", "length > self.length")
)


@planted("slots past the current position attended to", [FULL, GREEDY], "tt-metal #41215")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(self: Any, T: int, layer: int = 0) -> Tensor:
        seen = KVCache.mask(self, T)
        return torch.nn.functional.pad(seen, (0, self.max_len - seen.shape[1]), value=True)

    edit(
        StaticCache.append,
        *("return self.k[layer, :, :, :S], self.v[layer, :, :, :S]", "return self.k[layer], self.v[layer]"),
    )(monkeypatch)
    monkeypatch.setattr(StaticCache, "mask", wide)


planted("growth moves the other layers' rows", [FULL, EQUAL], "nanochat #187")(
    edit(GrowingCache.append, "self.check_rows(layer, k, v)", "self.v = [v.roll(1, 2) for v in self.v]")
)
planted("values from the list of keys", [SPLIT, EQUAL], "transformers #34232")(
    edit(GrowingCache.append, "torch.cat([self.v[layer]", "torch.cat([self.k[layer]")
)
planted(
    "stored rows are changed by each use",
    [parts.test_attend_changes_nothing_it_was_given, FULL],
    "MemOS #2301",
)(edit(attention.attend, "return F.", "out = F.", "gqa=True)", "gqa=True); v.mul_(0.999); return out"))
planted("expanded heads cached under GQA", [caches.test_bytes], "SnapKV #16 #29")(
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

# --- caches of coming kinds ---

planted("values as wide as keys", [NARROW])(
    edit(KVCache.shapes, "T, self.sizes.v_dim)", "T, self.sizes.k_dim)")
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
planted("a fully masked row gives NaN", [NOTHING], "pytorch #103749")(
    edit(attention.attend, SDPA, BY_HAND_CORE.strip().replace("LOWEST", "-math.inf"))
)
planted("a fully masked row averages the future", [NOTHING], "pytorch #103963")(
    edit(attention.attend, SDPA, BY_HAND_CORE.strip().replace("LOWEST", "torch.finfo(q.dtype).min"))
)
planted("the sink's share is dealt out again", [ATTEND, GOLDEN])(
    edit(attention.add_sink, "column = sink[", "column = torch.full_like(sink, -math.inf)[")
)
planted("KV heads dealt out in turns", [ATTEND, PLAIN])(
    edit(
        attention.attend,
        "return F.",
        "k, v = (x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)); return F.",
    )
)
planted("heads split without the transpose", [parts.test_heads_are_split_along_the_width, PLAIN])(
    edit(
        Attention.split_heads,
        "x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)",
        "x.reshape(x.shape[0], -1, x.shape[1], self.head_dim)",
    )
)
planted("keys are not rotated", [PLAIN, EQUAL])(edit(Attention.forward, "rotate(k, *cos_sin)", "k"))
planted("angles are rounded to bfloat16", [parts.test_angles_stay_float32_in_a_narrow_model])(
    edit(attention.rotation, ".float() * frequencies", ".to(dtype) * frequencies.to(dtype)")
)
planted("every layer calls the last block", [PLAIN, SPLIT], "TrenTorch #141")(
    edit(Transformer.forward, "x = block(x", "x = self.layers[-1](x")
)

# --- generation ---

ONE_BY_ONE = replies.test_tokens_come_one_by_one

planted("the whole history is fed again", [ONE_BY_ONE, GREEDY])(
    edit(generate.steps, "torch.tensor([[token]])", "torch.cat([tokens, torch.tensor([[token]])], 1)")
)
planted("the last prompt token is fed twice", [GREEDY, FIELDS], "text-generation-webui PR#4145")(
    edit(
        generate.steps,
        "torch.tensor([[token]])",
        "tokens[:, -1:] if emitted == 1 else torch.tensor([[token]])",
    )
)
planted("only the first of several eos ids ends a reply", [FIELDS])(
    edit(generate.prepared, "frozenset(ends)", "frozenset(list(ends)[:1])")
)

# --- recording, training, signing ---


@planted("the recorder is told of other keys than were used", [COUNTS, WEIGHTS])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Recorder.attention
    turned = lambda self, *, k, **others: real(self, k=k[..., ::-1], **others)  # noqa: E731
    monkeypatch.setattr(Recorder, "attention", turned)


planted("gradients add up from step to step", [BY_HAND])(edit(train.update, "optimizer.zero_grad()", "pass"))
planted("targets are the tokens themselves", [test_train.test_the_target_of_a_token_is_the_one_after_it])(
    edit(train.next_token_loss, "texts[:, 1:]", "texts[:, :-1]")
)

# --- checkpoints ---

REFUSED = test_load.test_config_is_refused_by_name
planted(
    "the window of a checkpoint is ignored",
    [REFUSED, test_load.test_a_window_can_be_stayed_inside_of],
    "nanochat #452",
)(edit(config.window_of, 'data["sliding_window"] is None', "True"))
planted(
    "the window of a checkpoint is one too short",
    [test_load.test_it_is_the_model_that_transformers_makes_of_it],
    "transformers #37574",
)(edit(config.window_of, 'size(data, "sliding_window")', 'size(data, "sliding_window") - 1'))


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
