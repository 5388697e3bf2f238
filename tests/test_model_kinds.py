"""Caches of coming kinds, as doubles, under the model as it is: each against everything run again.

The references share no code with the doubles: a mask written out pair by pair, each sequence alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.model.cache import GrowingCache, KVCache, StaticCache
from helpers.model.generate import generate
from helpers.model.transformer import Transformer
from tests.doubles import (
    POISON,
    EightBitCache,
    MaskedCache,
    RaggedCache,
    RingCache,
    RoundedCache,
    uneven_model,
)
from tests.tiny import in_passes, tiny, tokens

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64)
CONFIG = MODEL.config
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
BOUND = 1e-12  # as in test_model_cache: sums of float64 in another order
SPLITS = [[24], [1] * 24, [9, 1, 1, 1, 7, 2, 3], [3, 12, 9]]
WINDOWS: list[tuple[list[int | None], int]] = [([4, None, 7], 0), ([5, 3, None], 2), ([1, 6, 6], 1)]


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


def all_again(ids: Tensor, cache: KVCache | None = None, model: Transformer = MODEL) -> Tensor:
    with torch.no_grad():
        return model(ids, cache)


def windowed(windows: list[int | None], sinks: int) -> Callable[[int, int, int], bool]:
    """seen(key, query, layer): itself and before, and near enough or a sink."""

    def seen(key: int, query: int, layer: int) -> bool:
        window = windows[layer]
        return key <= query and (window is None or query - key < window or key < sinks)

    return seen


# --- rows that leave ---


@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize(("windows", "sinks"), WINDOWS, ids=str)
def test_rows_leave_and_positions_stay(windows: list[int | None], sinks: int, split: list[int]) -> None:
    ids = tokens(2, 24)
    cache = RingCache(CONFIG, windows, sinks, batch=2, **DOUBLE)
    slow = MaskedCache(CONFIG, windowed(windows, sinks), batch=2, **DOUBLE)
    same(in_passes(MODEL, ids, split, cache), all_again(ids, slow))
    assert cache.length == 24
    for layer, window in enumerate(windows):
        first = 0 if window is None else 24 - window + 1
        stored = {n for n in cache.at[layer].tolist() if n >= 0}
        assert stored == {n for n in range(24) if n >= first or n < sinks}


def test_a_window_is_not_what_is_run_without_one() -> None:
    """Otherwise the tests above would compare nothing."""
    ids = tokens(2, 24)
    for windows, sinks in WINDOWS:
        slow = MaskedCache(CONFIG, windowed(windows, sinks), batch=2, **DOUBLE)
        assert (all_again(ids, slow) - all_again(ids))[:, -1].abs().max() > 0.1


def test_a_window_of_few_slots_takes_a_text_of_many_tokens() -> None:
    """Capacity is not position: 6 slots in every layer, and the reply ends at the model's longest."""
    cache = RingCache(CONFIG, [6, 6, 6], **DOUBLE)
    reply = generate(MODEL, [3, 1, 4, 1, 5], 100, cache=cache)
    said = list(reply)
    assert (len(said), reply.stop_reason, cache.length, cache.n_kept) == (36, "cache full", 40, 5)
    assert cache.nbytes == 2 * 3 * 3 * 6 * 8 * 8
    slow = MaskedCache(CONFIG, windowed([6, 6, 6], 0), **DOUBLE)
    assert all_again(torch.tensor([[3, 1, 4, 1, 5, *said[:-1]]]), slow)[0, 4:].argmax(-1).tolist() == said


def test_a_window_goes_back_as_far_as_its_rows_reach() -> None:
    ids, seen = tokens(1, 20), windowed([4, None, 7], 0)
    cache = RingCache(CONFIG, [4, None, 7], **DOUBLE)
    in_passes(MODEL, ids[:, :12], [10, 2], cache)
    before = [rows.clone() for rows in cache.k]
    with pytest.raises(ValueError, match="rows before token 9 have left"):
        cache.truncate(9)
    assert all(torch.equal(a, b) for a, b in zip(cache.k, before, strict=True))
    cache.truncate(12)
    same(
        in_passes(MODEL, ids[:, 12:], [3, 5], cache),
        all_again(ids, MaskedCache(CONFIG, seen, **DOUBLE))[:, 12:],
    )
    cache.reset()
    same(in_passes(MODEL, ids, [5, 15], cache), all_again(ids, MaskedCache(CONFIG, seen, **DOUBLE)))


# --- rows of another shape, or stored otherwise ---


@pytest.mark.parametrize("n_kv_heads", [1, 3])
@pytest.mark.parametrize("kind", [GrowingCache, StaticCache])
def test_values_narrower_than_keys(kind: type[KVCache], n_kv_heads: int) -> None:
    model, ids = uneven_model(n_kv_heads=n_kv_heads), tokens(2, 11)
    cache = kind(model.config, 2, 11, **DOUBLE)
    same(in_passes(model, ids, [4, 1, 6], cache), all_again(ids, model=model))
    assert cache.nbytes == 2 * 11 * 3 * n_kv_heads * (8 + 5) * 8
    assert f"3 layers of (2, {n_kv_heads}, 8, 5)" in repr(cache)
    ring = RingCache(model.config, [4, 4, None], batch=2, **DOUBLE)
    slow = MaskedCache(model.config, windowed([4, 4, None], 0), batch=2, **DOUBLE)
    same(in_passes(model, ids, [4, 1, 6], ring), all_again(ids, slow, model))
    plain = kind(tiny(n_kv_heads=n_kv_heads).config, 2, **DOUBLE)
    with pytest.raises(ValueError, match="v_dim 8, the pass has v_dim 5"):
        in_passes(model, ids, [11], plain)


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_rows_stored_in_8_bits(split: list[int]) -> None:
    ids = tokens(2, 24)
    cache = EightBitCache(CONFIG, 2, 24, **DOUBLE)
    got = in_passes(MODEL, ids, split, cache)
    same(got, all_again(ids, RoundedCache(CONFIG, 2, **DOUBLE)))
    assert (got - all_again(ids)).abs().max() > 1e-3, "8 bits cost something"
    assert cache.nbytes == 2 * 3 * 2 * 3 * 24 * (8 + 8)  # 8 numbers of a byte, and a scale of 8


# --- sequences of unequal length ---


def ragged_pass(cache: RaggedCache, new: list[list[int]], fill: int = 0) -> list[Tensor]:
    """Run new tokens of each sequence in one pass, the shorter filled up; each one's own logits, (T, V)."""
    T = max(map(len, new))
    cache.expect([len(ids) for ids in new])
    filled = torch.tensor([ids + [fill] * (T - len(ids)) for ids in new])
    return [logits[: len(ids)] for logits, ids in zip(all_again(filled, cache), new, strict=True)]


@pytest.mark.parametrize("fill", [0, 7])
def test_sequences_of_unequal_length(fill: int) -> None:
    """Prompts of 9 and 4, a step each, chunks, cut back to different lengths, and on: as each alone."""
    texts = [tokens(1, 20, seed)[0].tolist() for seed in (3, 4)]
    cache = RaggedCache(CONFIG, 2, **DOUBLE)
    found: list[list[Tensor]] = [[], []]
    at = [0, 0]
    for counts in [(9, 4), (1, 1), (1, 3), (2, 0), None, (1, 1), (3, 5), (6, 11)]:
        if counts is None:
            at = [10, 3]
            cache.truncate(at)
            found = [[torch.cat(rows)[:n]] for rows, n in zip(found, at, strict=True)]
            continue
        new = [text[n : n + T] for text, n, T in zip(texts, at, counts, strict=True)]
        for rows, logits in zip(found, ragged_pass(cache, new, fill), strict=True):
            rows.append(logits)
        at = [n + T for n, T in zip(at, counts, strict=True)]
        assert cache.lengths.tolist() == at
        for b, n in enumerate(at):
            assert (cache.k[:, b, :, n:] == POISON).all()
    for text, rows in zip(texts, found, strict=True):
        same(torch.cat(rows), all_again(torch.tensor([text]))[0])


@pytest.mark.parametrize(
    "cache",
    [
        RingCache(CONFIG, [4, None, 7], 1, **DOUBLE),
        EightBitCache(CONFIG, **DOUBLE),
        RaggedCache(CONFIG, **DOUBLE),
    ],
    ids=lambda cache: type(cache).__name__,
)
def test_a_pass_that_fails_leaves_every_kind_as_it_was(cache: KVCache) -> None:
    ids = tokens(1, 12)
    expected = in_passes(MODEL, ids, [5, 4, 3], cache)
    cache.reset()
    first = in_passes(MODEL, ids[:, :5], [5], cache)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    hook = MODEL.lm_head.register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 5:8].flip(1), [3], cache)
    hook.remove()
    assert cache.length == 5
    assert torch.equal(torch.cat([first, in_passes(MODEL, ids[:, 5:], [4, 3], cache)], 1), expected)
