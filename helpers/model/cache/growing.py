"""A cache that grows by copying."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.model.cache.base import Cache


class GrowingCache(Cache):
    """Every append copies all entries into new, longer tensors: simple, but it moves S entries a step."""

    snapshot_fields: tuple[str, ...] = ("k", "v")

    def allocate(self) -> None:
        self.k, self.v = map(list, self.empty_entries(0))

    def n_stored(self, layer: int) -> int:
        """Return the number of valid entries in `k` and `v`, from the first; a failed pass may leave more."""
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new entries after a copy of the old ones; see `Cache.append`."""
        self.check_entries(layer, k, v)
        n = self.n_stored(layer)
        self.k[layer] = torch.cat([self.k[layer][:, :, :n], k], dim=2)  # (B, Hkv, S, D)
        self.v[layer] = torch.cat([self.v[layer][:, :, :n], v], dim=2)
        return self.k[layer], self.v[layer]

    @property
    def nbytes(self) -> int:
        """Bytes of the entries stored; the next append frees those of entries that were truncated."""
        layers = enumerate(zip(self.k, self.v, strict=True))
        return sum(x[:, :, : self.n_stored(layer)].nbytes for layer, kv in layers for x in kv)
