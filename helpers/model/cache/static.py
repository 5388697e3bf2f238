"""A cache that is allocated in advance for its maximum length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from helpers.model.cache.base import Cache, Snapshot


class StaticCache(Cache):
    """A cache that allocates memory for max_len entries at the start. Each append writes into this memory.

    It cannot be used for training, because gradients do not pass through it.
    """

    # For each truncation: `change_count` after it, the sequence (from 0), and the remaining length.
    _truncations: tuple[tuple[int, int, int], ...] = ()

    def allocate(self) -> None:
        self.k, self.v = self.empty_entries(self.max_len)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write new entries into the allocated memory.

        Return views of all entries so far. See `Cache.append`.

        Raises:
            ValueError: as in `Cache.append`, or the new entries require gradients.
        """
        self.check_entries(layer, k, v)
        if k.requires_grad or v.requires_grad:
            message = "the keys or values require a gradient; a cache that is written in place has none"
            raise ValueError(f"{message}: train without a cache, or run under torch.no_grad()")
        S = self.length + k.shape[2]
        self.k[layer, :, :, self.length : S] = k
        self.v[layer, :, :, self.length : S] = v
        return self.k[layer, :, :, :S], self.v[layer, :, :, :S]  # (B, Hkv, S, D): not the whole buffer

    def set_lengths(self, lengths: Sequence[int], /, **fields: Any) -> None:
        """Set the number of tokens seen in each sequence. Keyword arguments are as in `commit`.

        Truncated entries may be overwritten, so truncations are recorded for `check_snapshot`.
        """
        truncations = [entry for entry in self._truncations if entry[2] < lengths[entry[1]]]
        truncations += [(self.change_count + 1, b, length) for b, length in enumerate(lengths)]
        super().set_lengths(lengths, _truncations=tuple(truncations), **fields)

    def check_snapshot(self, snapshot: Snapshot) -> None:
        super().check_snapshot(snapshot)
        if any(
            n > snapshot.change_count and length < snapshot.lengths[b] for n, b, length in self._truncations
        ):
            raise ValueError(
                f"the snapshot is of {snapshot.length} tokens, some of which were truncated since; expected "
                "one taken after that: run the text again"
            )

    @property
    def nbytes(self) -> int:
        """The allocated memory in bytes, including slots that are not used yet."""
        return self.k.nbytes + self.v.nbytes
