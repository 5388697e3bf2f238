"""Rotary positions, the core of attention, and the layer around it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.cache import Cache
from helpers.model.config import Llama3Scaling, ModelConfig


def rope_frequencies(config: ModelConfig) -> Tensor:
    """Return the rotation of each pair of numbers in radians per position, (D / 2,).

    It is float32 on the CPU whatever the model's dtype: in bfloat16 positions over 256 would coincide.

    Source: RoPE, Su et al. 2021, arXiv:2104.09864.
    """
    exponents = torch.arange(0, config.head_dim, 2, device="cpu").float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    return frequencies if scaling is None else llama3_scaling(frequencies, scaling)


def llama3_scaling(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Divide low frequencies by `factor`, keep high ones, and interpolate in between (Llama 3.1)."""
    turns = scaling.original_max_seq_len * frequencies / (2 * math.pi)  # full turns in the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    unscaled = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - unscaled) * frequencies / scaling.factor + unscaled * frequencies


def rotation(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines that rotate queries and keys at these positions.

    Args:
        positions: absolute, from 0, (T,), or (B, T) if each sequence has its own.
        frequencies: radians per position, (D / 2,).
        dtype: of the result; the angles are computed in float32.

    Returns:
        Two tensors (1, T, D), or (B, 1, T, D), shared by all heads.
    """
    angles = positions[..., None, :, None].float() * frequencies  # (1, T, D / 2): the same for all heads
    angles = torch.cat([angles, angles], dim=-1)  # number i is paired with number i + D / 2
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair of numbers of x (B, H, T, D) by its angle: (a, b) → (a cos - b sin, b cos + a sin).

    Pairs are (i, i + D / 2), the layout of Hugging Face checkpoints; the paper's are (2i, 2i + 1).
    """
    up, right = x.chunk(2, dim=-1)
    quarter = torch.cat([-right, up], dim=-1)  # each pair turned by a quarter of a round
    return x * cos + quarter * sin


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Scores, mask, softmax, average: the core of attention.

    Args:
        q: queries, (B, H, T, D).
        k: keys of all positions so far, (B, Hkv, S, D); each KV head serves H / Hkv query heads.
        v: values, (B, Hkv, S, Dv).
        mask: (T, S) or (B, 1, T, S), True where a query may attend to a key.
        scale: factor of the scores q · k.

    Returns:
        Contexts, (B, H, T, Dv).

    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """
    # Never is_causal=True: it aligns the mask top-left, so one query of five keys would see the first only.
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


class Core(nn.Module):
    """The core of attention as a module, so that a forward hook can observe it."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts, (B, H, T, Dv); see `attend`."""
        return attend(q, k, v, mask, self.scale)


class Attention(nn.Module):
    """Project to Q, K and V, rotate, append to the cache, attend, project back.

    Args:
        config: sizes; n_kv_heads makes it MHA (H), GQA (between) or MQA (1).
        layer: its index, from 0.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        C, D, bias = config.hidden_size, config.head_dim, config.qkv_bias
        self.layer, self.head_dim = layer, D
        self.q_proj = nn.Linear(C, config.n_heads * D, bias=bias)
        self.k_proj = nn.Linear(C, config.n_kv_heads * D, bias=bias)
        self.v_proj = nn.Linear(C, config.n_kv_heads * D, bias=bias)
        self.o_proj = nn.Linear(config.n_heads * D, C, bias=False)
        self.core = Core(scale=D**-0.5)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Mix positions: x (B, T, C) → (B, T, C).

        Args:
            x: the new tokens.
            cos_sin: cosines and sines of their positions; see `rotation`.
            cache: stores the new keys and values; returns those that may be attended to, and the mask.
        """
        q, k, v = (self.split_heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, *cos_sin), rotate(k, *cos_sin)
        keys, values = cache.append(self.layer, k, v)  # (B, Hkv, S, D)
        mask = cache.mask(x.shape[1], self.layer)  # (T, S)
        contexts = self.core(q, keys, values, mask)  # (B, H, T, D)
        return self.o_proj(contexts.transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H * D) → (B, H, T, D). A view alone, without the transpose, would mix tokens and heads."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
