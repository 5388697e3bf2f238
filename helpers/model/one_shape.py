"""One order of sums for every batch: each product and each attention is called in one shape, always.

A library chooses the order of a sum by the shape that it gets: one row or eight, 50 keys or 60. So the last
digits of a reply depend on what else is in the batch. Here a product gets 8 rows, and attention 8 queries and
16 keys, whatever runs; zeros fill the last block up. What it costs is time: many small calls.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.attention import Core
from helpers.model.transformer import RMSNorm, SwiGLU, Transformer

ROWS, KEYS = 8, 16


def in_one_shape(model: Transformer) -> Transformer:
    """Return a copy of a model whose logits have the same bits alone, in a batch, in chunks.

    Behind a shared beginning, too. It holds for caches that hand out every row from the first on: with a
    window, blocks would begin elsewhere. It rests on one thing that the tests measure and no library
    promises: the bits of a row do not depend on its place among the 8. With narrow matrices they do.

    Raises:
        ValueError: a width that is no multiple of 8, or a model of another class than `Transformer`.

    Source: "Defeating nondeterminism in LLM inference", He and Thinking Machines Lab 2025.
    """
    if type(model) is not Transformer:
        message = f"a {type(model).__name__} came in; expected a Transformer"
        raise ValueError(f"{message}: sums of other kinds of attention are not put in one order")
    for name in ("hidden_size", "head_dim", "intermediate_size"):
        if (width := getattr(model.config, name)) % ROWS:
            raise ValueError(f"{name} is {width}; expected a multiple of {ROWS}")
    copied = copy.deepcopy(model)
    put_in_blocks(copied)
    return copied


def put_in_blocks(module: nn.Module) -> None:
    """Put what works in blocks in the place of each part: what works on each token alone, and the cores."""
    for name, part in module.named_children():
        if isinstance(part, Core):
            setattr(module, name, CoreInBlocks(part.scale))
        elif isinstance(part, nn.Linear | RMSNorm | SwiGLU):
            setattr(module, name, InBlocks(part))
        else:
            put_in_blocks(part)


class InBlocks(nn.Module):
    """What works on each token alone, called for 8 tokens at a time."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) → (…, C'), each token by itself; zeros fill the last block up."""
        rows = x.reshape(-1, x.shape[-1])  # (N, C)
        padded = F.pad(rows, (0, 0, 0, -len(rows) % ROWS))
        done = torch.cat([self.part(block) for block in padded.split(ROWS)])
        return done[: len(rows)].view(*x.shape[:-1], -1)


class CoreInBlocks(Core):
    """The core of attention, called for 8 queries and 16 keys at a time; key blocks are merged in order."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts, (B, H, T, Dv); see `attend`. Sums run in float32 at least."""
        wide, (B, H, T, _) = torch.promote_types(q.dtype, torch.float32), q.shape
        queries, keys, values = (
            blocks(x.to(wide).repeat_interleave(H // x.shape[1], 1), size)
            for x, size in ((q, ROWS), (k, KEYS), (v, KEYS))
        )
        mask = F.pad(mask.expand(B, 1, T, -1)[:, 0], (0, -k.shape[2] % KEYS, 0, -T % ROWS))
        seen = mask.unflatten(2, (-1, KEYS)).unflatten(1, (-1, ROWS)).transpose(2, 3)  # (B, n, m, 8, 16)
        contexts = [
            torch.cat(
                [self.merged(*one, keys[b], values[b]) for one in zip(queries[b], seen[b], strict=True)], 1
            )
            for b in range(B)
        ]
        return torch.stack(contexts)[:, :, :T].to(q.dtype)

    def merged(self, q: Tensor, seen: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend to one block of keys after another, and merge what they give.

        Args:
            q: 8 queries, (H, 8, D).
            seen: which keys of each block they may look at, (m, 8, 16).
            keys, values: (m, H, 16, D) and (m, H, 16, Dv).

        Returns:
            Contexts, (H, 8, Dv); 0 for a query that may look at nothing.

        Source: online softmax, Milakov and Gimelshein 2018, arXiv:1805.02867.
        """
        most = q.new_full((*q.shape[:2], 1), torch.finfo(q.dtype).min)
        total, contexts = torch.zeros_like(most), q.new_zeros(*q.shape[:2], values.shape[-1])
        for k, v, shown in zip(keys, values, seen, strict=True):
            scores = (q @ k.mT * self.scale).masked_fill(~shown, -torch.inf)  # (H, 8, 16)
            before, most = most, torch.maximum(most, scores.amax(-1, keepdim=True))
            fade, weights = (before - most).exp(), (scores - most).exp()
            total = total * fade + weights.sum(-1, keepdim=True)
            contexts = contexts * fade + weights @ v
        return contexts / total.clamp(min=1)  # the largest score counts 1


def blocks(x: Tensor, size: int) -> Tensor:
    """(B, H, T, D) → (B, n, H, size, D), each block in one piece; zeros fill the last one up."""
    padded = F.pad(x, (0, 0, 0, -x.shape[2] % size))
    return padded.unflatten(2, (-1, size)).transpose(1, 2).contiguous()
