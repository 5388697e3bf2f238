"""The Python side of the stepper. It passes a trace to the browser, where the reader steps through it."""

from __future__ import annotations

from typing import Any, Literal

from helpers.stepper.format import fill_template
from helpers.stepper.machines import models_and_cards
from helpers.stepper.view import View, check_one_of
from helpers.trace import Trace


class Stepper(View):
    """A view that steps through the passes of a recorded run, with the cache or without it.

    Args:
        trace: the result of `record_toy()`, `record_model()` or `watch()`.
        panels: the initial panels: "story" to watch a run, or "lab" to measure it.
        start: the phase with whose first pass the stepper begins. None means prefill in the story, and the
            first recorded phase in the lab.
        layer: the initial layer, from 0.
        head: the head, from 0, whose attention weights are shown initially; None for the mean of all heads.

    Raises:
        ValueError: `panels` is unknown, or the phase, layer or head was not recorded.
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
        self.trace, self.panels, self.layer, self.head = trace, panels, layer, head
        check_one_of("panels", panels, ["story", "lab"])
        phases = [event.phase for event in trace.runs[0].passes]
        if start is None:
            start = phases[0] if panels == "lab" else "prefill"
        heads = [None, *(recorded for of, recorded in trace.recorded if of == layer)]
        check_one_of("start", start, phases)
        check_one_of("layer", layer, trace.layers)
        check_one_of("head", head, heads)
        self.start = phases.index(start)

    @property
    def data(self) -> str:
        """The trace, as JSON."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """The initial panels, pass, layer and head, and the models and cards to choose from."""
        shown = {"face": self.panels, "start": self.start, "layer": self.layer, "head": self.head}
        return {**shown, "machines": models_and_cards()}

    @property
    def run_hint(self) -> str:
        """A sentence that tells readers to run the cell if the stepper is not running yet."""
        return fill_template(super().run_hint, passes=self._n_passes)

    @property
    def _n_passes(self) -> int:
        """The number of passes to step through. It includes training only if the stepper starts there."""
        run = self.trace.runs[0]
        at_training = run.passes[self.start].phase == "training"
        return len(run.passes if at_training else run.steps)

    def __repr__(self) -> str:
        tokens = len(self.trace.sequences[0].tokens)
        return f"Stepper({self.trace.model.name}: {tokens} tokens, {self._n_passes} passes)"
