"""Bugs that real projects shipped, and near misses of the PyTorch model, planted one by one.

A planted bug counts as caught when ordinary, named tests fail with it and pass without it. The table
below is the list that runs: a bug, where it was reported, and under it the tests that catch it, without
their `test_`. Not here, because this code has no eviction, no padding and no ragged batch: ring buffers,
left-padded rows, positions after eviction. Its only window is a mask, `WindowedCache` in evaluate.py.

is_causal, aligned top-left [pytorch #103082 #108108 #144858; flax #5591]
    attention.attend_sees_all_that_a_lone_query_may_see
    attention.attend
    equal.equal_to_transformers
mask aligned top-left [pytorch #103082]
    cache.positions_and_mask
    cache.exactly_full_then_over
mask without the offset for several new tokens [LLMs-from-scratch PR#697; mlx-node PR#24]
    cache.positions_and_mask
    equal.equal_to_transformers
no mask at all
    attention.a_later_token_changes_no_earlier_logit
    equal.equal_without_a_cache
square mask with a cache [llama #899]
    cache.positions_and_mask
    equal.equal_to_transformers
positions restart at 0 in decode [mlx-vlm #1983]
    cache.positions_and_mask
    generate.greedy_equals_running_everything_again
    equal.equal_to_transformers
positions count twice [gpt-neox PR#363; tiny-llm PR#46]
    cache.positions_and_mask
    generate.greedy_equals_running_everything_again
each layer advances the cache [gpt-fast; nanochat]
    cache.exactly_full_then_over
    generate.by_hand_with_the_two_functions
the cache is never advanced
    cache.exactly_full_then_over
    generate.rows_allow_so_many_tokens
advanced before the layers ran
    cache.a_pass_that_fails_half_way_leaves_the_cache_as_before
full a row too early [transformers #37574]
    cache.exactly_full_then_over
    generate.rows_allow_so_many_tokens
full a row too late [transformers #37574]
    cache.exactly_full_then_over
    attention.tokens_that_cannot_run
reset does nothing [candle-vllm #6]
    cache.reset_forgets_everything
    generate.a_cache_in_use_is_refused_and_serves_again_after_reset
a second prompt joins the first [candle-vllm #6]
    generate.a_cache_in_use_is_refused_and_serves_again_after_reset
one buffer for every cache
    cache.two_caches_take_turns_on_one_model
rejected tokens left in the cache [mlx-lm PR#1109]
    cache.a_pass_that_fails_half_way_leaves_the_cache_as_before
    cache.reset_forgets_everything
truncate does not forget [mlx-lm PR#1109]
    cache.reset_forgets_everything
    generate.no_numbers_in_the_logits
slots past the current position attended to [tt-metal #41215]
    cache.exactly_full_then_over
    cache.the_preallocated_cache_hands_out_views_of_what_is_stored
    generate.greedy_equals_running_everything_again
growth moves the other layers' rows [nanochat #187]
    cache.exactly_full_then_over
    equal.equal_to_transformers
every layer uses layer 0's rows
    equal.equal_without_a_cache
    equal.equal_to_transformers
stored rows are changed by each use [MemOS #2301]
    attention.attend_changes_nothing_it_was_given
    cache.exactly_full_then_over
expanded heads cached under GQA [SnapKV #16 #29]
    cache.bytes
    cache.the_growing_cache_holds_no_more_than_it_says
    watch.what_it_counts
a cache for another pass is taken
    cache.a_cache_made_for_another_pass_is_refused
    generate.a_cache_that_does_not_fit_is_refused_at_once
a fully masked row gives NaN [pytorch #103749]
    attention.a_row_with_nothing_to_pick_gives_0
a fully masked row averages the future [pytorch #103963]
    attention.a_row_with_nothing_to_pick_gives_0
the sink's share is dealt out again
    attention.attend
    watch.golden_numbers_through_the_real_core
the sink's row has a value
    attention.attend
    watch.golden_numbers_through_the_real_core
KV heads dealt out in turns
    attention.attend
    equal.equal_without_a_cache
heads split without the transpose
    attention.heads_are_split_along_the_width
    equal.equal_without_a_cache
scores not divided by the root of the width
    equal.equal_without_a_cache
    watch.the_weights_are_those_of_the_model
keys are not rotated
    equal.equal_without_a_cache
    watch.the_weights_are_those_of_the_model
neighbours are rotated, as in the paper
    attention.rotation_turns_pairs_half_a_head_apart
    equal.equal_without_a_cache
llama3 scaling is ignored
    attention.llama3_scaling_leaves_fast_pairs_and_slows_slow_ones
    equal.equal_without_a_cache
angles are rounded to bfloat16
    attention.angles_stay_float32_in_a_narrow_model
the norm runs over the tokens
    attention.norm_and_mlp_take_each_token_by_itself
    equal.equal_without_a_cache
the norm is taken in bfloat16
    attention.the_norm_of_bfloat16_numbers_is_taken_in_float32
prefill makes a row of logits for each token
    generate.prefill_makes_one_row_of_logits
logits of the first position
    generate.prefill_makes_one_row_of_logits
    generate.greedy_equals_running_everything_again
the whole history is fed again
    generate.tokens_come_one_by_one
    generate.greedy_equals_running_everything_again
<eos> does not stop it
    generate.stops_at_eos
    generate.which_reason_where_several_hold
one token too few from a full cache
    generate.rows_allow_so_many_tokens
    generate.a_model_is_full_at_its_longest
NaN goes on as a token
    generate.no_numbers_in_the_logits
chance without a seed
    generate.sampling_repeats_with_its_seed
the uncached run keeps its rows
    watch.what_it_counts
the recorder is told of other keys than were used
    watch.what_it_counts
    watch.the_weights_are_those_of_the_model
a loaded model is no longer tied
    equal.tied_stays_tied
biases are left out
    equal.equal_without_a_cache
a missing tensor keeps its random start
    load.a_tensor_is_refused_by_name
an unknown tensor is skipped
    load.a_tensor_is_refused_by_name
an index may point anywhere
    load.a_path_that_climbs_out_of_the_folder
decode ignores the sliding window [nanochat #452]
    shipped.the_window_shows_sixteen_tokens_in_prefill_and_decode
the window shows a token too few [transformers #37574]
    shipped.the_window_shows_sixteen_tokens_in_prefill_and_decode
    shipped.the_window_cannot_reach_back_through_the_layers
the window shows a token too many [transformers #37574]
    shipped.the_window_shows_sixteen_tokens_in_prefill_and_decode
    shipped.the_window_cannot_reach_back_through_the_layers
the window of a checkpoint is ignored [nanochat #452]
    load.config_is_refused_by_name
    load.a_window_can_be_stayed_inside_of
the window of a checkpoint is one too short [transformers #37574]
    load.it_is_the_model_that_transformers_makes_of_it
another kind of rope is read as plain
    load.config_is_refused_by_name
a save that fails leaves half a file
    load.a_failed_save_leaves_the_old_checkpoint
rows of a GGUF file stay in pairs
    load_gguf.every_weight_is_as_in_the_model_that_was_written
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import watch as watch_module
from helpers.model import attention, generate
from helpers.model.cache import GrowingCache, KVCache, StaticCache, WindowedCache
from helpers.model.load import config as config_json
from helpers.model.load import gguf, safetensors
from helpers.model.transformer import RMSNorm, Transformer
from tests.planted import HARNESS, Planted
from tests.test_load import in_one_file, in_two_files

torch.set_num_threads(1)

NAMES = ("attention", "cache", "generate", "equal")
TESTS = {name: f"tests.test_model_{name}" for name in NAMES} | {
    name: f"tests.test_{name}" for name in ("watch", "shipped", "load", "load_gguf")
}
BUGS = Planted(__doc__, TESTS, tmp_path=Path, folder=in_one_file, sharded=in_two_files)
plants = BUGS.plants
SDPA = F.scaled_dot_product_attention


@pytest.mark.parametrize("bug", BUGS.caught_by)
def test_a_planted_bug_is_caught_by_the_tests_that_the_table_names(bug: str) -> None:
    assert BUGS.failing_anyway(bug) == []
    assert BUGS.missed_by(bug) == []


def test_the_table_lists_every_planted_bug_and_no_other() -> None:
    assert list(BUGS.caught_by) == list(BUGS.planted)
    assert all(BUGS.caught_by.values())


def test_a_right_core_planted_like_a_wrong_one_is_caught_by_no_test() -> None:
    """What catches a planted core is the core, not the way in which it is planted."""
    with pytest.MonkeyPatch.context() as patch:
        with_sdpa(patch, lambda q, k, v, mask, scale: SDPA(q, k, v, mask, scale=scale, enable_gqa=True))
        names = sorted({name for names in BUGS.caught_by.values() for name in names})
        assert [name for name in names if BUGS.failure_of(name) is not None] == []


@pytest.mark.parametrize("error", HARNESS)
def test_a_crash_of_the_harness_catches_no_bug(error: type[Exception]) -> None:
    def crash(*given: Any) -> Tensor:
        raise error("planted in a wrong way")

    bugs = Planted("A.\n\nB.\n\na crash\n    attention.attend", TESTS)
    bugs.plants("a crash")(lambda patch: with_sdpa(patch, crash))
    assert bugs.missed_by("a crash") == [f"attention.attend: {error('planted in a wrong way')!r}"]


def with_function(patch: pytest.MonkeyPatch, name: str, plant: Callable[..., Tensor]) -> None:
    """Another function of torch.nn.functional in our attention alone: `transformers` calls the same ones."""
    patch.setattr(attention, "F", SimpleNamespace(**(vars(F) | {name: plant})))


def with_sdpa(patch: pytest.MonkeyPatch, plant: Callable[..., Tensor]) -> None:
    """Another core under `attend`: plant(q, k, v, mask, scale), the mask as `attend` hands it over."""

    def core(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor, scale: float, enable_gqa: bool) -> Tensor:
        return plant(q, k, v, attn_mask, scale)

    with_function(patch, "scaled_dot_product_attention", core)


def per_query_head(q: Tensor, k: Tensor) -> Tensor:
    return k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, lowest: float) -> Tensor:
    """Softmax written out, with `lowest` in place of what may not be seen."""
    scores = q @ per_query_head(q, k).transpose(-1, -2) * scale
    added = (
        torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, lowest) if mask.dtype == torch.bool else mask
    )
    return (scores + added.clamp(min=lowest)).softmax(-1) @ per_query_head(q, v)


@plants("is_causal, aligned top-left")
def _(patch: pytest.MonkeyPatch) -> None:
    with_sdpa(patch, lambda q, k, v, mask, scale: SDPA(q, k, v, is_causal=True, scale=scale, enable_gqa=True))


@plants("mask aligned top-left")
def _(patch: pytest.MonkeyPatch) -> None:
    def mask(self: KVCache, T: int) -> Tensor:
        return torch.ones(T, self.length + T, dtype=torch.bool).tril()

    patch.setattr(KVCache, "mask", mask)


@plants("mask without the offset for several new tokens")
def _(patch: pytest.MonkeyPatch) -> None:
    def mask(self: KVCache, T: int) -> Tensor:
        full = torch.ones(T, self.length + T, dtype=torch.bool)
        return full if T == 1 else full.tril()

    patch.setattr(KVCache, "mask", mask)


@plants("no mask at all")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "mask", lambda self, T: torch.ones(T, self.length + T, dtype=torch.bool))


@plants("square mask with a cache")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "mask", lambda self, T: torch.ones(T, T, dtype=torch.bool).tril())


def with_positions(patch: pytest.MonkeyPatch, first: Callable[[KVCache], int]) -> None:
    """Other positions for the rotation; the mask stays right."""

    def mask(self: KVCache, T: int) -> Tensor:
        return torch.ones(T, self.length + T, dtype=torch.bool).tril(self.length)

    def positions(self: KVCache, T: int) -> Tensor:
        self.check_room(T)
        return torch.arange(first(self), first(self) + T)

    patch.setattr(KVCache, "mask", mask)
    patch.setattr(KVCache, "positions", positions)


@plants("positions restart at 0 in decode")
def _(patch: pytest.MonkeyPatch) -> None:
    with_positions(patch, lambda cache: 0)


@plants("positions count twice")
def _(patch: pytest.MonkeyPatch) -> None:
    with_positions(patch, lambda cache: 2 * cache.length)


@plants("each layer advances the cache")
def _(patch: pytest.MonkeyPatch) -> None:
    for kind in (GrowingCache, StaticCache):

        def moves_on(
            self: Any, layer: int, k: Tensor, v: Tensor, append: Any = kind.append
        ) -> tuple[Tensor, Tensor]:
            rows = append(self, layer, k, v)
            self.length += k.shape[2]
            return rows

        patch.setattr(kind, "append", moves_on)
    patch.setattr(KVCache, "advance", lambda self, T: None)


@plants("the cache is never advanced")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "advance", lambda self, T: None)


@plants("advanced before the layers ran")
def _(patch: pytest.MonkeyPatch) -> None:
    """Counted when the mask is asked for; the rows still go where they belong."""
    mask, positions = KVCache.mask, KVCache.positions

    def early(self: Any, T: int) -> Tensor:
        seen = mask(self, T)
        self.length += T
        return seen

    def behind(self: Any, layer: int, k: Tensor, v: Tensor, append: Any) -> tuple[Tensor, Tensor]:
        self.length -= k.shape[2]
        rows = append(self, layer, k, v)
        self.length += k.shape[2]
        return rows

    for kind in (GrowingCache, StaticCache):
        patch.setattr(kind, "append", functools.partialmethod(behind, append=kind.append))
    patch.setattr(KVCache, "mask", early)
    patch.setattr(KVCache, "positions", positions)
    patch.setattr(KVCache, "advance", lambda self, T: None)


def with_room(patch: pytest.MonkeyPatch, spare: int) -> None:
    check = KVCache.check_room
    patch.setattr(KVCache, "check_room", lambda self, T: check(self, T + spare))


@plants("full a row too early")
def _(patch: pytest.MonkeyPatch) -> None:
    with_room(patch, 1)


@plants("full a row too late")
def _(patch: pytest.MonkeyPatch) -> None:
    with_room(patch, -1)


@plants("reset does nothing")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "reset", lambda self: None)


@plants("a second prompt joins the first")
def _(patch: pytest.MonkeyPatch) -> None:
    """The question whether the cache is in use is always answered with no."""
    right = generate.generate

    def takes(model: Any, prompt: Any, max_new: int, *, cache: Any = None, **rest: Any) -> Any:
        rows = cache.length if cache is not None else 0
        if cache is not None:
            cache.length = 0
        made = right(model, prompt, max_new, cache=cache, **rest)
        if cache is not None:
            cache.length = rows
        return made

    patch.setattr(generate, "generate", takes)
    patch.setattr("tests.test_model_generate.generate", takes)


@plants("one buffer for every cache")
def _(patch: pytest.MonkeyPatch) -> None:
    shared: dict[Any, Any] = {}
    for kind in (GrowingCache, StaticCache):

        def allocate(self: Any, own: Any = kind.allocate) -> None:
            own(self)
            self.k, self.v = shared.setdefault((type(self), self.batch, self.dtype), (self.k, self.v))

        patch.setattr(kind, "allocate", allocate)


@plants("rejected tokens left in the cache")
def _(patch: pytest.MonkeyPatch) -> None:
    def append(self: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.check_rows(k, v)
        self.k[layer] = torch.cat([self.k[layer], k], dim=2)  # not cut to the rows that count
        self.v[layer] = torch.cat([self.v[layer], v], dim=2)
        S = self.length + k.shape[2]
        return self.k[layer][:, :, :S], self.v[layer][:, :, :S]

    patch.setattr(GrowingCache, "append", append)


@plants("truncate does not forget")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "truncate", lambda self, length: None)


@plants("slots past the current position attended to")
def _(patch: pytest.MonkeyPatch) -> None:
    append, mask = StaticCache.append, KVCache.mask

    def whole(self: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        append(self, layer, k, v)
        return self.k[layer], self.v[layer]

    def wide(self: Any, T: int) -> Tensor:
        return F.pad(mask(self, T), (0, self.max_len - self.length - T), value=True)

    patch.setattr(StaticCache, "append", whole)
    patch.setattr(StaticCache, "mask", wide)


@plants("growth moves the other layers' rows")
def _(patch: pytest.MonkeyPatch) -> None:
    append = GrowingCache.append

    def grows(self: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        for other in set(range(self.n_layers)) - {layer}:
            self.v[other] = self.v[other].roll(1, dims=2)
        return append(self, layer, k, v)

    patch.setattr(GrowingCache, "append", grows)


@plants("every layer uses layer 0's rows")
def _(patch: pytest.MonkeyPatch) -> None:
    append = GrowingCache.append

    def first(self: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return append(self, 0, k, v) if layer == 0 else (self.k[0], self.v[0])

    patch.setattr(GrowingCache, "append", first)


@plants("stored rows are changed by each use")
def _(patch: pytest.MonkeyPatch) -> None:
    def core(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        out = SDPA(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
        v.mul_(0.999)
        return out

    with_sdpa(patch, core)


@plants("expanded heads cached under GQA")
def _(patch: pytest.MonkeyPatch) -> None:
    append = GrowingCache.append

    def expanded(self: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (x.repeat_interleave(self.config.group_size, dim=1) for x in (k, v))
        return append(self, layer, k, v)

    patch.setattr(GrowingCache, "append", expanded)
    patch.setattr(KVCache, "check_rows", lambda self, k, v: self.check_room(k.shape[2]))
    allocate = GrowingCache.allocate

    def wide(self: Any) -> None:
        allocate(self)
        self.k, self.v = (
            [x.repeat_interleave(self.config.group_size, dim=1) for x in rows] for rows in (self.k, self.v)
        )

    patch.setattr(GrowingCache, "allocate", wide)


@plants("a cache for another pass is taken")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KVCache, "check_fits", lambda self, *given: None)


@plants("a fully masked row gives NaN")
def _(patch: pytest.MonkeyPatch) -> None:
    with_sdpa(patch, lambda q, k, v, mask, scale: by_hand(q, k, v, mask, scale, -torch.inf))


@plants("a fully masked row averages the future")
def _(patch: pytest.MonkeyPatch) -> None:
    with_sdpa(patch, lambda q, k, v, mask, scale: by_hand(q, k, v, mask, scale, torch.finfo(q.dtype).min))


@plants("the sink's share is dealt out again")
def _(patch: pytest.MonkeyPatch) -> None:
    add_sink = attention.add_sink
    patch.setattr(attention, "add_sink", lambda mask, sink: add_sink(mask, torch.full_like(sink, -torch.inf)))


@plants("the sink's row has a value")
def _(patch: pytest.MonkeyPatch) -> None:
    with_function(patch, "pad", lambda x, widths: F.pad(x, widths, value=1.0))


@plants("KV heads dealt out in turns")
def _(patch: pytest.MonkeyPatch) -> None:
    def core(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
        times = q.shape[1] // k.shape[1]
        return SDPA(q, k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1), attn_mask=mask, scale=scale)

    with_sdpa(patch, core)


@plants("heads split without the transpose")
def _(patch: pytest.MonkeyPatch) -> None:
    def split(self: Any, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, x.shape[1], self.head_dim)

    patch.setattr(attention.Attention, "split_heads", split)


@plants("scores not divided by the root of the width")
def _(patch: pytest.MonkeyPatch) -> None:
    with_sdpa(patch, lambda q, k, v, mask, _: SDPA(q, k, v, attn_mask=mask, scale=1.0, enable_gqa=True))


@plants("keys are not rotated")
def _(patch: pytest.MonkeyPatch) -> None:
    rotate = attention.rotate
    patch.setattr(attention, "rotate", lambda x, cos, sin: x if x.shape[1] != 6 else rotate(x, cos, sin))


@plants("neighbours are rotated, as in the paper")
def _(patch: pytest.MonkeyPatch) -> None:
    def neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x[..., ::2], x[..., 1::2]
        half = x.shape[-1] // 2
        cos, sin = cos[..., :half], sin[..., :half]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)

    patch.setattr(attention, "rotate", neighbours)
    patch.setattr("tests.test_model_attention.rotate", neighbours)


@plants("llama3 scaling is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attention, "stretch", lambda turns, scaling: turns)
    forget_loaded_models(patch)


@plants("angles are rounded to bfloat16")
def _(patch: pytest.MonkeyPatch) -> None:
    to = Transformer.to

    def rounds(self: Any, *given: Any, **named: Any) -> Any:
        model = to(self, *given, **named)
        model.frequencies = model.frequencies.to(model.embed_tokens.weight.dtype)
        return model

    patch.setattr(Transformer, "to", rounds)


@plants("the norm runs over the tokens")
def _(patch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(dim=-2, keepdim=True) + self.eps)

    patch.setattr(RMSNorm, "forward", forward)


@plants("the norm is taken in bfloat16")
def _(patch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        squares = x.new_zeros(x.shape[:-1])
        for n in range(x.shape[-1]):
            squares = squares + x[..., n].square()
        return self.weight * x * torch.rsqrt(squares[..., None] / x.shape[-1] + self.eps)

    patch.setattr(RMSNorm, "forward", forward)


@plants("prefill makes a row of logits for each token")
def _(patch: pytest.MonkeyPatch) -> None:
    forward = Transformer.forward

    def everything(self: Any, *given: Any, last_only: bool = False, **named: Any) -> Tensor:
        logits = forward(self, *given, **named)
        return logits[:, -1:] if last_only else logits

    patch.setattr(Transformer, "forward", everything)


@plants("logits of the first position")
def _(patch: pytest.MonkeyPatch) -> None:
    forward = Transformer.forward

    def first(self: Any, *given: Any, last_only: bool = False, **named: Any) -> Tensor:
        logits = forward(self, *given, **named)
        return logits[:, :1] if last_only else logits

    patch.setattr(Transformer, "forward", first)


@plants("the whole history is fed again")
def _(patch: pytest.MonkeyPatch) -> None:
    """As with a loop written for a model without a cache: the prompt and all new tokens, every time."""
    fed: list[Tensor] = []
    prefill = generate.prefill

    def begins(model: Any, tokens: Any, cache: Any, **named: Any) -> Tensor:
        fed[:] = [generate.as_tokens(tokens)]
        return prefill(model, tokens, cache, **named)

    def again(model: Any, newest: Any, cache: Any, **named: Any) -> Tensor:
        fed.append(generate.as_tokens(newest))
        return prefill(model, torch.cat(fed, 1)[:, : cache.max_len - cache.length], cache, **named)

    patch.setattr(generate, "prefill", begins)
    patch.setattr(generate, "decode_step", again)


@plants("<eos> does not stop it")
def _(patch: pytest.MonkeyPatch) -> None:
    steps = generate.steps

    def endless(model: Any, tokens: Any, max_new: int, cache: Any, ends: Any, choose: Any) -> Any:
        return steps(model, tokens, max_new, cache, (), choose)

    patch.setattr(generate, "steps", endless)


@plants("one token too few from a full cache")
def _(patch: pytest.MonkeyPatch) -> None:
    steps = generate.steps

    def short(model: Any, tokens: Any, max_new: int, cache: Any, ends: Any, choose: Any) -> Any:
        return steps(model, tokens, min(max_new, cache.max_len - tokens.shape[1]), cache, ends, choose)

    patch.setattr(generate, "steps", short)


@plants("NaN goes on as a token")
def _(patch: pytest.MonkeyPatch) -> None:
    def unchecked(model: Any, tokens: Tensor, cache: Any, recorder: Any) -> Tensor:
        return model(tokens, cache, recorder=recorder, last_only=True)[:, -1].detach()

    patch.setattr(generate, "run", unchecked)


@plants("chance without a seed")
def _(patch: pytest.MonkeyPatch) -> None:
    chance, sample = np.random.default_rng(), generate.sample
    patch.setattr(generate, "sample", lambda logits, rng, *rest: sample(logits, chance, *rest))


@plants("the uncached run keeps its rows")
def _(patch: pytest.MonkeyPatch) -> None:
    record_run = watch_module.Watched.record_run

    def keeps(self: Any, prompt: Any, cache: Any, *rest: Any) -> None:
        record_run(self, prompt, GrowingCache(self.model.config) if cache is None else cache, *rest)

    patch.setattr(watch_module.Watched, "record_run", keeps)


@plants("the recorder is told of other keys than were used")
def _(patch: pytest.MonkeyPatch) -> None:
    told = watch_module.Arrays.attention

    def others(self: Any, layer: int, **what: Any) -> None:
        told(self, layer, **(what | {"k": what["k"].flip(-1)}))

    patch.setattr(watch_module.Arrays, "attention", others)


@plants("a loaded model is no longer tied")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transformer, "tie", lambda self: None)


@plants("biases are left out")
def _(patch: pytest.MonkeyPatch) -> None:
    def without(self: Any, *given: Any) -> Tensor:
        projections = [self.q_proj, self.k_proj, self.v_proj]
        biases = [projection.bias for projection in projections]
        for projection in projections:
            projection.bias = None
        try:
            return forward(self, *given)
        finally:
            for projection, bias in zip(projections, biases, strict=True):
                projection.bias = bias

    forward = attention.Attention.forward
    patch.setattr(attention.Attention, "forward", without)


@plants("a missing tensor keeps its random start")
def _(patch: pytest.MonkeyPatch) -> None:
    def lax(self: Transformer, weights: dict[str, Tensor], **how: Any) -> Any:
        return strict(self, weights, strict=False, assign=True)

    strict = Transformer.load_state_dict
    patch.setattr(Transformer, "load_state_dict", lax)


@plants("an unknown tensor is skipped")
def _(patch: pytest.MonkeyPatch) -> None:
    def lax(self: Transformer, weights: dict[str, Tensor], **how: Any) -> Any:
        return strict(self, {name: weights[name] for name in self.state_dict() if name in weights}, **how)

    strict = Transformer.load_state_dict
    patch.setattr(Transformer, "load_state_dict", lax)


@plants("an index may point anywhere")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(safetensors, "re", SimpleNamespace(fullmatch=lambda *given: True))


@plants("decode ignores the sliding window")
def _(patch: pytest.MonkeyPatch) -> None:
    windowed = WindowedCache.mask

    def only_prefill(self: WindowedCache, T: int) -> Tensor:
        return KVCache.mask(self, T) if T == 1 else windowed(self, T)

    patch.setattr(WindowedCache, "mask", only_prefill)


@plants("the window shows a token too few")
def _(patch: pytest.MonkeyPatch) -> None:
    with_window(patch, lambda keys, queries, window: keys > queries - window + 1)


@plants("the window shows a token too many")
def _(patch: pytest.MonkeyPatch) -> None:
    with_window(patch, lambda keys, queries, window: keys >= queries - window)


def with_window(patch: pytest.MonkeyPatch, seen: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Another window over the causal mask: seen(keys, queries, window), the queries as a column."""

    def mask(self: WindowedCache, T: int) -> Tensor:
        keys = torch.arange(self.length + T)
        return KVCache.mask(self, T) & seen(keys, self.positions(T)[:, None], self.WINDOW)

    patch.setattr(WindowedCache, "mask", mask)


@plants("the window of a checkpoint is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(config_json, "window_of", lambda data, n_layers: None)


@plants("the window of a checkpoint is one too short")
def _(patch: pytest.MonkeyPatch) -> None:
    right = config_json.window_of
    patch.setattr(config_json, "window_of", lambda *given: (right(*given) or 10**6) - 1)


@plants("another kind of rope is read as plain")
def _(patch: pytest.MonkeyPatch) -> None:
    plain = {"rope_theta": 10_000.0, "rope_type": "default"}
    patch.setattr(config_json, "rope_of", lambda data: plain)


@plants("a save that fails leaves half a file")
def _(patch: pytest.MonkeyPatch) -> None:
    def careless(model: Any, folder: Any) -> None:
        place = folder / safetensors.WEIGHTS
        safetensors.save_file(safetensors.stored(model), place, metadata={"format": "pt"})

    patch.setattr("tests.test_load.save", careless)


@plants("rows of a GGUF file stay in pairs")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gguf, "in_halves", lambda weight, head_dim: weight)


def forget_loaded_models(patch: pytest.MonkeyPatch) -> None:
    """Models that the tests have loaded already were made without the planted bug: load them anew."""
    from tests import test_model_equal

    patch.setattr(test_model_equal, "pair", functools.cache(test_model_equal.pair.__wrapped__))
