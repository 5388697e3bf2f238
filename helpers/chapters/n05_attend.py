"""Notebook 04's attention layer, which asks its cache three questions; notebook 05 has the code in a fold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate pairs of numbers, i and i + 16, of x (heads, T, 32) by an angle that grows with the position."""
    angles = positions[:, None] * 10_000 ** (-torch.arange(16) / 16)
    a, b, cos, sin = x[..., :16], x[..., 16:], angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attend(matrices: Any, layer: int, h: Tensor, cache: Any) -> Any:
    """Return what the attention layer adds for its T new tokens h, (T, 128)."""
    T = len(h)
    q = matrices.q_proj(h).view(T, 4, 32).transpose(0, 1)  # (4, T, 32)
    k = matrices.k_proj(h).view(T, 2, 32).transpose(0, 1)  # (2, T, 32)
    v = matrices.v_proj(h).view(T, 2, 32).transpose(0, 1)
    mask, positions = cache.mask(T), cache.positions(T)  # questions 1 and 2
    K, V = cache.append(layer, rotate(k, positions), v)  # question 3
    scores = rotate(q, positions) @ K.repeat_interleave(2, dim=0).transpose(1, 2) / 32**0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    contexts = weights @ V.repeat_interleave(2, dim=0)  # each key and value serves two heads
    return matrices.o_proj(contexts.transpose(0, 1).reshape(T, 128))
