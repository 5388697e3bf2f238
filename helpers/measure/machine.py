"""What this machine can do: bytes a second, operations a second, and launch overhead.

Each is what it did at best, in the best of several turns: a busy moment makes a machine look slower than it
is, never faster. PyTorch does the work, with as many threads as `torch.set_num_threads` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from helpers.arguments import check_whole
from helpers.measure.record import record_of
from helpers.measure.timing import Task, in_turns

AT_ONCE = 2**26  # bytes that one call reads, in several rounds where the buffer is smaller
ONE_TOKEN = "a matrix times one token"


@dataclass(frozen=True)
class Bandwidth:
    """How fast the bytes of one buffer were read.

    Attributes:
        nbytes: size of the buffer.
        by_probe: bytes a second, by the name of what read them.
    """

    nbytes: int
    by_probe: Mapping[str, float]

    @property
    def bytes_per_second(self) -> float:
        """Those of the fastest probe: the others lost time with something else than reading."""
        return max(self.by_probe.values())


@dataclass(frozen=True)
class Peak:
    """Operations a second of the largest product that was tried; n is the side of its matrices."""

    flops_per_second: float
    n: int


@dataclass(frozen=True)
class Launch:
    """The launch overhead of one operator, and what a call takes besides its operators."""

    seconds: float
    besides: float


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


def bandwidth(nbytes: int, width: int = 1024, turns: int = 5, device: str = "cpu") -> Bandwidth:
    """Read a buffer in several ways, in turns; the fastest says what the memory can do.

    Args:
        nbytes: size of the buffer, 4 KiB or more: where it lies, in a cache of the processor's or in the
            memory, decides.
        width: columns of the matrix that the probe ONE_TOKEN multiplies; the library's speed depends on it.
        turns: of each probe.
        device: where the buffer lies: "cpu" or "cuda".
    """
    check_whole("nbytes", nbytes, 2**12)
    probes = reading(nbytes, width, device)
    times = in_turns(
        {name: until_done(task, device) for name, (task, _) in probes.items()}, turns, at_least=0.005
    )
    return Bandwidth(nbytes, {name: n / times[name].best for name, (_, n) in probes.items()})


def reading(nbytes: int, width: int, device: str) -> dict[str, tuple[Task, int]]:
    """Return what reads a buffer of so many bytes, by name: the task, and the bytes that a call moves.

    Sums and maxima read a small buffer several times in a call, or starting them would be most of the time.
    """
    import torch
    from torch.nn.functional import linear

    x = torch.ones(nbytes // 8 * 2, device=device)  # as many as make two halves, and float64 numbers
    width = min(width, len(x))
    matrix, token = x[: len(x) // width * width].view(-1, width), torch.ones(1, width, device=device)
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


def until_done(task: Task, device: str) -> Task:
    """Return a task that ends when its work is done: a GPU goes on alone after a call has returned."""
    import torch

    if device == "cpu":
        return task

    def wait() -> None:
        task()
        torch.cuda.synchronize()

    return wait


def bandwidth_by_size(sizes: Sequence[int], turns: int = 3) -> list[Bandwidth]:
    """Return the bandwidth for buffers of each size, bytes: a staircase, a step for each cache."""
    return [bandwidth(nbytes, turns=turns) for nbytes in sizes]


def at_size(curve: Sequence[Bandwidth], nbytes: float) -> float:
    """Return the bytes a second for so many bytes, read off a curve: straight between sizes, logarithmic."""
    points = sorted((one.nbytes, one.bytes_per_second) for one in curve)
    sizes, speeds = np.log(points).T
    return float(np.exp(np.interp(np.log(nbytes), sizes, speeds)))


def peak(
    dtype: str = "float32", sizes: Sequence[int] = (512, 1024, 2048), turns: int = 3, device: str = "cpu"
) -> Peak:
    """Multiply large square matrices, 2 n³ operations each; the best size says what the cores can do.

    Args:
        dtype: a number format of PyTorch's, such as "float32" or "bfloat16".
        sizes, turns: the sides n, and how often each takes its turn.
        device: what multiplies: "cpu" or "cuda".
    """
    import torch

    ones = {n: torch.ones(n, n, dtype=getattr(torch, dtype), device=device) for n in sizes}
    tasks = {str(n): until_done(partial(torch.mm, x, x), device) for n, x in ones.items()}
    times = in_turns(tasks, turns, at_least=0.005)
    return Peak(*max((2 * n**3 / times[str(n)].best, n) for n in sizes))


def launch_overhead(tasks: Sequence[Task], turns: int = 9) -> Launch:
    """Fit the time of tasks against their number of operators: the slope is the price of one.

    Args:
        tasks: two or more that compute as good as nothing, with different numbers of operators.

    Raises:
        ValueError: they all launch equally many.
    """
    timed: dict[str, Any] = {str(n): task for n, task in enumerate(tasks)}
    seconds = [timing.best for timing in in_turns(timed, turns).values()]
    counts = [record_of(task).n_operators for task in timed.values()]
    if len(set(counts)) < 2:
        raise ValueError(f"the tasks launch {counts} operators; expected different numbers: it takes a slope")
    slope, besides = np.polyfit(counts, seconds, 1)
    return Launch(float(slope), float(besides))
