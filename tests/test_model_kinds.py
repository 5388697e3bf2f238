"""What every kind of cache promises, whatever it keeps and wherever that lies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.model.cache import KVCache
from helpers.model.generate import prefill
from tests.doubles import EXACT, KINDS, LOSSY, uneven_model
from tests.tiny import failing, in_passes, tiny, tiny_config, tokens

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
BOUND = 1e-12  # as in test_model_cache: sums of float64 in another order
every, exact = (pytest.mark.parametrize("kind", kinds) for kinds in (KINDS, EXACT))


def fresh(kind: str, batch: int = 1, sizes: Any = MODEL.config, **rest: Any) -> KVCache:
    return KINDS[kind](sizes, batch=batch, **({"dtype": torch.float64} | rest))


def rows(cache: KVCache) -> Tensor:
    """All that a pass would be shown, keys and values of every layer: one of no tokens asks for it."""
    none = torch.empty(cache.shapes(0)[0], dtype=cache.dtype)
    shown = [cache.append(layer, none, none) for layer in range(cache.n_layers)]
    return torch.stack([x for pair in shown for x in pair]).clone()


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


@pytest.mark.parametrize("place", ["layers.2", "norm", "lm_head"])
@every
def test_a_pass_that_fails_half_way_leaves_the_cache_as_before(kind: str, place: str) -> None:
    """In the last layer, when the others have appended, or after it, when all have."""
    ids, cache = tokens(2, 12), fresh(kind, 2)
    expected = in_passes(MODEL, ids, [5, 4, 3], fresh(kind, 2))
    first = in_passes(MODEL, ids[:, :5], [5], cache)
    before, said = rows(cache), (cache.length, cache.n_kept, cache.changes)
    with failing(MODEL, place), pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 5:8].flip(1), [3], cache)
    assert torch.equal(rows(cache), before)
    assert (cache.length, cache.n_kept, cache.changes) == said
    same(torch.cat([first, in_passes(MODEL, ids[:, 5:], [4, 3], cache)], 1), expected)


@every
def test_values_narrower_than_keys_or_none(kind: str) -> None:
    """Latent rows are keys alone."""
    model, ids = uneven_model().requires_grad_(False), tokens(2, 12)
    cache = fresh(kind, 2, model.config, max_len=12)
    got = in_passes(model, ids, [4, 1, 7], cache)
    if kind in EXACT:
        same(got, model(ids))
        assert f"3 layers of (2, 3, 8, 5), float64, {2 * 12 * 3 * 3 * (8 + 5) * 8:,} bytes" in repr(cache)
    with pytest.raises(ValueError, match="v_dim 8, the pass has v_dim 5"):
        in_passes(model, ids, [12], fresh(kind, 2))
    sizes = SimpleNamespace(n_layers=2, n_kv_heads=3, k_dim=8, v_dim=0, max_seq_len=60)
    cache = fresh(kind, sizes=sizes)
    for T in (40, 1, 1):
        for layer in range(2):
            k, v = torch.randn(1, 3, T, 8).double(), torch.empty(1, 3, T, 0).double()
            keys, values = cache.append(layer, k, v)
            assert torch.equal(keys[:, :, -T:], k)
            assert keys.shape[2] == values.shape[2] == cache.mask(T, layer).shape[-1]
            assert values.shape[3] == 0
        cache.advance(T)


@every
def test_append_refuses_other_rows(kind: str) -> None:
    cache = fresh(kind, 2, dtype=torch.float32)
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
    nbytes = cache.nbytes
    with pytest.raises(ValueError, match="45 new tokens after 0 make 45"):
        cache.append(0, good.repeat(1, 1, 9, 1), good.repeat(1, 1, 9, 1))
    assert (cache.nbytes, cache.length, cache.changes) == (nbytes, 0, 0)


@every
def test_only_what_can_be_counted_counts(kind: str) -> None:
    cache = fresh(kind)
    in_passes(MODEL, tokens(1, 4), [4], cache)
    for length in (5, -1, 1.5, "1", None, True):
        with pytest.raises(ValueError, match=r"length is .*; expected .*0 to \[?4"):
            cache.truncate(length)  # type: ignore[arg-type]
    for T in (-1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="new tokens; expected a whole number, 0 or more"):
            cache.advance(T)  # type: ignore[arg-type]
    assert (cache.length, cache.changes) == (4, 1)
    cache.truncate(np.int64(3))  # type: ignore[arg-type]
    assert type(cache.length) is int
    cache.advance(0)
    assert (cache.length, [*cache.lengths], cache.changes) == (3, [3], 3)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("source", ["growing", "same"])
@exact
def test_one_prefill_serves_several_samples(kind: str, source: str, batch: int) -> None:
    prompt, more = tokens(batch, 7), tokens(3, 6, seed=9)
    own, cache = fresh(kind, 3), fresh(kind, 3)
    one = fresh("growing" if source == "growing" else kind, batch, max_len=9)
    prefill(MODEL, prompt.expand(3, 7), own)
    prefill(MODEL, prompt, one)
    before = repr(one), one.changes
    cache.copy_from(one)
    assert torch.equal(rows(cache), rows(one).expand(-1, 3, -1, -1, -1))
    same(in_passes(MODEL, more, [1, 5], cache), in_passes(MODEL, more, [1, 5], own))
    assert (repr(one), one.changes, cache.length) == (*before, 13)
    same(in_passes(MODEL, more[:batch, :2], [2], one), MODEL(torch.cat([prompt, more[:batch, :2]], 1))[:, 7:])


def filled(kind: str, batch: int = 1, **rest: Any) -> KVCache:
    cache = fresh(kind, batch, **rest)
    for layer in range(cache.n_layers):
        cache.append(layer, *(torch.zeros(shape, dtype=cache.dtype) for shape in cache.shapes(5)))
    cache.advance(5)
    return cache


def unequal() -> KVCache:
    cache = filled("ragged", 2)
    cache.truncate([2, 3])  # type: ignore[arg-type]
    return cache


@pytest.mark.parametrize(
    ("cache", "other", "told"),
    [
        (filled("static", 2), filled("growing"), r"\[5\] tokens came in for \[5, 5\]; .* an empty"),
        (fresh("static", 3), filled("static", 2), r"\[5, 5\] tokens came in for \[0, 0, 0\]; expected one"),
        (fresh("ragged", 2), unequal(), r"\[2, 3\] tokens came in for \[0, 0\]"),
        (fresh("paged", 2, max_len=4), filled("growing"), "5 new tokens after 0 make 5 in sequence 0"),
        (fresh("growing"), filled("growing", dtype=torch.float32), "dtype torch.float32, the pass has"),
        (fresh("static"), filled("static", sizes=tiny_config(n_layers=2)), "n_layers 2, the pass has"),
        *((fresh(kind), filled("growing"), "whose rows leave or are rounded") for kind in LOSSY),
        *((fresh("static"), filled(kind), "whose rows leave or are rounded") for kind in LOSSY),
    ],
)
def test_rows_that_cannot_be_copied(cache: KVCache, other: KVCache, told: str) -> None:
    before = repr(cache), cache.changes
    with pytest.raises(ValueError, match=told):
        cache.copy_from(other)
    assert (repr(cache), cache.changes) == before
