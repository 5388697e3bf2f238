"""Latent attention: two forms of one function, over every cache; its sizes and its file."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cost.layers import Latent, cache_nbytes, layers_of
from helpers.model.attention import Core
from helpers.model.cache import GrowingCache
from helpers.model.config import LatentConfig
from helpers.model.latent import LatentTransformer
from tests.doubles import EXACT, KINDS, LOSSY
from tests.tiny import SIZES, enlarge, in_passes, same, tokens

torch.set_num_threads(1)

# Logits up to 6 in float64. The two forms multiply the same matrices in another order.
BOUND = 1e-11
DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def config_of(**changed: Any) -> LatentConfig:
    """Sizes of which no two are equal: heads of 8, of which nothing is rotated, and rows of 5 and 4."""
    return LatentConfig(**(SIZES | {"n_kv_heads": 1, "rank": 5, "rope_dim": 4} | changed))


def tiny_latent(**changed: Any) -> LatentTransformer:
    """A small model in float64 with large weights, in the expanded form."""
    torch.manual_seed(0)
    model = LatentTransformer(config_of(**changed)).double().requires_grad_(False)
    enlarge(model)
    return model


@pytest.mark.parametrize("kind", KINDS)
@given(
    split=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=6),
    batch=st.integers(1, 3),
    n_heads=st.integers(1, 5),
    rank=st.integers(1, 7),
    head_dim=st.sampled_from([2, 6]),
)
@settings(max_examples=25)
def test_expanded_equals_absorbed(
    kind: str, split: list[tuple[int, bool]], batch: int, n_heads: int, rank: int, head_dim: int
) -> None:
    """However the tokens are split, even where the form changes from pass to pass, and in every cache."""
    model = tiny_latent(n_heads=n_heads, rank=rank, head_dim=head_dim, max_seq_len=54)
    sizes, output = [T for T, _ in split], []
    ids = tokens(batch, sum(sizes))
    cache, other = (KINDS[kind](model.config, batch=batch, **DOUBLE) for _ in range(2))
    expected = in_passes(model, ids, sizes, other) if kind in LOSSY else model(ids)
    for chunk, (_, absorbed) in zip(ids.split(sizes, 1), split, strict=True):
        model.absorb(absorbed)
        output.append(model(chunk, cache))
    same(torch.cat(output, 1), expected, bound=BOUND)
    assert expected.abs().max() > 1
    assert cache.nbytes == other.nbytes > 0 or kind in EXACT


def test_absorbed_attention_reads_latents_directly() -> None:
    """What goes into the core: rows for one KV head, or keys and values for each. The logits are equal."""
    model, seen, output = tiny_latent(), [], []
    model.get_submodule("layers.1.self_attn.core").register_forward_hook(
        lambda _, given, out: seen.append((*given, out))
    )
    for absorbed in (False, True):
        model.absorb(absorbed)
        output.append(model(tokens(2, 7)))
    same(output[0], output[1], bound=BOUND)
    shapes = [[tuple(x.shape) for x in (q, k, v, out)] for q, k, v, _, out in seen]
    assert shapes == [
        [(2, 6, 7, 12), (2, 6, 7, 12), (2, 6, 7, 8), (2, 6, 7, 8)],
        [(2, 6, 7, 9), (2, 1, 7, 9), (2, 1, 7, 5), (2, 6, 7, 5)],
    ]
    assert {module.scale for module in model.modules() if isinstance(module, Core)} == {12**-0.5}


def test_latent_cache_stores_latents_only() -> None:
    model, ids = tiny_latent(), tokens(2, 11)
    cache = GrowingCache(model.config, 2, **DOUBLE)
    in_passes(model, ids, [4, 7], cache)
    a_token = 3 * (5 + 4)
    assert model.config.cache_nbytes_per_token() == a_token * 4
    assert cache.nbytes == 2 * 11 * a_token * 8
    assert layers_of(model.config) == [Latent(5, 4)] * 3
    assert 2 * cache_nbytes(layers_of(model.config), 11, 4) == cache.nbytes / 2
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
