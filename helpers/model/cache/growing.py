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
        """Return the number n of valid entries that `k` and `v` contain for a layer.

        The first n entries are the valid ones. After a failed pass, `k` and `v` may contain further entries,
        which are ignored.
        """
        return self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Copy the earlier entries and the new entries into longer tensors. See `Cache.append`."""
        self.check_entries(layer, k, v)
        n = self.n_stored(layer)
        self.k[layer] = torch.cat([self.k[layer][:, :, :n], k], dim=2)  # (B, Hkv, S, D)
        self.v[layer] = torch.cat([self.v[layer][:, :, :n], v], dim=2)
        return self.k[layer], self.v[layer]

    @property
    def nbytes(self) -> int:
        """The memory of the valid entries, in bytes.

        Truncated entries, which the next append frees, are left out.
        """
        layers = enumerate(zip(self.k, self.v, strict=True))
        return sum(x[:, :, : self.n_stored(layer)].nbytes for layer, kv in layers for x in kv)
