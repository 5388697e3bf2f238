"""Tensor parallelism: each rank holds some heads, the KV entries of these heads, and a slice of each MLP.

A rank's model is an ordinary `Transformer` with fewer heads and narrower MLPs. In each rank, the outputs of
attention and of the MLP are only partial sums. Two all-reduces per layer add them up over all ranks.

Source: Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from torch import Tensor

from helpers.model.cache import StaticCache
from helpers.model.config import ModelConfig
from helpers.model.generate import generate
from helpers.model.load.config import read_config
from helpers.model.load.safetensors import PREFIX, WEIGHTS
from helpers.model.load.weights import make_model_with_weights
from helpers.model.transformer import Transformer
from helpers.parallel.communicator import Communicator, RankReport


class RankHeads(NamedTuple):
    """Indices, from 0, of one rank's query heads, and of the KV heads that these query heads use."""

    query_heads: list[int]
    kv_heads: list[int]


def heads_of_rank(rank: int, world_size: int, n_heads: int, n_kv_heads: int) -> RankHeads:
    """Return the indices of the heads that a rank holds. `rank` is its index, from 0."""
    n_per_rank, group = n_heads // world_size, n_heads // n_kv_heads
    query_heads = list(range(rank * n_per_rank, (rank + 1) * n_per_rank))
    return RankHeads(query_heads, sorted({head // group for head in query_heads}))


def shard_weights(
    weights: Mapping[str, Any], config: ModelConfig, rank: int, world_size: int
) -> dict[str, Tensor]:
    """Return a rank's shard of the weights: its heads, its slice of each MLP, and all other weights.

    Args:
        weights: tensors by their names in the model. Unread slices of a safetensors file can be passed
            instead of tensors, so that only the shard is read.
        config: config of the whole model.
        rank: index of the rank, from 0.
        world_size: number of ranks.

    Returns:
        The shard's tensors, by the same names.
    """
    query_heads, kv_heads = heads_of_rank(rank, world_size, config.n_heads, config.n_kv_heads)
    D, width = config.head_dim, config.intermediate_size // world_size
    q, kv = (slice(heads[0] * D, (heads[-1] + 1) * D) for heads in (query_heads, kv_heads))
    mlp = slice(rank * width, (rank + 1) * width)
    rows = {"q_proj": q, "k_proj": kv, "v_proj": kv, "gate_proj": mlp, "up_proj": mlp}  # outputs
    columns = {"o_proj": q, "down_proj": mlp}  # inputs
    shard = {}
    for name, weight in weights.items():
        part = name.split(".")[-2]
        shard[name] = weight[:, columns[part]] if part in columns else weight[rows.get(part, slice(None))]
    return shard


def shard_config(config: ModelConfig, rank: int, world_size: int) -> ModelConfig:
    """Return the config of one rank's model, given the config of the whole model.

    Raises:
        ValueError: the heads or the width of the MLP cannot be divided evenly among the ranks.
    """
    sizes = {"n_heads": config.n_heads, "intermediate_size": config.intermediate_size}
    for name, size in sizes.items():
        if size % world_size:
            raise ValueError(f"{world_size} ranks for {name} {size}; expected a number that divides it")
    if config.n_kv_heads % world_size and world_size % config.n_kv_heads:
        raise ValueError(
            f"{world_size} ranks for {config.n_kv_heads} KV heads; expected a number that divides them, or a "
            "multiple of it, so that several ranks hold the same head"
        )
    query_heads, kv_heads = heads_of_rank(rank, world_size, config.n_heads, config.n_kv_heads)
    width = config.intermediate_size // world_size
    return replace(config, n_heads=len(query_heads), n_kv_heads=len(kv_heads), intermediate_size=width)


def load_shard(folder: Path, comm: Communicator) -> Transformer:
    """Return this rank's model, reading only its shard of the weights.

    The checkpoint must have a single weight file.

    Raises:
        ValueError: as in `shard_config`.
    """
    config = read_config(folder, None)
    own_config = shard_config(config, comm.rank, comm.world_size)
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        weights = {name.removeprefix(PREFIX): file.get_slice(name) for name in sorted(file.keys())}
        model = make_model_with_weights(
            own_config, shard_weights(weights, config, comm.rank, comm.world_size)
        )
    all_reduce_outputs(model, comm)
    return model


def all_reduce_outputs(model: Transformer, comm: Communicator) -> None:
    """Let all layers replace the outputs of `o_proj` and of `down_proj` by their sums over all ranks."""
    for name, linear in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            linear.register_forward_hook(lambda linear, x, part: comm.all_reduce(part, "sums"))


def tensor_parallel(comm: Communicator, folder: Path, prompt: list[int], max_new_tokens: int) -> RankReport:
    """Generate a reply greedily, together with the other ranks. Every rank must call this.

    Each rank runs its own shard of the model. All ranks generate the same reply.

    Args:
        comm: connection to the other ranks.
        folder: folder of the checkpoint.
        prompt: token ids of one sequence.
        max_new_tokens: maximum number of tokens in the reply.

    Returns:
        This rank's report.
    """
    model = load_shard(folder, comm)
    max_len = len(prompt) + max_new_tokens - 1
    cache = StaticCache(model.config, max_len=max_len, dtype=model.embed_tokens.weight.dtype)
    return comm.report(list(generate(model, prompt, max_new_tokens, cache=cache)), model, cache)
