"""Prefill here, decode there: one rank runs the prompt and sends its rows, another goes on from them.

Source: DistServe, Zhong et al. 2024, arXiv:2401.09670.
"""

from __future__ import annotations

from pathlib import Path

import torch

from helpers.model.cache import StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.load import load
from helpers.parallel.wire import Report, Wire


def handover(wire: Wire, folder: Path, prompt: list[int], max_new_tokens: int) -> Report:
    """Run the prompt in rank 0, and the reply from its second word on in rank 1.

    Raises:
        ValueError: there are not two ranks.
    """
    if wire.world != 2:
        raise ValueError(
            f"handover in {wire.world} ranks; expected 2: one runs the prompt, the other goes on"
        )
    model = load(folder)
    config, dtype, n = model.config, model.embed_tokens.weight.dtype, len(prompt)
    cache = StaticCache(config, max_len=n + wire.rank * (max_new_tokens - 1), dtype=dtype)
    if wire.rank == 0:
        first = prefill(model, prompt, cache).argmax()
        wire.send(first, 1, "first word")
        for k, v in zip(cache.k, cache.v, strict=True):
            wire.send(torch.cat([k, v], dim=-1), 1, "rows")
        return wire.report([int(first)], model, cache)
    words = [int(wire.receive((), torch.int64, 0))]
    for layer in range(cache.n_layers):  # rows of a prompt that was never run here
        rows = wire.receive((1, config.n_kv_heads, n, config.k_dim + config.v_dim), dtype, 0)
        cache.append(layer, *rows.split([config.k_dim, config.v_dim], dim=-1))
    cache.advance(n)
    while len(words) < max_new_tokens and words[-1] not in config.eos_ids:
        words.append(int(decode_step(model, words[-1:], cache).argmax()))
    return wire.report(words[1:], model, cache)
