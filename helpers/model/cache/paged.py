"""A cache for sequences of unequal length, whose rows lie in pages of one pool."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.model.cache.static import StaticCache
from helpers.model.config import ModelConfig
from helpers.validate import check_whole, is_whole

# Of this machine; 64 GiB where the system does not say.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**36


class PagePool:
    """Pages of `page_size` rows of every layer, which caches share.

    Engines such as vLLM call them KV cache blocks, and the table of a sequence its block table.

    Attributes:
        k, v: keys and values, (L, n_pages, Hkv, page_size, D) and (…, Dv).

    Raises:
        ValueError: they take more than half of the memory.

    Source: paged attention, Kwon et al. 2023, arXiv:2309.06180.
    """

    def __init__(
        self,
        sizes: ModelConfig,
        n_pages: int,
        page_size: int = 16,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.sizes, self.page_size = sizes, check_whole("page_size", page_size)
        shape = (sizes.n_layers, check_whole("n_pages", n_pages), sizes.n_kv_heads, self.page_size)
        n_bytes = math.prod(shape) * (sizes.k_dim + sizes.v_dim) * dtype.itemsize
        if n_bytes > MEMORY // 2:
            wrong = f"{n_pages} pages of {page_size} rows take {n_bytes / 2**30:,.1f} GiB"
            raise ValueError(f"{wrong}; expected {MEMORY / 2**31:,.0f} at most: ask for fewer pages")
        self.k, self.v = (
            torch.zeros(*shape, width, dtype=dtype, device=device) for width in (sizes.k_dim, sizes.v_dim)
        )


class PassLayout(NamedTuple):
    """Where the rows of one pass of T columns lie; worked out once for all layers."""

    mask: Tensor  # which rows each column may look at, (B, 1, T, S), S the longest sequence after the pass
    new: Tensor | None  # rows of (B * Hkv * T, D) that hold new tokens, (N,); None where all do
    to: Tensor  # rows of the flattened storage that they go to, (N,)
    shown: Tensor  # rows of the flattened storage to hand out in order, (B * Hkv * S,)


class PagedCache(StaticCache):
    """Row i of a sequence lies in page tables[b][i // page_size], as row i % page_size of it.

    Each sequence has its own length, positions and mask. New tokens stand at the right: in tokens (B, T) the
    last column is the newest of every sequence. Where a sequence has fewer than T of them, the pass runs in a
    block `with cache.expect(…)`. The columns left of them are padding: they store no entry, no token sees
    them, and their outputs mean nothing.

    Args:
        pool: None lays out one of its own, in which every sequence has pages for max_len rows.
        tables: numbers of pages, a list for each sequence. Whoever owns the pool makes and lengthens them.
        lengths: tokens whose rows are in the pages already, of each sequence; none for 0.
        page_size, dtype, device: of a pool of its own.

    Other arguments as in `Cache`.

    Attributes:
        lengths: tokens seen, of each sequence; `length` is the longest.
    """

    held = ("lengths",)
    lengths: Sequence[int] = ()
    _expected: list[int] | None = None  # new tokens of each sequence in the pass that runs now

    def __init__(
        self,
        sizes: ModelConfig,
        batch: int = 1,
        max_len: int | None = None,
        *,
        pool: PagePool | None = None,
        tables: Sequence[list[int]] = (),
        lengths: Sequence[int] = (),
        page_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if pool is None:
            each = math.ceil((max_len or sizes.max_seq_len) / check_whole("page_size", page_size))
            pool = PagePool(sizes, batch * each, page_size, dtype=dtype, device=device)
            tables = [[*range(b * each, (b + 1) * each)] for b in range(batch)]
        self.pool, self.page_size, self.tables = pool, pool.page_size, [*tables]
        super().__init__(pool.sizes, batch, max_len, dtype=pool.k.dtype, device=pool.k.device)
        if len(self.tables) != self.batch:
            raise ValueError(f"tables are {self.tables}; expected {self.batch}, one for each sequence")
        self.lengths = self.check_counts("lengths", [*lengths] or [0] * self.batch)
        self.length = max(self.lengths)

    def allocate(self) -> None:
        self.k, self.v = self.pool.k, self.pool.v

    @contextmanager
    def expect(self, new: Sequence[int]) -> Iterator[None]:
        """Say how many columns are new tokens of each sequence, for the pass in a `with` block; else all are.

        It ends with the block, whatever becomes of the pass: the next one knows nothing of it.
        """
        self._expected = self.check_counts("new", new)
        try:
            yield
        finally:
            self._expected = None

    def check_counts(self, name: str, numbers: Sequence[int]) -> list[int]:
        """Return a number of tokens for each sequence. ValueError unless they are whole, 0 or more."""
        each = [*numbers]
        if len(each) != self.batch or not all(is_whole(n) and n >= 0 for n in each):
            raise ValueError(f"{name} is {each}; expected {self.batch} whole numbers, 0 or more")
        return [int(n) for n in each]

    def n_new(self, T: int) -> list[int]:
        """Return how many of T columns are new tokens, of each sequence. ValueError if more were expected."""
        new = [T] * self.batch if self._expected is None else self._expected
        if max(new) > T:
            raise ValueError(f"{T} columns came in; expected {max(new)} or more, as expect({new}) has said")
        return new

    def plan(self, T: int) -> PassLayout:
        """Return where everything of a pass of T columns stands. ValueError if they do not fit."""
        tables = [[*pages] for pages in self.tables]  # as they are now: who owns the pool may change them
        return self.memo((T, self._expected, tables, self.lengths), lambda: self.planned(T))

    def planned(self, T: int) -> PassLayout:
        """Work out a pass. ValueError if it does not fit."""
        at, slots = self.columns(T), self.slots()
        S = max(length + n for length, n in zip(self.lengths, self.n_new(T), strict=True))
        keys = torch.arange(S, device=self.device)
        padded = min(self.n_new(T)) < T
        if not padded and min(self.lengths) == S - T:  # all alike, as a batch of one is: nothing is looked up
            shown = slots[..., :S]
            to = shown[..., S - T :]
            return PassLayout(keys <= at[:, None, :, None], None, to.flatten(), shown.flatten())
        seen = at.clamp(min=0)  # padding sees the first rows of its sequence: softmax stays finite
        # Behind the end of a shorter sequence stands its newest row again: no row but its own is read.
        to, shown = (
            slots.gather(2, at[:, None].expand(-1, slots.shape[1], -1)).flatten()
            for at in (seen, torch.minimum(keys, seen[:, -1:]))
        )
        rows = None
        if padded:  # and not stored
            stored = at >= torch.tensor(self.lengths, device=self.device)[:, None]
            rows = stored[:, None].expand(-1, slots.shape[1], -1).flatten().nonzero()[:, 0]
            to = to[rows]
        return PassLayout(keys <= seen[:, None, :, None], rows, to, shown)

    def columns(self, T: int) -> Tensor:
        """Return where T columns stand, (B, T): the newest token last, padding lies before `lengths`."""
        self.check_room(T)
        ends = [length + n for length, n in zip(self.lengths, self.n_new(T), strict=True)]
        return torch.tensor(ends, device=self.device)[:, None] + torch.arange(-T, 0, device=self.device)

    def slots(self) -> Tensor:
        """Return which row of the flattened storage holds each position, (B, Hkv, rows of its pages)."""
        heads = torch.arange(self.sizes.n_kv_heads)[:, None, None]
        page = torch.from_numpy(self.in_table())[:, None, :, None] * len(heads) + heads
        return (page * self.page_size + torch.arange(self.page_size)).flatten(2).to(self.device)

    def in_table(self) -> np.ndarray:
        """Return the pages of each sequence, (B, most pages of any); behind its last one stands 0.

        ValueError if a page is not in the pool: compiled loops would write where it would lie.
        """
        n_pages = self.k.shape[1]
        if any(page not in range(n_pages) for pages in self.tables for page in pages):
            raise ValueError(f"tables are {self.tables}; expected pages 0 to {n_pages - 1} of the pool")
        table = np.zeros((self.batch, max(map(len, self.tables)) or 1), int)
        for row, pages in zip(table, self.tables, strict=True):
            row[: len(pages)] = pages
        return table

    def positions(self, T: int) -> Tensor:
        """Return where T columns stand in each sequence, from 0, (B, T). ValueError if they do not fit."""
        return self.columns(T).clamp(min=0)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (B, 1, T, S): True where a column may look at a row that `append` hands out."""
        return self.plan(T).mask

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new rows of each sequence behind its own; see `Cache.append`. S is the longest."""
        self.check_rows(layer, k, v)
        found = self.plan(k.shape[2])
        for stored, rows in ((self.k[layer], k), (self.v[layer], v)):
            new = rows.flatten(0, 2)
            new = new if found.new is None else new[found.new]  # (N, D)
            stored.flatten(0, 2).index_copy_(0, found.to, new)
        keys, values = (rows[layer].flatten(0, 2).index_select(0, found.shown) for rows in (self.k, self.v))
        k_shape, v_shape = self.shapes(found.mask.shape[-1])
        return keys.view(k_shape), values.view(v_shape)  # copies, in order

    def advance(self, T: int) -> None:
        self.check_room(T)
        lengths = [length + n for length, n in zip(self.lengths, self.n_new(T), strict=True)]
        self.update(max(lengths), lengths=lengths)

    def truncate(self, length: int | Sequence[int]) -> None:
        """Keep the first tokens: as many of each sequence, or a number for each. ValueError if fewer."""
        each = [*length] if isinstance(length, Sequence) else [length] * self.batch
        pairs = zip(each, self.lengths, strict=False)
        if len(each) != self.batch or not all(is_whole(n) and 0 <= n <= most for n, most in pairs):
            raise ValueError(f"length is {length!r}; expected 0 to {self.lengths}, the tokens stored")
        each = [int(n) for n in each]
        self.cut(each, lengths=each)

    def check_room(self, T: int) -> None:
        for b, (length, n) in enumerate(zip(self.lengths, self.n_new(T), strict=True)):
            room = min(self.max_len, len(self.tables[b]) * self.page_size)
            if length + n > room:
                raise ValueError(
                    f"{n} new tokens after {length} make {length + n} in sequence {b}; expected at most "
                    f"{room}, the rows that it has. Nothing was written."
                )
