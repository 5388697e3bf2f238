"""Context parallelism: each rank holds some of a sequence's KV entries, and attends only to those.

The contexts of all ranks are then merged by a weighted sum. A rank's weight depends on its LSE, the logarithm
of the sum of the exponentials of its scores. Up to rounding, the result is that of a softmax over all
entries.

Source: the merging of blocks in Dao et al. 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from helpers.model.attention import Attention, Core
from helpers.model.cache import GrowingCache
from helpers.model.config import ModelConfig
from helpers.model.generate import generate
from helpers.model.latent import LatentAttention
from helpers.model.load import load
from helpers.model.transformer import Transformer
from helpers.parallel.communicator import Communicator, RankReport


class ShardedCache(GrowingCache):
    """A cache that keeps the KV entries at positions rank, rank + world_size, rank + 2 world_size, …

    Every rank runs every token, so `length` and the positions are those of the whole sequence. Each entry is
    stored by exactly one rank.

    Args:
        config: config of the model.
        rank: index of this rank, from 0.
        world_size: number of ranks.
        kwargs: batch, max_len, dtype and device, as in `Cache`.
    """

    def __init__(self, config: ModelConfig, rank: int, world_size: int, **kwargs: Any) -> None:
        self.rank, self.world_size = rank, world_size
        super().__init__(config, **kwargs)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store this rank's share of the new entries.

        Return all entries of this rank. See `Cache.append`.
        """
        self.check_entries(layer, k, v)
        own = self.positions(k.shape[2]) % self.world_size == self.rank
        return super().append(layer, k[:, :, own], v[:, :, own])

    def n_stored(self, layer: int) -> int:
        """Return the number of KV entries that this rank stores in a layer."""
        return self.n_entries

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return the attention mask: which of this rank's entries each new token may attend to.

        The mask has shape (T, S), for T new tokens and S entries.
        """
        return super().mask(T, layer)[:, self.rank :: self.world_size]

    @property
    def n_entries(self) -> int:
        """The number of KV entries that this rank stores in each layer."""
        return len(range(self.rank, self.length, self.world_size))


class ShardContexts(NamedTuple):
    """Contexts over one rank's KV entries, with the LSE that determines their weight among all ranks.

    For a query that may not attend to any of these entries, the context is 0 and the LSE is -inf.
    """

    contexts: Tensor  # (B, H, T, Dv)
    lse: Tensor  # logarithm of the sum of the exponentials of the scores, (B, H, T)


def attend_shard(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> ShardContexts:
    """Attend to one rank's KV entries. There may be no entries. The arguments are those of `attend`."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
    scores = (q @ k.mT * scale).masked_fill(~mask, -math.inf)
    lse = scores.logsumexp(dim=-1)
    finite = lse.clamp(min=torch.finfo(lse.dtype).min)  # -inf - -inf would be NaN
    return ShardContexts((scores - finite[..., None]).exp() @ v, lse)


def merge_contexts(contexts: Tensor, lse: Tensor) -> Tensor:
    """Return the contexts over all KV entries, given the contexts over each of n shards.

    The result has shape (B, H, T, Dv).

    Args:
        contexts: contexts over the entries of each shard, of shape (n, B, H, T, Dv).
        lse: LSE of each shard, of shape (n, B, H, T); see `attend_shard`.
    """
    return (lse.softmax(dim=0)[..., None] * contexts).sum(dim=0)


class ContextParallelCore(Core):
    """An attention core that attends to this rank's KV entries, then merges the contexts of all ranks."""

    def __init__(self, scale: float, comm: Communicator) -> None:
        super().__init__(scale)
        self.comm = comm

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return the contexts over the KV entries of all ranks, of shape (B, H, T, Dv).

        k, v and mask are for this rank's entries only. Every rank must call this method. See `attend`.
        """
        contexts, lse = attend_shard(q, k, v, mask, self.scale)
        gathered = self.comm.all_gather(torch.cat([contexts, lse[..., None]], dim=-1), "contexts")
        return merge_contexts(gathered[..., :-1], gathered[..., -1])


def load_context_parallel(folder: Path, comm: Communicator) -> Transformer:
    """Load a model with all its weights. Its attention covers the KV entries of all ranks."""
    model = load(folder)
    for module in model.modules():
        if isinstance(module, Attention | LatentAttention):
            module.core = ContextParallelCore(module.core.scale, comm)
    return model


def context_parallel(comm: Communicator, folder: Path, prompt: list[int], max_new_tokens: int) -> RankReport:
    """Generate a reply greedily, together with the other ranks. Every rank must call this.

    Each rank has all weights, but only its share of the KV entries. All ranks generate the same reply.

    Args:
        comm: connection to the other ranks.
        folder: folder of the checkpoint.
        prompt: token ids of one sequence.
        max_new_tokens: maximum number of tokens in the reply.

    Returns:
        This rank's report.
    """
    model = load_context_parallel(folder, comm)
    cache = ShardedCache(model.config, comm.rank, comm.world_size, dtype=model.embed_tokens.weight.dtype)
    return comm.report(list(generate(model, prompt, max_new_tokens, cache=cache)), model, cache)
