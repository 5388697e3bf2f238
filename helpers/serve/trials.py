"""Tried on the machine in front of you: a step of so many, a long prompt among others, rows from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from helpers.measure import in_turns
from helpers.model.cache import StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.transformer import Transformer
from helpers.serve.engine import Engine


def step_of(model: Transformer, n: int, context: int = 64) -> Callable[[], Tensor]:
    """Return a task: one decode step of n requests at once, each behind so many tokens."""
    cache = StaticCache(model.config, n, 2 * context)
    prefill(model, torch.ones(n, context, dtype=torch.int64), cache)

    def step() -> Tensor:
        cache.truncate(context)  # forget the row of the call before
        return decode_step(model, [[1]] * n, cache)

    return step


def long_among(
    model: Transformer, budget: int, prompt: Sequence[int], others: int = 7
) -> tuple[float, float]:
    """Let a prompt come while others reply.

    Args:
        budget: tokens of a step, at most.
        prompt: of the newcomer, who gets one word.
        others: requests of 4 tokens whose replies are on their way.

    Returns:
        Milliseconds to the newcomer's word, and the longest that the others waited for a next one.
    """
    engine = Engine(model, slots=others + 1, budget=budget, eos_ids=())  # nobody stops early
    for n in range(others):
        engine.add(n, prompt[n : n + 4], 150)
    engine.step()
    engine.add("long", prompt, 1)
    while not engine.replies["long"]:
        engine.step()
    engine.step()
    gaps = [engine.times[n].longest_gap for n in range(others)]
    return 1000 * engine.times["long"].ttft, 1000 * max(gaps)


def load_or_run(model: Transformer, tokens: Sequence[int], turns: int = 3) -> tuple[int, float, float]:
    """Get the rows of a text twice: from a file, and by running it again.

    Returns:
        Bytes of the rows; seconds to load them from a file into a cache, and to run the tokens; each the best
        of its turns. The file was just written, so it may lie in the memory that the system keeps for files.
    """
    kept = StaticCache(model.config, max_len=len(tokens))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"

        def run() -> None:
            kept.truncate(0)
            prefill(model, tokens, kept)

        def load() -> None:
            kept.k[:], kept.v[:] = torch.from_numpy(np.load(path))

        run()
        rows = torch.stack([kept.k, kept.v]).numpy()
        np.save(path, rows)
        times = in_turns({"load": load, "run": run}, turns)
    return rows.nbytes, times["load"].best, times["run"].best
