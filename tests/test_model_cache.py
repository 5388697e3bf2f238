"""Caches that keep all rows: cached equals uncached, however the tokens are split; full, cut back, shared."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.model.cache import GrowingCache, KVCache, RaggedCache, StaticCache
from helpers.model.transformer import Transformer
from tests.doubles import EXACT, ByFours
from tests.tiny import in_passes, tiny, tiny_config, tokens

torch.set_num_threads(1)

exact = pytest.mark.parametrize("kind", EXACT)
MODELS = {n: tiny(n_kv_heads=n, dtype=torch.float64).requires_grad_(False) for n in (1, 3, 6)}
# Logits up to 8 in float64: sums in another order differ by 1e-15 of their size, a hundred times over.
BOUND = 1e-12


def fresh(kind: str, model: Transformer, batch: int = 1, max_len: int | None = None) -> KVCache:
    return EXACT[kind](model.config, batch, max_len, dtype=model.embed_tokens.weight.dtype)


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


splits = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@exact
@given(split=splits, batch=st.integers(1, 3), n_kv_heads=st.sampled_from([1, 3, 6]), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_cached_equals_uncached(kind: str, split: list[int], batch: int, n_kv_heads: int, seed: int) -> None:
    model = MODELS[n_kv_heads]
    split = [n for i, n in enumerate(split) if sum(split[: i + 1]) <= model.config.max_seq_len]
    ids, cache = tokens(batch, sum(split), seed), fresh(kind, model, batch)
    same(in_passes(model, ids, split, cache), model(ids))
    assert cache.length == cache.n_kept == sum(split)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@exact
def test_narrow_types_differ_by_rounding_only(kind: str, dtype: torch.dtype) -> None:
    """An element rounds by eps / 2 of its size, over 3 layers and sums of dozens. Over 30 models the largest
    difference was 20 eps of the largest logit in float32 and 3 in bfloat16: 100 leave room for other CPUs."""
    model, ids = tiny(dtype=dtype).requires_grad_(False), tokens(2, 20)
    expected, got = model(ids), in_passes(model, ids, [6, 1, 1, 12], fresh(kind, model, 2))
    atol = 100 * torch.finfo(dtype).eps * float(expected.abs().max())
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("over", [1, 4])
@pytest.mark.parametrize("split", [[12], [1] * 12, [11, 1]])
@exact
def test_exactly_full_then_over(kind: str, split: list[int], over: int) -> None:
    model, ids = MODELS[3], tokens(2, 16)
    cache = fresh(kind, model, 2, max_len=12)
    same(in_passes(model, ids[:, :12], split, cache), model(ids[:, :12]))
    told = f"{over} new tokens after 12 make {12 + over}.*; expected at most 12"
    with pytest.raises(ValueError, match=told):
        in_passes(model, ids[:, 12 : 12 + over], [over], cache)
    cache.truncate(11)
    same(in_passes(model, ids[:, 11:12], [1], cache), model(ids[:, :12])[:, 11:])


def test_caches_take_turns_on_one_model() -> None:
    """Two of each kind."""
    model, caches = MODELS[1], [fresh(kind, MODELS[1]) for kind in [*EXACT, *EXACT]]
    texts, said = tokens(len(caches), 15), []
    for start, stop in [(0, 6), (6, 7), (7, 8), (8, 15)]:
        said.append([model(ids[None, start:stop], cache) for ids, cache in zip(texts, caches, strict=True)])
    same(torch.cat([torch.cat(logits) for logits in said], 1), model(texts))


@exact
@given(kept=st.integers(0, 11), seed=st.integers(0, 20))
@example(kept=0, seed=0)
@settings(max_examples=20)
def test_truncate_or_reset_then_go_on(kind: str, kept: int, seed: int) -> None:
    """As after a rejected draft, or for another reply: the rows cut off leave nothing behind."""
    model, old, new = MODELS[3], tokens(1, 11, seed), tokens(1, 14, seed + 100)
    cache = fresh(kind, model)
    in_passes(model, old, [8, 3], cache)
    cache.truncate(kept) if kept else cache.reset()
    assert cache.length == cache.n_kept == kept
    got = in_passes(model, new, [1, 2, 11], cache)
    same(got, model(torch.cat([old[:, :kept], new], 1))[:, kept:])


@exact
def test_positions_and_mask(kind: str) -> None:
    cache = EXACT[kind](tiny_config())
    assert (cache.length, cache.n_kept, cache.n_layers, cache.max_len, cache.changes) == (0, 0, 3, 40, 0)
    assert cache.positions(3).flatten().tolist() == [0, 1, 2]
    assert cache.mask(2).view(2, 2).tolist() == [[True, False], [True, True]]
    cache.advance(3)
    for layer in range(3):
        assert cache.mask(2, layer).view(2, 5).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert cache.positions(2).flatten().tolist() == [3, 4]
    assert cache.mask(1).all()  # a decode step masks nothing
    cache.truncate(1)
    assert cache.mask(2).view(2, 3).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert (cache.length, cache.n_kept, cache.changes) == (1, 1, 2)


@exact
def test_a_mask_made_while_inferring_serves_training_too(kind: str) -> None:
    """Tensors of inference mode may not be saved for a gradient; the cache keeps the newest mask."""
    cache, scores = EXACT[kind](tiny_config()), torch.zeros(4, 4, requires_grad=True)
    with torch.inference_mode():
        assert cache.mask(4).is_inference()
    torch.where(cache.mask(4), scores, 1.0).sum().backward()
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.ones(4, 4).tril())


@pytest.mark.parametrize(
    ("kind", "empty", "later"),
    [("growing", 0, 7), ("stepped", 0, 8), ("static", 20, 20), ("ragged", 20, 20), ("paged", 21, 21)],
)
def test_bytes(kind: str, empty: int, later: int) -> None:
    """2 (K and V) × 3 layers × 3 KV heads × 8 × 4 bytes are 576 a token: KV heads, not query heads."""
    model = tiny()
    assert model.config.cache_nbytes_per_token() == 576
    cache = fresh(kind, model, 2, max_len=20)
    assert cache.nbytes == 2 * empty * 576
    in_passes(model, tokens(2, 7), [4, 1, 2], cache)
    assert cache.nbytes == 2 * later * 576
    assert repr(cache) == (
        f"{type(cache).__name__}(7 of 20 rows, 3 layers of (2, 3, 8), float32, {cache.nbytes:,} bytes)"
    )


def test_room_is_taken_in_steps() -> None:
    """Rows are copied where it has run out, and only there; what is left behind is not kept."""
    cache, lengths, places = ByFours(tiny_config(), max_len=10), [], []
    assert ByFours.__base__.step == 256  # type: ignore[union-attr]
    for T in (1, 2, 1, 1, 4, 1):
        for layer in range(3):
            keys, _ = cache.append(layer, *torch.randn(2, 1, 3, T, 8))
            assert keys.untyped_storage().data_ptr() == cache.k.untyped_storage().data_ptr()  # views
        cache.advance(T)
        lengths.append(cache.k.shape[3])
        places.append(cache.k)
    assert lengths == [4, 4, 4, 8, 10, 10]
    assert [a is b for a, b in pairwise(places)] == [True, True, False, False, True]
    assert cache.k.untyped_storage().nbytes() * 2 == cache.nbytes == 10 * 576
    cache.reset()
    assert cache.nbytes == 10 * 576  # for the next reply


def test_the_growing_cache_holds_no_more_than_it_says() -> None:
    """Rows that were cut off are let go of with the next append."""
    model, cache = tiny(), GrowingCache(tiny_config())
    in_passes(model, tokens(1, 9), [5, 4], cache)
    cache.truncate(2)
    assert cache.nbytes == 2 * 576
    in_passes(model, tokens(1, 1), [1], cache)
    assert sum(rows.untyped_storage().nbytes() for rows in [*cache.k, *cache.v]) == cache.nbytes == 3 * 576


@pytest.mark.parametrize("kind", [StaticCache, RaggedCache])
def test_the_preallocated_cache_hands_out_views_of_what_is_stored(kind: type[StaticCache]) -> None:
    cache = kind(tiny_config())
    k, v = torch.randn(1, 3, 4, 8), torch.randn(1, 3, 4, 8)
    keys, values = cache.append(1, k, v)
    assert keys.shape == values.shape == (1, 3, 4, 8)
    assert torch.equal(keys, k)
    assert torch.equal(values, v)
    assert keys.untyped_storage().data_ptr() == cache.k.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"sizes": tiny_config(n_layers=2)}, "n_layers 2, the pass has n_layers 3"),
        ({"sizes": tiny_config(n_kv_heads=1)}, "n_kv_heads 1, the pass has n_kv_heads 3"),
        ({"sizes": tiny_config(head_dim=4)}, "k_dim 4, the pass has k_dim 8"),
        ({"sizes": tiny_config(max_seq_len=41)}, "takes 41 tokens, the model's max_seq_len is 40"),
        ({"batch": 2}, "batch 2, the pass has batch 1"),
        ({"dtype": torch.bfloat16}, "dtype torch.bfloat16, the pass has dtype torch.float32"),
        ({"device": "meta"}, "device meta, the pass has device cpu"),
    ],
)
def test_a_cache_made_for_another_pass_is_refused(made: dict[str, object], told: str) -> None:
    cache = GrowingCache(**({"sizes": tiny_config()} | made))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=told):
        in_passes(tiny(), tokens(1, 4), [4], cache)
    assert cache.length == 0


def test_a_cache_of_no_size_is_refused() -> None:
    for name, value in (("batch", 0), ("max_len", 0), ("max_len", 41)):
        with pytest.raises(ValueError, match=f"{name} is {value}; expected"):
            GrowingCache(tiny_config(), **{name: value})  # type: ignore[arg-type]


def test_gradients_through_a_cache() -> None:
    """Rows written in place carry none: refused, where a growing cache gives those of one pass."""
    model, ids = tiny(n_layers=2, dtype=torch.float64), tokens(1, 7)
    cache = StaticCache(model.config, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"want a gradient came in; .*torch.no_grad\(\)"):
        model(ids, cache)
    rows = torch.zeros(1, 3, 7, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="want a gradient came in"):
        cache.append(0, rows, rows.clone().requires_grad_())
    assert (cache.length, float(cache.k.abs().sum())) == (0, 0)
    grown, found = GrowingCache(model.config, dtype=torch.float64), []
    for logits in (model(ids), torch.cat([model(ids[:, :4], grown), model(ids[:, 4:], grown)], 1)):
        found.append(torch.autograd.grad(logits.square().sum(), list(model.parameters())))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)
