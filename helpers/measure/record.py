"""What a task launches and allocates, by PyTorch's own record: counts, the same in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from helpers.measure.timing import Task


@dataclass(frozen=True)
class Record:
    """What one call of a task did on the CPU.

    Attributes:
        n_operators: how many operators were launched.
        allocated: bytes that were allocated, all together, freed in between or not.
    """

    n_operators: int
    allocated: int


def record_of(task: Task) -> Record:
    """Call a task twice, and record the second call with PyTorch's profiler.

    An operator counts where Python starts it: x + y is one, a product of two matrices is one, a view is one.
    What it calls inside (`linear` calls five) is its own affair, and part of its launch. What runs outside
    PyTorch (NumPy, compiled code of other libraries) is not seen.

    The first call warms up: some tasks make something once, such as a mask, and keep it.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with silence(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        task()
    launched = [e for e in profiler.events() if e.cpu_parent is None and not e.name.startswith("[")]
    blocks = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    allocated = sum(max(block.nbytes(), 0) for block in blocks)  # a block that is freed has a minus
    return Record(len(launched), allocated)


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
