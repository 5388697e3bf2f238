"""Tasks that the ranks run in tests. The processes of the ranks import them from this module."""

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
    """Run several tasks one after the other in this rank, and return their results.

    A job is (task, arguments, name of a bug). The bug is planted while its task runs; "" means no bug.
    """
    results = []
    for task, args, bug in jobs:
        with contextlib.ExitStack() as planted:
            for target, name, replacement in BUGS.get(bug, lambda: [])():
                planted.enter_context(mock.patch.object(target, name, replacement))
            results.append(task(comm, *args))
    return results


def heads_logits(comm: Communicator, folder: Path, ids: Tensor, split: list[int]) -> Tensor:
    """Return the logits of all positions from a model whose heads are divided among the ranks."""
    model = heads.load_shard(folder, comm)
    return in_passes(model, ids, split, StaticCache(model.config, len(ids), dtype=torch.float64))


def context_logits(comm: Communicator, folder: Path, ids: Tensor, split: list[int]) -> Tensor:
    """Return the logits of all positions from a model whose KV entries are divided among the ranks."""
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
    """Plant a wrong mask: a rank's entries are masked as if they were at consecutive positions from 0."""

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
    """Create a file named after this process's id in the folder. Then fail in the given way.

    If `failure` is "raise", rank 1 raises and the other rank is busy for two minutes. If it is any other
    non-empty string, both ranks are busy. If it is "", nothing fails.
    """
    (folder / str(os.getpid())).touch()
    if comm.rank == 1 and failure == "raise":
        while len(list(folder.iterdir())) < 2:  # the other rank has to be there, so that it can be ended
            time.sleep(0.01)
        raise LookupError("no such thing")
    if failure:
        time.sleep(120)  # it is busy, and does not notice that the other has ended
    return comm.all_reduce(torch.ones(1), "sum")


def stay(comm: Communicator, port: int) -> None:
    """Send a byte to a local port. Then rank 0 computes for a minute, and rank 1 waits for rank 0."""
    socket.create_connection(("127.0.0.1", port)).send(b"!")
    end = time.monotonic() + 60
    while comm.rank == 0 and time.monotonic() < end:
        pass
    comm.all_reduce(torch.ones(1), "sum")
