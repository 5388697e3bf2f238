"""A cache that is preallocated."""

from __future__ import annotations

from torch import Tensor

from helpers.model.cache.base import Cache


class StaticCache(Cache):
    """All rows are preallocated; an append writes the new ones and returns views. Not for training."""

    def allocate(self) -> None:
        self.k, self.v = self.empty_rows(self.max_len)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write new rows into their places; see `Cache.append`. ValueError where gradients are wanted."""
        self.check_rows(layer, k, v)
        if k.requires_grad or v.requires_grad:
            message = "keys that want a gradient came in; expected none: rows written in place carry none"
            raise ValueError(f"{message}: train without a cache, or run under torch.no_grad()")
        S = self.length + k.shape[2]
        self.k[layer, :, :, self.length : S] = k
        self.v[layer, :, :, self.length : S] = v
        return self.k[layer, :, :, :S], self.v[layer, :, :, :S]  # (B, Hkv, S, D): not the whole buffer

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers, used or not: they are taken from the start."""
        return self.k.nbytes + self.v.nbytes
