"""Communication between ranks: they send tensors to each other, and each rank counts the bytes it sends."""

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
    """What one rank generated, stored and sent.

    Attributes:
        output_ids: ids of the tokens that the rank generated.
        weight_nbytes: memory of the weights that the rank holds, in bytes.
        cache_nbytes: memory of the rank's KV cache, in bytes.
        sent_nbytes: number of bytes that the rank sent, by purpose; see `Communicator`.
    """

    output_ids: list[int]
    weight_nbytes: int
    cache_nbytes: int
    sent_nbytes: dict[str, int]


class Communicator:
    """One rank's connection to the other ranks, over torch.distributed, which `run_ranks` has initialized.

    Attributes:
        rank: index of this rank, from 0.
        world_size: number of ranks.
        sent_nbytes: bytes that this rank passed to torch.distributed, by purpose. With two ranks, it sends
            this number of bytes, plus some 100 bytes per message. With n ranks, it sends 2 (n - 1) / n times
            this number in an all-reduce over a ring (more with other algorithms), and n - 1 times this number
            in an all-gather.
    """

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.sent_nbytes: Counter[str] = Counter()

    def send(self, x: Tensor, destination: int, purpose: str) -> None:
        """Send a tensor to another rank, and wait until it has been received.

        Args:
            x: the tensor.
            destination: index of the rank that receives the tensor.
            purpose: key in `sent_nbytes` to which the tensor's bytes are added.
        """
        dist.send(self.prepare_to_send(x, purpose), destination)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
        """Wait for a tensor from another rank, and return it.

        Args:
            shape, dtype: shape and dtype of the tensor, which are not sent with it.
            source: index of the rank that sends the tensor.
        """
        x = torch.empty(shape, dtype=dtype)
        dist.recv(x, source)
        return x

    def all_reduce(self, x: Tensor, purpose: str) -> Tensor:
        """Return the sum of the tensors x over all ranks. Every rank must call this with the same shape."""
        x = self.prepare_to_send(x, purpose).clone()
        dist.all_reduce(x)
        return x

    def all_gather(self, x: Tensor, purpose: str) -> Tensor:
        """Return the tensors x of all n ranks, stacked in the order of ranks to shape (n, …).

        Every rank must call this with the same shape.
        """
        x = self.prepare_to_send(x, purpose)
        gathered = [torch.empty_like(x) for _ in range(self.world_size)]
        dist.all_gather(gathered, x)
        return torch.stack(gathered)

    def report(self, output_ids: list[int], model: Transformer, cache: Cache) -> RankReport:
        """Return this rank's report, given the ids of the generated tokens, its model and its cache."""
        weight_nbytes = sum(weight.nbytes for weight in model.parameters())  # a tied matrix counts once
        return RankReport(output_ids, weight_nbytes, cache.nbytes, dict(self.sent_nbytes))

    def prepare_to_send(self, x: Tensor, purpose: str) -> Tensor:
        """Add a tensor's bytes to `sent_nbytes`. Return the tensor as one contiguous block of memory."""
        self.sent_nbytes[purpose] += x.nbytes
        return x.contiguous()
