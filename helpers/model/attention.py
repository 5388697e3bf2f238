"""Rotary position embeddings (RoPE), the core of attention, and the attention layer."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.cache import Cache
from helpers.model.config import Llama3Scaling, ModelConfig


def rope_frequencies(config: ModelConfig) -> Tensor:
    """Return the RoPE frequencies: the rotation of each pair of channels, in radians per position.

    The result has shape (D / 2,). It is float32 on the CPU, whatever the model's dtype and device: in
    bfloat16, neighboring positions above 256 would coincide.

    Source: RoPE, Su et al. 2021, arXiv:2104.09864.
    """
    exponents = torch.arange(0, config.head_dim, 2, device="cpu").float() / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    scaling = config.rope_scaling
    return frequencies if scaling is None else llama3_scaling(frequencies, scaling)


def llama3_scaling(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Return RoPE frequencies scaled as in Llama 3.1.

    Low frequencies are divided by `factor`, and high frequencies are left unchanged. In between, the result
    is interpolated.
    """
    turns = scaling.original_max_seq_len * frequencies / (2 * math.pi)  # full turns in the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    unscaled = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - unscaled) * frequencies / scaling.factor + unscaled * frequencies


def rope_cos_sin(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines that rotate queries and keys at these positions.

    Args:
        positions: positions of the tokens in their sequence, from 0, of shape (T,), or (B, T) if sequences
            differ.
        frequencies: from `rope_frequencies`, in radians per position, of shape (D / 2,).
        dtype: dtype of the result; the angles are computed in float32.

    Returns:
        Cosines and sines, each of shape (1, T, D), or (B, 1, T, D) if `positions` has shape (B, T). All heads
        use the same ones.
    """
    angles = positions[..., None, :, None].float() * frequencies  # (1, T, D / 2): the same for all heads
    angles = torch.cat([angles, angles], dim=-1)  # channel i is paired with channel i + D / 2
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair of channels in x by its angle: (a, b) → (a cos - b sin, b cos + a sin).

    x has shape (B, H, T, D). Channel i is paired with channel i + D / 2, as in Hugging Face checkpoints. In
    the RoPE paper, channel 2i is paired with channel 2i + 1.
    """
    up, right = x.chunk(2, dim=-1)
    quarter = torch.cat([-right, up], dim=-1)  # each pair rotated by 90 degrees
    return x * cos + quarter * sin


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Compute the core of attention: scores, mask, softmax, and the weighted average of the values.

    Args:
        q: queries, of shape (B, H, T, D).
        k: keys, of shape (B, Hkv, S, D); each KV head serves H / Hkv query heads.
        v: values, of shape (B, Hkv, S, Dv).
        mask: attention mask, of shape (T, S) or (B, 1, T, S), True where a query may attend to a key.
        scale: factor by which the dot products q · k are multiplied.

    Returns:
        Contexts, of shape (B, H, T, Dv): for each query, the weighted average of the values.

    Source: Vaswani et al. 2017, arXiv:1706.03762.
    """
    # Not is_causal=True, which aligns the mask top-left: one query over five keys would see only the first.
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


class Core(nn.Module):
    """The core of attention as a module, so that forward hooks can observe it."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return the contexts, of shape (B, H, T, Dv). The arguments are those of `attend`."""
        return attend(q, k, v, mask, self.scale)


class Attention(nn.Module):
    """An attention layer, from the residual stream to what attention adds to it.

    It projects its input to Q, K and V, rotates Q and K, appends K and V to the cache, attends, and projects
    the contexts back to the width of the residual stream.

    Args:
        config: config of the model. The layer is MHA if n_kv_heads equals n_heads, MQA if n_kv_heads is 1,
            and GQA in between.
        layer: index of the layer, from 0.
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
        """Return what attention adds to the residual stream of each new token, of shape (B, T, C).

        Args:
            x: normalized residual stream of the new tokens, of shape (B, T, C).
            cos_sin: cosines and sines for the positions of the new tokens; see `rope_cos_sin`.
            cache: stores the new keys and values, and returns all keys and values to attend to, with a mask.
        """
        q, k, v = (self.split_heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, *cos_sin), rotate(k, *cos_sin)
        keys, values = cache.append(self.layer, k, v)  # (B, Hkv, S, D)
        mask = cache.mask(x.shape[1], self.layer)  # (T, S)
        contexts = self.core(q, keys, values, mask)  # (B, H, T, D)
        return self.o_proj(contexts.transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def split_heads(self, x: Tensor) -> Tensor:
        """Split x, of shape (B, T, H * D), into heads. The result has shape (B, H, T, D).

        This needs a transpose: a reshape alone would mix tokens and heads.
        """
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
