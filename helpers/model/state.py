"""Linear attention: a layer that keeps a state instead of rows, of one size whatever the text."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.attention import Attention, rotate
from helpers.model.cache import Cache, StateCache
from helpers.model.config import StateConfig
from helpers.model.transformer import RMSNorm, Transformer, draw_weights

CHUNK = 64  # tokens a product takes: the triangle's work grows with their square, the state's does not


def step(state: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Take one token: the state fades, k vᵀ comes in, q reads it. Arguments as in `in_chunk`, T = 1."""
    state = g * state + k.mT @ v  # (B, H, D, 1) @ (B, H, 1, Dv): each number of k times each of v
    return q @ state, state


def in_chunk(state: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Take T tokens in one product: attention's triangle without softmax. What T calls of `step` give.

    Args:
        state: what earlier tokens left, (B, H, D, Dv); zeros before the first; one head may lack B, H.
        g: the share of the state that a step leaves, between 0 and 1, (H, 1, 1); a number for one head.
        q, k, v: queries, keys and values of the new tokens, (B, H, T, D), (B, H, T, D), (B, H, T, Dv).

    Returns:
        Contexts, (B, H, T, Dv), and the state after the last token.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236; fading, Sun et al. 2023, arXiv:2307.08621.
    """
    at = torch.arange(q.shape[-2], device=q.device)
    ages = (at[:, None] - at).tril()  # (T, T): how many steps ago a token came in, seen from a query
    left = (g**ages).tril()  # (H, T, T): what is left of it
    contexts = (q @ k.mT * left) @ v + g ** (at[:, None] + 1) * (q @ state)
    faded = left[..., -1:, :].mT * k  # what the new state keeps of each key, (B, H, T, D)
    return contexts, g ** len(at) * state + faded.mT @ v


class StateAttention(Attention):
    """Project to Q, K and V, rotate, scale to length 1, take the tokens into the state, project back.

    Each query head has a state of its own and a learned share of it that a step leaves. Arguments and the
    projections are those of `Attention`.
    """

    def __init__(self, config: StateConfig, layer: int) -> None:
        super().__init__(config, layer)
        del self.core  # no softmax, and no rows to look at
        self.groups = config.n_heads // config.n_kv_heads
        # Begun at 0.875, which forgets in some 8 tokens, to 0.998, which does in 512.
        powers = [3 + 6 * head / max(1, config.n_heads - 1) for head in range(config.n_heads)]
        self.decay = nn.Parameter(torch.tensor([math.log(2**power - 1) for power in powers]))
        self.norm = RMSNorm(config.head_dim, config.norm_eps)  # without softmax a sum has any size

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Mix positions: x (B, T, C) → (B, T, C); arguments as in `Attention`."""
        q, k, v = (self.split_heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (F.normalize(rotate(each, *cos_sin), dim=-1) for each in (q, k))
        k, v = (each.repeat_interleave(self.groups, dim=1) for each in (k, v))  # (B, H, T, D)
        contexts, state = self.take_in(cache.state(self.layer), q, k, v)
        cache.set_state(self.layer, state)
        return self.o_proj(self.norm(contexts).transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def take_in(self, state: Tensor, *qkv: Tensor) -> tuple[Tensor, Tensor]:
        """Return contexts (B, H, T, D) and the new state: a step for one token, a triangle for each chunk."""
        g = self.decay.sigmoid()[:, None, None]
        if qkv[0].shape[2] == 1:
            return step(state, g, *qkv)
        contexts = []
        for chunk in zip(*(each.split(CHUNK, dim=2) for each in qkv), strict=True):
            context, state = in_chunk(state, g, *chunk)
            contexts.append(context)
        return torch.cat(contexts, dim=2), state


class StateTransformer(Transformer):
    """A `Transformer` in which the layers `config.state_layers` keep a state; the others keep rows."""

    def __init__(self, config: StateConfig) -> None:
        super().__init__(config)
        for layer in config.state_layers:
            self.layers[layer].self_attn = StateAttention(config, layer).apply(draw_weights)

    def new_cache(self, kind: Any = StateCache, **sizes: Any) -> Cache:
        """Return an empty cache; the kind is always a `StateCache`."""
        return super().new_cache(StateCache, **sizes)
