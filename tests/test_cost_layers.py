"""Computed cache sizes equal those of real caches; unsupported sizes are rejected."""

from __future__ import annotations

import itertools
import math
from typing import Any

import nbformat
import pytest
import torch

from helpers.cost.config import model_of
from helpers.cost.dated import DATED
from helpers.cost.layers import (
    GIB,
    Full,
    Indexer,
    Latent,
    LayerType,
    Selected,
    State,
    Window,
    cache_nbytes,
    layer_types_of,
    nbytes_of,
    users_that_fit,
)
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import ridge_point
from helpers.model import shipped
from helpers.model.cache import GrowingCache, StaticCache, WindowCache
from tests.doubles import UnevenConfig
from tests.machine import ROOT
from tests.tiny import SIZES, tiny, tokens

# KV entries.


@pytest.mark.parametrize("T", [1, 5, 12])
@pytest.mark.parametrize("n_kv_heads", [1, 3, 6])
@torch.no_grad()
def test_full_layers_match_a_real_cache(n_kv_heads: int, T: int) -> None:
    model = tiny(n_kv_heads=n_kv_heads)
    growing, static = GrowingCache(model.config), StaticCache(model.config, max_len=20)
    for cache in (growing, static):
        model(tokens(1, T), cache)
    layers = layer_types_of(model.config)
    assert growing.nbytes == cache_nbytes(layers, T, 4)
    assert static.nbytes == cache_nbytes(layers, 20, 4)
    narrow = StaticCache(model.config, max_len=20, dtype=torch.bfloat16)
    assert narrow.nbytes == cache_nbytes(layers, 20, 2)


@pytest.mark.parametrize("T", [2, 4, 5, 11])
def test_windows_match_a_real_window_cache(T: int) -> None:
    model = tiny()
    heads, windows = (3, 8, 8), [4, None, 6]
    cache = WindowCache(model.config, windows)
    for token in tokens(1, T)[0]:
        model(token[None, None], cache)
    layers: list[LayerType] = [Window(*heads, window) if window else Full(*heads) for window in windows]
    assert cache.nbytes == cache_nbytes(layers, T, 4)


def test_keys_and_values_of_different_widths() -> None:
    config = UnevenConfig(**SIZES)
    cache = GrowingCache(config)
    for layer in range(3):
        cache.append(layer, torch.zeros(1, 3, 7, 8), torch.zeros(1, 3, 7, 5))
    cache.advance(7)
    assert layer_types_of(config) == [Full(3, 8, 5)] * 3
    assert cache.nbytes == cache_nbytes(layer_types_of(config), 7, 4)


def test_a_state_has_a_fixed_size() -> None:
    layers = [State(1000), Full(2, 3, 4), Latent(5, 6)]
    assert [cache_nbytes(layers, n) for n in (0, 1, 10)] == [2000, 2 * (1000 + 25), 2 * (1000 + 250)]
    assert [cache_nbytes(layers, 1, nbytes) for nbytes in (4, 1, 0.5)] == [4100, 1025, 513]


def test_a_selection_is_read_of_what_is_stored() -> None:
    indexer = Indexer(7, 4)
    latent, heads = Selected(Latent(5, 6), 3, indexer), Selected(Full(2, 3, 4), 3, None)
    assert [layer.entry_size for layer in (latent, heads, indexer)] == [11 + 4, 14, 4]
    assert [latent.n_stored(n) for n in (0, 2, 10)] == [0, 30, 150]
    assert [latent.n_read(n) for n in (0, 2, 10)] == [0, 30, 3 * 11 + 10 * 4]
    assert [heads.n_stored(n) for n in (0, 2, 10)] == [0, 28, 140]
    assert [heads.n_read(n) for n in (0, 2, 10)] == [0, 28, 42]
    assert [latent.n_read(10, new) for new in (2, 3, 4)] == [66 + 40, 99 + 40, 150]
    assert cache_nbytes([latent, heads], 10, cards=4) == 2 * (4 * 150 + 2 * 140)
    assert [layer.n_read(10, cards=4) for layer in (latent, heads)] == [4 * 73, 2 * 42]


def test_notebook_15_counts_what_helpers_count() -> None:
    cells = nbformat.read(ROOT / "notebooks" / "15_fewer_heads.ipynb", 4).cells
    source = next(cell.source for cell in cells if cell.id == "c15-kept")
    scope: dict[str, Any] = {}
    exec(source.partition("\n\n\n")[0], scope)  # the function, without what it is used for
    models = [*MODELS.values(), *(model_of(entry.value) for entry in DATED["models"].values())]
    kinds = {layer for model in models for layer in model.layers}
    assert {type(layer).__name__ for layer in kinds} == {"Full", "Window", "Latent", "State", "Selected"}
    for layer, n in itertools.product(kinds, (1, 100, 5000)):
        assert scope["kept_and_read"](layer, n) == (layer.n_stored(n), layer.n_read(n))


def test_notebook_15s_folded_layer_gives_the_models_output() -> None:
    sources = {c.id: c.source for c in nbformat.read(ROOT / "notebooks" / "15_fewer_heads.ipynb", 4).cells}
    fold = sources["c15-rope-say"].partition("```python\n")[2].partition("```")[0]
    scope: dict[str, Any] = {"torch": torch, "shipped": shipped}
    scope |= {"trained": {"MLA": shipped.load_shipped("mla").model}}
    scope["tokenizer"] = shipped.load_shipped().tokenizer
    exec(sources["c15-latents"] + "\n" + fold, scope)
    assert torch.allclose(scope["output"], scope["own"], atol=1e-6)


def test_invalid_sizes_are_rejected() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: cache_nbytes([], -1), "tokens is -1; expected a whole number, 0 or more"),
        (lambda: cache_nbytes([], math.nan), "tokens is nan"),  # type: ignore[arg-type]
        (lambda: cache_nbytes([], 1, 3), "got 3 bytes per number; expected one of 4, 2, 1, 0.5"),
        (lambda: nbytes_of(1, math.nan), "got nan bytes per number"),
        (lambda: MODELS["gpt-oss-20b"].cache_nbytes_per_token(), "gpt-oss-20b has layers with a window"),
        (lambda: MODELS["Qwen3.5-27B"].cache_nbytes_per_token(), "has layers with a state, so no"),
        (lambda: Full(8, 0, 128), "Full.k_dim is 0; expected a whole number, 1 or more"),
        (lambda: Window(8, 64, 64, -128), "Window.window is -128"),
        (lambda: Latent(512.0, 64), "Latent.rank is 512.0"),  # type: ignore[arg-type]
        (lambda: Selected(Latent(512, 64), 0, None), "Selected.n_chosen is 0; expected a whole number, 1 or"),
    ]
    for call, message in wrong:
        with pytest.raises(ValueError, match=message):
            call()


# Users and cards.


def test_users_that_fit_in_memory() -> None:
    llama = MODELS["Llama-3.1-8B"]
    sizes = 2 * llama.n_parameters, cache_nbytes(llama.layers, 8192)
    assert users_that_fit(80 * GIB, *sizes) == 65
    assert users_that_fit(15 * GIB, *sizes) == users_that_fit(0, *sizes) == 0
    assert [users_that_fit(n, 3, 7) for n in (9, 10, 16, 17)] == [0, 1, 1, 2]
    assert users_that_fit(9, 3, 1) == 6


def test_ridges_of_cards_match_their_data_sheets() -> None:
    ridges = {name: round(ridge_point(card)) for name, card in CARDS.items()}
    published = {"A100": 153, "H100": 295, "H200": 206, "B200": 281, "MI300X": 247}
    assert {name: ridges[name] for name in published} == published
    assert all(name == card.name and card.memory_nbytes % GIB == 0 for name, card in CARDS.items())
