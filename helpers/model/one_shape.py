"""Batch-invariant inference: matrix products and attention are always computed in the same shape.

A library for matrix products chooses its order of summation by the shape of the input: one row and eight
rows, for example, may be summed in different orders. The last digits of logits therefore depend on what else
is in the batch. In this module, every matrix product has 8 rows, and every attention call has 8 queries and
16 keys. The last block is padded with zeros. The many small calls make inference slower.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.attention import Core
from helpers.model.transformer import RMSNorm, SwiGLU, Transformer

ROWS, KEYS = 8, 16


def make_batch_invariant(model: Transformer) -> Transformer:
    """Return a copy of a model that computes bitwise equal logits for a sequence, however it is run.

    A sequence may be run by itself or in a batch, in one pass or in chunks, with or without a cached prefix.
    The cache must return all entries from the first; with a window, blocks of keys would begin at other
    positions.

    The copy relies on one property of the library: the result for a row does not depend on the row's index
    among the 8 rows. Tests check this, but no library guarantees it, and it does not hold for narrow
    matrices.

    Raises:
        ValueError: a width is not a multiple of 8, or the model is not a plain `Transformer`.

    Source: "Defeating nondeterminism in LLM inference", He and Thinking Machines Lab 2025.
    """
    if type(model) is not Transformer:
        message = f"the model is a {type(model).__name__}; expected a Transformer"
        raise ValueError(f"{message}: other attention classes are not supported")
    for name in ("hidden_size", "head_dim", "intermediate_size"):
        if (width := getattr(model.config, name)) % ROWS:
            raise ValueError(f"{name} is {width}; expected a multiple of {ROWS}")
    copied = copy.deepcopy(model)
    replace_with_blockwise(copied)
    return copied


def replace_with_blockwise(module: nn.Module) -> None:
    """Replace all attention cores, linear layers, norms and MLPs in a module by blockwise versions."""
    for name, part in module.named_children():
        if isinstance(part, Core):
            setattr(module, name, BlockwiseCore(part.scale))
        elif isinstance(part, nn.Linear | RMSNorm | SwiGLU):
            setattr(module, name, Blockwise(part))
        else:
            replace_with_blockwise(part)


class Blockwise(nn.Module):
    """A wrapper that calls a module with 8 tokens at a time. The module must process tokens independently."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """Call the module with 8 tokens of x at a time, and return its outputs for all of them.

        x has shape (…, C). The last block is padded with zeros.
        """
        rows = x.reshape(-1, x.shape[-1])  # (N, C)
        padded = F.pad(rows, (0, 0, 0, -len(rows) % ROWS))
        out = torch.cat([self.part(block) for block in padded.split(ROWS)])
        return out[: len(rows)].view(*x.shape[:-1], -1)


class BlockwiseCore(Core):
    """The core of attention, computed for 8 queries and 16 keys at a time, in the order of the keys."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return the contexts, of shape (B, H, T, Dv), computed in float32 or wider.

        The arguments are those of `attend`.
        """
        dtype, (B, H, T, _) = torch.promote_types(q.dtype, torch.float32), q.shape
        queries, keys, values = (
            blocks(x.to(dtype).repeat_interleave(H // x.shape[1], 1), size)
            for x, size in ((q, ROWS), (k, KEYS), (v, KEYS))
        )
        mask = F.pad(mask.expand(B, 1, T, -1)[:, 0], (0, -k.shape[2] % KEYS, 0, -T % ROWS))
        seen = mask.unflatten(2, (-1, KEYS)).unflatten(1, (-1, ROWS)).transpose(2, 3)  # (B, n, m, 8, 16)
        contexts = [
            torch.cat(
                [self.merge_blocks(*x, keys[b], values[b]) for x in zip(queries[b], seen[b], strict=True)], 1
            )
            for b in range(B)
        ]
        return torch.stack(contexts)[:, :, :T].to(q.dtype)

    def merge_blocks(self, q: Tensor, seen: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Let 8 queries attend to one block of keys after another, and merge the results.

        Args:
            q: 8 queries, of shape (H, 8, D).
            seen: for each of the m blocks, which keys each query may attend to, of shape (m, 8, 16).
            keys: blocks of keys, of shape (m, H, 16, D).
            values: blocks of values, of shape (m, H, 16, Dv).

        Returns:
            Contexts, of shape (H, 8, Dv), with 0 for a query that may not attend to any key.

        Source: online softmax, Milakov and Gimelshein 2018, arXiv:1805.02867.
        """
        peak = q.new_full((*q.shape[:2], 1), torch.finfo(q.dtype).min)
        total, contexts = torch.zeros_like(peak), q.new_zeros(*q.shape[:2], values.shape[-1])
        for k, v, mask in zip(keys, values, seen, strict=True):
            scores = (q @ k.mT * self.scale).masked_fill(~mask, -torch.inf)  # (H, 8, 16)
            previous, peak = peak, torch.maximum(peak, scores.amax(-1, keepdim=True))
            rescale, weights = (previous - peak).exp(), (scores - peak).exp()
            total = total * rescale + weights.sum(-1, keepdim=True)
            contexts = contexts * rescale + weights @ v
        return contexts / total.clamp(min=1)  # the largest score has weight 1


def blocks(x: Tensor, size: int) -> Tensor:
    """Split x into n blocks of `size` tokens, each contiguous in memory.

    x has shape (B, H, T, D), the result (B, n, H, size, D). The last block is padded with zeros.
    """
    padded = F.pad(x, (0, 0, 0, -x.shape[2] % size))
    return padded.unflatten(2, (-1, size)).transpose(1, 2).contiguous()
