"""What ranks say to each other, with every byte counted that they hand over."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from helpers.model.cache import KVCache
from helpers.model.transformer import Transformer


@dataclass(frozen=True)
class Report:
    """What one rank did.

    Attributes:
        words: ids that it says.
        weights, rows: bytes that it holds.
        sent: bytes that it handed over, by what they are for.
        tpot_seconds: time per output token after the first, or None.
        sums: when each sum began and ended, in seconds of a clock that all ranks of a machine have in common.
    """

    words: list[int]
    weights: int
    rows: int
    sent: dict[str, int]
    tpot_seconds: float | None = None
    sums: Sequence[tuple[float, float]] = ()


class Wire:
    """One rank's end of the line to the others, over torch.distributed; a run has started it.

    Attributes:
        rank, world: which of how many this is, from 0.
        sent: bytes that this rank has handed over, by what they are for. With two ranks that is what leaves
            it, but for some 100 bytes a message; in a sum of n ranks each sends 2 (n - 1) / n times as much
            if they stand in a ring, more by other algorithms; and to gather, n - 1 times.
        sums: when each sum began and ended.
    """

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.sent: Counter[str] = Counter()
        self.sums: list[tuple[float, float]] = []

    def send(self, x: Tensor, to: int, what: str) -> None:
        """Send a tensor to a rank, and wait until it takes it."""
        dist.send(self.counted(x, what), to)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        """Wait for a tensor of a rank; sizes and type do not travel with it."""
        x = torch.empty(shape, dtype=dtype)
        dist.recv(x, source)
        return x

    def add(self, x: Tensor, what: str) -> Tensor:
        """Return the sum of what all ranks bring."""
        x = self.counted(x, what).clone()
        begun = time.perf_counter()
        dist.all_reduce(x)
        self.sums.append((begun, time.perf_counter()))
        return x

    def gather(self, x: Tensor, what: str) -> Tensor:
        """Return what all ranks bring, (n, …), in their order."""
        x = self.counted(x, what)
        everyone = [torch.empty_like(x) for _ in range(self.world)]
        dist.all_gather(everyone, x)
        return torch.stack(everyone)

    def report(
        self, words: list[int], model: Transformer, cache: KVCache, tpot_seconds: float | None = None
    ) -> Report:
        """Return what this rank did."""
        weights = sum(weight.nbytes for weight in model.parameters())  # a tied matrix counts once
        return Report(words, weights, cache.nbytes, dict(self.sent), tpot_seconds, self.sums)

    def counted(self, x: Tensor, what: str) -> Tensor:
        """Count a tensor, and return it as one block of memory."""
        self.sent[what] += x.nbytes
        return x.contiguous()


class Stop(NamedTuple):
    """Seconds of a rank up to the end of a sum: its own work, waiting for the others, adding up."""

    own: float
    waited: float
    added: float


def usual_word(reports: Sequence[Report], n_words: int) -> list[list[Stop]]:
    """Return the stops of each rank in one word: that which took rank 0 the median time, the first left out.

    Args:
        reports: of all ranks, on one machine.
        n_words: that they said: as many passes, with equally many sums in each.
    """
    sums = [one.sums for one in reports]
    n = len(sums[0]) // n_words
    all_there = [max(begun for begun, _ in both) for both in zip(*sums, strict=True)]
    stops = [
        [
            Stop(begun - before, last - begun, over - last)
            for (_, before), (begun, over), last in zip(rank[n - 1 :], rank[n:], all_there[n:], strict=False)
        ]
        for rank in sums
    ]
    words = range(0, len(stops[0]), n)
    usual = sorted(words, key=lambda at: sum(map(sum, stops[0][at : at + n])))[len(words) // 2]
    return [rank[usual : usual + n] for rank in stops]
