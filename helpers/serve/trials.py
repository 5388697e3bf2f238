"""Tried on the machine in front of you: steps, drafts, a long prompt among others."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from helpers.model.cache import StaticCache
from helpers.model.generate import decode_step, generate, prefill
from helpers.model.speculate import Drafter, PromptLookup, Speculation, speculate
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


def throughput(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    slots: int,
    drafter: PromptLookup | None,
    max_new: int = 40,
    turns: int = 1,
) -> tuple[float, int, dict[Hashable, list[int]]]:
    """Serve requests that come at once, several times; return seconds, steps, and the replies.

    The best time of each step counts, so that a busy neighbour costs little.
    """
    seconds = list[list[float]]()
    for _ in range(turns):
        engine = Engine(model, slots, drafter=drafter, n_pages=1024, sharing=False)
        for n, prompt in enumerate(prompts):
            engine.add(n, prompt, max_new)
        seconds.append([])
        while engine.busy:
            begun = time.perf_counter()
            engine.step()
            seconds[-1].append(time.perf_counter() - begun)
    return float(np.min(seconds, axis=0).sum()), len(seconds[0]), engine.run_all()


def pass_of(model: Transformer, T: int, n: int = 1, context: int = 64) -> Callable[[], Tensor]:
    """Return a task: one pass over T new tokens of each of n requests, with the logits behind all of them."""
    cache = StaticCache(model.config, n, context + T)
    tokens = torch.ones(n, context + T, dtype=torch.int64)
    prefill(model, tokens[:, :context], cache)

    @torch.inference_mode()
    def one_pass() -> Tensor:
        cache.truncate(context)  # forget the rows of the call before
        return model(tokens[:, context:], cache)

    return one_pass


class Drafted(NamedTuple):
    """How replies went with drafts, prefills left out.

    Attributes:
        words: new words of a pass, on average.
        seconds: of a new word, on average.
        ran: words of each pass, the drafted ones among them; [] where nothing was drafted.
    """

    words: float
    seconds: float
    ran: list[int]


def replies_with(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    ways: Mapping[str, tuple[Drafter, int] | None],
    max_new: int = 40,
    turns: int = 3,
) -> dict[str, Drafted]:
    """Go on with prompts in several ways, in turns; the best time of each word counts.

    Args:
        ways: a drafter and k, by name; None for word by word.
    """
    seconds: dict[str, list[list[float]]] = {name: [] for name in ways}
    ran: dict[str, list[int]] = {}
    for name, way in [*ways.items()] * turns:
        replies = [
            speculate(model, p, max_new, *way) if way else generate(model, p, max_new) for p in prompts
        ]
        seconds[name].append([second for reply in replies if [*reply] for second in reply.seconds[1:]])
        drafted = [reply.rounds[1:] for reply in replies if isinstance(reply, Speculation)]
        ran[name] = [1 + one.n_drafted for rounds in drafted for one in rounds]
    found = {}
    for name, turn in seconds.items():
        best = np.min(turn, axis=0)
        found[name] = Drafted(len(best) / (len(ran[name]) or len(best)), best.mean(), ran[name])
    return found
