"""Sequences of unequal length in pages: each has the logits that it has alone, without a cache."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.model.cache import PagedCache, PagePool
from helpers.model.generate import prefill
from tests.tiny import failing, same, tiny, tiny_config, tokens

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
CONFIG = MODEL.config
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
TEXTS = tokens(3, 30, seed=3)
ALONE = MODEL(TEXTS)


class Poisoned(PagedCache):
    """Takes pages out of order, when it needs them; after each change all unused slots are NaN."""

    def __init__(self, config: Any, batch: int, size: int = 3, **rest: Any) -> None:
        pool = PagePool(config, batch * math.ceil(30 / size), size, **rest)
        self.free = random.Random(1).sample(range(pool.k.shape[1]), pool.k.shape[1])
        super().__init__(config, batch, pool=pool, tables=[[] for _ in range(batch)])
        self.poison()

    def commit(self, *given: Any, **rest: Any) -> None:
        super().commit(*given, **rest)
        self.poison()

    def poison(self) -> None:
        used = torch.zeros(self.k.shape[1], self.page_size, dtype=torch.bool)
        for length, table in zip(self.lengths, self.tables, strict=True):
            self.free += table[math.ceil(length / self.page_size) :]
            del table[math.ceil(length / self.page_size) :]
            for i in range(length):
                used[table[i // self.page_size], i % self.page_size] = True
        for x in (self.k, self.v):
            x.transpose(1, 2).transpose(0, 1)[:, :, ~used] = math.nan  # (Hkv, L, n_pages, page_size, D)

    def ragged_pass(self, n_new: Any) -> Any:
        for table, length, n in zip(self.tables, self.lengths, n_new, strict=True):
            while len(table) * self.page_size < length + n:
                table.append(self.free.pop())
        return super().ragged_pass(n_new)


def run(cache: Any, counts: list[int], T: int, output: Tensor, fill: int = 0) -> None:
    """Run the next tokens of TEXTS, `counts` of each, in T columns; write their logits to `output`."""
    new, starts = torch.full((len(counts), T), fill), list(cache.lengths)
    for b, (start, n) in enumerate(zip(starts, counts, strict=True)):
        new[b, T - n :] = TEXTS[b, start : start + n]
    with cache.ragged_pass(counts):
        logits = MODEL(new, cache)
    for b, (start, n) in enumerate(zip(starts, counts, strict=True)):
        output[b, start : start + n] = logits[b, T - n :]
    assert cache.lengths == [start + n for start, n in zip(starts, counts, strict=True)]
    assert cache.length == cache.n_entries == max(cache.lengths)


passes = st.lists(
    st.tuples(st.lists(st.integers(0, 7), min_size=3, max_size=3), st.integers(0, 2), st.integers(0, 18)),
    min_size=1,
    max_size=7,
)


@given(passes=passes, cut=st.lists(st.integers(0, 9), min_size=3, max_size=3), size=st.integers(1, 11))
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_batched_logits_equal_single_sequences(passes: Any, cut: list[int], size: int) -> None:
    """Any counts and padding, with a truncation to different lengths half way through.

    The cases are small already; shrinking them would take half a minute for each planted bug.
    """
    cache = Poisoned(CONFIG, 3, size, **DOUBLE)
    output = ALONE.clone()
    for n, (counts, padding, fill) in enumerate(passes):
        if n == len(passes) // 2:
            cache.truncate([min(pair) for pair in zip(cut, cache.lengths, strict=True)])
        counts = [min(c, 30 - length) for c, length in zip(counts, cache.lengths, strict=True)]
        run(cache, counts, max(max(counts) + padding, 1), output, fill)
    same(output, ALONE)


def test_positions_and_mask() -> None:
    cache = PagedCache(CONFIG, 2, lengths=[3, 1])
    cache.mask(3)  # for three new tokens of each sequence
    with cache.ragged_pass([1, 2]):
        assert cache.positions(3).tolist() == [[1, 2, 3], [0, 1, 2]]
        assert cache.mask(3).int().tolist() == [
            [[[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]],
            [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]],
        ]
        cache.advance(3)
    assert (cache.lengths, len(cache.entry_positions())) == ([4, 3], 4)
    assert cache.positions(1).tolist() == [[4], [3]]  # `ragged_pass` was for one pass only
    cache.truncate(2)
    assert (cache.lengths, cache.length, cache.change_count) == ([2, 2], 2, 2)


def test_two_sequences_share_a_page() -> None:
    """A shared prefix: the table of the second sequence begins with a page of the first."""
    pool = PagePool(CONFIG, 4, 4, **DOUBLE)
    ids = torch.cat([TEXTS[:1, :4].expand(2, 4), TEXTS[:2, 4:9]], 1)
    prefill(MODEL, ids[:1, :4], PagedCache(CONFIG, pool=pool, tables=[[2]]))
    cache = PagedCache(CONFIG, 2, pool=pool, tables=[[2, 0], [2, 3]], lengths=[4, 4])
    same(MODEL(ids[:, 4:8], cache), MODEL(ids[:, :8])[:, 4:])


def test_invalid_arguments_are_refused() -> None:
    cache = PagedCache(CONFIG, 2, 10, page_size=4, lengths=[8, 2])  # 12 slots, of which 10 may be used
    message = "3 new tokens after 8 make 11 in sequence 0; expected at most 10"
    with cache.ragged_pass([3, 3]), pytest.raises(ValueError, match=message):
        cache.positions(3)
    message = "got 2 columns; expected 3 or more"
    with cache.ragged_pass([3, 3]), pytest.raises(ValueError, match=message):
        cache.positions(2)
    wrong: Any
    for wrong in ([1], [1, -1], [True, 1], [1.5, 1]):
        message = r"is \[.*\]; expected 2 whole numbers, 0 or more"
        with pytest.raises(ValueError, match=message), cache.ragged_pass(wrong):
            pass
        with pytest.raises(ValueError, match=message):
            PagedCache(CONFIG, 2, lengths=wrong)
    with pytest.raises(ValueError, match=r"tables are \[\[0\]\]; expected 2, one for each sequence"):
        PagedCache(CONFIG, 2, pool=cache.pool, tables=[[0]])
    for length in (3, [8, 3], [1.5, 1], -1, [1]):
        with pytest.raises(ValueError, match=r"length is .*; expected 0 to \[8, 2\], the tokens stored"):
            cache.truncate(length)  # type: ignore[arg-type]
    assert cache.lengths == [8, 2]


def test_failed_pass_does_not_affect_the_next() -> None:
    cache = PagedCache(CONFIG, 2, **DOUBLE)
    with pytest.raises(ValueError, match="token id 99"), cache.ragged_pass([1, 2]):
        MODEL(torch.tensor([[0, 99], [6, 7]]), cache)
    with failing(MODEL, "layers.2"), pytest.raises(KeyboardInterrupt), cache.ragged_pass([1, 2]):
        MODEL(TEXTS[:2, :2], cache)
    same(MODEL(TEXTS[:2, :2], cache), ALONE[:2, :2])
    assert cache.lengths == [2, 2]


def test_page_table_may_change_after_mask() -> None:
    cache = PagedCache(CONFIG, pool=PagePool(CONFIG, 4, 4, **DOUBLE), tables=[[0]])
    cache.mask(3)
    cache.tables[0][0] = 2
    same(MODEL(TEXTS[:1, :3], cache), ALONE[:1, :3])
    assert cache.pool.k.flatten(2).abs().sum((0, 2)).nonzero().tolist() == [[2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tables": [[0], [4]]}, r"tables are \[\[0\], \[4\]\]; expected pages 0 to 3 of the pool"),
        ({"tables": [[0], [1, -1]]}, "expected pages 0 to 3 of the pool"),
        ({"lengths": [1, 4]}, "make 5 in sequence 1; expected at most 4"),
        ({"pool": PagePool(tiny_config(n_layers=2), 4, 4)}, "n_layers 2, the pass has n_layers 3"),
        ({"pool": PagePool(tiny_config(head_dim=4), 4, 4)}, "k_dim 4, the pass has k_dim 8"),
        ({"max_len": 41}, "max_len is 41; expected at most 40"),
    ],
)
def test_page_tables_are_checked(given: Any, message: str) -> None:
    made = {"pool": PagePool(CONFIG, 4, 4), "tables": [[0], [1]]} | given
    with pytest.raises(ValueError, match=message):
        prefill(tiny(), [[1], [2]], PagedCache(CONFIG, 2, **made))
