"""A small adapter that is merged into a model's weights, so that the same tokens get different keys."""

from __future__ import annotations

import copy

import torch

from helpers.model.transformer import Transformer

RANK = 2  # rank of B A; B is (Hkv · D, RANK), A is (RANK, C)


def with_adapter(model: Transformer, scale: float = 1.0, seed: int = 0) -> Transformer:
    """Return a copy of a model with a random, untrained adapter merged into the key projection of each layer.

    The weight matrix W of the projection becomes W plus a multiple of B A. B and A are random matrices, and
    their product has rank 2.

    Args:
        model: the model to copy.
        scale: norm of the added matrix relative to the norm of W; 0 changes nothing.
        seed: seed for the random matrices.

    Source: low-rank adapters, Hu et al. 2021, arXiv:2106.09685, who adapted key projections among others.
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
