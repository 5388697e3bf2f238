"""Bugs of the PyTorch model, its caches, its replies and of loading: most of them real projects shipped."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import sampling
from helpers.model import attention, generate, speculate
from helpers.model.attention import Attention, attend
from helpers.model.cache import Cache, GrowingCache, PagedCache, StaticCache, WindowCache
from helpers.model.load import config
from tests import test_load
from tests import test_model_attention as parts
from tests import test_model_cache as caches
from tests import test_model_equal as equal
from tests import test_model_generate as replies
from tests import test_model_paged as paged
from tests import test_model_smaller as smaller
from tests import test_speculate as drafts
from tests.planted import Bug, Planted, instead

torch.set_num_threads(1)
planted = Planted()

ATTEND, NOTHING = parts.test_attend, parts.test_fully_masked_row_gives_zero
SPLIT, MASK = caches.test_cached_equals_uncached, caches.test_positions_and_mask
FULL, RESET = caches.test_pass_beyond_max_len_is_refused, caches.test_truncated_cache_continues_correctly
HALF_WAY = caches.test_failed_pass_leaves_cache_unchanged
GREEDY = replies.test_greedy_equals_generation_without_cache
FIELDS = replies.test_generation_attributes
EQUAL = equal.test_equal_to_transformers

# --- masks and positions ---


def top_left(self: Cache, T: int) -> Tensor:
    return torch.ones(T, self.length + T, dtype=torch.bool).tril()


planted("is_causal", [ATTEND, EQUAL], "pytorch #103082 #108108 #144858; flax #5591", of=attend)(
    lambda old, q, k, v, mask, scale: F.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=True
    )
)
planted("mask aligned top-left", [MASK, FULL], "pytorch #103082", of=Cache.mask)(
    lambda old, self, T, layer=0: top_left(self, T)
)
planted("positions restart at 0 in decode", [GREEDY, EQUAL], "mlx-vlm #1983", of=attention.rope_cos_sin)(
    lambda old, at, *more: old(at - at[..., :1], *more)
)

# --- counting, room, forgetting ---


def append_and_count(old: Any, self: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    rows = old(self, layer, k, v)
    self.length += k.shape[2]
    return rows


planted("each layer advances the cache", [FULL, SPLIT], "gpt-fast; nanochat")(
    instead(GrowingCache.append, append_and_count),
    instead(StaticCache.append, append_and_count),
    instead(Cache.advance, lambda old, self, T: None),
)
ROOM, CANNOT = replies.test_stop_reason_priority, parts.test_invalid_tokens_are_refused
planted("full a row too early", [FULL, ROOM], "transformers #37574", of=Cache.check_capacity)(
    lambda old, self, T: old(self, T + 1)
)
planted("full a row too late", [FULL, CANNOT], "transformers #37574", of=Cache.check_capacity)(
    lambda old, self, T: old(self, T - 1 if T > 0 else T)
)
planted(
    "reset does nothing",
    [RESET, replies.test_used_cache_is_refused_until_reset],
    "candle-vllm #6",
    of=Cache.reset,
)(lambda old, self: None)


@planted("rejected tokens left in the cache", [HALF_WAY, RESET], "mlx-lm PR#1109", of=GrowingCache.append)
def _(old: Any, self: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    self.k[layer], self.v[layer] = torch.cat([self.k[layer], k], 2), torch.cat([self.v[layer], v], 2)
    S = self.length + k.shape[2]
    return self.k[layer][:, :, :S], self.v[layer][:, :, :S]


ROWS = drafts.test_cache_length_after_every_round
planted("truncate does not forget", [RESET, MASK, ROWS], "mlx-lm PR#1109", of=Cache.truncate)(
    lambda old, self, length: old(self, self.length)
)
COUNTED = caches.test_truncate_accepts_whole_numbers_only
planted("a negative trim lengthens", [COUNTED], "mlx-lm #1868", of=Cache.check_length)(
    lambda old, self, length: old(self, max(length, 0))
)


@planted("slots past the current position attended to", [FULL, GREEDY], "tt-metal #41215")
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(self: Any, T: int, layer: int = 0) -> Tensor:
        seen = Cache.mask(self, T)
        return torch.nn.functional.pad(seen, (0, self.max_len - seen.shape[1]), value=True)

    whole = lambda old, self, layer, *new: old(self, layer, *new) and (self.k[layer], self.v[layer])  # noqa: E731
    instead(StaticCache.append, whole)(monkeypatch)
    monkeypatch.setattr(StaticCache, "mask", wide)


@planted("values from the list of keys", [SPLIT, EQUAL], "transformers #34232", of=GrowingCache.append)
def _(old: Any, self: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    self.v[layer] = self.k[layer]
    return old(self, layer, k, v)


@planted("stored rows are changed by each use", [FULL, FIELDS], "MemOS #2301", of=attend)
def _(old: Any, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> Tensor:
    contexts = old(q, k, v, *more)
    v.mul_(0.999)
    return contexts


def expanded(self: Cache, x: Tensor) -> Tensor:
    return x.repeat_interleave(self.config.n_heads // self.config.n_kv_heads, 1)


planted("expanded heads cached under GQA", [caches.test_nbytes_matches_memory], "SnapKV #16 #29")(
    instead(
        Cache.entry_shapes,
        lambda old, self, T: tuple((b, self.config.n_heads, *x) for b, _, *x in old(self, T)),
    ),
    instead(GrowingCache.append, lambda old, self, n, *new: old(self, n, *(expanded(self, x) for x in new))),
)

# --- windows, unequal lengths ---

WINDOWED = smaller.test_window_equals_masked_model
BACK = smaller.test_window_can_undo_one_token


def masks(change: Callable[[Tensor], Tensor]) -> Any:
    return lambda old, *given: change(old(*given))


planted("rows kept used as position", [WINDOWED], "VeloxQuant-MLX #389", of=Cache.positions)(
    lambda old, self, T: old(self, T) - self.length + self.n_entries
)
planted("a window one too short", [WINDOWED], "transformers #37574", of=WindowCache.in_window)(
    lambda old, self, keys, queries, layer: old(self, keys, queries + 1, layer)
)
planted("a window one too long", [WINDOWED], "transformers #37574", of=WindowCache.in_window)(
    lambda old, self, keys, queries, layer: old(self, keys, queries - 1, layer)
)
planted("every layer has the mask of the first", [WINDOWED], "vllm PR #51756", of=WindowCache.mask)(
    lambda old, self, T, layer=0: old(self, T)
)
planted("decode ignores the sliding window", [WINDOWED], "nanochat #452", of=WindowCache.mask)(
    masks(lambda mask: mask | (len(mask) == 1))
)
planted("a ring breaks causality", [WINDOWED], "litgpt #2182", of=WindowCache.mask)(
    masks(lambda mask: mask | torch.ones_like(mask).triu(mask.shape[1] - len(mask) + 1))
)
planted("a long prompt loses rows before it has looked", [WINDOWED], "litgpt #2182", of=WindowCache.mask)(
    masks(lambda mask: mask & mask[-1])
)
planted(
    "the window is masked and the rows are kept", [WINDOWED], "mlx-lm #1914", of=WindowCache.select_entries
)(lambda old, self, positions, masks: old(self, positions, [x >= 0 for x in positions]))
planted("rows of the last pass stay", [BACK], "mlx-lm PR#1109", of=WindowCache.truncate)(
    lambda old, self, length: Cache.truncate(self, length)
)
EACH = paged.test_batched_logits_equal_single_sequences
planted("one position for all sequences", [EACH], "unsloth #3699", of=PagedCache.positions)(
    lambda old, self, T: old(self, T)[:1].expand(self.batch, -1)
)


@planted("rows behind the end are read", [EACH], "tt-metal #41215", of=PagedCache.make_layout)
def _(old: Any, self: Any, T: int) -> Any:
    found = old(self, T)
    return found._replace(read_slots=self.slot_indices()[..., : found.mask.shape[-1]].flatten())


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
planted("KV heads dealt out in turns", [ATTEND, EQUAL], of=attend)(
    lambda old, q, k, v, *more: old(q, *(x.repeat(1, q.shape[1] // x.shape[1], 1, 1) for x in (k, v)), *more)
)
NARROW = parts.test_rope_angles_stay_float32_in_bfloat16_models
planted("heads split without the transpose", [EQUAL], of=Attention.split_heads)(
    lambda old, self, x: x.reshape(x.shape[0], -1, x.shape[1], self.head_dim)
)
planted("angles are rounded to bfloat16", [NARROW], of=attention.rope_cos_sin)(
    lambda old, at, frequencies, dtype: old(at.to(dtype), frequencies.to(dtype), dtype)
)
# --- replies, drafted or not ---


@planted(
    "the last prompt token is fed twice",
    [GREEDY, FIELDS],
    "text-generation-webui PR#4145",
    of=generate.next_token_logits,
)
def _(old: Any, model: Any, tokens: Tensor, cache: Any) -> Tensor:
    fed = cache.__dict__.pop("again", tokens)
    if not cache.length:
        cache.again = tokens[:, -1:]
    return old(model, fed, cache)


planted("only the first of several eos ids ends a reply", [FIELDS], of=generate.check_request)(
    lambda old, model, *more: old(model, *more[:-1], list(more[-1] or model.config.eos_ids)[:1])
)


SAVED = drafts.test_good_drafts_save_passes


@planted("the draft's last row is left behind", [ROWS], "vllm #9730", of=speculate.EarlyExit.propose)
def _(old: Any, self: Any, text: list[int], k: int, cache: Cache, sampler: Any) -> Any:
    draft = old(self, text, k, cache, sampler)
    cache.advance(1)
    return draft


@planted("all but none", [SAVED], "transformers #46235: [:-0]", of=sampling.accept)
def _(old: Any, drafted: Any, chosen: Any) -> list[int]:
    *taken, own = old(drafted, chosen)
    return [*drafted[: len(taken) - len(drafted)], own]


EXACT = drafts.test_sampled_speculation_has_model_probabilities
planted(
    "a draft is refused and the token drawn as if none had been", [EXACT], of=sampling.accept_or_resample
)(lambda old, p, q, token, u: None if old(p, q, token, u) is None else p)
planted("the token after all drafts from q", [EXACT], of=sampling.accept_sampled)(
    lambda old, drafted, p, q, rng: old(drafted, [*p[:-1], q[-1]] if drafted else p, q, rng)
)

# --- checkpoints ---

REFUSED, INSIDE = test_load.test_config_is_refused_by_name, test_load.test_a_window_can_be_stayed_inside_of
SAME = test_load.test_it_is_the_model_that_transformers_makes_of_it
planted(
    "the window of a checkpoint is ignored", [REFUSED, INSIDE], "nanochat #452", of=config.sliding_window_of
)(lambda old, *given: None)
planted(
    "the window of a checkpoint is one too short", [SAME], "transformers #37574", of=config.sliding_window_of
)(lambda old, *given: (old(*given) or 1) - 1 or None)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_planted_bug_fails_its_tests(bug: Bug) -> None:
    assert bug.missed_by() == []
