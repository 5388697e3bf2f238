"""Time a model's decode step.

Each result is the duration of the fastest of many calls, because other work can only slow a call down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from helpers.model.cache import Cache, StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.transformer import Transformer
from helpers.timing.turns import Task, seconds_per_call


def repeatable_pass(cache: Cache, one_pass: Task) -> Task:
    """Return a task that runs the same pass in every call.

    In each call, the task truncates the cache to the length that the cache has now, then runs `one_pass`.
    """
    length = cache.length

    def task() -> Any:
        cache.truncate(length)
        return one_pass()

    return task


def decode_step_task(
    model: Transformer, n_cached: int, users: int = 1, cache_class: type[Cache] = StaticCache
) -> Task:
    """Return a task that runs one decode step for a batch of users, each with `n_cached` cached tokens."""
    capacity = min(
        n_cached + 2, model.config.max_seq_len
    )  # the step does not fill the cache, so K and V are slices of its buffers, as usual
    cache = cache_class(model.config, users, max_len=capacity)
    prefill(model, [[1] * n_cached] * users, cache)
    return repeatable_pass(cache, partial(decode_step, model, [[1]] * users, cache))


def fastest_ms(tasks: Mapping[Any, Task], turns: int) -> dict[Any, float]:
    """Return the duration of each task's fastest call, in milliseconds, by task name.

    The tasks alternate. In each turn, a task is called repeatedly until its calls have taken 20 ms.
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
