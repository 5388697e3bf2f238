"""Communication between ranks, which send tensors to each other and count the bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from helpers.model.cache import Cache
from helpers.model.transformer import Transformer


@dataclass(frozen=True)
class RankReport:
    """A report of what one rank generated, stored and sent.

    Attributes:
        output_ids: ids of the tokens that the rank generated.
        weight_nbytes: bytes of the weights that the rank holds.
        cache_nbytes: bytes of the rank's KV cache.
        sent_nbytes: bytes that the rank sent, by purpose; see `Communicator`.
    """

    output_ids: list[int]
    weight_nbytes: int
    cache_nbytes: int
    sent_nbytes: dict[str, int]


class Communicator:
    """One rank's connection to the other ranks, over torch.distributed, which `run_ranks` has initialized.

    Attributes:
        rank: number of this rank, from 0.
        world_size: number of ranks.
        sent_nbytes: bytes that this rank passed to torch.distributed, by purpose. With two ranks, the rank
            sends this many bytes, plus some 100 bytes per message. With n ranks, each rank sends
            2 (n - 1) / n times as many bytes in an all-reduce over a ring, more with other algorithms; in an
            all-gather, n - 1 times as many.
    """

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.sent_nbytes: Counter[str] = Counter()

    def send(self, x: Tensor, destination: int, purpose: str) -> None:
        """Send a tensor to another rank, and wait until it has been received.

        Args:
            x: the tensor.
            destination: number of the rank that receives it.
            purpose: under which its bytes are counted.
        """
        dist.send(self.prepare_to_send(x, purpose), destination)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        """Wait for a tensor from another rank, and return it.

        Args:
            shape, dtype: those of the tensor, which are not sent with it.
            source: number of the rank that sends it.
        """
        x = torch.empty(shape, dtype=dtype)
        dist.recv(x, source)
        return x

    def all_reduce(self, x: Tensor, purpose: str) -> Tensor:
        """Return the sum of the tensors of all ranks. Every rank must call this with the same shape."""
        x = self.prepare_to_send(x, purpose).clone()
        dist.all_reduce(x)
        return x

    def all_gather(self, x: Tensor, purpose: str) -> Tensor:
        """Return the tensors of all n ranks, (n, …), in the order of ranks.

        Every rank must call this with the same shape.
        """
        x = self.prepare_to_send(x, purpose)
        gathered = [torch.empty_like(x) for _ in range(self.world_size)]
        dist.all_gather(gathered, x)
        return torch.stack(gathered)

    def report(self, output_ids: list[int], model: Transformer, cache: Cache) -> RankReport:
        """Return a report of this rank, given the ids that it generated, its model and its cache."""
        weight_nbytes = sum(weight.nbytes for weight in model.parameters())  # a tied matrix counts once
        return RankReport(output_ids, weight_nbytes, cache.nbytes, dict(self.sent_nbytes))

    def prepare_to_send(self, x: Tensor, purpose: str) -> Tensor:
        """Count the bytes of a tensor to be sent, and return the tensor as one contiguous block of memory."""
        self.sent_nbytes[purpose] += x.nbytes
        return x.contiguous()
