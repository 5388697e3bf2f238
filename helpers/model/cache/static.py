"""A cache that is preallocated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from helpers.model.cache.base import Cache, Snapshot


class StaticCache(Cache):
    """All rows are preallocated; an append writes the new ones and returns views. Not for training."""

    _cuts: tuple[tuple[int, int, int], ...] = ()  # changes after a cut, a sequence, the length it left there

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

    def cut(self, lengths: Sequence[int], /, **rest: Any) -> None:
        """As in `Cache`; what is cut off may be written over, so note it for `check_own`."""
        cuts = [one for one in self._cuts if one[2] < lengths[one[1]]]
        cuts += [(self.changes + 1, b, length) for b, length in enumerate(lengths)]
        super().cut(lengths, _cuts=tuple(cuts), **rest)

    def check_own(self, snapshot: Snapshot) -> None:
        super().check_own(snapshot)
        if any(n > snapshot.changes and length < snapshot.lengths[b] for n, b, length in self._cuts):
            raise ValueError(
                f"a snapshot of {snapshot.length} tokens came in, of which some were cut off since; expected "
                "one taken after that: run the text again"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of both buffers, used or not: they are taken from the start."""
        return self.k.nbytes + self.v.nbytes
