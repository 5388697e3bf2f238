"""Caches that drop or quantize entries, compared with references that share no code with them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.model.cache import Cache, GrowingCache, PagedCache, QuantizedCache, WindowCache
from helpers.model.cache import quantized as module
from helpers.model.cache.quantized import dequantize, pack, quantize, unpack
from helpers.model.transformer import Transformer
from tests.doubles import POISON, MaskedCache
from tests.tiny import in_passes, same, tiny, tokens

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
CONFIG = MODEL.config
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
WINDOWS: Any = [(4, 0), ([4, None, 7], 0), ([5, 3, None], 2), ([1, 6, 6], 1), (3, 3), (1, 1)]
splits = st.lists(st.integers(1, 14), min_size=1, max_size=8)


def visible(window: Any, sinks: int, batch: int = 1, config: Any = CONFIG) -> MaskedCache:
    """A cache that keeps all entries and masks, pair by pair, what a window with sinks would drop."""

    def seen(key: int, query: int, layer: int) -> bool:
        width = window[layer] if isinstance(window, list) else window
        return key <= query and (width is None or query - key < width or key < sinks)

    return MaskedCache(config, seen, batch=batch, **DOUBLE)


def poisoned(model: Transformer, ids: Tensor, split: list[int], cache: Cache) -> Tensor:
    """Run ids in passes; before each, a failed pass of three tokens has left its entries in memory."""
    out = []
    for chunk in ids.split(split, dim=1):
        if cache.length + 3 <= cache.max_len:
            for layer in range(cache.n_layers):
                cache.append(
                    layer, *(torch.full(shape, POISON, dtype=cache.dtype) for shape in cache.entry_shapes(3))
                )
        out.append(in_passes(model, chunk, [chunk.shape[1]], cache))
    return torch.cat(out, dim=1)


def within(split: list[int], limit: int) -> list[int]:
    return [n for i, n in enumerate(split) if sum(split[: i + 1]) <= limit]


# Entries that are dropped.


@given(split=splits, case=st.sampled_from(WINDOWS), batch=st.integers(1, 2), seed=st.integers(0, 99))
@settings(max_examples=60, phases=[Phase.generate])  # no shrinking: planted bugs fail it often
def test_window_equals_masked_model(split: list[int], case: Any, batch: int, seed: int) -> None:
    split, (window, sinks) = within(split, 40), case
    ids, cache = tokens(batch, sum(split), seed), WindowCache(CONFIG, window, sinks, batch=batch, **DOUBLE)
    expected = MODEL(ids, visible(window, sinks, batch))
    same(poisoned(MODEL, ids, split, cache), expected)
    kept, n = [], sum(split)
    for layer in range(3):
        width = window[layer] if isinstance(window, list) else window
        positions = [p for p in range(n) if width is None or p >= n - width or p < sinks]
        assert cache.kept_positions[layer].tolist() == positions
        kept.append(len(positions))
    assert (cache.length, cache.n_entries) == (n, max(kept))
    held = [x.untyped_storage().nbytes() for x in [*cache.k, *cache.v]]
    assert sum(held) == cache.nbytes == sum(kept) * batch * 3 * (8 + 8) * 8  # and no other memory


@pytest.mark.parametrize(("window", "sinks"), WINDOWS, ids=str)
@pytest.mark.parametrize("length", [1, 3, 4, 12, 20])
def test_window_can_undo_one_token(window: Any, sinks: int, length: int) -> None:
    ids, cache = tokens(1, 30), WindowCache(CONFIG, window, sinks, **DOUBLE)
    expected = MODEL(ids, visible(window, sinks))
    in_passes(MODEL, ids[:, :length], [length], cache)
    in_passes(MODEL, tokens(1, 1, seed=5), [1], cache)
    cache.truncate(length)
    assert cache.length == length
    same(in_passes(MODEL, ids[:, length:], [3, 27 - length], cache), expected[:, length:])
    cache.reset()
    assert (cache.n_entries, cache.nbytes) == (0, 0)
    same(in_passes(MODEL, ids, [5, 25], cache), expected)


@pytest.mark.parametrize(("window", "sinks"), WINDOWS, ids=str)
def test_window_truncates_to_reachable_lengths(window: Any, sinks: int) -> None:
    cache, shown = WindowCache(CONFIG, window, sinks, **DOUBLE), visible(window, sinks)
    in_passes(MODEL, tokens(1, 12), [10, 2], cache)
    for stored in (12, 11):
        kept = [{*positions.tolist()} for positions in cache.kept_positions]
        needed = [
            [{k for k in range(n) if shown.seen(k, n, layer)} for layer in range(3)] for n in range(stored)
        ]
        possible = [all(map(set.issubset, layers, kept)) for layers in needed] + [True]
        minimum = max((n + 1 for n in range(stored) if not possible[n]), default=0)
        for n in range(stored + 1):
            before = repr(cache), cache.change_count, [x.tolist() for x in cache.kept_positions]
            if possible[n]:
                deepcopy(cache).truncate(n)
                continue
            message = f"length is {n}, but entries .* dropped or .* expected {minimum} to {stored}, or reset"
            with pytest.raises(ValueError, match=message):
                cache.truncate(n)
            assert before == (repr(cache), cache.change_count, [x.tolist() for x in cache.kept_positions])
        cache.truncate(11)


# Entries that are quantized.


def rounded(x: np.ndarray, bits: int, per: str) -> np.ndarray:
    """Round one head's group of entries, (group, D), each number to the nearest of 2 ** bits levels."""
    out = np.empty_like(x)
    for row, new in zip(*((x, out) if per == "token" else (x.T, out.T)), strict=True):
        levels = np.linspace(row.min(), row.max(), 2**bits)
        new[:] = [levels[np.abs(levels - number).argmin()] for number in row]
    return out


@pytest.mark.parametrize("dim", [-1, -2])
@pytest.mark.parametrize("bits", module.BITS)
def test_quantization_error_is_half_a_step(bits: int, dim: int) -> None:
    x = torch.randn(2, 3, 16, 5, generator=torch.Generator().manual_seed(bits), **DOUBLE)
    x[0, 0] = 3.7  # constant rows and columns come back as they were
    levels, low, step = quantize(x, bits, dim)
    assert (levels.dtype, levels.shape, int(levels.max())) == (torch.uint8, x.shape, 2**bits - 1)
    assert len(set(levels[1].flatten().tolist())) <= 2**bits
    back = dequantize(levels, low, step)
    half = (x.amax(dim, keepdim=True) - x.amin(dim, keepdim=True)) / (2**bits - 1) / 2
    assert ((back - x).abs() <= half + 1e-12).all()
    assert torch.equal(back[0, 0], x[0, 0])
    packed = pack(levels, bits)
    assert packed.shape == (2, 3, 16 * bits // 8, 5)
    assert torch.equal(unpack(packed, bits), levels)


@pytest.mark.parametrize(("bits", "spread", "middle"), [(8, 1.5e-3, 0.5), (8, 3e-4, 0.0), (4, 1e-5, 0.0)])
def test_float16_quantization_error_is_bounded(bits: int, spread: float, middle: float) -> None:
    """Its steps are multiples of 6e-8: if one was rounded down, a number may have no level of its own."""
    x = (middle + spread * torch.rand(9, 8, generator=torch.Generator().manual_seed(0))).half()
    errors = (dequantize(*quantize(x, bits, -1)).float() - x.float()).abs()
    assert (errors <= spread / (2**bits - 1) + (2**bits - 1) * 2**-25 + middle * 2**-11).all()


@pytest.mark.parametrize("split", [[40], [1] * 40, [19, 1, 1, 12, 7]], ids=str)
@pytest.mark.parametrize(
    ("bits", "per", "residual"), [(8, "token", 1), ((4, 1), ("channel", "token"), 9)], ids=str
)
def test_entries_are_quantized_once(bits: Any, per: Any, residual: int, split: list[int]) -> None:
    """Compared with a plain cache whose old entries are replaced by rounded ones after each pass."""
    ids = tokens(2, 40)
    cache = QuantizedCache(CONFIG, bits, per, group_size=8, residual_length=residual, batch=2, **DOUBLE)
    plain, done = GrowingCache(CONFIG, 2, **DOUBLE), 0
    for chunk in ids.split(split, dim=1):
        expected = in_passes(MODEL, chunk, [chunk.shape[1]], plain)
        same(poisoned(MODEL, chunk, [chunk.shape[1]], cache), expected, 1e-9)
        while plain.length - done >= residual + 8:
            for n, entries in enumerate((plain.k, plain.v)):
                setting = [x if isinstance(x, tuple) else (x, x) for x in (bits, per)]
                for x in [head for layer in entries for sequence in layer for head in sequence]:
                    x[done : done + 8] = torch.from_numpy(
                        rounded(x[done : done + 8].numpy(), setting[0][n], setting[1][n])
                    )
            done += 8
    assert (cache.length, cache.n_entries, cache.n_quantized) == (40, 40, done)


@pytest.mark.parametrize(
    ("bits", "per", "nbytes"),
    [  # bytes of a quantized entry of one head, K and V: 8 numbers each, and scales of 8 bytes a number
        (8, "token", 2 * (8 + 16)),
        (1, "token", 2 * (1 + 16)),
        (4, "channel", 2 * (4 + 2 * 8 * 8 / 16)),
        ((2, 8), ("channel", "token"), 2 + 2 * 8 * 8 / 16 + 8 + 16),
    ],
    ids=str,
)
def test_quantized_nbytes_is_exact(bits: Any, per: Any, nbytes: float) -> None:
    cache = QuantizedCache(CONFIG, bits, per, group_size=16, residual_length=2, batch=2, **DOUBLE)
    in_passes(MODEL, tokens(2, 37), [30, 7], cache)
    assert cache.n_quantized == 32
    assert cache.nbytes == 2 * 3 * 3 * (32 * nbytes + 5 * 128)
    held = [*cache.k, *cache.v, *(part for x in cache.quantized for layer in x for part in layer or ())]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in held}
    assert sum(storages.values()) == cache.nbytes


def test_quantized_cache_can_undo_one_token() -> None:
    ids, cache = tokens(1, 30), QuantizedCache(CONFIG, 2, group_size=8, **DOUBLE)
    in_passes(MODEL, ids[:, :17], [17], cache)
    kept = [x.clone() for x in cache.append(1, *torch.zeros(2, 1, 3, 1, 8, **DOUBLE))]
    cache.truncate(16)
    again = cache.append(1, *torch.zeros(2, 1, 3, 1, 8, **DOUBLE))
    assert all(torch.equal(a[:, :, :16], b[:, :, :16]) for a, b in zip(again, kept, strict=True))
    with pytest.raises(ValueError, match=r"15, but entries .* rounded; expected 16 to 16, or reset"):
        cache.truncate(15)
    with pytest.raises(ValueError, match="25 new tokens after 16 make 41; expected at most 40"):
        cache.advance(25)
    cache.reset()
    assert (cache.nbytes, cache.n_quantized) == (0, 0)


# All of them.


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (WindowCache, {"window": [4, 2.5, None]}, "window is 2.5; expected a whole number"),
        (WindowCache, {"window": [4, 4]}, "2 windows; expected one for each of 3 layers"),
        (WindowCache, {"window": [4, None, 7], "sinks": 5}, "sinks is 5; expected at most 4"),
        (PagedCache, {"page_size": 0}, "page_size is 0; expected a whole number, 1 or more"),
        (QuantizedCache, {"bits": True}, "bits is True; expected one of 8, 4, 2, 1, or a pair"),
        (QuantizedCache, {"bits": (8, 3)}, r"bits is \(8, 3\); expected one of"),
        (QuantizedCache, {"per": "head"}, "per is 'head'; expected one of 'token', 'channel'"),
        (QuantizedCache, {"group_size": 12}, "group_size is 12; expected a multiple of 8"),
        (GrowingCache, {"batch": 0}, "batch is 0; expected a whole number"),
        (GrowingCache, {"max_len": 41}, "max_len is 41; expected at most 40"),
    ],
)
def test_invalid_settings_are_refused(kind: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(CONFIG, **given)
