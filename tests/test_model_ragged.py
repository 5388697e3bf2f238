"""Sequences of unequal length, over rows laid out and over pages: each says what it says alone.

Rows that are not in use hold poison: 1e9, or NaN in pages, where nobody may read one. The reference is each
sequence alone, everything run again.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.model.cache import KVCache, PagedCache, PagePool, RaggedCache
from helpers.model.generate import decode_step, generate, prefill
from tests import doubles
from tests.planted import Bug, Planted, edit
from tests.tiny import failing, in_passes, tiny, tokens

torch.set_num_threads(1)
planted = Planted()

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
CONFIG = MODEL.config
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
BOUND = 1e-12  # as in test_model_cache: sums of float64 in another order
TEXTS = tokens(3, 30, seed=3)
ALONE = MODEL(TEXTS)


def same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


class Poisoned(RaggedCache):
    """Fills what is not in use with poison after each change."""

    def start(self, lengths: Any) -> None:
        super().start(lengths)
        for b, length in enumerate(self.lengths):
            self.k[:, b, :, length:] = self.v[:, b, :, length:] = doubles.POISON


class PoisonedPages(PagedCache):
    """Takes pages out of order and when it needs them; what no sequence has written is NaN."""

    def __init__(self, config: Any, batch: int, size: int = 3, **rest: Any) -> None:
        pool = PagePool(config, batch * math.ceil(30 / size), size, **rest)
        self.free = random.Random(1).sample(range(pool.k.shape[1]), pool.k.shape[1])
        super().__init__(config, batch, pool=pool, tables=[[] for _ in range(batch)])

    def start(self, lengths: Any) -> None:
        super().start(lengths)
        used = torch.zeros(self.k.shape[1], self.page_size, dtype=torch.bool)
        for length, table in zip(self.lengths, self.tables, strict=True):
            self.free += table[math.ceil(length / self.page_size) :]
            del table[math.ceil(length / self.page_size) :]
            for at in range(length):
                used[table[at // self.page_size], at % self.page_size] = True
        for x in (self.k, self.v):
            x.transpose(1, 2).transpose(0, 1)[:, :, ~used] = math.nan  # (Hkv, L, n_pages, page_size, D)

    def expect(self, new: Any) -> None:
        super().expect(new)
        for table, length, n in zip(self.tables, self.lengths, new, strict=True):
            while len(table) * self.page_size < length + n:
                table.append(self.free.pop())


def run(cache: Any, counts: list[int], T: int, said: Tensor, fill: int = 0) -> None:
    """Run the next tokens of TEXTS, so many of each, in T columns; put their logits into `said`."""
    new, at = torch.full((len(counts), T), fill), list(cache.lengths)
    for b, (start, n) in enumerate(zip(at, counts, strict=True)):
        new[b, T - n :] = TEXTS[b, start : start + n]
    cache.expect(counts)
    logits = MODEL(new, cache)
    for b, (start, n) in enumerate(zip(at, counts, strict=True)):
        said[b, start : start + n] = logits[b, T - n :]
    assert cache.lengths == [start + n for start, n in zip(at, counts, strict=True)]
    assert cache.length == cache.n_kept == max(cache.lengths)


KINDS: list[Any] = [Poisoned, PoisonedPages]
passes = st.lists(
    st.tuples(st.lists(st.integers(0, 7), min_size=3, max_size=3), st.integers(0, 2), st.integers(0, 18)),
    min_size=1,
    max_size=7,
)


@pytest.mark.parametrize("kind", KINDS)
@given(passes=passes, cut=st.lists(st.integers(0, 9), min_size=3, max_size=3), size=st.integers(1, 11))
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_each_says_what_it_says_alone(kind: Any, passes: Any, cut: list[int], size: int) -> None:
    """Any counts and padding, cut back to different lengths half way, and on.

    The cases are small. Making them smaller still would take half a minute for each bug planted below.
    """
    cache = Poisoned(CONFIG, 3, **DOUBLE) if kind is Poisoned else PoisonedPages(CONFIG, 3, size, **DOUBLE)
    said = ALONE.clone()
    for n, (counts, padding, fill) in enumerate(passes):
        if n == len(passes) // 2:
            cache.truncate([min(pair) for pair in zip(cut, cache.lengths, strict=True)])
        counts = [min(c, 30 - length) for c, length in zip(counts, cache.lengths, strict=True)]
        run(cache, counts, max(max(counts) + padding, 1), said, fill)
    same(said, ALONE)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_unequal_length_then_steps(kind: Any) -> None:
    """As a server does it: padded prompts in one pass, then a token each, the last logits only."""
    cache, said = kind(CONFIG, 3, **DOUBLE), ALONE.clone()
    run(cache, [9, 4, 1], 9, said)
    for n in range(5):
        at = torch.tensor(cache.lengths)
        cache.expect([1, 1, 1])
        got = decode_step(MODEL, TEXTS[torch.arange(3), at][:, None], cache)
        same(got, ALONE[torch.arange(3), at])
        assert cache.lengths == [10 + n, 5 + n, 2 + n]
    same(said, ALONE)


def test_positions_and_mask() -> None:
    cache = RaggedCache(CONFIG, 2)
    cache.start([3, 1])
    cache.expect([1, 2])
    assert cache.positions(3).tolist() == [[1, 2, 3], [0, 1, 2]]
    assert cache.mask(3).int().tolist() == [
        [[[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]],
        [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]],
    ]
    cache.advance(3)
    assert cache.lengths == [4, 3]
    assert cache.positions(1).tolist() == [[4], [3]]  # what was expected held for one pass
    cache.truncate(2)
    assert (cache.lengths, cache.length, cache.changes) == ([2, 2], 2, 2)


@pytest.mark.parametrize("kind", [RaggedCache, PagedCache])
def test_one_sequence_is_served_like_by_any_cache(kind: type[KVCache]) -> None:
    ids = tokens(1, 20)
    cache = kind(CONFIG, **DOUBLE)
    same(in_passes(MODEL, ids, [7, 1, 12], cache), MODEL(ids))
    cache.reset()
    prompt = ids[0, :6].tolist()
    assert [*generate(MODEL, prompt, 9, cache=cache)] == [*generate(MODEL, prompt, 9)]
    narrow = doubles.uneven_model().requires_grad_(False)
    same(in_passes(narrow, ids, [5, 15], kind(narrow.config, **DOUBLE)), narrow(ids))


@pytest.mark.parametrize("kind", [RaggedCache, PagedCache])
def test_a_pass_that_fails_leaves_it_as_it_was(kind: type[KVCache]) -> None:
    ids, cache = TEXTS[:2, :12], kind(CONFIG, 2, **DOUBLE)
    first = in_passes(MODEL, ids[:, :5], [5], cache)
    with failing(MODEL, "lm_head"), pytest.raises(KeyboardInterrupt):
        in_passes(MODEL, ids[:, 5:8].flip(1), [3], cache)
    assert cache.length == 5
    same(torch.cat([first, in_passes(MODEL, ids[:, 5:], [4, 3], cache)], 1), ALONE[:2, :12])


def test_two_sequences_read_one_page() -> None:
    """A shared beginning: the second sequence's table begins with the first one's page."""
    pool = PagePool(CONFIG, 4, 4, **DOUBLE)
    ids = torch.cat([TEXTS[:1, :4].expand(2, 4), TEXTS[:2, 4:9]], 1)
    prefill(MODEL, ids[:1, :4], PagedCache(CONFIG, pool=pool, tables=[[2]]))
    cache = PagedCache(CONFIG, 2, pool=pool, tables=[[2, 0], [2, 3]], lengths=[4, 4])
    same(MODEL(ids[:, 4:8], cache), MODEL(ids[:, :8])[:, 4:])
    assert cache.nbytes == 3 * pool.page_nbytes == 3 * 4 * CONFIG.cache_nbytes_per_token(8)


def test_v_dim_of_0() -> None:
    """Latent rows are keys alone."""

    class Sizes:
        n_layers, n_kv_heads, k_dim, v_dim, max_seq_len = 2, 1, 5, 0, 12

    for cache in (RaggedCache(Sizes(), 2), PagedCache(Sizes(), 2, page_size=5)):
        rows = torch.randn(2, 1, 7, 5)
        keys, values = cache.append(1, rows, rows[..., :0])
        assert torch.equal(keys, rows)
        assert values.shape == (2, 1, 7, 0)


def test_wrong_use_is_refused() -> None:
    cache = RaggedCache(CONFIG, 2, 10)
    for new in ([1], [1, -1], [1, 1.5]):
        with pytest.raises(ValueError, match="expected 2 whole numbers, one a sequence"):
            cache.expect(new)  # type: ignore[arg-type]
    cache.start([8, 2])
    cache.expect([3, 3])
    with pytest.raises(ValueError, match="3 new tokens after 8 make 11 in sequence 0; expected at most 10"):
        cache.positions(3)
    with pytest.raises(ValueError, match=r"2 columns came in; expected 3 or more"):
        cache.positions(2)
    for length in (3, [8, 3], [8], [1.5, 1], -1):
        with pytest.raises(ValueError, match=r"expected 0 to \[8, 2\]"):
            cache.truncate(length)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 tables came with a batch of 2"):
        PagedCache(CONFIG, 2, pool=PagePool(CONFIG, 3), tables=[[0]])
    full = PagedCache(CONFIG, pool=PagePool(CONFIG, 3, 4), tables=[[0, 2]], lengths=[7])
    with pytest.raises(ValueError, match="2 new tokens after 7 make 9 in sequence 0; expected at most 8"):
        prefill(tiny(), [1, 2], full)
    for name, sizes in (("n_pages", (0, 4)), ("page_size", (3, 0))):
        with pytest.raises(ValueError, match=f"{name} is 0; expected"):
            PagePool(CONFIG, *sizes)


EACH = test_each_says_what_it_says_alone
STEPS = test_prompts_of_unequal_length_then_steps

planted("one position for all sequences", [EACH, STEPS], "unsloth #3699")(
    edit(RaggedCache.positions, "clamp(min=0)", "clamp(min=0)[:1].repeat(self.batch, 1)")
)
planted("padding stores rows and is visible", [EACH])(
    edit(RaggedCache.planned, "at >= torch.tensor(self.lengths, device=self.device)[:, None]", "at >= 0")
)
planted("expected counts outlive their pass", [test_positions_and_mask])(
    edit(RaggedCache.start, "self._expected: list[int] | None = None", "vars(self).setdefault('_expected')")
)
planted("rows behind the end are read", [EACH, STEPS], "tt-metal #41215")(
    edit(RaggedCache.planned, "torch.minimum(keys, seen[:, -1:])", "keys + 0 * seen[:, -1:]")
)
planted("pages are read in the order of the pool", [EACH, STEPS])(
    edit(RaggedCache.in_table, "row[: len(pages)] = pages", "row[: len(pages)] = sorted(pages)")
)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
