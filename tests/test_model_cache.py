"""Every cache class: cached equals uncached in any passes, when full, truncated, copied or interrupted."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.model.cache import Cache, GrowingCache, PagedCache, StaticCache
from helpers.model.generate import generate
from tests.doubles import EXACT, KINDS
from tests.tiny import failing, in_passes, same, tiny, tiny_config, tokens

torch.set_num_threads(1)

every, exact = (pytest.mark.parametrize("kind", kinds) for kinds in (KINDS, EXACT))
MODELS = {n: tiny(n_kv_heads=n, dtype=torch.float64).requires_grad_(False) for n in (1, 3, 6)}
MODEL = MODELS[3]


def fresh(kind: str, batch: int = 1, sizes: Any = MODEL.config, **rest: Any) -> Cache:
    return KINDS[kind](sizes, batch=batch, **({"dtype": torch.float64} | rest))


splits = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@exact
@given(split=splits, batch=st.integers(1, 3), n_kv_heads=st.sampled_from([1, 3, 6]), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_cached_equals_uncached(kind: str, split: list[int], batch: int, n_kv_heads: int, seed: int) -> None:
    model = MODELS[n_kv_heads]
    split = [n for i, n in enumerate(split) if sum(split[: i + 1]) <= model.config.max_seq_len]
    ids, cache = tokens(batch, sum(split), seed), fresh(kind, batch, model.config)
    same(in_passes(model, ids, split, cache), model(ids))
    assert cache.length == cache.n_entries == sum(split)


@pytest.mark.parametrize("split", [[12], [1] * 12, [11, 1]])
@exact
def test_pass_beyond_max_len_is_refused(kind: str, split: list[int]) -> None:
    ids, cache = tokens(2, 16), fresh(kind, 2, max_len=12)
    same(in_passes(MODEL, ids[:, :12], split, cache), MODEL(ids[:, :12]))
    for over in (1, 4):
        message = f"{over} new tokens after 12 make {12 + over}.*; expected at most 12"
        with pytest.raises(ValueError, match=message):
            in_passes(MODEL, ids[:, 12 : 12 + over], [over], cache)
        for act in (cache.positions, cache.advance):
            with pytest.raises(ValueError, match=message):
                act(over)
    cache.truncate(11)
    same(in_passes(MODEL, ids[:, 11:12], [1], cache), MODEL(ids[:, :12])[:, 11:])


def test_several_caches_share_one_model() -> None:
    """Two caches of each class."""
    caches = [fresh(kind) for kind in [*EXACT, *EXACT]]
    texts, output = tokens(len(caches), 15), []
    for start, stop in [(0, 6), (6, 7), (7, 8), (8, 15)]:
        output.append([MODEL(ids[None, start:stop], cache) for ids, cache in zip(texts, caches, strict=True)])
    same(torch.cat([torch.cat(logits) for logits in output], 1), MODEL(texts))


@exact
@given(kept=st.integers(0, 11), seed=st.integers(0, 20))
@example(kept=0, seed=0)
@settings(max_examples=10)
def test_truncated_cache_continues_correctly(kind: str, kept: int, seed: int) -> None:
    """As after a rejected draft, or for another reply: truncated entries have no effect any more."""
    old, new, cache = tokens(1, 11, seed), tokens(1, 14, seed + 100), fresh(kind)
    in_passes(MODEL, old, [8, 3], cache)
    cache.truncate(kept) if kept else cache.reset()
    assert cache.length == cache.n_entries == kept
    got = in_passes(MODEL, new, [1, 2, 11], cache)
    same(got, MODEL(torch.cat([old[:, :kept], new], 1))[:, kept:])


@exact
def test_positions_and_mask(kind: str) -> None:
    cache = EXACT[kind](tiny_config())
    assert (cache.length, cache.n_entries, cache.n_layers, cache.max_len, cache.change_count) == (
        0,
        0,
        3,
        40,
        0,
    )
    assert cache.positions(3).flatten().tolist() == [0, 1, 2]
    assert cache.mask(2).view(2, 2).tolist() == [[True, False], [True, True]]
    cache.advance(3)
    for layer in range(3):
        assert cache.mask(2, layer).view(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert cache.positions(2).flatten().tolist() == [3, 4]
    assert cache.mask(1).all()  # a decode step masks nothing
    cache.truncate(1)
    assert cache.mask(2).view(2, 3).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert (cache.length, cache.n_entries, cache.change_count) == (1, 1, 2)


@exact
def test_mask_from_inference_mode_works_in_training(kind: str) -> None:
    """Tensors of inference mode cannot be saved for a gradient; the cache memoizes the newest mask."""
    cache, scores = EXACT[kind](tiny_config()), torch.zeros(4, 4, requires_grad=True)
    with torch.inference_mode():
        assert cache.mask(4).is_inference()
    torch.where(cache.mask(4), scores, 1.0).sum().backward()
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.ones(4, 4).tril())


@pytest.mark.parametrize(("kind", "n_entries"), [("growing", 0), ("static", 20), ("paged", 21)])
def test_nbytes_matches_memory(kind: str, n_entries: int) -> None:
    """2 (K and V) × 3 layers × 3 KV heads × 8 × 4 bytes are 576 a token: KV heads, not query heads.

    A growing cache frees truncated entries with the next append.
    """
    model, cache = tiny(), fresh(kind, 2, max_len=20, dtype=torch.float32)
    assert cache.nbytes == 2 * n_entries * 576
    for act, n in (
        (lambda: in_passes(model, tokens(2, 7), [4, 1, 2], cache), 7),
        (lambda: cache.truncate(2), 2),
        (lambda: in_passes(model, tokens(2, 1), [1], cache), 3),
    ):
        act()
        assert cache.nbytes == 2 * (n_entries or n) * 576
        shown = f"({n} of 20 entries, {cache.nbytes:,} bytes)"
        assert repr(cache) == type(cache).__name__ + shown
    held: Any = [*cache.k, *cache.v]  # type: ignore[attr-defined]
    assert (
        sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in held}.values())
        == cache.nbytes
    )


def test_static_append_returns_views() -> None:
    cache, new = StaticCache(MODEL.config, dtype=torch.float64), torch.randn(2, 1, 3, 4, 8).double()
    for returned, k_or_v, stored in zip(cache.append(1, *new), new, (cache.k, cache.v), strict=True):
        assert torch.equal(returned, k_or_v)
        assert returned.untyped_storage().data_ptr() == stored.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"config": tiny_config(n_layers=2)}, "n_layers 2, the pass has n_layers 3"),
        ({"config": tiny_config(n_kv_heads=1)}, "n_kv_heads 1, the pass has n_kv_heads 3"),
        ({"config": tiny_config(head_dim=4)}, "k_dim 4, the pass has k_dim 8"),
        ({"batch": 2}, "batch 2, the pass has batch 1"),
        ({"dtype": torch.bfloat16}, "dtype torch.bfloat16, the pass has dtype torch.float32"),
        ({"device": "meta"}, "device meta, the pass has device cpu"),
    ],
)
def test_mismatched_cache_is_refused(result: dict[str, object], message: str) -> None:
    cache = GrowingCache(**({"config": tiny_config()} | result))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        in_passes(tiny(), tokens(1, 4), [4], cache)
    assert cache.length == 0


def test_cache_class_is_refused() -> None:
    kind: Any = GrowingCache
    for run in (lambda: MODEL(tokens(1, 4), kind), lambda: generate(MODEL, [1, 2], 3, cache=kind)):
        with pytest.raises(ValueError, match=r"cache is GrowingCache; expected an object, such as model.new"):
            run()


def test_static_cache_refuses_gradients() -> None:
    model, ids = tiny(n_layers=2, dtype=torch.float64), tokens(1, 7)
    cache = StaticCache(model.config, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"require a gradient; .*torch.no_grad\(\)"):
        model(ids, cache)
    keys = torch.zeros(1, 3, 7, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="require a gradient"):
        cache.append(0, keys, keys.clone().requires_grad_())
    assert (cache.length, float(cache.k.abs().sum())) == (0, 0)


def entries(cache: Cache) -> Tensor:
    """Keys and values of every layer, as a pass would get them: an append of no tokens returns them."""
    empty = torch.empty(cache.entry_shapes(0)[0], dtype=cache.dtype)
    returned = [cache.append(layer, empty, empty) for layer in range(cache.n_layers)]
    return torch.stack([x for pair in returned for x in pair]).clone()


@pytest.mark.parametrize("place", ["layers.2", "lm_head"])
@every
def test_failed_pass_leaves_cache_unchanged(kind: str, place: str) -> None:
    """It fails in the last layer, when the others have appended, or after it, when all have."""
    ids, cache = tokens(2, 12), fresh(kind, 2)
    expected = in_passes(MODEL, ids, [5, 4, 3], fresh(kind, 2))
    first = in_passes(MODEL, ids[:, :5], [5], cache)
    before, counts = entries(cache), (cache.length, cache.n_entries, cache.change_count)
    with failing(MODEL, place), pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 5:8].flip(1), [3], cache)
    assert torch.equal(entries(cache), before)
    assert (cache.length, cache.n_entries, cache.change_count) == counts
    same(torch.cat([first, in_passes(MODEL, ids[:, 5:], [4, 3], cache)], 1), expected)


@every
def test_failed_pass_does_not_affect_the_next(kind: str) -> None:
    """The next pass has as many tokens, but begins at another position."""
    ids, cache = tokens(2, 11), fresh(kind, 2)
    in_passes(MODEL, ids[:, :8], [8], cache)
    with failing(MODEL, "lm_head"), pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 8:], [3], cache)
    cache.reset()
    same(in_passes(MODEL, ids[:, :3], [3], cache), in_passes(MODEL, ids[:, :3], [3], fresh(kind, 2)))


@every
def test_copied_cache_is_independent(kind: str) -> None:
    """Neither overwrites the other's entries."""
    ids = tokens(2, 12)
    for copied in (copy, deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))):
        cache, alone, other_alone = (fresh(kind, 2) for _ in range(3))
        for filled in (cache, alone, other_alone):
            in_passes(MODEL, ids[:, :9], [9], filled)
        first, other = (cache, alone), (copied(cache), other_alone)
        for pair, new in ((first, ids[:, 9:11]), (other, ids[:, :3]), (first, ids[:, 11:])):
            got, expected = (in_passes(MODEL, new, [new.shape[1]], cache) for cache in pair)
            same(got, expected)


@every
def test_restore_is_exact(kind: str) -> None:
    """Even if later passes rounded or dropped entries; a snapshot of another cache is refused."""
    cache, ids = fresh(kind, 2), tokens(2, 30)
    expected = in_passes(MODEL, ids[:, :14], [8, 6], fresh(kind, 2))[:, 8:]
    in_passes(MODEL, ids[:, :8], [8], cache)
    snapshot = cache.snapshot()
    for split in ([1], [20], [1, 2, 3]):
        if kind not in ("static", "paged"):  # those overwrite truncated entries
            cache.reset()
        in_passes(MODEL, ids[:, 8 : 8 + sum(split)], split, cache)
        changes = cache.change_count
        cache.restore(snapshot)
        assert cache.change_count > changes
        same(in_passes(MODEL, ids[:, 8:14], [6], cache), expected)
    with pytest.raises(ValueError, match="the snapshot is of another cache"):
        deepcopy(cache).restore(snapshot)


@pytest.mark.parametrize("kind", ["static", "paged"])
def test_restore_refuses_overwritten_entries(kind: str) -> None:
    cache, ids = fresh(kind, 2), tokens(2, 12)
    in_passes(MODEL, ids[:, :7], [7], cache)
    snapshot = cache.snapshot()
    cache.truncate(6)
    in_passes(MODEL, ids[:, :9], [9], cache)
    with pytest.raises(ValueError, match="the snapshot is of 7 tokens, some of which were truncated since"):
        cache.restore(snapshot)
    snapshot = cache.snapshot()  # taken after the truncation
    in_passes(MODEL, ids[:, :3], [3], cache)
    cache.restore(snapshot)
    assert cache.length == 15


def test_paged_restore_resets_each_length() -> None:
    cache, ids = PagedCache(MODEL.config, 2, dtype=torch.float64), tokens(2, 12)
    with cache.ragged_pass([3, 5]):
        in_passes(MODEL, ids[:, :5], [5], cache)
    snapshot = cache.snapshot()
    for _ in range(2):
        in_passes(MODEL, ids[:, :4], [4], cache)
        cache.restore(snapshot)
        assert (cache.lengths, cache.length) == ([3, 5], 5)
    snapshot = cache.snapshot()
    cache.truncate([1, 5])
    in_passes(MODEL, ids[:, :4], [4], cache)
    with pytest.raises(ValueError, match="some of which were truncated since"):
        cache.restore(snapshot)


@every
def test_append_refuses_mismatched_entries(kind: str) -> None:
    cache = fresh(kind, 2, dtype=torch.float32)
    good, expanded, other = torch.zeros(2, 3, 5, 8), torch.zeros(2, 6, 5, 8), torch.zeros(1, 3, 5, 8)
    for k, v in ((expanded, expanded), (good, other), (good, good[:, :, :4])):
        with pytest.raises(ValueError, match=r"got keys .*; expected \(2, 3, .*8\) and \(2, 3"):
            cache.append(0, k, v)
    for layer in (-1, 3):
        with pytest.raises(ValueError, match=f"layer is {layer}; expected 0 to 2"):
            cache.append(layer, good, good)
    for k, v in ((good.double(), good), (good, good.bfloat16())):
        with pytest.raises(ValueError, match=r"got keys .*; expected torch.float32 for both"):
            cache.append(0, k, v)
    nbytes = cache.nbytes
    with pytest.raises(ValueError, match="45 new tokens after 0 make 45"):
        cache.append(0, good.repeat(1, 1, 9, 1), good.repeat(1, 1, 9, 1))
    assert (cache.nbytes, cache.length, cache.change_count) == (nbytes, 0, 0)


@every
def test_truncate_accepts_whole_numbers_only(kind: str) -> None:
    cache = fresh(kind)
    in_passes(MODEL, tokens(1, 4), [4], cache)
    for length in (5, -1, 1.5, "1", None, True):
        with pytest.raises(ValueError, match=r"length is .*; expected .*0 to \[?4"):
            cache.truncate(length)  # type: ignore[arg-type]
    assert (cache.length, cache.change_count) == (4, 1)
    cache.truncate(np.int64(3))  # type: ignore[arg-type]
    assert type(cache.length) is int
    KINDS[kind](MODEL.config).truncate(0)
    cache.advance(0)
    assert (cache.length, [*cache.lengths], cache.change_count) == (3, [3], 3)
