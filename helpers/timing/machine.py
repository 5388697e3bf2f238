"""Measure this machine's memory bandwidth and its launch overhead.

Each result is the best of several turns: other work can make a machine look slower than it is, but never
faster. PyTorch does the work, with as many threads as `torch.set_num_threads` sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from helpers.timing.operators import count_operators
from helpers.timing.turns import Task, time_in_turns
from helpers.validate import check_whole

BYTES_PER_CALL = 2**26  # bytes that one call reads, in several rounds if the buffer is smaller
ONE_TOKEN = "a matrix times one token"
WIDTH = 1024  # number of columns of this matrix, on which the library's speed depends


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Let PyTorch use `n` threads inside the `with` block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_bandwidth(nbytes: int, turns: int = 5) -> float:
    """Return the rate, in bytes per second, at which the fastest of several probes reads a buffer.

    The slower probes spend part of their time on work other than reading.

    Args:
        nbytes: size of the buffer, at least 4 KiB. A small buffer fits in one of the processor's caches; a
            large one is read from memory.
        turns: number of turns of each probe.
    """
    check_whole("nbytes", nbytes, 2**12)
    probes = read_probes(nbytes)
    tasks = {name: probe.task for name, probe in probes.items()}
    times = time_in_turns(tasks, turns, min_seconds=0.001)  # a longer turn is rarely undisturbed
    return max(probe.nbytes / times[name].best for name, probe in probes.items())


class ReadProbe(NamedTuple):
    """A task that reads a buffer, and the number of bytes that it moves per call."""

    task: Task
    nbytes: int


def read_probes(nbytes: int) -> dict[str, ReadProbe]:
    """Return several tasks that each read the same buffer of `nbytes` bytes, by name.

    Sums and maxima read a small buffer several times per call, because otherwise launching them would take
    most of the time.
    """
    import torch
    from torch.nn.functional import linear

    x = torch.ones(nbytes // 8 * 2)  # an even number, for two halves and for float64
    width = min(WIDTH, len(x))
    matrix, token = x[: len(x) // width * width].view(-1, width), torch.ones(1, width)
    rounds = max(1, BYTES_PER_CALL // nbytes)
    x_rounds, x64_rounds = x.expand(rounds, -1), x.view(torch.float64).expand(rounds, -1)
    first_half, second_half = x.chunk(2)
    return {
        "sum": ReadProbe(lambda: x_rounds.sum(dim=1), rounds * nbytes),
        "sum in float64": ReadProbe(lambda: x64_rounds.sum(dim=1), rounds * nbytes),
        "maximum": ReadProbe(lambda: x_rounds.amax(dim=1), rounds * nbytes),
        "copy": ReadProbe(lambda: first_half.copy_(second_half), nbytes),
        ONE_TOKEN: ReadProbe(lambda: linear(token, matrix), 4 * matrix.numel()),
    }


def measure_launch_overhead(tasks: Sequence[Task], turns: int = 9) -> float:
    """Return the launch overhead of one operator in seconds.

    It is the slope of a line fitted to the times of the tasks over their numbers of operators.

    Args:
        tasks: two or more tasks with different numbers of operators, each of which computes almost nothing.
        turns: number of turns of each task.
    """
    by_name: dict[str, Any] = {str(n): task for n, task in enumerate(tasks)}
    seconds = [timing.best for timing in time_in_turns(by_name, turns).values()]
    counts = [count_operators(task) for task in tasks]
    return float(np.polyfit(counts, seconds, 1)[0])
