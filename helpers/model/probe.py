"""Look into an operation or a model, to find out what it does and where it goes wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from helpers.model.attention import rotate, rotation
from helpers.model.cache import Cache, GrowingCache
from helpers.model.transformer import Transformer


def who_moves(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Find out which tokens can change which rows of an operation's output.

    Args:
        f: the operation, (1, T, C) to (1, T, anything).
        x: numbers to try it on, (1, T, C).

    Returns:
        Bools, (T, T): True at [i, j] if other numbers in token j change row i of f(x). Random ones are put
        there: a norm would hide a change that only makes a token longer.
    """
    before, columns = f(x), []
    for j in range(x.shape[1]):
        changed = x.clone()
        changed[0, j] = torch.randn(x.shape[2])
        columns.append((f(changed) != before).any(dim=-1)[0])
    return torch.stack(columns, dim=1)


def moves_of_parts(model: Transformer) -> dict[str, Tensor]:
    """Return who moves whom, (5, 5) as in `who_moves`, in each part of a model and of its first block."""
    block: Any = model.layers[0]
    config, D = model.config, model.config.head_dim
    cos_sin = rotation(torch.arange(5), model.frequencies, torch.float32)
    x, brought = torch.randn(2, 1, 5, config.hidden_size)
    parts: dict[str, Callable[[Tensor], Tensor]] = {
        "embedding": lambda now: model.embed_tokens((now != x).any(dim=-1).long()),  # id 1 where changed
        "norm": block.input_layernorm,
        "projection": block.self_attn.q_proj,
        "rotation": lambda x: rotate(x[..., :D], *cos_sin),
        "attention": lambda x: block.self_attn(x, cos_sin, GrowingCache(config)),
        "MLP": block.mlp,
        "adding": lambda x: x + brought,
        "LM head": model.lm_head,
    }
    with torch.no_grad():
        return {name: who_moves(f, x) for name, f in parts.items()}


def without_head(model: Transformer, layer: int, head: int) -> Transformer:
    """Return a copy of a model in which what one head brings goes nowhere; both count from 0."""
    copied, D = copy.deepcopy(model), model.config.head_dim
    block: Any = copied.layers[layer]
    block.self_attn.o_proj.weight.data[:, head * D : (head + 1) * D] = 0
    return copied


def hidden_states(model: Transformer, tokens: Tensor, cache: Cache | None = None) -> list[Tensor]:
    """Run ids (1, T), behind a cache's rows if there is one; return what each layer gave, (T, C) each."""
    states: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda _, __, out: states.append(out[0])) for layer in model.layers]
    try:
        with torch.no_grad():
            model(tokens, cache, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    return states


def misread(model: Transformer, layers: Collection[int]) -> Transformer:
    """Return a copy of a model in which Q and K of these layers have the other RoPE layout.

    That is what a wrong conversion does: it stores the pairs (i, i + D / 2) where (2i, 2i + 1) are expected.
    The numbers stay finite and of the right size; only which two of them turn together is wrong.
    """
    wrong, D = copy.deepcopy(model), model.config.head_dim
    order = torch.arange(D).view(2, D // 2).T.flatten()  # 0, D / 2, 1, D / 2 + 1, …
    for layer in layers:
        for name in ("q_proj", "k_proj"):
            project = wrong.get_submodule(f"layers.{layer}.self_attn.{name}")
            for weight in project.parameters():  # (H * D, C), and (H * D,) where there are biases
                weight.data = weight.data.unflatten(0, (-1, D))[:, order].flatten(0, 1)
    return wrong
