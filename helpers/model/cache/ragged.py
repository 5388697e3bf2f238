"""A cache for several sequences, each with its own length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.arguments import is_whole
from helpers.model.cache.base import Snapshot
from helpers.model.cache.static import StaticCache


@dataclass(frozen=True)
class PassLayout:
    """Where the rows of one pass of T columns lie; worked out once for all layers.

    Attributes:
        mask: which rows each column may look at, (B, 1, T, S), S the longest sequence after the pass.
        new: rows of (B * Hkv * T, D) that hold new tokens, (N,); None where all do.
        to: rows of the flattened storage that they go to, (N,).
        shown: rows of the flattened storage to hand out in order, (B * Hkv * S,).
    """

    mask: Tensor
    new: Tensor | None
    to: Tensor
    shown: Tensor


class RaggedCache(StaticCache):
    """Sequences of unequal length, each with positions, mask and rows of its own; max_len rows for each.

    New tokens stand at the right: in tokens (B, T) the last column is the newest of every sequence. Where a
    sequence has fewer than T of them, `expect` comes before the pass. The columns left of them are padding:
    they store no row, nobody sees them, and what comes out of them means nothing.

    Attributes:
        lengths: tokens seen, of each sequence; `length` is the longest.
        page_size: rows that lie together.
        tables: for each sequence the pages that its rows lie in. Here it is one page of max_len rows.
    """

    lengths: Sequence[int] = ()
    _slots: tuple[list[list[int]], Tensor] = [], torch.empty(0)

    def allocate(self) -> None:
        """Lay out a page of max_len rows for each sequence."""
        super().allocate()
        self.page_size, self.tables = self.max_len, [[b] for b in range(self.batch)]
        self.set_lengths([0] * self.batch)

    def set_lengths(self, lengths: Sequence[int]) -> None:
        """Begin with so many tokens seen of each sequence."""
        self.lengths = self.counted("lengths", lengths)
        self.length = max(self.lengths)
        self._expected: list[int] | None = None
        self._memo = None, None

    def expect(self, new: Sequence[int]) -> None:
        """Set how many columns of the next pass are new tokens of each sequence; else all are."""
        self._expected = self.counted("new", new)

    def counted(self, name: str, counts: Sequence[int], most: Sequence[int] | None = None) -> list[int]:
        """Return a whole number for each sequence, from 0, to `most` of it. ValueError if they are none."""
        fits = np.shape(counts) == (self.batch,) and all(is_whole(n) and n >= 0 for n in counts)
        if not fits or any(n > end for n, end in zip(counts, most or (), strict=False)):
            upto = "" if most is None else f" to {most}"
            raise ValueError(
                f"{name} is {counts!r}; expected {self.batch} whole numbers, one a sequence, from 0{upto}"
            )
        return [int(n) for n in counts]

    def n_new(self, T: int) -> list[int]:
        """Return how many of T columns are new tokens, of each sequence. ValueError if more were expected."""
        new = self._expected or [T] * self.batch
        if max(new) > T:
            raise ValueError(f"{T} columns came in; expected {max(new)} or more, as expect({new}) has said")
        return new

    def plan(self, T: int) -> PassLayout:
        """Return where everything of a pass of T columns stands. ValueError if they do not fit."""
        tables = [[*pages] for pages in self.tables]  # as they are now: who owns the pool may change them
        return self.memo((T, self._expected, tables), lambda: self.planned(T))

    def planned(self, T: int) -> PassLayout:
        """Work out a pass. ValueError if it does not fit."""
        at, slots = self.columns(T), self.slots()
        S = max(length + n for length, n in zip(self.lengths, self.n_new(T), strict=True))
        keys = torch.arange(S, device=self.device)
        padded = min(self.n_new(T)) < T
        if not padded and min(self.lengths) == S - T:  # all alike, as a batch of one is: nothing is looked up
            shown = slots[..., :S]
            to = shown[..., S - T :]
            return PassLayout(keys <= at[:, None, :, None], None, to.flatten(), shown.flatten())
        seen = at.clamp(min=0)  # padding sees the first rows of its sequence: softmax stays finite
        # Behind the end of a shorter sequence stands its newest row again: no row but its own is read.
        to, shown = (
            slots.gather(2, at[:, None].expand(-1, slots.shape[1], -1)).flatten()
            for at in (seen, torch.minimum(keys, seen[:, -1:]))
        )
        rows = None
        if padded:  # and not stored
            stored = at >= torch.tensor(self.lengths, device=self.device)[:, None]
            rows = stored[:, None].expand(-1, slots.shape[1], -1).flatten().nonzero()[:, 0]
            to = to[rows]
        return PassLayout(keys <= seen[:, None, :, None], rows, to, shown)

    def columns(self, T: int) -> Tensor:
        """Return where T columns stand, (B, T): the newest token last, padding lies before `lengths`."""
        self.check_room(T)
        ends = [length + n for length, n in zip(self.lengths, self.n_new(T), strict=True)]
        if min(ends) == max(ends):
            return torch.arange(ends[0] - T, ends[0], device=self.device).expand(self.batch, -1)
        at = torch.tensor(ends, device=self.device)[:, None]
        return at + torch.arange(-T, 0, device=self.device)

    def slots(self) -> Tensor:
        """Return which row of the flattened storage holds each position, (B, Hkv, rows of its pages)."""
        made_for, slots = self._slots
        if made_for != self.tables:
            heads = torch.arange(self.sizes.n_kv_heads)[:, None, None]
            page = torch.from_numpy(self.in_table())[:, None, :, None] * len(heads) + heads
            slots = (page * self.page_size + torch.arange(self.page_size)).flatten(2).to(self.device)
            self._slots = [[*table] for table in self.tables], slots
        return slots

    def in_table(self) -> np.ndarray:
        """Return the pages of each sequence, (B, most pages of any); behind its last one stands 0.

        ValueError if a page is not in the pool: compiled loops would write where it would lie.
        """
        n_pages = self.k.shape[1]
        if any(page not in range(n_pages) for pages in self.tables for page in pages):
            raise ValueError(f"tables are {self.tables}; expected pages 0 to {n_pages - 1} of the pool")
        table = np.zeros((self.batch, max(map(len, self.tables)) or 1), int)
        for row, pages in zip(table, self.tables, strict=True):
            row[: len(pages)] = pages
        return table

    def positions(self, T: int) -> Tensor:
        """Return where T columns stand in each sequence, from 0, (B, T). ValueError if they do not fit."""
        return self.columns(T).clamp(min=0)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (B, 1, T, S): True where a column may look at a row that `append` hands out."""
        return self.plan(T).mask

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new rows of each sequence behind its own; see `Cache.append`. S is the longest."""
        self.check_rows(layer, k, v)
        found = self.plan(k.shape[2])
        for stored, rows in ((self.k[layer], k), (self.v[layer], v)):
            new = rows.flatten(0, 2)
            new = new if found.new is None else new[found.new]  # (N, D)
            stored.flatten(0, 2).index_copy_(0, found.to, new)
        return self.read(layer, found)

    def read(self, layer: int, found: PassLayout) -> tuple[Tensor, Tensor]:
        """Return keys and values of one layer in order, (B, Hkv, S, D): views."""
        S = found.mask.shape[-1]
        return self.k[layer, :, :, :S], self.v[layer, :, :, :S]

    def advance(self, T: int) -> None:
        """Count the new tokens of each sequence; the model calls it once a pass."""
        self.check_room(T)
        lengths = [length + n for length, n in zip(self.lengths, self.n_new(T), strict=True)]
        self.update(max(lengths), lengths=lengths, _expected=None, _memo=(None, None))

    def truncate(self, length: int | Sequence[int]) -> None:
        """Keep the first tokens: as many of each sequence, or a number for each. ValueError if fewer."""
        each: Any = [length] * self.batch if is_whole(length) else length
        wanted = self.counted("length", each, self.lengths)
        self.check_length(max(wanted))
        self.cut(max(wanted), min(wanted), lengths=wanted, _expected=None, _memo=(None, None))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to where a snapshot was taken, of each sequence; see `Cache.restore`."""
        self.check_own(snapshot)
        self.truncate(snapshot.lengths)

    def check_room(self, T: int) -> None:
        """Raise ValueError if the new tokens of a sequence do not fit."""
        self.check_new(T)
        for b, (length, n) in enumerate(zip(self.lengths, self.n_new(T), strict=True)):
            room = min(self.max_len, len(self.tables[b]) * self.page_size)
            if length + n > room:
                raise ValueError(
                    f"{n} new tokens after {length} make {length + n} in sequence {b}; expected at most "
                    f"{room}, the rows that it has. Nothing was written."
                )
