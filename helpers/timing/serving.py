"""Time a long prompt that arrives while other requests are running.

The results are its TTFT, and the longest gap it causes in another reply.
"""

from __future__ import annotations

from collections.abc import Sequence

from helpers.model.transformer import Transformer
from helpers.serve.engine import Engine

N_OTHERS = 7


def time_long_prompt(model: Transformer, budget: int, prompt: Sequence[int]) -> tuple[float, float]:
    """Time a long prompt in an engine in which N_OTHERS requests, with prompts of 4 tokens, are running.

    Args:
        model: the model that the engine runs.
        budget: maximum number of tokens in a step.
        prompt: the long prompt, as token ids. Its reply is a single token.

    Returns:
        The TTFT of the long prompt, and the longest gap between two tokens of any other request, in
        milliseconds.
    """
    engine = Engine(model, slots=N_OTHERS + 1, budget=budget, eos_ids=())  # no reply ends early
    for n in range(N_OTHERS):
        engine.add(n, prompt[n : n + 4], 150)
    engine.step()
    engine.add("long", prompt, 1)
    while not engine.sequences["long"].reply:
        engine.step()
    engine.step()
    gaps = [engine.sequences[n].times.longest_gap for n in range(N_OTHERS)]
    return 1000 * engine.sequences["long"].times.ttft, 1000 * max(gaps)
