"""Time a request with a long prompt that arrives while other requests are running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from helpers.model.transformer import Transformer
from helpers.serve.engine import Engine

N_OTHERS = 7


class LongPromptMs(NamedTuple):
    """The TTFT of a long prompt, and the longest gap between two tokens of any other request, in ms."""

    ttft: float
    longest_gap: float


def time_long_prompt(model: Transformer, budget: int, prompt: Sequence[int]) -> LongPromptMs:
    """Time a request with a long prompt in an engine that is already running other requests.

    There are N_OTHERS other requests, each with a prompt of 4 tokens. The reply to the long prompt is a
    single token.

    Args:
        model: the model that the engine runs.
        budget: maximum number of tokens in a step.
        prompt: token ids of the long prompt.
    """
    engine = Engine(model, slots=N_OTHERS + 1, token_budget=budget, eos_ids=())  # no reply ends early
    for n in range(N_OTHERS):
        engine.add(n, prompt[n : n + 4], 150)
    engine.step()
    engine.add("long", prompt, 1)
    while not engine.sequences["long"].reply:
        engine.step()
    engine.step()
    gaps = [engine.sequences[n].times.longest_gap for n in range(N_OTHERS)]
    return LongPromptMs(1000 * engine.sequences["long"].times.ttft, 1000 * max(gaps))
