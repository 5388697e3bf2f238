"""Disaggregated prefill: one rank runs the prompt, and sends the KV entries to another rank, which decodes.

Source: DistServe, Zhong et al. 2024, arXiv:2401.09670.
"""

from __future__ import annotations

from pathlib import Path

import torch

from helpers.model.cache import StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.load import load
from helpers.parallel.communicator import Communicator, RankReport


def disaggregated_prefill(
    comm: Communicator, folder: Path, prompt: list[int], max_new_tokens: int
) -> RankReport:
    """Generate a reply greedily: rank 0 runs the prompt, rank 1 decodes. Both ranks must call this.

    Rank 0 chooses the first token, and sends it to rank 1 together with the prompt's KV entries.

    Args:
        comm: connection to the other rank.
        folder: folder of the checkpoint; both ranks load it.
        prompt: token ids of one sequence.
        max_new_tokens: maximum number of tokens in the reply.

    Returns:
        This rank's report. Rank 0 reports the first token, rank 1 all others.

    Raises:
        ValueError: the number of ranks is not 2.
    """
    if comm.world_size != 2:
        raise ValueError(
            f"disaggregated prefill in {comm.world_size} ranks; expected 2, for the prompt and for the reply"
        )
    model = load(folder)
    config, dtype, n = model.config, model.embed_tokens.weight.dtype, len(prompt)
    cache = StaticCache(config, max_len=n + comm.rank * (max_new_tokens - 1), dtype=dtype)
    if comm.rank == 0:
        first = prefill(model, prompt, cache).argmax()
        comm.send(first, 1, "first token")
        for k, v in zip(cache.k, cache.v, strict=True):
            comm.send(torch.cat([k, v], dim=-1), 1, "KV entries")
        return comm.report([int(first)], model, cache)
    output_ids = [int(comm.receive((), torch.int64, 0))]
    for layer in range(cache.n_layers):  # KV entries of a prompt that this rank never ran
        entries = comm.receive((1, config.n_kv_heads, n, config.k_dim + config.v_dim), dtype, 0)
        cache.append(layer, *entries.split([config.k_dim, config.v_dim], dim=-1))
    cache.advance(n)
    while len(output_ids) < max_new_tokens and output_ids[-1] not in config.eos_ids:
        output_ids.append(int(decode_step(model, output_ids[-1:], cache).argmax()))
    return comm.report(output_ids[1:], model, cache)
