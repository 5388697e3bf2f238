"""Count the operators that a task launches, with PyTorch's profiler. The count is the same in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.timing.turns import Task


def count_operators(task: Task) -> int:
    """Call a task twice, and return the number of operators launched by the second call.

    Only operators called from Python are counted: x + y, a product of two matrices and a view are one
    operator each. Operators called by other operators (`linear` calls five) are not counted, and neither is
    work outside of PyTorch, such as NumPy and compiled code of other libraries.

    The first call is a warm-up, because some tasks create an object such as a mask on their first call and
    reuse it later.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with stderr_silenced(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        task()
    return sum(e.cpu_parent is None and not e.name.startswith("[") for e in profiler.events())


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard what C++ code writes to stderr inside the `with` block, such as the profiler's log messages."""
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)
