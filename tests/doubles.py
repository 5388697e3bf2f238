"""Stand-ins for the caches that later notebooks bring: each shows that the model needs no change for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.model.cache import (
    Cache,
    GrowingCache,
    PagedCache,
    QuantizedCache,
    StateCache,
    StaticCache,
    WindowCache,
)
from helpers.model.config import ModelConfig

POISON = 1e9  # in unused memory: so large that no rounding hides it if it is ever read


# Every cache class: those that keep all entries exactly, and those that do not.
EXACT: dict[str, Callable[..., Cache]] = {
    "growing": GrowingCache,
    "state": StateCache,  # of a model without states; for states see test_state
    "static": StaticCache,
    "paged": partial(PagedCache, page_size=3),
}
LOSSY: dict[str, Callable[..., Cache]] = {
    "window": partial(WindowCache, window=4, sinks=1),
    "quantized": partial(QuantizedCache, bits=4, group_size=8),
}
KINDS = EXACT | LOSSY


class MaskedCache(GrowingCache):
    """Keeps every entry and masks them by seen(key, query, layer): the slow form of any window."""

    def __init__(self, sizes: ModelConfig, seen: Callable[[int, int, int], bool], **rest: Any) -> None:
        self.seen = seen
        super().__init__(sizes, **rest)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        S = self.length + T
        return torch.tensor([[self.seen(k, q, layer) for k in range(S)] for q in range(self.length, S)])


class UnevenConfig(ModelConfig):
    """Values narrower than keys, as in caches of latent attention."""

    v_dim = 5
