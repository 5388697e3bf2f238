"""Count the operators that a task launches with PyTorch's profiler. The count is the same in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.timing.turns import Task


def count_operators(task: Task) -> int:
    """Call a task twice, and return the number of operators launched by the second call.

    Only operators called from Python count: x + y is one, a product of two matrices is one, a view is one.
    Operators that those call in turn (`linear` calls five) are part of the same launch. Work outside of
    PyTorch (NumPy, compiled code of other libraries) is not counted.

    The first call is a warm-up: some tasks create something on their first call, such as a mask, and reuse
    it.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with stderr_silenced(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        task()
    return sum(e.cpu_parent is None and not e.name.startswith("[") for e in profiler.events())


@contextmanager
def stderr_silenced() -> Iterator[None]:
    """Discard what C++ code writes to stderr inside the `with` block: the profiler logs its start there."""
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)
