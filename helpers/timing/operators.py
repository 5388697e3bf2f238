"""What a task launches, by PyTorch's own record: a count, the same in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.timing.turns import Task


def count_operators(task: Task) -> int:
    """Call a task twice, and count the operators of the second call with PyTorch's profiler.

    An operator counts where Python starts it: x + y is one, a product of two matrices is one, a view is one.
    What it calls inside (`linear` calls five) is its own affair, and part of its launch. What runs outside
    PyTorch (NumPy, compiled code of other libraries) is not seen.

    The first call warms up: some tasks make something once, such as a mask, and keep it.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with silence(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        task()
    return sum(e.cpu_parent is None and not e.name.startswith("[") for e in profiler.events())


@contextmanager
def silence() -> Iterator[None]:
    """Keep what a library's C++ writes to stderr out of sight: the profiler's says when it starts."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
