"""Count the PyTorch operators that a task launches, using PyTorch's profiler.

Unlike a duration, the count is the same in every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.timing.turns import Task


def count_operators(task: Task) -> int:
    """Call a task twice, and return the number of operators that the second call launches.

    Only operators called from Python are counted: x + y, a product of two matrices and a view are one
    operator each. Operators that another operator calls are not counted (`linear` calls five), and neither is
    work outside of PyTorch, such as that of NumPy or compiled code in other libraries.

    The first call is a warm-up, because some tasks create an object such as a mask in their first call and
    reuse it in later calls.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with stderr_silenced(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        task()
    return sum(e.cpu_parent is None and not e.name.startswith("[") for e in profiler.events())


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard everything written to stderr inside the `with` block, even by C++ code such as the profiler."""
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)
