"""Tasks that ranks run in tests; a new process imports them from here."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from helpers.model.cache import StaticCache
from helpers.parallel import handover, heads, shards
from helpers.parallel.communicator import Communicator
from helpers.parallel.shards import ShardedCache
from tests.tiny import in_passes

Job = tuple[Callable[..., Any], tuple[Any, ...], str]


def several(comm: Communicator, jobs: Sequence[Job]) -> list[Any]:
    """Run several tasks in the same ranks, each with its bug planted, if it names one."""
    results = []
    for task, args, bug in jobs:
        with contextlib.ExitStack() as planted:
            for target, name, replacement in BUGS.get(bug, lambda: [])():
                planted.enter_context(mock.patch.object(target, name, replacement))
            results.append(task(comm, *args))
    return results


def heads_logits(comm: Communicator, folder: Path, ids: Tensor, split: list[int]) -> Tensor:
    """Return all logits of a model whose heads are divided among the ranks."""
    model = heads.load_shard(folder, comm)
    return in_passes(model, ids, split, StaticCache(model.config, len(ids), dtype=torch.float64))


def context_logits(comm: Communicator, folder: Path, ids: Tensor, split: list[int]) -> Tensor:
    """Return all logits of a model whose KV entries are divided among the ranks."""
    model = shards.load_context_parallel(folder, comm)
    cache = ShardedCache(model.config, comm.rank, comm.world_size, batch=len(ids), dtype=torch.float64)
    return in_passes(model, ids, split, cache)


Patches = list[tuple[Any, str, Any]]


def sum_forgotten() -> Patches:
    original, calls = Communicator.all_reduce, iter(range(10**6))

    def all_reduce(comm: Communicator, x: Tensor, purpose: str) -> Tensor:
        total = original(comm, x, purpose)
        return x if next(calls) % 2 else total

    return [(Communicator, "all_reduce", all_reduce)]


def kv_heads_of_rank_0() -> Patches:
    original = heads.heads_of_rank

    def heads_of_rank(rank: int, *sizes: int) -> heads.RankHeads:
        return heads.RankHeads(original(rank, *sizes).query_heads, original(0, *sizes).kv_heads)

    return [(heads, "heads_of_rank", heads_of_rank)]


def entries_counted_as_positions() -> Patches:
    """The mask is that of a cache with the same number of entries from the beginning of the text."""

    def mask(cache: Any, T: int, layer: int = 0) -> Tensor:
        S = len(range(cache.rank, cache.length + T, cache.world_size))
        return torch.arange(S) <= cache.positions(T)[:, None] // cache.world_size

    return [(ShardedCache, "mask", mask)]


def received_entries_not_counted() -> Patches:
    class NotCounting(StaticCache):
        def advance(self, T: int) -> None:
            super().advance(T if T == 1 else 0)

    return [(handover, "StaticCache", NotCounting)]


BUGS: dict[str, Callable[[], Patches]] = {
    "one sum forgotten": sum_forgotten,
    "all ranks have rank 0's KV heads": kv_heads_of_rank_0,
    "merged by plain average": lambda: [(shards, "merge_contexts", lambda o, lse: o.mean(0))],
    "entries counted as positions": entries_counted_as_positions,
    "received entries not counted": received_entries_not_counted,
}


def fail(comm: Communicator, failure: str, folder: Path) -> Any:
    """Write this process's id to the folder; then rank 1 raises, or both hang."""
    (folder / str(os.getpid())).touch()
    if comm.rank == 1 and failure == "raise":
        raise LookupError("no such thing")
    if failure:
        time.sleep(120)  # it is busy, and does not notice that the other has ended
    return comm.all_reduce(torch.ones(1), "sum")


def stay(comm: Communicator, port: int) -> None:
    """Connect to a port; then rank 0 computes for a minute, and rank 1 waits for it."""
    socket.create_connection(("127.0.0.1", port)).send(b"!")
    end = time.monotonic() + 60
    while comm.rank == 0 and time.monotonic() < end:
        pass
    comm.all_reduce(torch.ones(1), "sum")
