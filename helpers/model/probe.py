"""Copies of a model in which some attention heads have no effect."""

from __future__ import annotations

import copy
from collections.abc import Collection

from helpers.model.transformer import Transformer


def without_heads(model: Transformer, heads: Collection[tuple[int, int]]) -> Transformer:
    """Return a copy of a model in which the output of some heads is 0.

    Args:
        heads: pairs of indices from 0: (layer, head).
    """
    copied, D = copy.deepcopy(model), model.config.head_dim
    for layer, head in heads:
        o_proj = copied.get_parameter(f"layers.{layer}.self_attn.o_proj.weight")
        o_proj.data[:, head * D : (head + 1) * D] = 0
    return copied
