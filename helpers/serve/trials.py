"""Tried on the machine in front of you: a step, and a long prompt among others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

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
    while not engine.sequences["long"].reply:
        engine.step()
    engine.step()
    gaps = [engine.sequences[n].times.longest_gap for n in range(others)]
    return 1000 * engine.sequences["long"].times.ttft, 1000 * max(gaps)
