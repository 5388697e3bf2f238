"""Time a model: its prefill, its decode step, and the parts of a step.

Every result is the fastest of many calls made in turns, because other work on the machine can only make a
call slower.
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
from helpers.timing.turns import Task, seconds_per_call

PARTS: dict[str, type[nn.Module]] = {"attention": Core, "matrices": nn.Linear}


def repeatable(cache: Cache, one_pass: Task) -> Task:
    """Return a task that can be called repeatedly.

    Each call truncates the cache to the length that it has now, then runs `one_pass`.
    """
    length = cache.length

    def task() -> Any:
        cache.truncate(length)
        return one_pass()

    return task


def step_after(model: Transformer, n: int, users: int = 1, cache_class: type[Cache] = StaticCache) -> Task:
    """Return a task that runs one decode step for all users, each with `n` tokens in the cache."""
    capacity = min(n + 2, model.config.max_seq_len)  # the step does not fill it: K and V are slices, as usual
    cache = cache_class(model.config, users, max_len=capacity)
    prefill(model, [[1] * n] * users, cache)
    return repeatable(cache, partial(decode_step, model, [[1]] * users, cache))


def fastest_ms(tasks: Mapping[Any, Task], turns: int) -> dict[Any, float]:
    """Return the duration of each task's fastest call in milliseconds, by the task's name.

    A turn of a task is 20 ms of calls, or a single call if that takes longer.
    """
    best = dict.fromkeys(tasks, math.inf)
    for _ in range(turns):
        for name, task in tasks.items():
            task()  # brings the data that it reads into the processor's cache
            remaining = 20.0
            while remaining > 0:
                ms = 1000 * seconds_per_call(task)
                best[name] = min(best[name], ms)
                remaining -= ms
    return best


def pause_and_step(model: Transformer, lengths: Sequence[int], turns: int = 7) -> dict[str, list[float]]:
    """Time the prefill of each prompt and one decode step after it, in milliseconds.

    Args:
        lengths: number of tokens of each prompt, less than the model's maximum.
        turns: number of turns of each task.

    Returns:
        {"pause": the prefill's duration for each length, "step": the decode step's duration for each length}.
    """
    tasks: dict[str, Any] = {}
    for n in lengths:
        tasks[f"pause {n}"] = lambda n=n: prefill(model, [1] * n, StaticCache(model.config, max_len=n))
        tasks[f"step {n}"] = step_after(model, n)
    ms = fastest_ms(tasks, turns)
    return {name: [ms[f"{name} {n}"] for n in lengths] for name in ("pause", "step")}


@contextmanager
def part_timers(model: Transformer, seconds: dict[str, float]) -> Iterator[None]:
    """Inside the `with` block, add the time that each part of a model takes to `seconds`.

    The keys of `seconds` are those of PARTS.
    """
    starts: list[float] = []

    def start(*_: Any) -> None:
        starts.append(time.perf_counter())

    def stop(part: str, *_: Any) -> None:
        seconds[part] += time.perf_counter() - starts.pop()

    modules = [(part, m) for part, cls in PARTS.items() for m in model.modules() if isinstance(m, cls)]
    hooks = [m.register_forward_pre_hook(start) for _, m in modules]
    hooks += [m.register_forward_hook(partial(stop, part)) for part, m in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def fastest_part_ms(model: Transformer, tasks: Mapping[Any, Task], turns: int) -> dict[Any, dict[str, float]]:
    """Return the milliseconds that each part of the model takes, as {task's name: {part: milliseconds}}.

    Each number is the fastest of many calls.
    """
    calls: dict[Any, list[list[float]]] = {name: [] for name in tasks}
    for _ in range(turns):
        for name, task in tasks.items():
            task()  # brings the data that it reads into the processor's cache
            for _ in range(20):
                seconds = dict.fromkeys(PARTS, 0.0)
                with part_timers(model, seconds):
                    task()
                calls[name].append([*seconds.values()])
    best = {name: 1000 * np.min(seconds_of_calls, axis=0) for name, seconds_of_calls in calls.items()}
    return {name: dict(zip(PARTS, ms.tolist(), strict=True)) for name, ms in best.items()}
