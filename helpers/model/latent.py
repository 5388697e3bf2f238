"""Latent attention (MLA): each token stores one short latent, from which keys and values are computed."""

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

    Unlike in the paper, queries are not compressed.

    Source: DeepSeek-AI 2024, arXiv:2405.04434.
    """

    def __init__(self, config: LatentConfig, layer: int) -> None:
        super().__init__()
        C, H, D = config.hidden_size, config.n_heads, config.head_dim
        self.layer, self.n_heads = layer, H
        self.query_widths = [D, config.rope_dim]  # channels that are not rotated, and channels that are
        self.latent_widths = [config.rank, config.rope_dim]
        self.q_proj = nn.Linear(C, H * sum(self.query_widths), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(C, config.k_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(config.rank, EPS)
        self.kv_b_proj = nn.Linear(config.rank, H * 2 * D, bias=False)
        self.o_proj = nn.Linear(H * D, C, bias=False)
        self.core = Core(scale=sum(self.query_widths) ** -0.5)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Return what attention adds to the residual stream, of shape (B, T, C).

        The arguments are those of `Attention.forward`.
        """
        q, q_rope = self.split_heads(self.q_proj(x)).split(self.query_widths, dim=-1)  # (B, H, T, D), (…, R)
        latent, k_rope = self.kv_a_proj_with_mqa(x)[:, None].split(self.latent_widths, dim=-1)  # (B, 1, T, …)
        new = torch.cat([self.kv_a_layernorm(latent), rotate(k_rope, *cos_sin)], dim=-1)
        latents, _ = cache.append(self.layer, new, new[..., :0])  # (B, 1, S, rank + R); values of width 0
        mask = cache.mask(x.shape[1], self.layer)
        contexts = self.attend(q, rotate(q_rope, *cos_sin), latents, mask)  # (B, H, T, D)
        return self.o_proj(contexts.transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def attend(self, q: Tensor, q_rope: Tensor, latents: Tensor, mask: Tensor) -> Tensor:
        """Compute each head's keys and values from the latents, then attend. Return the contexts.

        The contexts have shape (B, H, T, D).

        Args:
            q: channels of the queries that are not rotated, of shape (B, H, T, D).
            q_rope: rotated channels of the queries, of shape (B, H, T, rope_dim).
            latents: entries of the cache, of shape (B, 1, S, rank + rope_dim).
            mask: as in `helpers.model.attention.attend`.
        """
        latent, k_rope = latents.split(self.latent_widths, dim=-1)
        k, v = self.split_heads(self.kv_b_proj(latent[:, 0])).chunk(2, dim=-1)  # (B, H, S, D) each
        k = torch.cat([k, k_rope.expand(-1, self.n_heads, -1, -1)], dim=-1)
        return self.core(torch.cat([q, q_rope], dim=-1), k, v, mask)

    def split_heads(self, x: Tensor) -> Tensor:
        """Split x, of shape (B, T, H * n), into heads. The result has shape (B, H, T, n)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class LatentTransformer(Transformer):
    """A `Transformer` with latent attention in all blocks. Its parameters are named as in DeepSeek-V3."""

    def __init__(self, config: LatentConfig) -> None:
        super().__init__(config)
        self.frequencies = rope_frequencies(replace(config, head_dim=config.rope_dim))
        for layer, block in enumerate(self.layers):
            block.self_attn = LatentAttention(config, layer).apply(init_weights)
