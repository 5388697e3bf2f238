"""A cache that drops the entries of old tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache
from helpers.model.config import ModelConfig
from helpers.validate import check_whole


class WindowCache(GrowingCache):
    """A cache that keeps only the entries of the newest tokens and of a sequence's first few tokens.

    A query sees the newest `window` positions, including its own, and the first `sinks` positions of the
    sequence. Entries are dropped in `advance`, after the whole pass has used them. A layer then holds the
    newest `window` entries and the first `sinks` entries. That is one more than the next query sees, so that
    a pass of one token can be undone.

    Args:
        config: config of the model.
        window: number of positions in the window. A list gives one window per layer; None in the list keeps
            every entry of that layer.
        sinks: number of first positions that are always kept; must not exceed the smallest window.
        other: batch, max_len (in tokens, not entries), dtype and device, as in `Cache`.

    Attributes:
        kept_positions: for each layer, the positions of the tokens whose entries it stores, of shape (S,),
            from 0.

    Source: sinks, Xiao et al. 2023, arXiv:2309.17453.
    """

    can_truncate = False
    snapshot_fields = ("k", "v", "kept_positions")

    def __init__(
        self, config: ModelConfig, window: int | Sequence[int | None] = 16, sinks: int = 0, **other: Any
    ) -> None:
        windows = list(window) if isinstance(window, Sequence) else [window] * config.n_layers
        if len(windows) != config.n_layers:
            message = f"{len(windows)} windows; expected one for each of {config.n_layers} layers"
            raise ValueError(f"{message}, None to keep all entries")
        # A window of the maximum sequence length hides nothing.
        self.windows = [config.max_seq_len if w is None else check_whole("window", w) for w in windows]
        self.sinks = check_whole("sinks", sinks, minimum=0)
        smallest = min(self.windows)
        if self.sinks > smallest:
            raise ValueError(f"sinks is {sinks}; expected at most {smallest}, the smallest window")
        super().__init__(config, **other)

    def allocate(self) -> None:
        super().allocate()
        self.kept_positions = [torch.empty(0, dtype=torch.int64, device=self.device)] * self.n_layers

    def n_stored(self, layer: int) -> int:
        return len(self.kept_positions[layer])

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return the attention mask: which of the entries returned by `append` each new token sees.

        The mask has shape (T, S), for T new tokens and S entries. Whether an entry is seen depends on the
        position of its token, not on the index at which the entry is stored.
        """
        queries = self.positions(T)[:, None]
        keys = torch.cat([self.kept_positions[layer], queries[:, 0]])  # (S,)
        return (keys <= queries) & self.in_window(keys, queries, layer)

    def in_window(self, keys: Tensor, queries: Tensor | int, layer: int) -> Tensor:
        """Return, for each query and each key, whether the key is in the query's window or is a sink.

        Args:
            keys: positions of keys, of shape (S,).
            queries: positions of queries, of shape (T, 1), or one position.
            layer: index of the layer, from 0.

        Returns:
            A boolean tensor, of shape (T, S), or (S,) for one query. Keys after the query are not excluded.
        """
        return (keys > queries - self.windows[layer]) | (keys < self.sinks)

    def advance(self, T: int) -> None:
        """Count the T new tokens as seen, and drop the entries that have left the window."""
        new, newest = self.positions(T), self.length + T - 1
        positions = [torch.cat([kept, new]) for kept in self.kept_positions]
        masks = [self.in_window(x, newest, layer) for layer, x in enumerate(positions)]
        self.commit(self.length + T, **self.select_entries(positions, masks))

    def select_entries(self, positions: list[Tensor], keep: list[Tensor]) -> dict[str, Any]:
        """Return copies of the entries to keep, so that the memory of the other entries is freed.

        Args:
            positions: for each layer, the position of each entry, of shape (S,).
            keep: for each layer, a boolean mask of the entries to keep, of shape (S,).

        Returns:
            New values of `kept_positions`, `k` and `v`, by name.
        """
        rows = [mask.nonzero()[:, 0] for mask in keep]
        k, v = ([x.index_select(2, n) for x, n in zip(kv, rows, strict=True)] for kv in (self.k, self.v))
        return {"kept_positions": [x[n] for x, n in zip(positions, rows, strict=True)], "k": k, "v": v}

    def truncate(self, length: int) -> None:
        self.check_length(length)
        positions = self.kept_positions
        self.set_lengths([int(length)], **self.select_entries(positions, [x < length for x in positions]))

    @property
    def unreachable_lengths(self) -> range:
        """The lengths at which the next token would see dropped entries in some layer.

        All of them are greater than the number of sinks.
        """
        return range(self.sinks + 1, max(map(self.min_length, range(self.n_layers))))

    def min_length(self, layer: int) -> int:
        """Return the smallest length above the number of sinks to which a layer can go back.

        The result is 0 if the layer can go back to every length.
        """
        positions, window = self.kept_positions[layer], self.windows[layer]
        if len(positions) == self.length or window == 1:  # nothing was dropped, or the next token sees none
            return 0
        return int(positions[self.sinks]) + window - 1  # the next token sees the oldest entry first

    def entry_positions(self) -> Sequence[int]:
        return self.kept_positions[0].tolist()

    @property
    def n_entries(self) -> int:
        return max(map(len, self.kept_positions))
