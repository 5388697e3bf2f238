"""All cache classes, and test doubles for caches that the project does not implement.

The doubles show that the model can use such caches without a change.
"""

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
    """A cache that keeps every KV entry and hides entries with a mask. It is a slow form of any window.

    A query sees a key if `seen(key position, query position, layer)` is true.
    """

    def __init__(self, sizes: ModelConfig, seen: Callable[[int, int, int], bool], **rest: Any) -> None:
        self.seen = seen
        super().__init__(sizes, **rest)

    def mask(self, T: int, layer: int = 0) -> Tensor:
        S = self.length + T
        return torch.tensor([[self.seen(k, q, layer) for k in range(S)] for q in range(self.length, S)])


class UnevenConfig(ModelConfig):
    """A config in which values have fewer channels than keys, as in the cache of latent attention."""

    v_dim = 5
