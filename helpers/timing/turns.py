"""Timing that a busy machine distorts little: the tasks take turns, and the middle of many turns counts."""

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
    """Seconds of one call, by the turns that were taken."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one: half of the turns were faster."""
        return float(np.median(self.seconds))

    @property
    def best(self) -> float:
        """The fastest: what the machine can do when nothing else keeps it busy."""
        return min(self.seconds)


def seconds_of(task: Task, calls: int = 1, most: float = math.inf) -> float:
    """Return the seconds of one call, as the mean of so many calls, or fewer once `most` seconds are over.

    A task whose threads have to wait for a busy machine can take a thousand times as long as before.
    """
    start, done, seconds = time.perf_counter(), 0, 0.0
    while done < calls and seconds <= most:
        task()
        done, seconds = done + 1, time.perf_counter() - start
    return seconds / done


def calls_for(task: Task, at_least: float = 0.02) -> int:
    """Return how many calls in a row take `at_least` seconds, so that the clock's steps do not show."""
    calls = 1
    while (seconds := seconds_of(task, calls) * calls) < at_least:
        calls = max(2 * calls, int(calls * at_least / max(seconds, 1e-9)))
    return calls


def in_turns(tasks: Mapping[str, Task], turns: int = 9, at_least: float = 0.02) -> dict[str, Timing]:
    """Time tasks against each other: a, b, a, b, … so that a slow moment of the machine hits them all.

    Args:
        tasks: what to call, by name; each is called a few times first, to warm up.
        turns: how often each takes its turn.
        at_least: seconds of one turn; a quick task is called many times in it.
    """
    calls = {name: calls_for(task, at_least) for name, task in tasks.items()}
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    collecting = gc.isenabled()
    gc.disable()  # or one task pays for what another left behind
    try:
        for _ in range(turns):
            for name, task in tasks.items():
                taken[name].append(seconds_of(task, calls[name], most=10 * at_least))
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}
