"""A cache that grows by copying."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.model.cache.base import KVCache


class GrowingCache(KVCache):
    """Every append copies all rows into new, longer tensors: easy to see through, S rows moved a step."""

    def allocate(self) -> None:
        """Start without rows."""
        self.k, self.v = (
            [torch.empty(shape, dtype=self.dtype, device=self.device)] * self.n_layers
            for shape in self.shapes(0)
        )

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new rows behind a copy of the old ones; see `KVCache.append`."""
        self.check_rows(layer, k, v)
        # Only the first `length` rows count: more are what a pass that failed left behind.
        self.k[layer] = torch.cat([self.k[layer][:, :, : self.length], k], dim=2)  # (B, Hkv, S, D)
        self.v[layer] = torch.cat([self.v[layer][:, :, : self.length], v], dim=2)
        return self.k[layer], self.v[layer]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows stored; those of rows that were cut off are freed by the next append."""
        return sum(rows[:, :, : self.length].nbytes for rows in [*self.k, *self.v])
