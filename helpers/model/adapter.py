"""A small adapter, merged into the weights: the same tokens then have different keys."""

from __future__ import annotations

import copy

import torch

from helpers.model.transformer import Transformer

RANK = 2  # of B A, (Hkv D, RANK) times (RANK, C)


def with_adapter(model: Transformer, scale: float = 1.0, seed: int = 0) -> Transformer:
    """Return a copy whose key projections are W + scale B A in all layers; A and B are random, not trained.

    Args:
        model: is not changed.
        scale: norm of B A relative to the norm of W; 0 changes nothing.
        seed: of the random numbers.

    Source: low-rank adapters, Hu et al. 2021, arXiv:2106.09685; K was among the matrices they tried.
    """
    adapted, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in adapted.layers:
            weight = block.get_submodule("self_attn.k_proj").get_parameter("weight")
            n, width = weight.shape
            a, b = (torch.randn(*shape, generator=generator) for shape in ((RANK, width), (n, RANK)))
            delta = (b @ a).to(weight)
            weight.add_(scale * delta * weight.norm() / delta.norm())
    return adapted
