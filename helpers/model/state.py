"""Linear attention: layers that keep a state of fixed shape instead of one KV entry per token."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.model.attention import Attention, rotate
from helpers.model.cache import Cache, StateCache
from helpers.model.config import StateConfig
from helpers.model.transformer import RMSNorm, Transformer, init_weights

CHUNK = 64  # tokens per product; attention within a chunk takes time proportional to the square of this


def recurrent_step(state: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Process one token: decay the state, add the outer product of k and v, and multiply the state by q.

    Arguments and results are those of `chunk_step` for T = 1.
    """
    state = g * state + k.mT @ v  # (B, H, D, 1) @ (B, H, 1, Dv): the outer product
    return q @ state, state


def chunk_step(state: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Process T tokens at once, by causal attention without softmax.

    Up to rounding, the result is that of T calls of `recurrent_step`.

    Args:
        state: state after the earlier tokens, of shape (B, H, D, Dv); zeros if there are none. For a single
            head, B and H may be omitted.
        g: factor between 0 and 1 by which the state decays with each token, of shape (H, 1, 1), or a scalar
            for a single head.
        q: queries of the new tokens, of shape (B, H, T, D).
        k: keys of the new tokens, of shape (B, H, T, D).
        v: values of the new tokens, of shape (B, H, T, Dv).

    Returns:
        The contexts, of shape (B, H, T, Dv), and the state after the last token, of shape (B, H, D, Dv).

    Source: Katharopoulos et al. 2020, arXiv:2006.16236; decay, Sun et al. 2023, arXiv:2307.08621.
    """
    steps = torch.arange(q.shape[-2], device=q.device)
    ages = (steps[:, None] - steps).tril()  # (T, T): number of steps from a token to a query
    decay = (g**ages).tril()  # (H, T, T): the share of the token that remains
    contexts = (q @ k.mT * decay) @ v + g ** (steps[:, None] + 1) * (q @ state)
    decayed = decay[..., -1:, :].mT * k  # what remains of each key in the new state, (B, H, T, D)
    return contexts, g ** len(steps) * state + decayed.mT @ v


class StateAttention(Attention):
    """A layer of linear attention, with the arguments and projections of `Attention`.

    Queries and keys are rotated, then normalized to length 1. Each query head has its own state, with a
    learned decay.
    """

    def __init__(self, config: StateConfig, layer: int) -> None:
        super().__init__(config, layer)
        del self.core  # no softmax, and no entries to attend to
        self.groups = config.n_heads // config.n_kv_heads
        # Initial decays range from 0.875, which forgets within some 8 tokens, to 0.998, within some 512.
        powers = [3 + 6 * head / max(1, config.n_heads - 1) for head in range(config.n_heads)]
        self.decay = nn.Parameter(torch.tensor([math.log(2**power - 1) for power in powers]))
        self.norm = RMSNorm(config.head_dim, config.norm_eps)  # without softmax the sum is not bounded

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], cache: Cache) -> Tensor:
        """Return what the layer adds to the residual stream, of shape (B, T, C).

        The arguments are those of `Attention.forward`.
        """
        q, k, v = (self.split_heads(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (F.normalize(rotate(x, *cos_sin), dim=-1) for x in (q, k))
        k, v = (x.repeat_interleave(self.groups, dim=1) for x in (k, v))  # (B, H, T, D)
        contexts, state = self.run_chunks(cache.state(self.layer), q, k, v)
        cache.set_state(self.layer, state)
        return self.o_proj(self.norm(contexts).transpose(1, 2).flatten(2))  # (B, T, H * D) → (B, T, C)

    def run_chunks(self, state: Tensor, *qkv: Tensor) -> tuple[Tensor, Tensor]:
        """Return the contexts of the new tokens, of shape (B, H, T, D), and the state after these tokens.

        `recurrent_step` processes a single token. `chunk_step` processes more tokens, `CHUNK` at a time.
        """
        g = self.decay.sigmoid()[:, None, None]
        if qkv[0].shape[2] == 1:
            return recurrent_step(state, g, *qkv)
        contexts = []
        for chunk in zip(*(x.split(CHUNK, dim=2) for x in qkv), strict=True):
            context, state = chunk_step(state, g, *chunk)
            contexts.append(context)
        return torch.cat(contexts, dim=2), state


class StateTransformer(Transformer):
    """A `Transformer` whose layers in `config.state_layers` keep a state.

    The other layers keep KV entries.
    """

    def __init__(self, config: StateConfig) -> None:
        super().__init__(config)
        for layer in config.state_layers:
            self.layers[layer].self_attn = StateAttention(config, layer).apply(init_weights)

    def new_cache(self, cache_class: Any = StateCache, **sizes: Any) -> Cache:
        """Return an empty `StateCache`, whatever `cache_class` is.

        The other arguments are those of `Transformer.new_cache`.
        """
        return super().new_cache(StateCache, **sizes)
