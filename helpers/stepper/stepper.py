"""The Python side of the stepper: it passes a trace to the browser, where all stepping happens."""

from __future__ import annotations

from typing import Any, Literal

from helpers.stepper.format import fill
from helpers.stepper.machines import machines
from helpers.stepper.view import View, one_of
from helpers.trace import Trace


class Stepper(View):
    """Step through the passes of a recorded run, with and without its cache.

    Args:
        trace: the result of `record_toy()` or `record_model()`.
        panels: the initial panels: the "story", a run to watch, or the "lab", a run to measure.
        start: the initial phase, shown from its first pass; None is prefill, or in the lab training.
        layer: the initial layer, from 0.
        head: the head whose weights are shown initially, from 0; None for the mean of all.

    Raises:
        ValueError: an unknown name of panels, or a phase, layer or head that was not recorded.
    """

    view = "stepper"

    def __init__(
        self,
        trace: Trace,
        panels: Literal["story", "lab"] = "story",
        start: str | None = None,
        layer: int = 0,
        head: int | None = None,
    ) -> None:
        self.trace, self.face, self.layer, self.head = trace, panels, layer, head
        one_of("panels", panels, ["story", "lab"])
        phases = [event.phase for event in trace.runs[0].passes]
        if start is None:
            start = phases[0] if panels == "lab" else "prefill"
        heads = [None, *(recorded for of, recorded in trace.recorded if of == layer)]
        one_of("start", start, phases)
        one_of("layer", layer, trace.layers)
        one_of("head", head, heads)
        self.start = phases.index(start)

    @property
    def data(self) -> str:
        """The trace."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """The options for the front end."""
        shown = {"face": self.face, "start": self.start, "layer": self.layer, "head": self.head}
        return {**shown, "machines": machines()}

    @property
    def invitation(self) -> str:
        """What to do if the stepper is not running yet."""
        return fill(super().invitation, passes=self._n_passes)

    @property
    def _n_passes(self) -> int:
        """The number of passes to step through; training counts if the stepper starts with it."""
        run = self.trace.runs[0]
        at_training = run.passes[self.start].phase == "training"
        return len(run.passes if at_training else run.steps)

    def __repr__(self) -> str:
        tokens = len(self.trace.sequences[0].tokens)
        return f"Stepper({self.trace.model.name}: {tokens} tokens, {self._n_passes} passes)"
