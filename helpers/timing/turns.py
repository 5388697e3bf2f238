"""Time tasks on a machine that may be busy. The tasks alternate, and each task is timed in many turns."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Task = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """The durations of a task: for each turn, the mean number of seconds per call."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over all turns, in seconds per call."""
        return float(np.median(self.seconds))

    @property
    def best(self) -> float:
        """The minimum over all turns, in seconds per call.

        It is the best estimate of the duration without other work that slows the machine down.
        """
        return min(self.seconds)


def seconds_per_call(task: Task, calls: int = 1, max_seconds: float = math.inf) -> float:
    """Call a task `calls` times, and return the mean number of seconds per call.

    Once the total duration exceeds `max_seconds`, no more calls are made. Without this limit, timing could
    take very long on a busy machine, where a task with several threads can take a thousand times as long.
    """
    start, done, seconds = time.perf_counter(), 0, 0.0
    while done < calls and seconds <= max_seconds:
        task()
        done, seconds = done + 1, time.perf_counter() - start
    return seconds / done


def calls_per_turn(task: Task, min_seconds: float = 0.02) -> int:
    """Return a number of calls of a task that together take at least `min_seconds`.

    If a turn has this number of calls, the clock's resolution does not matter.
    """
    calls = 1
    while (seconds := seconds_per_call(task, calls) * calls) < min_seconds:
        calls = max(2 * calls, int(calls * min_seconds / max(seconds, 1e-9)))
    return calls


def time_in_turns(tasks: Mapping[str, Task], turns: int = 9, min_seconds: float = 0.02) -> dict[str, Timing]:
    """Time tasks alternately (a, b, a, b, …), so that a temporary slowdown affects all tasks.

    Args:
        tasks: the functions to time, by name. Each function is first called a few times to warm up.
        turns: number of turns for each task.
        min_seconds: minimum duration of a turn. A short task is called many times in one turn.

    Returns:
        The durations of each task, by task name.
    """
    calls = {name: calls_per_turn(task, min_seconds) for name, task in tasks.items()}
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    collecting = gc.isenabled()
    gc.disable()  # otherwise, collecting one task's garbage could count as time of another
    try:
        for _ in range(turns):
            for name, task in tasks.items():
                seconds[name].append(seconds_per_call(task, calls[name], max_seconds=10 * min_seconds))
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(tuple(per_turn)) for name, per_turn in seconds.items()}
