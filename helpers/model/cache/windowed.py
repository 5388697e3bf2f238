"""A cache that shows the newest rows only: what a model does without the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.model.cache.growing import GrowingCache


class WindowedCache(GrowingCache):
    """Keeps every row and shows the newest `WINDOW` only, to every query: what a model does without the rest.

    A row seen through L layers reaches back L · (WINDOW - 1) tokens, as each layer's rows hold a little of
    the window before them.
    """

    WINDOW = 16

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, S): True at the newest `WINDOW` positions, the query's own among them."""
        keys = torch.arange(self.length + T, device=self.device)
        return super().mask(T, layer) & (keys > self.positions(T)[:, None] - self.WINDOW)
