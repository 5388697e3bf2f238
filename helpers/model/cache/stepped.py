"""A cache that takes room step by step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from helpers.model.cache.static import StaticCache


class SteppedCache(StaticCache):
    """Takes room for `step` rows more whenever it runs out: all rows are copied then, and only then.

    Attributes:
        step: rows.

    Source: the cache of mlx-lm.
    """

    step = 256

    def allocate(self) -> None:
        """Start without rows."""
        self.k, self.v = self.laid_out(0)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Make room if there is none, and write as `StaticCache` does; see `KVCache.append`."""
        S = self.length + k.shape[2]
        if S > self.k.shape[3]:
            self.check_rows(layer, k, v)
            self.grow(math.ceil(S / self.step) * self.step)
        return super().append(layer, k, v)

    def grow(self, n: int) -> None:
        """Lay out n rows, or max_len if that is fewer, and copy those that count."""
        with torch.inference_mode(False):  # a tensor of inference mode refuses to be written outside of it
            room = self.laid_out(min(n, self.max_len))
        for new, old in zip(room, (self.k, self.v), strict=True):
            new[..., : self.length, :] = old[..., : self.length, :]
        self.k, self.v = room
