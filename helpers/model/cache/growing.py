"""A cache that grows by copying its entries into longer tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.model.cache.base import Cache


class GrowingCache(Cache):
    """A cache in which every append copies all entries of a layer into new, longer tensors.

    This is simple, but each step copies every entry stored so far.
    """

    snapshot_fields: tuple[str, ...] = ("k", "v")

    def allocate(self) -> None:
        self.k, self.v = map(list, self.empty_entries(0))

    def n_stored(self, layer: int) -> int:
        """Return how many entries of a layer in `k` and `v` are valid, counted from the first.

        After a failed pass, `k` and `v` may contain further entries, which do not count.
        """
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store new entries after a copy of the earlier entries. See `Cache.append`."""
        self.check_entries(layer, k, v)
        n = self.n_stored(layer)
        self.k[layer] = torch.cat([self.k[layer][:, :, :n], k], dim=2)  # (B, Hkv, S, D)
        self.v[layer] = torch.cat([self.v[layer][:, :, :n], v], dim=2)
        return self.k[layer], self.v[layer]

    @property
    def nbytes(self) -> int:
        """The bytes of the entries stored, without truncated entries, whose memory the next append frees."""
        layers = enumerate(zip(self.k, self.v, strict=True))
        return sum(x[:, :, : self.n_stored(layer)].nbytes for layer, kv in layers for x in kv)
