"""A cache for sequences of different lengths. Its entries are stored in the pages of a pool."""

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

# Bytes of memory in this machine; 64 GiB if the system does not report them.
MACHINE_NBYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**36


class PagePool:
    """A pool of pages, which several caches can share.

    A page has room for the entries of `page_size` tokens in every layer. Engines such as vLLM call a page a
    KV cache block. They call the page table of a sequence a block table.

    Args:
        config: config of the model.
        n_pages: number of pages.
        page_size: number of tokens per page.
        dtype, device: dtype and device of the model.

    Attributes:
        k: keys, of shape (L, n_pages, Hkv, page_size, D).
        v: values, of shape (L, n_pages, Hkv, page_size, Dv).

    Raises:
        ValueError: the pages need more than half of the machine's memory.

    Source: paged attention, Kwon et al. 2023, arXiv:2309.06180.
    """

    def __init__(
        self,
        config: ModelConfig,
        n_pages: int,
        page_size: int = 16,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config, self.page_size = config, check_whole("page_size", page_size)
        shape = (config.n_layers, check_whole("n_pages", n_pages), config.n_kv_heads, self.page_size)
        n_bytes = math.prod(shape) * (config.k_dim + config.v_dim) * dtype.itemsize
        if n_bytes > MACHINE_NBYTES // 2:
            message = f"{n_pages} pages of {page_size} entries take {n_bytes / 2**30:,.1f} GiB"
            raise ValueError(
                f"{message}; expected {MACHINE_NBYTES / 2**31:,.0f} at most: ask for fewer pages"
            )
        self.k, self.v = (
            torch.zeros(*shape, width, dtype=dtype, device=device) for width in (config.k_dim, config.v_dim)
        )


class PassLayout(NamedTuple):
    """The slots that a pass of T columns reads and writes. They are computed once, for all layers."""

    mask: Tensor  # which entries each column may attend to, (B, 1, T, S); S: longest sequence after the pass
    source_rows: Tensor | None  # rows of (B * Hkv * T, D) that are new tokens, (N,); None where all are
    write_slots: Tensor  # slots of the flattened storage that they are written to, (N,)
    read_slots: Tensor  # slots of the flattened storage to return, in order, (B * Hkv * S,)


class PagedCache(StaticCache):
    """A cache for sequences of different lengths, which stores its entries in the pages of a pool.

    Entry i of sequence b, both counted from 0, is stored in slot i % page_size of the page whose index is
    tables[b][i // page_size]. Each sequence has its own length, positions and mask.

    New tokens are right-aligned: in tokens of shape (B, T), the last column has the newest token of every
    sequence. If a sequence has fewer than T new tokens, its first columns are padding, and the pass must run
    inside a block that begins `with cache.ragged_pass(…)`. No entry is stored for padding, no token sees it,
    and its outputs are meaningless.

    Args:
        pool: pool that stores the entries. None makes a new pool that only this cache uses, with pages for
            max_len tokens per sequence.
        tables: page tables, one list of page indices per sequence. The owner of the pool fills and extends
            these lists.
        lengths: for each sequence, how many of its tokens already have entries in the pages. An empty list
            means 0 for every sequence.
        page_size, dtype, device: settings of the new pool, if `pool` is None.

    The other arguments are those of `Cache`.

    Attributes:
        lengths: number of tokens seen in each sequence; `length` is the maximum.
    """

    snapshot_fields = ("lengths",)
    lengths: Sequence[int] = ()
    _expected: list[int] | None = None  # number of new tokens of each sequence in the current pass

    def __init__(
        self,
        config: ModelConfig,
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
            n_pages = math.ceil((max_len or config.max_seq_len) / check_whole("page_size", page_size))
            pool = PagePool(config, batch * n_pages, page_size, dtype=dtype, device=device)
            tables = [[*range(b * n_pages, (b + 1) * n_pages)] for b in range(batch)]
        self.pool, self.page_size, self.tables = pool, pool.page_size, [*tables]
        super().__init__(pool.config, batch, max_len, dtype=pool.k.dtype, device=pool.k.device)
        if len(self.tables) != self.batch:
            raise ValueError(f"tables are {self.tables}; expected {self.batch}, one for each sequence")
        self.lengths = self.check_counts("lengths", [*lengths] or [0] * self.batch)
        self.length = max(self.lengths)

    def allocate(self) -> None:
        self.k, self.v = self.pool.k, self.pool.v

    @contextmanager
    def ragged_pass(self, n_new: Sequence[int]) -> Iterator[None]:
        """Set how many new tokens each sequence has in the pass that runs in this `with` block.

        Outside such a block, every sequence has T new tokens. The setting ends with the block, even if the
        pass fails.
        """
        self._expected = self.check_counts("n_new", n_new)
        try:
            yield
        finally:
            self._expected = None

    def check_counts(self, name: str, numbers: Sequence[int]) -> list[int]:
        """Return token counts, one per sequence, as a list of Python ints.

        Raises:
            ValueError: there is not exactly one count per sequence, or a count is not a whole number, 0 or
                more.
        """
        counts = [*numbers]
        if len(counts) != self.batch or not all(is_whole(n) and n >= 0 for n in counts):
            raise ValueError(f"{name} is {counts}; expected {self.batch} whole numbers, 0 or more")
        return [int(n) for n in counts]

    def n_new_tokens(self, T: int) -> list[int]:
        """Return, for each sequence, how many of the T columns are new tokens.

        Raises:
            ValueError: `ragged_pass` has set more than T new tokens for a sequence.
        """
        n_new = [T] * self.batch if self._expected is None else self._expected
        if max(n_new) > T:
            raise ValueError(f"got {T} columns; expected {max(n_new)} or more, because of expect({n_new})")
        return n_new

    def layout(self, T: int) -> PassLayout:
        """Return the layout of a pass of T columns, computed only once per pass.

        Raises:
            ValueError: the new tokens do not fit.
        """
        tables = [[*pages] for pages in self.tables]  # a copy: the owner of the pool may change them
        return self.memoize((T, self._expected, tables, self.lengths), lambda: self.make_layout(T))

    def make_layout(self, T: int) -> PassLayout:
        """Compute the layout of a pass of T columns. Raise ValueError if the new tokens do not fit."""
        positions, slots = self.column_positions(T), self.slot_indices()
        S = max(length + n for length, n in zip(self.lengths, self.n_new_tokens(T), strict=True))
        keys = torch.arange(S, device=self.device)
        padded = min(self.n_new_tokens(T)) < T
        if not padded and min(self.lengths) == S - T:  # all lengths are equal: no gather is needed
            read = slots[..., :S]
            write = read[..., S - T :]
            return PassLayout(keys <= positions[:, None, :, None], None, write.flatten(), read.flatten())
        # Padding sees at least the first entry of its sequence, so that its softmax stays finite.
        queries = positions.clamp(min=0)
        # Past the end of a shorter sequence, its newest entry is repeated, so that only its entries are read.
        write, read = (
            slots.gather(2, x[:, None].expand(-1, slots.shape[1], -1)).flatten()
            for x in (queries, torch.minimum(keys, queries[:, -1:]))
        )
        rows = None
        if padded:  # padding is not stored
            stored = positions >= torch.tensor(self.lengths, device=self.device)[:, None]
            rows = stored[:, None].expand(-1, slots.shape[1], -1).flatten().nonzero()[:, 0]
            write = write[rows]
        return PassLayout(keys <= queries[:, None, :, None], rows, write, read)

    def column_positions(self, T: int) -> Tensor:
        """Return the position of each column's token, of shape (B, T), the newest token last.

        The first new token of sequence b has position lengths[b]. The positions of padding are lower and may
        be negative.
        """
        self.check_capacity(T)
        ends = [length + n for length, n in zip(self.lengths, self.n_new_tokens(T), strict=True)]
        return torch.tensor(ends, device=self.device)[:, None] + torch.arange(-T, 0, device=self.device)

    def slot_indices(self) -> Tensor:
        """Return, for each position, the index of its slot in a layer's flattened storage.

        The shape is (B, Hkv, number of slots in the longest page table).
        """
        heads = torch.arange(self.config.n_kv_heads)[:, None, None]
        page = torch.from_numpy(self.page_table())[:, None, :, None] * len(heads) + heads
        return (page * self.page_size + torch.arange(self.page_size)).flatten(2).to(self.device)

    def page_table(self) -> np.ndarray:
        """Return the page tables as one array, padded with 0.

        The array has shape (B, number of pages in the longest page table).

        Raises:
            ValueError: a page index is not in the pool. With such an index, compiled loops would write
                outside the pool.
        """
        n_pages = self.k.shape[1]
        if any(page not in range(n_pages) for pages in self.tables for page in pages):
            raise ValueError(f"tables are {self.tables}; expected pages 0 to {n_pages - 1} of the pool")
        table = np.zeros((self.batch, max(map(len, self.tables)) or 1), int)
        for row, pages in zip(table, self.tables, strict=True):
            row[: len(pages)] = pages
        return table

    def positions(self, T: int) -> Tensor:
        """Return the position of each column's token, from 0, of shape (B, T).

        Those of padding are arbitrary.

        Raises:
            ValueError: the new tokens do not fit.
        """
        return self.column_positions(T).clamp(min=0)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return the attention mask: which of the entries returned by `append` each column may attend to.

        The mask has shape (B, 1, T, S), for T columns and S entries.
        """
        return self.layout(T).mask

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write new entries after the earlier entries of their sequence. See `Cache.append`.

        S is the length of the longest sequence, including its new tokens. For a shorter sequence, the newest
        entry is repeated to fill S entries, and the mask hides the repetitions.
        """
        self.check_entries(layer, k, v)
        layout = self.layout(k.shape[2])
        for stored, entries in ((self.k[layer], k), (self.v[layer], v)):
            new = entries.flatten(0, 2)
            new = new if layout.source_rows is None else new[layout.source_rows]  # (N, D)
            stored.flatten(0, 2).index_copy_(0, layout.write_slots, new)
        keys, values = (x[layer].flatten(0, 2).index_select(0, layout.read_slots) for x in (self.k, self.v))
        k_shape, v_shape = self.entry_shapes(layout.mask.shape[-1])
        return keys.view(k_shape), values.view(v_shape)  # copies, in order

    def advance(self, T: int) -> None:
        self.check_capacity(T)
        lengths = [length + n for length, n in zip(self.lengths, self.n_new_tokens(T), strict=True)]
        self.commit(max(lengths), lengths=lengths)

    def truncate(self, length: int | Sequence[int]) -> None:
        """Keep only the first `length` tokens of each sequence.

        Args:
            length: one length for all sequences, or a list with one length per sequence.

        Raises:
            ValueError: a sequence has fewer tokens.
        """
        lengths = [*length] if isinstance(length, Sequence) else [length] * self.batch
        pairs = zip(lengths, self.lengths, strict=False)
        if len(lengths) != self.batch or not all(is_whole(n) and 0 <= n <= stored for n, stored in pairs):
            raise ValueError(f"length is {length!r}; expected 0 to {self.lengths}, the tokens stored")
        lengths = [int(n) for n in lengths]
        self.set_lengths(lengths, lengths=lengths)

    def check_capacity(self, T: int) -> None:
        for b, (length, n) in enumerate(zip(self.lengths, self.n_new_tokens(T), strict=True)):
            capacity = min(self.max_len, len(self.tables[b]) * self.page_size)
            if length + n > capacity:
                raise ValueError(
                    f"{n} new tokens after {length} make {length + n} in sequence {b}; expected at most "
                    f"{capacity}, its slots in pages. Nothing was written."
                )
