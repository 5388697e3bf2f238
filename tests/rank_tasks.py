"""What ranks run in tests: processes that start afresh import it from here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from helpers.model.cache import StaticCache
from helpers.parallel import handover, heads, rows
from helpers.parallel.rows import RowsOfRank
from helpers.parallel.wire import Wire
from tests.tiny import in_passes

Job = tuple[Callable[..., Any], tuple[Any, ...], str]


def several(wire: Wire, jobs: Sequence[Job]) -> list[Any]:
    """Run several tasks in the same ranks, each with the bug of this name planted, if any."""
    results = []
    for task, args, bug in jobs:
        with contextlib.ExitStack() as planted:
            for where, name, wrong in BUGS.get(bug, lambda: [])():
                planted.enter_context(mock.patch.object(where, name, wrong))
            results.append(task(wire, *args))
    return results


def heads_logits(wire: Wire, folder: Path, ids: Tensor, split: list[int]) -> Tensor:
    """All logits of a model whose heads lie apart."""
    model = heads.load_share(folder, wire)
    return in_passes(model, ids, split, StaticCache(model.config, len(ids), dtype=torch.float64))


def rows_logits(wire: Wire, folder: Path, ids: Tensor, split: list[int]) -> Tensor:
    """All logits of a model whose rows lie apart."""
    model = rows.load_merging(folder, wire)
    cache = RowsOfRank(model.config, wire.rank, wire.world, batch=len(ids), dtype=torch.float64)
    return in_passes(model, ids, split, cache)


Patches = list[tuple[Any, str, Any]]


def sum_forgotten() -> Patches:
    right, calls = Wire.all_reduce, iter(range(10**6))

    def all_reduce(wire: Wire, x: Tensor, what: str) -> Tensor:
        whole = right(wire, x, what)
        return x if next(calls) % 2 else whole

    return [(Wire, "all_reduce", all_reduce)]


def kv_heads_of_rank_0() -> Patches:
    right = heads.heads_of_rank
    return [(heads, "heads_of_rank", lambda rank, *sizes: (right(rank, *sizes)[0], right(0, *sizes)[1]))]


def rows_counted_as_positions() -> Patches:
    """The mask is that of a cache that keeps as many rows from the beginning of the text."""

    def mask(cache: Any, T: int, layer: int = 0) -> Tensor:
        S = len(range(cache.rank, cache.length + T, cache.world))
        return torch.arange(S) <= cache.positions(T)[:, None] // cache.world

    return [(RowsOfRank, "mask", mask)]


def rows_of_the_handover_not_counted() -> Patches:
    class Forgetful(StaticCache):
        def advance(self, T: int) -> None:
            super().advance(T if T == 1 else 0)

    return [(handover, "StaticCache", Forgetful)]


BUGS: dict[str, Callable[[], Patches]] = {
    "one sum forgotten": sum_forgotten,
    "everyone has rank 0's KV heads": kv_heads_of_rank_0,
    "merged by plain average": lambda: [(rows, "merged", lambda o, lse: o.mean(0))],
    "rows counted as positions": rows_counted_as_positions,
    "rows received and not counted": rows_of_the_handover_not_counted,
}


def fail(wire: Wire, how: str, folder: Path) -> Any:
    """Leave a note of this process; then rank 1 fails while the others wait for it."""
    (folder / str(os.getpid())).touch()
    if wire.rank == 1:
        match how:
            case "raise":
                raise LookupError("no such thing")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "leave":
                os._exit(3)
            case "hang":
                time.sleep(60)
            case "give what cannot be sent":
                return lambda: None
    if how == "raise":
        time.sleep(120)  # it computes, and does not see that the other is gone
    return wire.all_reduce(torch.ones(1), "sum")


def stay(wire: Wire, port: int) -> None:
    """Call at a port; then rank 0 computes for a minute, and rank 1 waits for it."""
    socket.create_connection(("127.0.0.1", port)).send(b"!")
    end = time.monotonic() + 60
    while wire.rank == 0 and time.monotonic() < end:
        pass
    wire.all_reduce(torch.ones(1), "sum")
