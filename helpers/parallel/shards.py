"""Context parallelism: each rank holds some KV entries of one text, and attends only to those.

The ranks' contexts are merged with the logs of their sums of exponentials (LSE). The result is exactly that
of a softmax over all entries.

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
from helpers.parallel.communicator import Communicator, Report


class ShardedCache(GrowingCache):
    """Keeps the KV entries at positions rank, rank + world_size, rank + 2 world_size, …

    Every rank sees every token, so positions are those of the text; each entry is kept by one rank.
    """

    def __init__(self, sizes: ModelConfig, rank: int, world_size: int, **kwargs: Any) -> None:
        self.rank, self.world_size = rank, world_size
        super().__init__(sizes, **kwargs)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store this rank's share of the new entries; return all its entries; see `Cache.append`."""
        self.check_entries(layer, k, v)
        own = self.positions(k.shape[2]) % self.world_size == self.rank
        return super().append(layer, k[:, :, own], v[:, :, own])

    def n_stored(self, layer: int) -> int:
        """KV entries of this rank."""
        return self.n_entries

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return (T, entries of this rank): True where an entry's position is not after the query's."""
        return super().mask(T, layer)[:, self.rank :: self.world_size]

    @property
    def n_entries(self) -> int:
        """KV entries of this rank."""
        return len(range(self.rank, self.length, self.world_size))


def attend_shard(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attend to one rank's KV entries, possibly none; arguments as in `attend`.

    Returns:
        Contexts (B, H, T, Dv) over these entries only, and the LSE, the log of the sum of the exponentials of
        their scores, (B, H, T): -inf, with a context of 0, if a query sees none of them.
    """
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
    scores = (q @ k.mT * scale).masked_fill(~mask, -math.inf)
    lse = scores.logsumexp(dim=-1)
    finite = lse.clamp(min=torch.finfo(lse.dtype).min)  # -inf - -inf would be NaN
    return (scores - finite[..., None]).exp() @ v, lse


def merge_contexts(contexts: Tensor, lse: Tensor) -> Tensor:
    """Merge the contexts (n, B, H, T, Dv) over n shards of the KV entries, given their LSE, (n, B, H, T)."""
    return (lse.softmax(dim=0)[..., None] * contexts).sum(dim=0)


class ContextParallelCore(Core):
    """A core of attention that attends to this rank's KV entries, then merges the contexts of all ranks."""

    def __init__(self, scale: float, comm: Communicator) -> None:
        super().__init__(scale)
        self.comm = comm

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts over the KV entries of all ranks, (B, H, T, Dv)."""
        contexts, lse = attend_shard(q, k, v, mask, self.scale)
        gathered = self.comm.all_gather(torch.cat([contexts, lse[..., None]], dim=-1), "contexts")
        return merge_contexts(gathered[..., :-1], gathered[..., -1])


def load_context_parallel(folder: Path, comm: Communicator) -> Transformer:
    """Load a whole model that attends to the KV entries of all ranks."""
    model = load(folder)
    for module in model.modules():
        if isinstance(module, Attention | LatentAttention):
            module.core = ContextParallelCore(module.core.scale, comm)
    return model


def context_parallel(comm: Communicator, folder: Path, prompt: list[int], max_new_tokens: int) -> Report:
    """Generate a reply together with the other ranks, each with a share of the KV entries and all weights."""
    model = load_context_parallel(folder, comm)
    cache = ShardedCache(model.config, comm.rank, comm.world_size, dtype=model.embed_tokens.weight.dtype)
    return comm.report(list(generate(model, prompt, max_new_tokens, cache=cache)), model, cache)
