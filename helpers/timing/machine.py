"""What this machine can do: bytes a second, and launch overhead.

Each is what it did at best, in the best of several turns: a busy moment makes a machine look slower than it
is, never faster. PyTorch does the work, with as many threads as `torch.set_num_threads` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from helpers.timing.operators import count_operators
from helpers.timing.turns import Task, in_turns
from helpers.validate import check_whole

AT_ONCE = 2**26  # bytes that one call reads, in several rounds where the buffer is smaller
ONE_TOKEN = "a matrix times one token"
WIDTH = 1024  # columns of that matrix: the library's speed depends on it


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Let PyTorch use so many threads inside a `with`."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def bandwidth(nbytes: int, turns: int = 5) -> float:
    """Return the bytes a second at which a buffer is read, by the fastest of several ways, in turns.

    The others lose time with something else than reading.

    Args:
        nbytes: size of the buffer, 4 KiB or more: where it lies, in a cache of the processor's or in the
            memory, decides.
        turns: of each way.
    """
    check_whole("nbytes", nbytes, 2**12)
    probes = reading(nbytes)
    tasks = {name: task for name, (task, _) in probes.items()}
    times = in_turns(tasks, turns, at_least=0.001)  # a mean of many calls is rarely undisturbed
    return max(n / times[name].best for name, (_, n) in probes.items())


def reading(nbytes: int) -> dict[str, tuple[Task, int]]:
    """Return what reads a buffer of so many bytes, by name: the task, and the bytes that a call moves.

    Sums and maxima read a small buffer several times in a call, or starting them would be most of the time.
    """
    import torch
    from torch.nn.functional import linear

    x = torch.ones(nbytes // 8 * 2)  # as many as make two halves, and float64 numbers
    width = min(WIDTH, len(x))
    matrix, token = x[: len(x) // width * width].view(-1, width), torch.ones(1, width)
    rounds = max(1, AT_ONCE // nbytes)
    again, again64 = x.expand(rounds, -1), x.view(torch.float64).expand(rounds, -1)
    half, rest = x.chunk(2)
    return {
        "sum": (lambda: again.sum(dim=1), rounds * nbytes),
        "sum in float64": (lambda: again64.sum(dim=1), rounds * nbytes),
        "maximum": (lambda: again.amax(dim=1), rounds * nbytes),
        "copy": (lambda: half.copy_(rest), nbytes),
        ONE_TOKEN: (lambda: linear(token, matrix), 4 * matrix.numel()),
    }


def launch_overhead(tasks: Sequence[Task], turns: int = 9) -> float:
    """Return the seconds of launch overhead of one operator: the slope of time against operators.

    Args:
        tasks: two or more that compute as good as nothing, with different numbers of operators.
    """
    timed: dict[str, Any] = {str(n): task for n, task in enumerate(tasks)}
    seconds = [timing.best for timing in in_turns(timed, turns).values()]
    counts = [count_operators(task) for task in timed.values()]
    return float(np.polyfit(counts, seconds, 1)[0])
