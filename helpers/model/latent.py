"""Latent attention (MLA): each token stores one short latent; keys and values are computed from it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from helpers.model.attention import Core, rope_frequencies, rotate
from helpers.model.cache import Cache
from helpers.model.config import LatentConfig
from helpers.model.transformer import RMSNorm, Transformer, init_weights

# norm_eps of the latent's norm, which is fixed in Hugging Face's model, whatever its config has.
EPS = 1e-6


class LatentAttention(nn.Module):
    """An attention layer that stores one latent per token, from which all heads compute keys and values.

    Source: DeepSeek-AI 2024, arXiv:2405.04434; without the compression of queries.
    """

    def __init__(self, config: LatentConfig, layer: int) -> None:
        super().__init__()
        C, H, D = config.hidden_size, config.n_heads, config.head_dim
        self.layer, self.n_heads = layer, H
        self.query_widths = [D, config.rope_dim]  # the part that is not rotated, and the part that is
        self.latent_widths = [config.rank, config.rope_dim]
        self.q_proj = nn.Linear(C, H * sum(self.query_widths), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(C, config.k_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(config.rank, EPS)
        self.kv_b_proj = nn.Linear(config.rank, H * 2 * D, bias=False)
        self.o_proj = nn.Linear(H * D, C, bias=False)
        self.core = Core(scale=sum(self.query_widths) ** -0.5)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Return what attention adds to the residual stream, (B, T, C); arguments as in `Attention`."""
        q, q_rope = self.split_heads(self.q_proj(x)).split(self.query_widths, dim=-1)  # (B, H, T, D), (…, R)
        latent, k_rope = self.kv_a_proj_with_mqa(x)[:, None].split(self.latent_widths, dim=-1)  # (B, 1, T, …)
        new = torch.cat([self.kv_a_layernorm(latent), rotate(k_rope, *cos_sin)], dim=-1)
        latents, _ = cache.append(self.layer, new, new[..., :0])  # (B, 1, S, rank + R); values of width 0
        mask = cache.mask(x.shape[1], self.layer)
        contexts = self.attend(q, rotate(q_rope, *cos_sin), latents, mask)  # (B, H, T, D)
        return self.o_proj(contexts.transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def attend(self, q: Tensor, q_rope: Tensor, latents: Tensor, mask: Tensor) -> Tensor:
        """Compute every head's keys and values from the latents, attend, and return contexts (B, H, T, D).

        Args:
            q: the part of the queries that is not rotated, (B, H, T, D).
            q_rope: the rotated part of the queries, (B, H, T, rope_dim).
            latents: entries of the cache, (B, 1, S, rank + rope_dim).
            mask: as in `attend`.
        """
        latent, k_rope = latents.split(self.latent_widths, dim=-1)
        k, v = self.split_heads(self.kv_b_proj(latent[:, 0])).chunk(2, dim=-1)  # (B, H, S, D) each
        k = torch.cat([k, k_rope.expand(-1, self.n_heads, -1, -1)], dim=-1)
        return self.core(torch.cat([q, q_rope], dim=-1), k, v, mask)

    def split_heads(self, x: Tensor) -> Tensor:
        """Split x (B, T, H * n) into heads, (B, H, T, n)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class LatentTransformer(Transformer):
    """A `Transformer` with latent attention in all blocks, and parameters named as in DeepSeek-V3."""

    def __init__(self, config: LatentConfig) -> None:
        super().__init__(config)
        self.frequencies = rope_frequencies(replace(config, head_dim=config.rope_dim))
        for layer, block in enumerate(self.layers):
            block.self_attn = LatentAttention(config, layer).apply(init_weights)
