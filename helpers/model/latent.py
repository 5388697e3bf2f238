"""Latent attention (MLA): one short row a token, of which the keys and values of every head are made."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from helpers.model.attention import Core, rope_frequencies, rotate
from helpers.model.cache import Cache
from helpers.model.config import LatentConfig
from helpers.model.transformer import RMSNorm, Transformer, draw_weights

# Of the norm of the latent: Hugging Face's model has it fixed, whatever norm_eps its config says.
EPS = 1e-6


class LatentAttention(nn.Module):
    """Project to queries and to one row for all heads, append the row, make keys and values of it, attend.

    Attributes:
        absorbed: False makes keys and values of every row for every head in each pass (expanded). True lets
            queries and contexts change instead, so that attention works on the rows themselves, as MQA with
            one wide head. The same function, to rounding.

    Source: DeepSeek-AI 2024, arXiv:2405.04434; without the compression of queries.
    """

    def __init__(self, config: LatentConfig, layer: int) -> None:
        super().__init__()
        C, H, D = config.hidden_size, config.n_heads, config.head_dim
        self.layer, self.n_heads, self.absorbed = layer, H, False
        self.widths = [D, config.rope_dim]  # of a query: what is not rotated, what is
        self.row_widths = [config.rank, config.rope_dim]
        self.q_proj = nn.Linear(C, H * sum(self.widths), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(C, config.k_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(config.rank, EPS)
        self.kv_b_proj = nn.Linear(config.rank, H * 2 * D, bias=False)
        self.o_proj = nn.Linear(H * D, C, bias=False)
        self.core = Core(scale=sum(self.widths) ** -0.5)  # of the expanded keys' width, in both forms

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Mix positions: x (B, T, C) → (B, T, C); arguments as in `Attention`."""
        q, q_rope = self.split_heads(self.q_proj(x)).split(self.widths, dim=-1)  # (B, H, T, D), (B, H, T, R)
        latent, k_rope = self.kv_a_proj_with_mqa(x)[:, None].split(self.row_widths, dim=-1)  # (B, 1, T, …)
        row = torch.cat([self.kv_a_layernorm(latent), rotate(k_rope, *cos_sin)], dim=-1)
        rows, _ = cache.append(self.layer, row, row[..., :0])  # (B, 1, S, rank + R); of values, no numbers
        mask = cache.mask(x.shape[1], self.layer)
        form = self.absorb if self.absorbed else self.expand
        contexts = form(q, rotate(q_rope, *cos_sin), rows, mask)  # (B, H, T, D)
        return self.o_proj(contexts.transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def expand(self, q: Tensor, q_rope: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Make every head's keys and values of the rows, then attend as always: (B, H, T, D)."""
        latent, k_rope = rows.split(self.row_widths, dim=-1)
        k, v = self.split_heads(self.kv_b_proj(latent[:, 0])).chunk(2, dim=-1)  # (B, H, S, D) each
        k = torch.cat([k, k_rope.expand(-1, self.n_heads, -1, -1)], dim=-1)
        return self.core(torch.cat([q, q_rope], dim=-1), k, v, mask)

    def absorb(self, q: Tensor, q_rope: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Attend on the rows: q · (W c) = (Wᵀ q) · c, and the sum of W c is W times the sum: (B, H, T, D)."""
        to_k, to_v = self.kv_b_proj.weight.unflatten(0, (self.n_heads, -1)).chunk(2, dim=1)  # (H, D, rank)
        wide = torch.cat([q @ to_k, q_rope], dim=-1)  # (B, H, T, rank + R)
        latents = self.core(wide, rows, rows[..., : self.row_widths[0]], mask)  # (B, H, T, rank)
        return latents @ to_v.mT

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H * n) → (B, H, T, n)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class LatentTransformer(Transformer):
    """A `Transformer` with latent attention in every block; parameters as in Hugging Face's DeepSeek-V3."""

    def __init__(self, config: LatentConfig) -> None:
        super().__init__(config)
        self.frequencies = rope_frequencies(replace(config, head_dim=config.rope_dim))
        for layer, block in enumerate(self.layers):
            block.self_attn = LatentAttention(config, layer).apply(draw_weights)

    def absorb(self, on: bool = True) -> None:
        """Switch every layer to the absorbed form, or back to the expanded one."""
        for module in self.modules():
            if isinstance(module, LatentAttention):
                module.absorbed = on
