"""Latent attention over every exact cache, and its sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cost.layers import Latent, cache_nbytes, layer_types_of
from helpers.model.cache import GrowingCache
from helpers.model.config import LatentConfig
from helpers.model.latent import LatentTransformer
from tests.doubles import EXACT
from tests.tiny import SIZES, enlarge, in_passes, same, tokens

torch.set_num_threads(1)

# Logits up to 6 in float64.
BOUND = 1e-11
DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def config_of(**changed: Any) -> LatentConfig:
    """Sizes of which no two are equal: heads of 8, of which nothing is rotated, and rows of 5 and 4."""
    return LatentConfig(**(SIZES | {"n_kv_heads": 1, "rank": 5, "rope_dim": 4} | changed))


def tiny_latent(**changed: Any) -> LatentTransformer:
    """A small model in float64 with large weights."""
    torch.manual_seed(0)
    model = LatentTransformer(config_of(**changed)).double().requires_grad_(False)
    enlarge(model)
    return model


@pytest.mark.parametrize("kind", EXACT)
@given(
    split=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    batch=st.integers(1, 3),
    n_heads=st.integers(1, 5),
    rank=st.integers(1, 7),
)
@settings(max_examples=25)
def test_cached_equals_uncached(kind: str, split: list[int], batch: int, n_heads: int, rank: int) -> None:
    model = tiny_latent(n_heads=n_heads, rank=rank, max_seq_len=54)
    ids = tokens(batch, sum(split))
    output = in_passes(model, ids, split, EXACT[kind](model.config, batch=batch, **DOUBLE))
    same(output, model(ids), bound=BOUND)


def test_latent_cache_stores_latents_only() -> None:
    model, ids = tiny_latent(), tokens(2, 11)
    cache = GrowingCache(model.config, 2, **DOUBLE)
    in_passes(model, ids, [4, 7], cache)
    a_token = 3 * (5 + 4)
    assert model.config.cache_nbytes_per_token() == a_token * 4
    assert cache.nbytes == 2 * 11 * a_token * 8
    assert layer_types_of(model.config) == [Latent(5, 4)] * 3
    assert 2 * cache_nbytes(layer_types_of(model.config), 11, 4) == cache.nbytes / 2
    assert model.config.n_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rank": 0}, "rank is 0; expected a whole number, 1 or more"),
        ({"rope_dim": 3}, "rope_dim is 3; expected an even number"),
    ],
)
def test_sizes_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config_of(**changed)
