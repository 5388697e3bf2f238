"""What ranks say to each other, with every byte counted that they hand over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from helpers.model.cache import Cache
from helpers.model.transformer import Transformer


@dataclass(frozen=True)
class Report:
    """What one rank did.

    Attributes:
        words: ids that it says.
        weights, rows: bytes that it holds.
        sent: bytes that it handed over, by what they are for.
    """

    words: list[int]
    weights: int
    rows: int
    sent: dict[str, int]


class Wire:
    """One rank's end of the line to the others, over torch.distributed; a run has started it.

    Attributes:
        rank, world: which of how many this is, from 0.
        sent: bytes that this rank has handed over, by what they are for. With two ranks that is what leaves
            it, but for some 100 bytes a message; in a sum of n ranks each sends 2 (n - 1) / n times as much
            if they stand in a ring, more by other algorithms; and to gather, n - 1 times.
    """

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.sent: Counter[str] = Counter()

    def send(self, x: Tensor, to: int, what: str) -> None:
        """Send a tensor to a rank, and wait until it takes it."""
        dist.send(self.counted(x, what), to)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        """Wait for a tensor of a rank; sizes and type do not travel with it."""
        x = torch.empty(shape, dtype=dtype)
        dist.recv(x, source)
        return x

    def all_reduce(self, x: Tensor, what: str) -> Tensor:
        """Return the sum of what all ranks bring."""
        x = self.counted(x, what).clone()
        dist.all_reduce(x)
        return x

    def all_gather(self, x: Tensor, what: str) -> Tensor:
        """Return what all ranks bring, (n, …), in their order."""
        x = self.counted(x, what)
        everyone = [torch.empty_like(x) for _ in range(self.world)]
        dist.all_gather(everyone, x)
        return torch.stack(everyone)

    def report(self, words: list[int], model: Transformer, cache: Cache) -> Report:
        """Return what this rank did."""
        weights = sum(weight.nbytes for weight in model.parameters())  # a tied matrix counts once
        return Report(words, weights, cache.nbytes, dict(self.sent))

    def counted(self, x: Tensor, what: str) -> Tensor:
        """Count a tensor, and return it as one block of memory."""
        self.sent[what] += x.nbytes
        return x.contiguous()
