"""A cache that drops old entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache
from helpers.model.config import ModelConfig
from helpers.validate import check_whole


class WindowCache(GrowingCache):
    """Keeps the entries of the newest tokens and of the first few, each with the position of its token.

    A query sees the newest `window` positions, its own included, and the first `sinks` of the text. Entries
    are dropped in `advance`, when the whole pass has used them. A layer then holds the newest `window`
    entries and `sinks` more: one more than the next query sees, so that a pass of one token can be undone.

    Args:
        sizes: of the model.
        window: number of positions, for all layers, or one number a layer; None there keeps every entry.
        sinks: number of first positions that are kept; at most the smallest window.
        other: batch, max_len (in tokens, not entries), dtype and device, as in `Cache`.

    Attributes:
        kept_positions: by layer, the position of each entry, (S,).

    Source: sinks, Xiao et al. 2023, arXiv:2309.17453.
    """

    can_truncate = False
    snapshot_fields = ("k", "v", "kept_positions")

    def __init__(
        self, sizes: ModelConfig, window: int | Sequence[int | None] = 16, sinks: int = 0, **other: Any
    ) -> None:
        windows = list(window) if isinstance(window, Sequence) else [window] * sizes.n_layers
        if len(windows) != sizes.n_layers:
            message = f"{len(windows)} windows; expected one for each of {sizes.n_layers} layers"
            raise ValueError(f"{message}, None to keep all entries")
        # A window of the maximum sequence length hides nothing.
        self.windows = [sizes.max_seq_len if w is None else check_whole("window", w) for w in windows]
        self.sinks = check_whole("sinks", sinks, minimum=0)
        smallest = min(self.windows)
        if self.sinks > smallest:
            raise ValueError(f"sinks is {sinks}; expected at most {smallest}, the smallest window")
        super().__init__(sizes, **other)

    def allocate(self) -> None:
        super().allocate()
        self.kept_positions = [torch.empty(0, dtype=torch.int64, device=self.device)] * self.n_layers

    def n_stored(self, layer: int) -> int:
        return len(self.kept_positions[layer])

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, S): the entries that each new token sees, by position, not by index in storage."""
        queries = self.positions(T)[:, None]
        keys = torch.cat([self.kept_positions[layer], queries[:, 0]])  # (S,)
        return (keys <= queries) & self.in_window(keys, queries, layer)

    def in_window(self, keys: Tensor, queries: Tensor | int, layer: int) -> Tensor:
        """Return which positions are in the window of a query, or are sinks."""
        return (keys > queries - self.windows[layer]) | (keys < self.sinks)

    def advance(self, T: int) -> None:
        """Count T tokens as stored, and drop the entries that have left the window."""
        new, newest = self.positions(T), self.length + T - 1
        positions = [torch.cat([kept, new]) for kept in self.kept_positions]
        masks = [self.in_window(x, newest, layer) for layer, x in enumerate(positions)]
        self.update(self.length + T, **self.select_entries(positions, masks))

    def select_entries(self, positions: list[Tensor], masks: list[Tensor]) -> dict[str, Any]:
        """Return the masked entries of each layer: copies, so that the memory of the others is freed."""
        rows = [mask.nonzero()[:, 0] for mask in masks]
        k, v = ([x.index_select(2, n) for x, n in zip(kv, rows, strict=True)] for kv in (self.k, self.v))
        return {"kept_positions": [x[n] for x, n in zip(positions, rows, strict=True)], "k": k, "v": v}

    def truncate(self, length: int) -> None:
        self.check_length(length)
        positions = self.kept_positions
        self.set_lengths([int(length)], **self.select_entries(positions, [x < length for x in positions]))

    @property
    def unreachable_lengths(self) -> range:
        """Lengths above the sinks at which the next token would see dropped entries, in any layer."""
        return range(self.sinks + 1, max(map(self.min_length, range(self.n_layers))))

    def min_length(self, layer: int) -> int:
        """Return the smallest length above the sinks that a layer can go back to."""
        positions, window = self.kept_positions[layer], self.windows[layer]
        if len(positions) == self.length or window == 1:  # nothing was dropped, or the next token sees none
            return 0
        return int(positions[self.sinks]) + window - 1  # the next token sees the oldest entry first

    def entry_positions(self) -> Sequence[int]:
        return self.kept_positions[0].tolist()

    @property
    def n_entries(self) -> int:
        return max(map(len, self.kept_positions))
