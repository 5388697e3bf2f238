"""A cache for several sequences, each with its own length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from helpers.arguments import is_whole
from helpers.model.cache.static import StaticCache


@dataclass(frozen=True)
class Pass:
    """Where the rows of one pass of T columns lie; worked out once for all layers.

    Attributes:
        mask: which rows each column may look at, (B, 1, T, S), S the longest sequence after the pass.
        new: rows of (B * Hkv * T, D) that hold new tokens, (N,).
        to: rows of the flattened storage that they go to, (N,).
        shown: rows of the flattened storage to hand out in order, (B * Hkv * S,).
    """

    mask: Tensor
    new: Tensor
    to: Tensor
    shown: Tensor


class RaggedCache(StaticCache):
    """Sequences of unequal length, each with positions, mask and rows of its own; max_len rows for each.

    New tokens stand at the right: in tokens (B, T) the last column is the newest of every sequence. Where a
    sequence has fewer than T of them, `expect` says so before the pass. The columns left of them are padding:
    they store no row, nobody sees them, and what comes out of them means nothing.

    Attributes:
        lengths: tokens seen, of each sequence; `length` is the longest.
        page_size: rows that lie together.
        tables: for each sequence the pages that its rows lie in. Here it is one page of max_len rows.
    """

    def allocate(self) -> None:
        """Lay out a page of max_len rows for each sequence."""
        super().allocate()
        self.page_size, self.tables = self.max_len, [[b] for b in range(self.batch)]
        self.start([0] * self.batch)

    def start(self, lengths: Sequence[int]) -> None:
        """Begin with so many tokens seen of each sequence."""
        self.lengths, self.length = [*lengths], max(lengths)
        self._expected: list[int] | None = None
        self._pass: tuple[object, Pass | None] = (None, None)

    def expect(self, new: Sequence[int]) -> None:
        """Say how many of the columns of the next pass are new tokens of each sequence; else all are.

        Raises:
            ValueError: there is not one whole number, 0 or more, for each sequence.
        """
        if len(new) != self.batch or not all(is_whole(n) and n >= 0 for n in new):
            raise ValueError(f"new is {new!r}; expected {self.batch} whole numbers, one a sequence")
        self._expected = [int(n) for n in new]

    def new_of(self, T: int) -> list[int]:
        """Return how many of T columns are new tokens, of each sequence. ValueError if more were expected."""
        new = self._expected or [T] * self.batch
        if max(new) > T:
            raise ValueError(f"{T} columns came in; expected {max(new)} or more, as expect({new}) has said")
        return new

    def plan(self, T: int) -> Pass:
        """Return where everything of a pass of T columns stands. ValueError if they do not fit."""
        made_for, found = self._pass
        wanted = (T, self._expected, torch.is_inference_mode_enabled())
        if found is None or made_for != wanted:
            found = self.planned(T)
            self._pass = wanted, found
        return found

    def planned(self, T: int) -> Pass:
        """Work out a pass."""
        Hkv, at = self.sizes.n_kv_heads, self.columns(T)
        b, t = (at >= np.array(self.lengths)[:, None]).nonzero()
        heads, keys = np.arange(Hkv), np.arange(at[:, -1].max() + 1)
        seen = at.clip(min=0)  # padding sees the first rows of its sequence: softmax stays finite
        # Behind the end of a shorter sequence stands its newest row again: no row but its own is read.
        shown = np.minimum(keys, seen[:, -1:])  # (B, S)
        every = np.arange(self.batch)[:, None, None]
        arrays = (
            (keys <= seen[..., None])[:, None],
            (b[:, None] * Hkv + heads) * T + t[:, None],
            self.places(b[:, None], heads, at[b, t][:, None]),
            self.places(every, heads[:, None], shown[:, None]),
        )
        mask, *rows = (torch.from_numpy(array).to(self.device) for array in arrays)
        return Pass(mask, *(x.flatten() for x in rows))

    def columns(self, T: int) -> np.ndarray:
        """Return where T columns stand, (B, T): the last is the newest token, padding lies before `lengths`.

        ValueError if they do not fit.
        """
        self.check_room(T)
        ends = np.array(self.lengths) + np.array(self.new_of(T))
        return ends[:, None] - T + np.arange(T)

    def in_table(self) -> np.ndarray:
        """Return the pages of each sequence, (B, most pages of any); behind its last one stands 0."""
        table = np.zeros((self.batch, max(map(len, self.tables))), int)
        for row, pages in zip(table, self.tables, strict=True):
            row[: len(pages)] = pages
        return table

    def places(self, b: np.ndarray, head: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return which row of the flattened storage, (pages * Hkv * page_size, D), holds position `at`."""
        page, offset = self.in_table()[b, at // self.page_size], at % self.page_size
        return (page * self.sizes.n_kv_heads + head) * self.page_size + offset

    def positions(self, T: int) -> Tensor:
        """Return where T columns stand in each sequence, from 0, (B, T). ValueError if they do not fit."""
        return torch.from_numpy(self.columns(T).clip(min=0)).to(self.device)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (B, 1, T, S): True where a column may look at a row that `append` hands out."""
        return self.plan(T).mask

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new rows of each sequence behind its own; see `KVCache.append`. S is the longest."""
        self.check_rows(layer, k, v)
        found = self.plan(k.shape[2])
        for storage, rows in ((self.k, k), (self.v, v)):
            new = rows.flatten(0, 2).index_select(0, found.new)  # (N, D)
            storage[layer].flatten(0, 2).index_copy_(0, found.to, new)
        return self.read(self.k[layer], found), self.read(self.v[layer], found)

    def read(self, storage: Tensor, found: Pass) -> Tensor:
        """Return rows of one layer in order, (B, Hkv, S, D)."""
        return storage[:, :, : found.mask.shape[-1]]

    def advance(self, T: int) -> None:
        """Count the new tokens of each sequence; the model calls it once a pass."""
        new = self.new_of(T)
        super().advance(T)
        self.start([length + n for length, n in zip(self.lengths, new, strict=True)])

    def truncate(self, length: int | Sequence[int]) -> None:
        """Keep the first tokens: as many of each sequence, or a number for each. ValueError if fewer."""
        wanted = [length] * self.batch if isinstance(length, int) else [*length]
        fits = len(wanted) == self.batch and all(map(is_whole, wanted))
        if not fits or not all(0 <= n <= most for n, most in zip(wanted, self.lengths, strict=True)):
            raise ValueError(f"length is {length!r}; expected 0 to {self.lengths}, the tokens stored of each")
        super().truncate(max(wanted))
        self.start(wanted)

    def check_room(self, T: int) -> None:
        """Raise ValueError if the new tokens of a sequence do not fit."""
        super().check_room(min(T, 0))  # no fewer than 0
        for b, (length, n) in enumerate(zip(self.lengths, self.new_of(T), strict=True)):
            room = min(self.max_len, len(self.tables[b]) * self.page_size)
            if length + n > room:
                raise ValueError(
                    f"{n} new tokens after {length} make {length + n} in sequence {b}; expected at most "
                    f"{room}, the rows that it has. Nothing was written."
                )
