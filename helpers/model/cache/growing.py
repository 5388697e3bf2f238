"""A cache that grows by copying."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.model.cache.base import Cache


class GrowingCache(Cache):
    """Every append copies all rows into new, longer tensors: easy to see through, S rows moved a step."""

    held: tuple[str, ...] = ("k", "v")

    def allocate(self) -> None:
        self.k, self.v = map(list, self.empty_rows(0))

    def rows_of(self, layer: int) -> int:
        """Rows of `k` and `v` that count: the first ones. More are what a pass that failed left behind."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new rows behind a copy of the old ones; see `Cache.append`."""
        self.check_rows(layer, k, v)
        n = self.rows_of(layer)
        self.k[layer] = torch.cat([self.k[layer][:, :, :n], k], dim=2)  # (B, Hkv, S, D)
        self.v[layer] = torch.cat([self.v[layer][:, :, :n], v], dim=2)
        return self.k[layer], self.v[layer]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows stored; those of rows that were cut off are freed by the next append."""
        layers = enumerate(zip(self.k, self.v, strict=True))
        return sum(x[:, :, : self.rows_of(layer)].nbytes for layer, kv in layers for x in kv)
