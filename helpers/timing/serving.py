"""A long prompt among other requests, timed on the machine in front of you."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.model.transformer import Transformer
from helpers.serve.engine import Engine

OTHERS = 7


def long_among(model: Transformer, budget: int, prompt: Sequence[int]) -> tuple[float, float]:
    """Let a prompt come while OTHERS, requests of 4 tokens, reply.

    Args:
        budget: tokens of a step, at most.
        prompt: of the newcomer, who gets one word.

    Returns:
        Milliseconds to the newcomer's word, and the longest that the others waited for a next one.
    """
    engine = Engine(model, slots=OTHERS + 1, budget=budget, eos_ids=())  # nobody stops early
    for n in range(OTHERS):
        engine.add(n, prompt[n : n + 4], 150)
    engine.step()
    engine.add("long", prompt, 1)
    while not engine.sequences["long"].reply:
        engine.step()
    engine.step()
    gaps = [engine.sequences[n].times.longest_gap for n in range(OTHERS)]
    return 1000 * engine.sequences["long"].times.ttft, 1000 * max(gaps)
