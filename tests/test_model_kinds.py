"""Caches under the model as it is: rows of other widths, and passes that fail, whatever the kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.model.cache import GrowingCache, KVCache, QuantizedCache, StaticCache, WindowCache
from tests.doubles import uneven_model
from tests.tiny import failing, in_passes, tiny, tokens

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
CONFIG = MODEL.config
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
BOUND = 1e-12  # as in test_model_cache: sums of float64 in another order


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


@pytest.mark.parametrize("n_kv_heads", [1, 3])
@pytest.mark.parametrize("kind", [GrowingCache, StaticCache])
def test_values_narrower_than_keys(kind: type[KVCache], n_kv_heads: int) -> None:
    model, ids = uneven_model(n_kv_heads=n_kv_heads).requires_grad_(False), tokens(2, 11)
    cache = kind(model.config, 2, 11, **DOUBLE)
    same(in_passes(model, ids, [4, 1, 6], cache), model(ids))
    assert cache.nbytes == 2 * 11 * 3 * n_kv_heads * (8 + 5) * 8
    assert f"3 layers of (2, {n_kv_heads}, 8, 5)" in repr(cache)
    with pytest.raises(
        ValueError, match=rf"expected \(2, {n_kv_heads}, 9, 8\) and \(2, {n_kv_heads}, 9, 5\)"
    ):
        cache.append(0, *torch.zeros(2, 2, n_kv_heads, 9, 8))
    plain = kind(tiny(n_kv_heads=n_kv_heads).config, 2, **DOUBLE)
    with pytest.raises(ValueError, match="v_dim 8, the pass has v_dim 5"):
        in_passes(model, ids, [11], plain)


@pytest.mark.parametrize(
    "cache", [WindowCache(CONFIG, [4, None, 7], 1, **DOUBLE), QuantizedCache(CONFIG, 4, group=8, **DOUBLE)]
)
def test_a_pass_that_fails_leaves_every_kind_as_it_was(cache: KVCache) -> None:
    ids = tokens(1, 12)
    expected = in_passes(MODEL, ids, [5, 4, 3], cache)
    cache.reset()
    first = in_passes(MODEL, ids[:, :5], [5], cache)
    with failing(MODEL, "lm_head"), pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 5:8].flip(1), [3], cache)
    assert cache.length == 5
    same(torch.cat([first, in_passes(MODEL, ids[:, 5:], [4, 3], cache)], 1), expected)
