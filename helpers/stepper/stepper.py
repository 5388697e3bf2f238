"""The Python face of the stepper: takes a trace once; all stepping happens in the browser."""

from __future__ import annotations

from typing import Any, Literal

from helpers.drawing.still import Still
from helpers.stepper import board
from helpers.stepper.format import fill
from helpers.stepper.machines import machines
from helpers.stepper.moment import Moment, chosen
from helpers.stepper.view import View, one_of
from helpers.trace import Trace


class Stepper(View):
    """Step through the passes of a recorded run, with and without its cache.

    Args:
        trace: what `record_toy()` and `record_model()` return.
        panels: the face that is shown first: the "story", a run to watch, or the "lab", a run to measure.
        start: the phase whose first pass is shown first; None for prefill, in the lab for training.
        layer: index, from 0, of the layer shown first.
        head: index, from 0, of the head whose weights stand in the grid at first; None for the mean of all.

    Raises:
        ValueError: panels of another name; a phase, layer or head that was not recorded.
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
        """What the front end is told beside the trace."""
        shown = {"face": self.face, "start": self.start, "layer": self.layer, "head": self.head}
        return {**shown, "machines": machines()}

    @property
    def invitation(self) -> str:
        """What to do where the stepper is not running yet."""
        return fill(super().invitation, passes=self._n_passes)

    @property
    def _n_passes(self) -> int:
        """The passes that are stepped through: training is one where the stepper starts there."""
        run = self.trace.runs[0]
        at_training = run.passes[self.start].phase == "training"
        return len(run.passes if at_training else run.steps)

    def still(self) -> Still:
        """Return pictures of prefill and of a step with the cache and without, with their numbers.

        Of the lab: of training, prefill and a step with the cache.
        """
        lab = self.face == "lab"
        shown = chosen(self.trace, self.start, lab)
        moments = [Moment(self.trace, run, index, self.layer, self.head) for run, index in shown]
        return board.still(moments, lab)

    def __repr__(self) -> str:
        tokens = len(self.trace.sequences[0].tokens)
        return f"Stepper({self.trace.model.name}: {tokens} tokens, {self._n_passes} passes)"
