"""Caches of coming kinds, as doubles, under the model as it is: each against everything run again.

The references share no code with the doubles: a mask written out pair by pair, each sequence alone.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.model.cache import GrowingCache, KVCache, StaticCache, WindowedCache
from helpers.model.generate import generate
from tests.doubles import MaskedCache, WindowCache, uneven_model
from tests.tiny import failing, in_passes, tiny, tokens

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
CONFIG = MODEL.config
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
BOUND = 1e-12  # as in test_model_cache: sums of float64 in another order
SPLITS = [[24], [1] * 24, [9, 1, 1, 1, 7, 2, 3], [3, 12, 9]]
WINDOWS: list[tuple[list[int | None], int]] = [([4, None, 7], 0), ([5, 3, None], 2), ([1, 6, 6], 1)]


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


def windowed(windows: list[int | None], sinks: int = 0, batch: int = 1, config: Any = CONFIG) -> MaskedCache:
    """A cache that shows itself and before, if near enough or a sink, pair by pair."""

    def seen(key: int, query: int, layer: int) -> bool:
        window = windows[layer]
        return key <= query and (window is None or query - key < window or key < sinks)

    return MaskedCache(config, seen, batch=batch, **DOUBLE)


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize(("windows", "sinks"), WINDOWS, ids=str)
def test_rows_leave_and_positions_stay(windows: list[int | None], sinks: int, split: list[int]) -> None:
    ids, cache = tokens(2, 24), WindowCache(CONFIG, windows, sinks, batch=2, **DOUBLE)
    expected = MODEL(ids, windowed(windows, sinks, 2))
    same(in_passes(MODEL, ids, split, cache), expected)
    assert (expected - MODEL(ids))[:, -1].abs().max() > 0.1, "a window must not be what is run without one"
    assert cache.length == 24
    for layer, window in enumerate(windows):
        first = 0 if window is None else 24 - window + 1
        assert sorted(cache.at[layer].tolist()) == [n for n in range(24) if n >= first or n < sinks]


def test_a_window_of_few_rows_takes_a_text_of_many_tokens() -> None:
    """Capacity is not position: 5 rows in every layer, and the reply ends at the model's longest."""
    cache, prompt = WindowCache(CONFIG, [6, 6, 6], **DOUBLE), [3, 1, 4, 1, 5]
    reply = generate(MODEL, prompt, 100, cache=cache)
    said = list(reply)
    assert (len(said), reply.stop_reason, cache.length, cache.n_kept) == (36, "cache full", 40, 5)
    assert cache.nbytes == 2 * 3 * 3 * 5 * 8 * 8
    everything = MODEL(torch.tensor([[*prompt, *said[:-1]]]), windowed([6, 6, 6]))
    assert everything[0, 4:].argmax(-1).tolist() == said


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_a_window_that_keeps_every_row(split: list[int]) -> None:
    ids, cache = tokens(2, 24), WindowedCache(CONFIG, batch=2, **DOUBLE)
    same(in_passes(MODEL, ids, split, cache), MODEL(ids, windowed([16] * 3, 0, 2)))


def test_a_window_goes_back_as_far_as_its_rows_reach() -> None:
    ids, cache = tokens(1, 20), WindowCache(CONFIG, [4, None, 7], **DOUBLE)
    expected = MODEL(ids, windowed([4, None, 7]))
    in_passes(MODEL, ids[:, :12], [10, 2], cache)
    with pytest.raises(ValueError, match="rows before token 9 have left"):
        cache.truncate(9)
    cache.truncate(12)
    same(in_passes(MODEL, ids[:, 12:], [3, 5], cache), expected[:, 12:])
    cache.reset()
    same(in_passes(MODEL, ids, [5, 15], cache), expected)


@pytest.mark.parametrize("n_kv_heads", [1, 3])
@pytest.mark.parametrize("kind", [GrowingCache, StaticCache])
def test_values_narrower_than_keys(kind: type[KVCache], n_kv_heads: int) -> None:
    model, ids = uneven_model(n_kv_heads=n_kv_heads).requires_grad_(False), tokens(2, 11)
    cache = kind(model.config, 2, 11, **DOUBLE)
    same(in_passes(model, ids, [4, 1, 6], cache), model(ids))
    assert cache.nbytes == 2 * 11 * 3 * n_kv_heads * (8 + 5) * 8
    assert f"3 layers of (2, {n_kv_heads}, 8, 5)" in repr(cache)
    windows: list[int | None] = [4, 4, None]
    window = WindowCache(model.config, windows, batch=2, **DOUBLE)
    expected = model(ids, windowed(windows, 0, 2, model.config))
    same(in_passes(model, ids, [4, 1, 6], window), expected)
    with pytest.raises(
        ValueError, match=rf"expected \(2, {n_kv_heads}, 9, 8\) and \(2, {n_kv_heads}, 9, 5\)"
    ):
        cache.append(0, *torch.zeros(2, 2, n_kv_heads, 9, 8))
    plain = kind(tiny(n_kv_heads=n_kv_heads).config, 2, **DOUBLE)
    with pytest.raises(ValueError, match="v_dim 8, the pass has v_dim 5"):
        in_passes(model, ids, [11], plain)


def test_a_pass_that_fails_leaves_a_window_as_it_was() -> None:
    ids, cache = tokens(1, 12), WindowCache(CONFIG, [4, None, 7], 1, **DOUBLE)
    expected = in_passes(MODEL, ids, [5, 4, 3], cache)
    cache.reset()
    first = in_passes(MODEL, ids[:, :5], [5], cache)
    with failing(MODEL, "lm_head"), pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 5:8].flip(1), [3], cache)
    assert cache.length == 5
    same(torch.cat([first, in_passes(MODEL, ids[:, 5:], [4, 3], cache)], 1), expected)
