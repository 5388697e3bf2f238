"""Variants of attention: with normalized queries and keys (as in Qwen3), or without rotation (SmolLM3)."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.model.attention import Attention, rotate
from helpers.model.cache import Cache
from helpers.model.config import ModelConfig, NoPEConfig, QKNormConfig
from helpers.model.transformer import RMSNorm, Transformer, init_weights


class QKNormAttention(Attention):
    """`Attention` that normalizes the query and key of each head before rotating them.

    The weights of the two norms thus limit the attention scores, however large the residual stream becomes.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        q, k, v = (self.split_heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(self.q_norm(q), *cos_sin), rotate(self.k_norm(k), *cos_sin)
        keys, values = cache.append(self.layer, k, v)  # (B, Hkv, S, D)
        contexts = self.core(q, keys, values, cache.mask(x.shape[1], self.layer))  # (B, H, T, D)
        return self.o_proj(contexts.transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)


class NoPEAttention(Attention):
    """`Attention` without rotation. It learns about positions only from the mask and from other layers."""

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        cos, sin = cos_sin
        return super().forward(x, (torch.ones_like(cos), torch.zeros_like(sin)), cache)


class QKNormTransformer(Transformer):
    """A `Transformer` with `QKNormAttention` in all blocks. Its parameters are named as in Qwen3."""

    def __init__(self, config: QKNormConfig) -> None:
        super().__init__(config)
        for layer, block in enumerate(self.layers):
            block.self_attn = QKNormAttention(config, layer).apply(init_weights)


class NoPETransformer(Transformer):
    """A `Transformer` whose layers in `config.nope_layers` do not rotate queries and keys, as in SmolLM3."""

    def __init__(self, config: NoPEConfig) -> None:
        super().__init__(config)
        for layer in config.nope_layers:
            self.layers[layer].self_attn = NoPEAttention(config, layer).apply(init_weights)
