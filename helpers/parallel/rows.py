"""Context parallel: each rank holds some rows of one text, and attends to those alone.

What the ranks found is merged with the logs of their sums of exponentials: a softmax over all rows, exactly.

Source: the merge of blocks in Dao et al. 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from helpers.model.attention import Attention, Core
from helpers.model.cache import GrowingCache
from helpers.model.config import ModelConfig
from helpers.model.generate import generate
from helpers.model.latent import LatentAttention
from helpers.model.load import load
from helpers.model.transformer import Transformer
from helpers.parallel.wire import Report, Wire


class RowsOfRank(GrowingCache):
    """Keeps the rows at positions rank, rank + world, rank + 2 world …: each row lies in one rank.

    Every token is seen by every rank, so positions are those of the text; `append` keeps a share.
    """

    def __init__(self, sizes: ModelConfig, rank: int, world: int, **others: Any) -> None:
        self.rank, self.world = rank, world
        super().__init__(sizes, **others)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store those of the new rows that are this rank's; return its rows; see `Cache.append`."""
        self.check_entries(layer, k, v)
        mine = self.positions(k.shape[2]) % self.world == self.rank
        return super().append(layer, k[:, :, mine], v[:, :, mine])

    def n_stored(self, layer: int) -> int:
        """Rows of this rank."""
        return self.n_entries

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, rows of this rank): True where a row stands no later than the query."""
        return super().mask(T, layer)[:, self.rank :: self.world]

    @property
    def n_entries(self) -> int:
        """Rows of this rank."""
        return len(range(self.rank, self.length, self.world))


def attend_own_rows(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend to some of the rows, maybe none; arguments as in `attend`.

    Returns:
        Contexts (B, H, T, Dv) over these rows alone, and the log of the sum of the exponentials of their
        scores (B, H, T): -inf, with a context of 0, where a query sees none of them.
    """
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
    scores = (q @ k.mT * scale).masked_fill(~mask, -math.inf)
    lse = scores.logsumexp(dim=-1)
    least = lse.clamp(min=torch.finfo(lse.dtype).min)  # -inf - -inf would be NaN
    return (scores - least[..., None]).exp() @ v, lse


def merged(contexts: Tensor, lse: Tensor) -> Tensor:
    """Merge the contexts (n, B, H, T, Dv) of n parts of the rows, whose lse is (n, B, H, T)."""
    return (lse.softmax(dim=0)[..., None] * contexts).sum(dim=0)


class MergingCore(Core):
    """The core of attention where the rows lie apart: attends to this rank's, then merges what all found."""

    def __init__(self, scale: float, wire: Wire) -> None:
        super().__init__(scale)
        self.wire = wire

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts over the rows of all ranks, (B, H, T, Dv)."""
        contexts, lse = attend_own_rows(q, k, v, mask, self.scale)
        found = self.wire.all_gather(torch.cat([contexts, lse[..., None]], dim=-1), "contexts")
        return merged(found[..., :-1], found[..., -1])


def load_merging(folder: Path, wire: Wire) -> Transformer:
    """Load a whole model that attends to the rows of all ranks."""
    model = load(folder)
    for part in model.modules():
        if isinstance(part, Attention | LatentAttention):
            part.core = MergingCore(part.core.scale, wire)
    return model


def context_parallel(wire: Wire, folder: Path, prompt: list[int], max_new_tokens: int) -> Report:
    """Say a reply together, each rank with its share of the rows and all of the weights."""
    model = load_merging(folder, wire)
    cache = RowsOfRank(model.config, wire.rank, wire.world, dtype=model.embed_tokens.weight.dtype)
    return wire.report(list(generate(model, prompt, max_new_tokens, cache=cache)), model, cache)
