"""Tensor parallel: each rank holds some heads, their rows, and a part of each MLP.

A rank's model is a `Transformer` like any other, with fewer heads. What the last matrices of attention and
of the MLP give are parts of a sum; two sums a layer make them whole.

Source: Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from helpers.model.cache import StaticCache
from helpers.model.config import ModelConfig
from helpers.model.generate import generate
from helpers.model.load.config import read_config
from helpers.model.load.safetensors import PREFIX, WEIGHTS
from helpers.model.load.weights import assemble
from helpers.model.transformer import Transformer
from helpers.parallel.wire import Report, Wire


def heads_of_rank(rank: int, world: int, n_heads: int, n_kv_heads: int) -> tuple[list[int], list[int]]:
    """Return the query heads of a rank, and the KV heads that serve them."""
    each, group = n_heads // world, n_heads // n_kv_heads
    queries = list(range(rank * each, (rank + 1) * each))
    return queries, sorted({head // group for head in queries})


def share_of(weights: Mapping[str, Any], config: ModelConfig, rank: int, world: int) -> dict[str, Tensor]:
    """Cut a rank's share out of the weights: its heads, its part of each MLP, and all of the rest.

    Args:
        weights: by the model's names, tensors or what can be cut like them, so that no more is read.
        config: the whole model's.
    """
    queries, kv_heads = heads_of_rank(rank, world, config.n_heads, config.n_kv_heads)
    D, width = config.head_dim, config.intermediate_size // world
    q, kv = (slice(heads[0] * D, (heads[-1] + 1) * D) for heads in (queries, kv_heads))
    mlp = slice(rank * width, (rank + 1) * width)
    # Rows of these: what comes out.
    rows_taken = {"q_proj": q, "k_proj": kv, "v_proj": kv, "gate_proj": mlp, "up_proj": mlp}
    taken = {"o_proj": q, "down_proj": mlp}  # columns: what goes in
    share = {}
    for name, weight in weights.items():
        part = name.split(".")[-2]
        share[name] = weight[:, taken[part]] if part in taken else weight[rows_taken.get(part, slice(None))]
    return share


def share_config(config: ModelConfig, rank: int, world: int) -> ModelConfig:
    """Return the sizes of a rank's model.

    Raises:
        ValueError: heads or MLP cannot be shared out evenly among so many ranks.
    """
    sizes = {"n_heads": config.n_heads, "intermediate_size": config.intermediate_size}
    for name, size in sizes.items():
        if size % world:
            raise ValueError(f"{world} ranks for {name} {size}; expected a number that divides it")
    if config.n_kv_heads % world and world % config.n_kv_heads:
        raise ValueError(
            f"{world} ranks for {config.n_kv_heads} KV heads; expected as many, a number that divides them, "
            "or a multiple, where several ranks hold the same one"
        )
    queries, kv_heads = heads_of_rank(rank, world, config.n_heads, config.n_kv_heads)
    width = config.intermediate_size // world
    return replace(config, n_heads=len(queries), n_kv_heads=len(kv_heads), intermediate_size=width)


def load_share(folder: Path, wire: Wire) -> Transformer:
    """Load a rank's share of a checkpoint of one file, and no more of it; errors as in `share_config`."""
    config = read_config(folder, None)
    own = share_config(config, wire.rank, wire.world)
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        weights = {name.removeprefix(PREFIX): file.get_slice(name) for name in sorted(file.keys())}
        model = assemble(own, share_of(weights, config, wire.rank, wire.world))
    add_up(model, wire)
    return model


def add_up(model: Transformer, wire: Wire) -> None:
    """Let what `o_proj` and `down_proj` give be the sum of all ranks' parts."""
    for name, linear in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            linear.register_forward_hook(lambda linear, x, part: wire.all_reduce(part, "sums"))


def tensor_parallel(wire: Wire, folder: Path, prompt: list[int], max_new_tokens: int) -> Report:
    """Say a reply together, each rank with its share of a checkpoint's heads."""
    model = load_share(folder, wire)
    rows = len(prompt) + max_new_tokens - 1
    cache = StaticCache(model.config, max_len=rows, dtype=model.embed_tokens.weight.dtype)
    return wire.report(list(generate(model, prompt, max_new_tokens, cache=cache)), model, cache)
