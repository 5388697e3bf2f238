"""A small adapter, merged into the weights: the same tokens then have other keys."""

from __future__ import annotations

import copy

import torch

from helpers.arguments import check_whole
from helpers.model.transformer import Transformer


def with_adapter(model: Transformer, rank: int = 2, scale: float = 1.0, seed: int = 0) -> Transformer:
    """Return a copy whose keys come from W + scale B A in every layer, of random A and B: untrained.

    Args:
        model: stays as it is.
        rank: of B A, (Hkv D, rank) times (rank, C); 1 or more, ValueError if not.
        scale: how large B A is beside W, by the sum of their squares; 0 changes nothing.
        seed: of the random numbers.

    Source: low-rank adapters, Hu et al. 2021, arXiv:2106.09685; K was among the matrices they tried.
    """
    check_whole("rank", rank)
    adapted, chance = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in adapted.layers:
            weight = block.get_submodule("self_attn.k_proj").get_parameter("weight")
            n, width = weight.shape
            a, b = (torch.randn(*shape, generator=chance) for shape in ((rank, width), (n, rank)))
            delta = (b @ a).to(weight)
            weight.add_(scale * delta * weight.norm() / delta.norm())
    return adapted
