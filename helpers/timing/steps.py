"""Watch a model by the clock: its pause and its step, and what a step's milliseconds go to.

Every number is the fastest of many tries, in turns: what else a machine does only makes a try longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from helpers.model.attention import Core
from helpers.model.cache import Cache, StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.transformer import Transformer
from helpers.timing.turns import Task, seconds_of

KINDS: dict[str, type[nn.Module]] = {"attention": Core, "matrices": nn.Linear}


def repeated(cache: Cache, one_pass: Task) -> Task:
    """Return a task: a pass after what the cache holds now, which first takes back what it added before."""
    length = cache.length

    def again() -> Any:
        cache.truncate(length)
        return one_pass()

    return again


def step_after(model: Transformer, n: int, users: int = 1, kind: type[Cache] = StaticCache) -> Task:
    """Return a task: one decode step of all users, each after n tokens in a cache of this class."""
    room = min(n + 2, model.config.max_seq_len)  # never full by the step: its rows are sliced, as in a reply
    cache = kind(model.config, users, max_len=room)
    prefill(model, [[1] * n] * users, cache)
    return repeated(cache, partial(decode_step, model, [[1]] * users, cache))


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
        tasks[f"step {n}"] = step_after(model, n)
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
