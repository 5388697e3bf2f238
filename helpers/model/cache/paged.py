"""A cache whose rows lie in pages of one pool: a sequence takes a page when it needs one."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.arguments import check_whole
from helpers.model.cache.base import Sizes
from helpers.model.cache.ragged import PassLayout, RaggedCache

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
        sizes: Sizes,
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


class PagedCache(RaggedCache):
    """Row i of a sequence lies in page tables[b][i // page_size], as row i % page_size of it.

    Args:
        pool: None lays out one of its own, in which every sequence has pages for max_len rows.
        tables: numbers of pages, a list for each sequence. Whoever owns the pool makes and lengthens them.
        lengths: tokens whose rows are in the pages already, of each sequence; None for 0.
        rest: page_size, dtype and device, of a pool of its own.

    Other arguments as in `Cache`.
    """

    def __init__(
        self,
        sizes: Sizes,
        batch: int = 1,
        max_len: int | None = None,
        *,
        pool: PagePool | None = None,
        tables: Sequence[list[int]] = (),
        lengths: Sequence[int] | None = None,
        **rest: Any,
    ) -> None:
        if pool is None:
            page_size = check_whole("page_size", rest.setdefault("page_size", 16))
            each = math.ceil((max_len or sizes.max_seq_len) / page_size)
            pool = PagePool(sizes, batch * each, **rest)
            tables = [[*range(b * each, (b + 1) * each)] for b in range(batch)]
        elif rest:
            raise ValueError(
                f"{', '.join(rest)} came in beside a pool; expected the pool alone, which has its own"
            )
        if len(tables) != batch:
            raise ValueError(f"{len(tables)} tables came with a batch of {batch}; expected one a sequence")
        self.pool, self.page_size, self.tables = pool, pool.page_size, [*tables]
        super().__init__(pool.sizes, batch, max_len, dtype=pool.k.dtype, device=pool.k.device)
        self.check_fits(sizes, batch, self.dtype, self.device)
        self.set_lengths([0] * batch if lengths is None else lengths)
        self.in_table()
        self.check_room(0)

    def allocate(self) -> None:
        """Use the pool's rows."""
        self.k, self.v = self.pool.k, self.pool.v

    def read(self, layer: int, found: PassLayout) -> tuple[Tensor, Tensor]:
        """Return keys and values of one layer in order, (B, Hkv, S, D): copies."""
        k, v = (rows[layer].flatten(0, 2).index_select(0, found.shown) for rows in (self.k, self.v))
        k_shape, v_shape = self.shapes(found.mask.shape[-1])
        return k.view(k_shape), v.view(v_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in its tables, each once."""
        used = {page for table in self.tables for page in table}
        return len(used) * (self.k.nbytes + self.v.nbytes) // self.k.shape[1]
