"""Measure the memory bandwidth and the launch overhead of the machine that runs this code.

Each result is the best of several turns, because other work can only slow the machine down. All tasks use
PyTorch, with the number of threads set by `torch.set_num_threads`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from helpers.timing.operators import count_operators
from helpers.timing.turns import Task, time_in_turns
from helpers.validate import check_whole

BYTES_PER_CALL = 2**26  # bytes read per call; a smaller buffer is read several times
ONE_TOKEN = "a matrix times one token"
WIDTH = 1024  # number of columns of this matrix, which affects the speed of the multiplication


@contextmanager
def torch_threads(n: int) -> Iterator[None]:
    """Set the number of threads that PyTorch uses inside the `with` block to `n`."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_bandwidth(nbytes: int, turns: int = 5) -> float:
    """Return the bandwidth, in bytes per second, at which the fastest of several probes reads a buffer.

    The slower probes spend a part of their time on other work than reading.

    Args:
        nbytes: size of the buffer in bytes, at least 4 KiB. A small buffer fits in one of the processor's
            caches. A large buffer is read from memory.
        turns: number of turns for each probe.
    """
    check_whole("nbytes", nbytes, 2**12)
    probes = read_probes(nbytes)
    tasks = {name: probe.task for name, probe in probes.items()}
    times = time_in_turns(tasks, turns, min_seconds=0.001)  # a longer turn is rarely undisturbed
    return max(probe.nbytes / times[name].best for name, probe in probes.items())


class ReadProbe(NamedTuple):
    """A task that reads a buffer, and the number of bytes that one call reads or writes."""

    task: Task
    nbytes: int


def read_probes(nbytes: int) -> dict[str, ReadProbe]:
    """Return several probes, by name, all of which read the same buffer of `nbytes` bytes.

    In one call, the probes that compute a sum or a maximum read a small buffer several times. If they read it
    once, launch overhead would take most of the time.
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
    """Return the launch overhead per operator, in seconds.

    Each task gives one point: its number of operators and its duration. The launch overhead is the slope of a
    line fitted to these points.

    Args:
        tasks: two or more tasks that launch different numbers of operators. Each operator must compute almost
            nothing.
        turns: number of turns for each task.
    """
    by_name: dict[str, Any] = {str(n): task for n, task in enumerate(tasks)}
    seconds = [timing.best for timing in time_in_turns(by_name, turns).values()]
    counts = [count_operators(task) for task in tasks]
    return float(np.polyfit(counts, seconds, 1)[0])
