"""A cache that drops old rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache
from helpers.model.config import ModelConfig
from helpers.validate import check_whole


class WindowCache(GrowingCache):
    """Keeps the rows of the newest tokens, and of the first few; beside each row where its token stands.

    A query sees the newest `window` positions, its own among them, and the first `sinks` of the text. Rows
    leave with `advance`, after the whole pass has looked. A layer then holds the newest `window` rows and
    `sinks` more: one more than the next query sees, so that a pass of one token can be taken back.

    Args:
        sizes: of the model.
        window: positions, for every layer, or one number a layer; None there keeps every row.
        sinks: first positions of the text that stay: no more than the smallest window.
        rest: batch, max_len (tokens, not rows), dtype and device, as in `Cache`.

    Source: sinks, Xiao et al. 2023, arXiv:2309.17453.
    """

    can_truncate = False
    held = ("k", "v", "at")

    def __init__(
        self, sizes: ModelConfig, window: int | Sequence[int | None] = 16, sinks: int = 0, **rest: Any
    ) -> None:
        windows = list(window) if isinstance(window, Sequence) else [window] * sizes.n_layers
        if len(windows) != sizes.n_layers:
            message = f"{len(windows)} windows; expected one for each of {sizes.n_layers} layers"
            raise ValueError(f"{message}, None for all rows")
        # A window as long as the longest text hides nothing.
        self.windows = [sizes.max_seq_len if w is None else check_whole("window", w) for w in windows]
        self.sinks = check_whole("sinks", sinks, least=0)
        least = min(self.windows)
        if self.sinks > least:
            raise ValueError(f"sinks is {sinks}; expected at most {least}, as many as the smallest window")
        super().__init__(sizes, **rest)

    def allocate(self) -> None:
        super().allocate()
        self.at = [torch.empty(0, dtype=torch.int64, device=self.device)] * self.n_layers

    def rows_of(self, layer: int) -> int:
        return len(self.at[layer])

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, S): which rows each new token sees, by where they stand, not where they lie."""
        queries = self.positions(T)[:, None]
        keys = torch.cat([self.at[layer], queries[:, 0]])  # (S,)
        return (keys <= queries) & self.near(keys, queries, layer)

    def near(self, keys: Tensor, queries: Tensor | int, layer: int) -> Tensor:
        """Return which positions are in the window of a query, or sinks."""
        return (keys > queries - self.windows[layer]) | (keys < self.sinks)

    def advance(self, T: int) -> None:
        """Count T tokens as stored, and drop the rows that have left the window."""
        at, end = [torch.cat([at, self.positions(T)]) for at in self.at], self.length + T - 1
        kept = [self.near(x, end, layer) for layer, x in enumerate(at)]
        self.update(self.length + T, **self.some(at, kept))

    def some(self, at: list[Tensor], kept: list[Tensor]) -> dict[str, Any]:
        """Return some rows of each layer: copies, so that the memory of the others is freed."""
        rows = [mask.nonzero()[:, 0] for mask in kept]
        k, v = ([x.index_select(2, n) for x, n in zip(kv, rows, strict=True)] for kv in (self.k, self.v))
        return {"at": [x[n] for x, n in zip(at, rows, strict=True)], "k": k, "v": v}

    def truncate(self, length: int) -> None:
        self.check_length(length)
        self.cut([int(length)], **self.some(self.at, [at < length for at in self.at]))

    @property
    def lost_lengths(self) -> range:
        """Over the sinks, lengths at which the next token sees rows that have left, in any layer."""
        return range(self.sinks + 1, max(map(self.least, range(self.n_layers))))

    def least(self, layer: int) -> int:
        """Return to how many tokens a layer can go back, sinks aside: the next sees its oldest row first."""
        at, window = self.at[layer], self.windows[layer]
        if len(at) == self.length or window == 1:  # no row has left, or the next token sees none
            return 0
        return int(at[self.sinks]) + window - 1

    def kept(self) -> Sequence[int]:
        return self.at[0].tolist()

    @property
    def n_kept(self) -> int:
        return max(map(len, self.at))
