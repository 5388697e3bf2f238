"""Copies of a model in which some attention heads, or one layer's MLP, have no effect."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

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


def without_mlp(model: Transformer, layer: int) -> Transformer:
    """Return a copy of a model in which one layer's MLP adds nothing to the last token of each pass.

    Args:
        layer: index of that layer, from 0.
    """
    copied = copy.deepcopy(model)

    def nothing(_: nn.Module, __: Any, out: Tensor) -> Tensor:
        return torch.cat([out[:, :-1], torch.zeros_like(out[:, -1:])], dim=1)

    copied.get_submodule(f"layers.{layer}.mlp").register_forward_hook(nothing)
    return copied
