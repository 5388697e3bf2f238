"""Watch a model by the clock: its pause and its step, what a step's milliseconds go to, a whole reply.

Every number is the fastest of many tries, in turns: what else a machine does only makes a try longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn

from helpers.measure.timing import Task, seconds_of
from helpers.model.attention import Core
from helpers.model.cache import StaticCache
from helpers.model.generate import decode_step, generate, prefill
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

KINDS: dict[str, type[nn.Module]] = {"attention": Core, "matrices": nn.Linear}


def step_behind(model: Transformer, n: int, users: int = 1) -> Any:
    """Return a task: one decode step of all users behind n rows each, which takes its own rows back first."""
    room = min(n + 2, model.config.max_seq_len)  # never full by the step: its rows are sliced, as in a reply
    cache = StaticCache(model.config, users, max_len=room)
    prefill(model, [[1] * n] * users, cache)
    newest = [[1]] * users

    def step() -> None:
        cache.truncate(n)
        decode_step(model, newest, cache)

    return step


def fastest(tasks: Mapping[Any, Task], turns: int) -> dict[Any, float]:
    """Return the milliseconds of the fastest call of each; a turn is 20 ms of calls, or one."""
    found = dict.fromkeys(tasks, math.inf)
    for _ in range(turns):
        for name, task in tasks.items():
            task()  # what it reads comes near
            left = 20.0
            while left > 0:
                taken = 1000 * seconds_of(task)
                found[name] = min(found[name], taken)
                left -= taken
    return found


def pause_and_step(model: Transformer, lengths: Sequence[int], turns: int = 7) -> dict[str, list[float]]:
    """Time a prefill of so many tokens, and one decode step behind them, in milliseconds.

    Args:
        lengths: prompts, in tokens; each ends a token short of what the model takes.
        turns: how often each takes its turn.

    Returns:
        {"pause": one for each length, "step": one for each}.
    """
    tasks: dict[str, Any] = {}
    for n in lengths:
        tasks[f"pause {n}"] = lambda n=n: prefill(model, [1] * n, StaticCache(model.config, max_len=n))
        tasks[f"step {n}"] = step_behind(model, n)
    timed = fastest(tasks, turns)
    return {kind: [timed[f"{kind} {n}"] for n in lengths] for kind in ("pause", "step")}


@contextmanager
def clocks(model: Transformer, seconds: dict[str, float]) -> Iterator[None]:
    """Add up the seconds that the parts of a model take, by kind, while this is open."""
    begun: list[float] = []

    def starts(*_: Any) -> None:
        begun.append(time.perf_counter())

    def ends(kind: str, *_: Any) -> None:
        seconds[kind] += time.perf_counter() - begun.pop()

    parts = [(kind, m) for kind, cls in KINDS.items() for m in model.modules() if isinstance(m, cls)]
    hooks = [m.register_forward_pre_hook(starts) for _, m in parts]
    hooks += [m.register_forward_hook(partial(ends, kind)) for kind, m in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def ledger_of_step(model: Transformer, short: int, long: int, turns: int = 15) -> dict[str, float]:
    """Account for what a decode step behind `long` rows takes over one behind `short`, in milliseconds.

    Returns:
        The shorter step, by how much attention (scores, softmax, averages) and the products with the learned
        matrices take longer, the sum of these three, and the longer step as measured: {"short", "attention",
        "matrices", "expected", "long"}.
    """
    tasks = {n: step_behind(model, n) for n in (short, long)}
    first, last = fastest(tasks, turns).values()
    parts = parts_of_steps(model, tasks, turns)
    found = {kind: parts[long][kind] - parts[short][kind] for kind in KINDS}
    return {"short": first, **found, "expected": first + sum(found.values()), "long": last}


def parts_of_steps(model: Transformer, tasks: Mapping[Any, Task], turns: int) -> dict[Any, dict[str, float]]:
    """Return for each task of a model the milliseconds in its parts, by kind: the fastest of many tries."""
    parts: dict[Any, list[list[float]]] = {name: [] for name in tasks}
    for _ in range(turns):
        for name, task in tasks.items():
            task()  # its rows come near
            for _ in range(20):
                seconds = dict.fromkeys(KINDS, 0.0)
                with clocks(model, seconds):
                    task()
                parts[name].append([*seconds.values()])
    least = {name: 1000 * np.min(tries, axis=0) for name, tries in parts.items()}
    return {name: dict(zip(KINDS, ms.tolist(), strict=True)) for name, ms in least.items()}


@dataclass(frozen=True)
class TimedReply:
    """A reply by the clock."""

    words: list[str]
    ms: list[float]  # what each word took, the fastest of its tries
    rows: list[int]  # kept in each layer once it had come


def time_replies(
    model: Transformer, tokenizer: Tokenizer, prompt: str, max_new: int = 8, turns: int = 7
) -> dict[str, TimedReply]:
    """Time a greedy reply word by word, {"with": rows kept, "without": all tokens again for each word}."""
    ids = tokenizer.encode(prompt)
    tokens = [*ids, *generate(model, ids, max_new)]
    cache = StaticCache(model.config)

    def passing(kept: int, end: int) -> Tensor:
        cache.truncate(kept)
        return prefill(model, tokens[kept:end], cache)

    ends = range(len(ids), len(tokens))
    # In this order: each pass finds the rows that the one before it left.
    tasks = {("with", end): partial(passing, end - 1 if end > len(ids) else 0, end) for end in ends}
    tasks |= {("without", end): partial(passing, 0, end) for end in ends}
    output = {name: int(task()[0].argmax()) for name, task in tasks.items()}
    ms = fastest(tasks, turns)
    return {
        name: TimedReply(
            tokenizer.words([output[name, end] for end in ends]),
            [ms[name, end] for end in ends],
            [end * (name == "with") for end in ends],
        )
        for name in ("with", "without")
    }
