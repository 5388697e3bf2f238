"""Bugs of the PyTorch model, its caches, generation, training and loading: some shipped, some near misses."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model import attention, generate, train
from helpers.model.attention import Attention, attend
from helpers.model.cache import GrowingCache, KVCache, StaticCache, WindowCache
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
from tests.planted import Bug, Planted, instead

torch.set_num_threads(1)
planted = Planted()

ATTEND, ALONE = parts.test_attend, parts.test_attend_sees_all_that_a_lone_query_may_see
NOTHING = parts.test_a_row_with_nothing_to_pick_gives_0
SPLIT, MASK = caches.test_cached_equals_uncached, caches.test_positions_and_mask
FULL, RESET = caches.test_exactly_full_then_over, caches.test_truncate_or_reset_then_go_on
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


def top_left(self: KVCache, T: int) -> Tensor:
    return torch.ones(T, self.length + T, dtype=torch.bool).tril()


planted("is_causal", [ALONE, ATTEND, EQUAL], "pytorch #103082 #108108 #144858; flax #5591", of=attend)(
    lambda old, q, k, v, mask, scale, sink=None: F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=True
    )
)
planted("mask aligned top-left", [MASK, FULL], "pytorch #103082", of=KVCache.mask)(
    lambda old, self, T, layer=0: top_left(self, T)
)
planted("no offset for several new tokens", [MASK, EQUAL], "LLMs-from-scratch PR#697", of=KVCache.mask)(
    lambda old, self, T, layer=0: old(self, T) if T == 1 else top_left(self, T)
)
planted("no mask at all", [parts.test_a_later_token_changes_no_earlier_logit, PLAIN], of=KVCache.mask)(
    lambda old, *given: old(*given) | True
)
planted("square mask with a cache", [MASK, EQUAL], "llama #899", of=KVCache.mask)(
    lambda old, self, T, layer=0: old(self, T)[:, self.length :]
)
planted("positions restart at 0 in decode", [GREEDY, EQUAL], "mlx-vlm #1983", of=attention.rotation)(
    lambda old, at, *more: old(at - at[..., :1], *more)
)
planted("positions count twice", [GREEDY, SPLIT], "gpt-neox PR#363; tiny-llm PR#46", of=attention.rotation)(
    lambda old, at, *more: old(at + at[..., :1], *more)
)
WINDOWED = smaller.test_a_window_is_the_model_under_a_mask
planted("every layer has the mask of the first", [WINDOWED], of=WindowCache.mask)(
    lambda old, self, T, layer=0: old(self, T)
)

# --- counting, room, forgetting ---


def append_and_count(old: Any, self: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    rows = old(self, layer, k, v)
    self.length += k.shape[2]
    return rows


planted("each layer advances the cache", [FULL, SPLIT], "gpt-fast; nanochat")(
    instead(GrowingCache.append, append_and_count),
    instead(StaticCache.append, append_and_count),
    instead(KVCache.advance, lambda old, self, T: None),
)
planted("full a row too early", [FULL, ROOM], "transformers #37574", of=KVCache.check_room)(
    lambda old, self, T: old(self, T + 1)
)
planted(
    "full a row too late",
    [FULL, parts.test_tokens_that_cannot_run],
    "transformers #37574",
    of=KVCache.check_room,
)(lambda old, self, T: old(self, T - 1 if T > 0 else T))
planted("reset does nothing", [RESET, IN_USE], "candle-vllm #6", of=KVCache.reset)(lambda old, self: None)


@planted("rejected tokens left in the cache", [HALF_WAY, RESET], "mlx-lm PR#1109", of=GrowingCache.append)
def _(old: Any, self: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    self.k[layer], self.v[layer] = torch.cat([self.k[layer], k], 2), torch.cat([self.v[layer], v], 2)
    S = self.length + k.shape[2]
    return self.k[layer][:, :, :S], self.v[layer][:, :, :S]


planted("truncate does not forget", [RESET, MASK], "mlx-lm PR#1109", of=KVCache.truncate)(
    lambda old, self, length: old(self, self.length)
)
planted(
    "a negative trim lengthens",
    [kinds.test_only_what_can_be_counted_counts],
    "mlx-lm #1868",
    of=KVCache.check_length,
)(lambda old, self, length: old(self, max(length, 0)))


@planted("slots past the current position attended to", [FULL, GREEDY], "tt-metal #41215")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(self: Any, T: int, layer: int = 0) -> Tensor:
        seen = KVCache.mask(self, T)
        return torch.nn.functional.pad(seen, (0, self.max_len - seen.shape[1]), value=True)

    whole = lambda old, self, layer, *new: old(self, layer, *new) and (self.k[layer], self.v[layer])  # noqa: E731
    instead(StaticCache.append, whole)(monkeypatch)
    monkeypatch.setattr(StaticCache, "mask", wide)


@planted("growth moves the other layers' rows", [FULL, EQUAL], "nanochat #187", of=GrowingCache.append)
def _(old: Any, self: Any, *new: Any) -> Any:
    self.v = [v.roll(1, 2) for v in self.v]
    return old(self, *new)


@planted("values from the list of keys", [SPLIT, EQUAL], "transformers #34232", of=GrowingCache.append)
def _(old: Any, self: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    self.v[layer] = self.k[layer]
    return old(self, layer, k, v)


KEPT = parts.test_attend_changes_nothing_it_was_given


@planted("stored rows are changed by each use", [KEPT, FULL], "MemOS #2301", of=attend)
def _(old: Any, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> Tensor:
    contexts = old(q, k, v, *more)
    v.mul_(0.999)
    return contexts


def expanded(self: KVCache, x: Tensor) -> Tensor:
    return x.repeat_interleave(self.sizes.n_heads // self.sizes.n_kv_heads, 1)  # type: ignore[attr-defined]


planted("expanded heads cached under GQA", [caches.test_bytes], "SnapKV #16 #29")(
    instead(
        KVCache.shapes, lambda old, self, T: tuple((b, self.sizes.n_heads, *x) for b, _, *x in old(self, T))
    ),
    instead(GrowingCache.append, lambda old, self, n, *new: old(self, n, *(expanded(self, x) for x in new))),
)
planted("values as wide as keys", [NARROW], of=KVCache.shapes)(lambda old, self, T: old(self, T)[:1] * 2)

# --- attention and the blocks ---


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, *, least: float) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    added = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, least)
    return (q @ k.mT * scale + added).softmax(-1) @ v


planted("a fully masked row gives NaN", [NOTHING], "pytorch #103749", of=attend)(
    lambda old, *given: by_hand(*given[:5], least=-math.inf)
)
planted("a fully masked row averages the future", [NOTHING], "pytorch #103963", of=attend)(
    lambda old, *given: by_hand(*given[:5], least=torch.finfo(given[0].dtype).min)
)
planted("the sink's share is dealt out again", [ATTEND, GOLDEN], of=attention.add_sink)(
    lambda old, mask, sink: old(mask, torch.full_like(sink, -math.inf))
)
planted("KV heads dealt out in turns", [ATTEND, PLAIN], of=attend)(
    lambda old, q, k, v, *more: old(q, *(x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)), *more)
)
planted(
    "heads split without the transpose",
    [parts.test_heads_are_split_along_the_width, PLAIN],
    of=Attention.split_heads,
)(lambda old, self, x: x.reshape(x.shape[0], -1, x.shape[1], self.head_dim))
turns = itertools.cycle((True, False))  # queries first, then keys
planted("keys are not rotated", [PLAIN, EQUAL], of=attention.rotate)(
    lambda old, x, *cos_sin: old(x, *cos_sin) if next(turns) else x
)
planted(
    "angles are rounded to bfloat16",
    [parts.test_angles_stay_float32_in_a_narrow_model],
    of=attention.rotation,
)(lambda old, at, frequencies, dtype: old(at.to(dtype), frequencies.to(dtype), dtype))


@planted("every layer calls the last block", [PLAIN, SPLIT], "TrenTorch #141", of=Transformer.forward)
def _(old: Any, self: Any, *given: Any, **named: Any) -> Tensor:
    layers = self.layers
    self.layers = nn.ModuleList([layers[-1]] * len(layers))
    try:
        return old(self, *given, **named)
    finally:
        self.layers = layers


# --- generation ---

ONE_BY_ONE = replies.test_tokens_come_one_by_one


@planted("the whole history is fed again", [ONE_BY_ONE, GREEDY], of=generate.run)
def _(old: Any, model: Any, tokens: Tensor, cache: Any) -> Tensor:
    cache.fed = torch.cat([cache.fed, tokens], 1) if cache.length else tokens
    return old(model, cache.fed, cache)


@planted(
    "the last prompt token is fed twice", [GREEDY, FIELDS], "text-generation-webui PR#4145", of=generate.run
)
def _(old: Any, model: Any, tokens: Tensor, cache: Any) -> Tensor:
    fed = cache.__dict__.pop("again", tokens)
    if not cache.length:
        cache.again = tokens[:, -1:]
    return old(model, fed, cache)


planted("only the first of several eos ids ends a reply", [FIELDS], of=generate.prepared)(
    lambda old, model, *more: old(model, *more[:-1], list(more[-1] or model.config.eos_ids)[:1])
)

# --- recording, training, signing ---


@planted("the recorder is told of other keys than were used", [COUNTS, WEIGHTS])
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Recorder.attention
    turned = lambda self, *, k, **others: real(self, k=k[..., ::-1], **others)  # noqa: E731
    monkeypatch.setattr(Recorder, "attention", turned)


@planted("gradients add up from step to step", [BY_HAND], of=train.update)
def _(old: Any, model: Any, optimizer: Any, texts: Tensor) -> float:
    optimizer.zero_grad = lambda: None
    return old(model, optimizer, texts)


planted(
    "targets are the tokens themselves",
    [test_train.test_the_target_of_a_token_is_the_one_after_it],
    of=train.next_token_loss,
)(lambda old, model, x: F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, :-1].flatten()))

# --- checkpoints ---

REFUSED = test_load.test_config_is_refused_by_name
planted(
    "the window of a checkpoint is ignored",
    [REFUSED, test_load.test_a_window_can_be_stayed_inside_of],
    "nanochat #452",
    of=config.window_of,
)(lambda old, *given: None)
planted(
    "the window of a checkpoint is one too short",
    [test_load.test_it_is_the_model_that_transformers_makes_of_it],
    "transformers #37574",
    of=config.window_of,
)(lambda old, *given: (old(*given) or 1) - 1 or None)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
