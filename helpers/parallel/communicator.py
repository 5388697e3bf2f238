"""How ranks send tensors to each other; every byte that they send is counted."""

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
        output_ids: ids of the tokens that it generated.
        weight_nbytes, cache_nbytes: bytes of weights and of KV entries that it holds.
        sent_nbytes: bytes that it sent, by purpose.
    """

    output_ids: list[int]
    weight_nbytes: int
    cache_nbytes: int
    sent_nbytes: dict[str, int]


class Communicator:
    """One rank's connection to the others, over torch.distributed; `run_ranks` has started it.

    Attributes:
        rank, world_size: number of this rank, from 0, and number of all ranks.
        sent_nbytes: bytes that this rank passed to torch.distributed, by purpose. With two ranks that is what
            it sends, except some 100 bytes per message. In an all-reduce of n ranks each sends
            2 (n - 1) / n times as much if they form a ring, more with other algorithms; in an all-gather,
            n - 1 times as much.
    """

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.sent_nbytes: Counter[str] = Counter()

    def send(self, x: Tensor, destination: int, purpose: str) -> None:
        """Send a tensor to a rank, and wait until it is received."""
        dist.send(self.contiguous(x, purpose), destination)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        """Wait for a tensor from a rank; its shape and type are not sent with it."""
        x = torch.empty(shape, dtype=dtype)
        dist.recv(x, source)
        return x

    def all_reduce(self, x: Tensor, purpose: str) -> Tensor:
        """Return the sum of all ranks' tensors."""
        x = self.contiguous(x, purpose).clone()
        dist.all_reduce(x)
        return x

    def all_gather(self, x: Tensor, purpose: str) -> Tensor:
        """Return all ranks' tensors, (n, …), in the order of ranks."""
        x = self.contiguous(x, purpose)
        gathered = [torch.empty_like(x) for _ in range(self.world_size)]
        dist.all_gather(gathered, x)
        return torch.stack(gathered)

    def report(self, output_ids: list[int], model: Transformer, cache: Cache) -> Report:
        """Return what this rank did."""
        weight_nbytes = sum(weight.nbytes for weight in model.parameters())  # a tied matrix counts once
        return Report(output_ids, weight_nbytes, cache.nbytes, dict(self.sent_nbytes))

    def contiguous(self, x: Tensor, purpose: str) -> Tensor:
        """Count the bytes of a tensor that is to be sent, and return it as one block of memory."""
        self.sent_nbytes[purpose] += x.nbytes
        return x.contiguous()
