"""How many operators a task launches, by PyTorch's profiler: the same number in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.timing.turns import Task


def count_operators(task: Task) -> int:
    """Call a task twice, and return the number of operators in the second call.

    Only operators that Python calls count: x + y is one, a product of two matrices is one, a view is one.
    Operators that they call themselves (`linear` calls five) are part of their launch. What runs outside of
    PyTorch (NumPy, compiled code of other libraries) is not counted.

    The first call warms up: some tasks create something once, such as a mask, and keep it.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with stderr_silenced(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        task()
    return sum(e.cpu_parent is None and not e.name.startswith("[") for e in profiler.events())


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """In the block, discard what C++ code writes to stderr: the profiler reports there that it starts."""
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)
