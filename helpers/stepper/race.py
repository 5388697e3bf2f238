"""The race: two runs of the same tokens, with and without the cache, are shown at the same time."""

from __future__ import annotations

from typing import Any

from helpers.stepper.view import View
from helpers.trace import Trace


class Race(View):
    """A view of two runs of the same tokens, one with a cache and one without it, that start together.

    In both runs, each processed token takes one unit of time.

    Args:
        trace: the result of `record_toy()`, `record_model()` or `load_diary()`.

    Raises:
        ValueError: the trace does not have two runs, the first with a cache and the second without it.
    """

    view = "race"

    def __init__(self, trace: Trace) -> None:
        self.trace, caches = trace, [run.cache for run in trace.runs]
        if len(caches) != 2 or caches[1] != "none":
            raise ValueError(
                f"got runs with the caches {caches}, expected one with a cache and one with none"
            )

    @property
    def data(self) -> str:
        """The trace, as JSON."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """An empty dict: a race always starts at the beginning."""
        return {}

    def __repr__(self) -> str:
        return f"Race({self.trace.model.name}: {len(self.trace.sequences[0].tokens)} tokens)"
