"""What a task starts and allocates, by PyTorch's own record: counts, the same in every run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from helpers.measure.timing import Task


@dataclass(frozen=True)
class Record:
    """What one call of a task did on the CPU.

    Attributes:
        operators: how often each operator was started, by its name without "aten::", the most frequent first.
        allocated: bytes that were laid out, all together, freed in between or not.
    """

    operators: dict[str, int]
    allocated: int

    @property
    def n_operators(self) -> int:
        """How many operators were started."""
        return sum(self.operators.values())


def record_of(task: Task) -> Record:
    """Call a task twice, and record the second call with PyTorch's profiler.

    An operator counts where Python starts it: x + y is one, a product of two matrices is one, a view is one.
    What it calls inside (`linear` calls five) is its own affair, and part of its price. What runs outside
    PyTorch (NumPy, compiled code of other libraries) is not seen.

    The first call warms up: some tasks make something once, such as a mask, and keep it.
    """
    from torch.profiler import ProfilerActivity, profile

    task()
    with silence(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        task()
    started = Counter(
        event.name.removeprefix("aten::")
        for event in profiler.events()
        if event.cpu_parent is None and not event.name.startswith("[")
    )
    blocks = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    allocated = sum(max(block.nbytes(), 0) for block in blocks)  # a block that is freed has a minus
    return Record(dict(started.most_common()), allocated)


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
