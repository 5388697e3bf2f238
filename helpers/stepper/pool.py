"""The view of an engine's run: the requests in each step, and the requests that own each page."""

from __future__ import annotations

from typing import Any

from helpers.stepper.view import View, check_one_of
from helpers.trace import EngineTrace


class Pool(View):
    """A view of an engine's run, step by step.

    Each request is a lane over the steps. Below the lanes, a grid shows the pages of the pool.

    Args:
        trace: an engine's run, recorded by `StepRecorder`.
        step: the initial step, from 1.
        pages: whether the grid of pages is shown initially.

    Raises:
        ValueError: the trace has no such step.
    """

    view = "pool"

    def __init__(self, trace: EngineTrace, step: int = 1, pages: bool = True) -> None:
        check_one_of("pages", pages, [True, False])
        if step not in range(1, len(trace.steps) + 1):
            raise ValueError(f"got step={step}, expected 1 to {len(trace.steps)}, the trace's steps")
        self.trace, self.step, self.show_pages = trace, step - 1, pages

    @property
    def data(self) -> str:
        """The trace, as JSON."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """The initial step, from 0, and whether the grid of pages is shown."""
        return {"step": self.step, "pages": self.show_pages}

    def __repr__(self) -> str:
        n, trace = len(self.trace.requests), self.trace
        return f"Pool({trace.name}: {n} requests, {trace.n_pages} pages, {len(trace.steps)} steps)"
