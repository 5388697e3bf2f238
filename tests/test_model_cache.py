"""Cached equals uncached, however the tokens are split between passes; full, over-full, cut back, shared."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.model.cache import GrowingCache, KVCache, StaticCache
from helpers.model.transformer import Transformer
from tests.tiny import failing, in_passes, tiny, tiny_config, tokens

torch.set_num_threads(1)

CACHES = [GrowingCache, StaticCache]
MODELS = {n: tiny(n_kv_heads=n, dtype=torch.float64).requires_grad_(False) for n in (1, 3, 6)}
# Logits up to 8 in float64: sums in another order differ by 1e-15 of their size, a hundred times over.
BOUND = 1e-12


def fresh(kind: type[KVCache], model: Transformer, batch: int = 1, max_len: int | None = None) -> KVCache:
    return kind(model.config, batch, max_len, dtype=model.embed_tokens.weight.dtype)


def rows(cache: KVCache) -> torch.Tensor:
    """A copy of the rows that count, (2, L, B, Hkv, length, D)."""
    kv = [torch.stack([layer[:, :, : cache.length] for layer in each]) for each in (cache.k, cache.v)]  # type: ignore[attr-defined]
    return torch.stack(kv).clone()


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


splits = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@pytest.mark.parametrize("kind", CACHES)
@given(split=splits, batch=st.integers(1, 3), n_kv_heads=st.sampled_from([1, 3, 6]), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_cached_equals_uncached(
    kind: type[KVCache], split: list[int], batch: int, n_kv_heads: int, seed: int
) -> None:
    model = MODELS[n_kv_heads]
    split = [n for i, n in enumerate(split) if sum(split[: i + 1]) <= model.config.max_seq_len]
    ids, cache = tokens(batch, sum(split), seed), fresh(kind, model, batch)
    same(in_passes(model, ids, split, cache), model(ids))
    assert cache.length == cache.n_kept == sum(split)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", CACHES)
def test_narrow_types_differ_by_rounding_only(kind: type[KVCache], dtype: torch.dtype) -> None:
    """An element rounds by eps / 2 of its size, over 3 layers and sums of dozens. Over 30 models the largest
    difference was 20 eps of the largest logit in float32 and 3 in bfloat16: 100 leave room for other CPUs."""
    model, ids = tiny(dtype=dtype).requires_grad_(False), tokens(2, 20)
    expected, got = model(ids), in_passes(model, ids, [6, 1, 1, 12], fresh(kind, model, 2))
    atol = 100 * torch.finfo(dtype).eps * float(expected.abs().max())
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("over", [1, 4])
@pytest.mark.parametrize("split", [[12], [1] * 12, [11, 1]])
@pytest.mark.parametrize("kind", CACHES)
def test_exactly_full_then_over(kind: type[KVCache], split: list[int], over: int) -> None:
    model, ids = MODELS[3], tokens(2, 16)
    cache = fresh(kind, model, 2, max_len=12)
    same(in_passes(model, ids[:, :12], split, cache), model(ids[:, :12]))
    before = rows(cache)
    with pytest.raises(ValueError, match=f"{over} new tokens after 12 make {12 + over}; expected at most 12"):
        in_passes(model, ids[:, 12 : 12 + over], [over], cache)
    assert cache.length == 12
    assert torch.equal(rows(cache), before)


@pytest.mark.parametrize("place", ["layers.2", "norm", "lm_head"])
@pytest.mark.parametrize("kind", CACHES)
def test_a_pass_that_fails_half_way_leaves_the_cache_as_before(kind: type[KVCache], place: str) -> None:
    """In the last layer, when the others have appended, or after it, when all have."""
    model, ids = MODELS[3], tokens(1, 9)
    cache = fresh(kind, model)
    first = in_passes(model, ids[:, :4], [4], cache)
    before, said = rows(cache), (repr(cache), cache.changes)
    with failing(model, place), pytest.raises(KeyboardInterrupt):
        in_passes(model, ids[:, 4:7], [3], cache)
    assert torch.equal(rows(cache), before)
    assert (repr(cache), cache.changes) == said
    same(torch.cat([first, in_passes(model, ids[:, 4:], [5], cache)], 1), model(ids))


@pytest.mark.parametrize("kinds", [CACHES, CACHES[:1] * 2, CACHES[1:] * 2])
def test_two_caches_take_turns_on_one_model(kinds: list[type[KVCache]]) -> None:
    model = MODELS[1]
    texts, caches = [tokens(1, 15, seed) for seed in (3, 4)], [fresh(kind, model) for kind in kinds]
    found: list[list[torch.Tensor]] = [[], []]
    for start, stop in [(0, 6), (6, 7), (7, 8), (8, 15)]:
        for got, ids, cache in zip(found, texts, caches, strict=True):
            got.append(model(ids[:, start:stop], cache))
    for got, ids in zip(found, texts, strict=True):
        same(torch.cat(got, 1), model(ids))


@pytest.mark.parametrize("kind", CACHES)
@given(kept=st.integers(0, 11), seed=st.integers(0, 20))
@settings(max_examples=20)
def test_truncate_then_go_on(kind: type[KVCache], kept: int, seed: int) -> None:
    """As after a rejected draft: the rows cut off leave nothing behind, and those kept do not change."""
    model, old, new = MODELS[3], tokens(1, 11, seed), tokens(1, 14, seed + 100)
    cache = fresh(kind, model)
    in_passes(model, old, [8, 3], cache)
    before = rows(cache)
    cache.truncate(kept)
    assert cache.length == cache.n_kept == kept
    got = in_passes(model, new, [1, 2, 11], cache)
    same(got, model(torch.cat([old[:, :kept], new], 1))[:, kept:])
    assert torch.equal(rows(cache)[..., :kept, :], before[..., :kept, :])


@pytest.mark.parametrize("kind", CACHES)
def test_reset_forgets_everything(kind: type[KVCache]) -> None:
    model, ids = MODELS[3], tokens(1, 10)
    cache = fresh(kind, model)
    in_passes(model, tokens(1, 30, seed=5), [30], cache)
    cache.reset()
    same(in_passes(model, ids, [4, 6], cache), model(ids))
    assert cache.length == 10


@pytest.mark.parametrize("length", [-1, 5, 1.5])
def test_truncate_refuses_more_than_there_is(length: int) -> None:
    cache = GrowingCache(tiny_config())
    cache.advance(4)
    with pytest.raises(ValueError, match=f"length is {length!r}; expected 0 to 4"):
        cache.truncate(length)
    assert cache.length == 4


@pytest.mark.parametrize("kind", CACHES)
def test_positions_and_mask(kind: type[KVCache]) -> None:
    cache = kind(tiny_config())
    assert (cache.length, cache.n_kept, cache.n_layers, cache.max_len, cache.changes) == (0, 0, 3, 40, 0)
    assert cache.positions(3).tolist() == [0, 1, 2]
    assert cache.mask(2).tolist() == [[True, False], [True, True]]
    cache.advance(3)
    for layer in range(3):
        assert cache.mask(2, layer).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert cache.positions(2).tolist() == [3, 4]
    assert cache.mask(1).all()  # a decode step masks nothing
    cache.truncate(1)
    assert cache.mask(2).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert (cache.length, cache.n_kept, cache.changes) == (1, 1, 2)


def test_a_mask_made_while_inferring_serves_training_too() -> None:
    """Tensors of inference mode may not be saved for a gradient; the cache keeps the newest mask."""
    cache, scores = GrowingCache(tiny_config()), torch.zeros(4, 4, requires_grad=True)
    with torch.inference_mode():
        assert cache.mask(4).is_inference()
    torch.where(cache.mask(4), scores, 1.0).sum().backward()
    assert scores.grad is not None
    assert torch.equal(scores.grad, torch.ones(4, 4).tril())


@pytest.mark.parametrize("kind", CACHES)
def test_bytes(kind: type[KVCache]) -> None:
    """2 (K and V) × 3 layers × 3 KV heads × 8 × 4 bytes are 576 a token: KV heads, not query heads."""
    model = tiny()
    assert model.config.cache_nbytes_per_token() == 576
    cache = kind(model.config, batch=2, max_len=20)
    assert cache.nbytes == (0 if kind is GrowingCache else 2 * 20 * 576)
    in_passes(model, tokens(2, 7), [4, 1, 2], cache)
    assert cache.nbytes == 2 * (7 if kind is GrowingCache else 20) * 576
    assert repr(cache) == (
        f"{kind.__name__}(7 of 20 rows, 3 layers of (2, 3, 8), float32, {cache.nbytes:,} bytes)"
    )


def test_the_growing_cache_holds_no_more_than_it_says() -> None:
    """Rows that were cut off are let go of with the next append."""
    model, cache = tiny(), GrowingCache(tiny_config())
    in_passes(model, tokens(1, 9), [5, 4], cache)
    cache.truncate(2)
    assert cache.nbytes == 2 * 576
    in_passes(model, tokens(1, 1), [1], cache)
    assert sum(rows.untyped_storage().nbytes() for rows in [*cache.k, *cache.v]) == cache.nbytes == 3 * 576


def test_the_preallocated_cache_hands_out_views_of_what_is_stored() -> None:
    cache = StaticCache(tiny_config())
    k, v = torch.randn(1, 3, 4, 8), torch.randn(1, 3, 4, 8)
    keys, values = cache.append(1, k, v)
    assert keys.shape == values.shape == (1, 3, 4, 8)
    assert torch.equal(keys, k)
    assert torch.equal(values, v)
    assert keys.untyped_storage().data_ptr() == cache.k.untyped_storage().data_ptr()


@pytest.mark.parametrize("kind", CACHES)
def test_append_refuses_other_rows(kind: type[KVCache]) -> None:
    cache = kind(tiny_config(), batch=2)
    good, expanded, other = torch.zeros(2, 3, 5, 8), torch.zeros(2, 6, 5, 8), torch.zeros(1, 3, 5, 8)
    for k, v in ((expanded, expanded), (good, other), (good, good[:, :, :4])):
        with pytest.raises(ValueError, match=r"came in; expected \(2, 3, .*8\) and \(2, 3"):
            cache.append(0, k, v)
    for k, v in ((good.double(), good), (good, good.bfloat16())):
        with pytest.raises(ValueError, match=r"came in; expected torch.float32 for both"):
            cache.append(0, k, v)
    for layer in (3, -1):
        with pytest.raises(IndexError, match=f"layer is {layer}; expected 0 to 2"):
            cache.append(layer, good, good)
    with pytest.raises(ValueError, match="45 new tokens after 0 make 45; expected at most 40"):
        cache.append(0, good.repeat(1, 1, 9, 1), good.repeat(1, 1, 9, 1))


def test_no_fewer_than_0_tokens_are_counted() -> None:
    cache = GrowingCache(tiny_config())
    for T in (2, 0):
        cache.advance(T)
    with pytest.raises(ValueError, match="-1 new tokens; expected 0 or more"):
        cache.advance(-1)
    assert cache.length == 2


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
    assert (cache.length, float(cache.k.abs().sum())) == (0, 0)
    grown, found = GrowingCache(model.config, dtype=torch.float64), []
    for logits in (model(ids), torch.cat([model(ids[:, :4], grown), model(ids[:, 4:], grown)], 1)):
        found.append(torch.autograd.grad(logits.square().sum(), list(model.parameters())))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)
