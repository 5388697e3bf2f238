"""The Python face of the stepper: takes a trace once; all stepping happens in the browser."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from helpers.arguments import is_whole
from helpers.drawing.still import Still
from helpers.stepper import board
from helpers.stepper.format import fill
from helpers.stepper.machines import machines
from helpers.stepper.moment import Moment, chosen
from helpers.stepper.view import View
from helpers.trace import Trace

# What the reader has met, notebook by notebook; each level includes those before it.
LEVELS: dict[str, tuple[str, ...]] = {
    "passes": ("tokens", "grid", "cache", "sentence"),
    "attention": ("weights", "values", "contexts"),
    "prediction": ("prediction", "targets"),
    "work": ("work", "layer"),
}
MET = tuple(name for level in LEVELS.values() for name in level)
# The two faces between which one switch leads: a run to watch, and a run to measure.
FACES: dict[str, tuple[str, ...]] = {
    "story": (*MET, "cost"),
    "lab": (*(name for name in MET if name != "work"), "keys", "ledger", "mask", "hidden", "lab", "cost"),
}
PANELS = tuple(dict.fromkeys(name for face in FACES.values() for name in face))


class Stepper(View):
    """Step through the passes of a recorded run, with and without its cache.

    Args:
        trace: what `record_toy()` and `record_model()` return.
        panels: a face ("story", "lab"), which leads to the other; a level ("passes", "attention",
            "prediction", "work"), which includes the levels before it; or a list of panels to show beside
            those of "passes".
        start: the pass shown first: a phase ("training", "prefill", "decode"), an index of the run's
            passes, or None for the first pass, in the lab with its training reference.
        cache: whether the run with a cache is shown first.
        layer: index, from 0, of the layer shown first.
        head: index, from 0, of the head whose weights stand in the grid at first; None for the mean of all.

    Raises:
        TypeError: a trace or a cache that is not of its kind.
        ValueError: an unknown panel, a start outside the run, a layer or head that was not recorded.
    """

    view = "stepper"

    def __init__(
        self,
        trace: Trace,
        panels: str | Iterable[str] = "story",
        start: str | int | None = None,
        cache: bool = True,
        layer: int = 0,
        head: int | None = None,
    ) -> None:
        if not isinstance(trace, Trace):
            raise TypeError(
                f"got {type(trace).__name__}, expected a Trace: "
                "pass what record_toy() returns, or Trace.load(path)"
            )
        self.trace = trace
        self.face = panels if isinstance(panels, str) and panels in FACES else None
        self.panels = FACES[self.face] if self.face else _panels(panels)
        self.start = _start(trace, 0 if start is None and self.face == "lab" else start)
        if not isinstance(cache, bool):
            raise TypeError(f"got cache={cache!r}, expected True (with a cache) or False (without)")
        self.cache = cache
        layers = trace.layers
        expected = f"one of the layers that the trace holds: {layers} (from 0)"
        self.layer = _one_of("layer", layer, layers, expected)
        heads = [recorded for of, recorded in trace.recorded if of == self.layer]
        expected = (
            f"None (the mean of all) or one of the heads that the trace holds of the layer: {heads} (from 0)"
        )
        self.head = None if head is None else _one_of("head", head, heads, expected)

    @property
    def data(self) -> str:
        """The trace."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """What the front end is told beside the trace."""
        shown = {"start": self.start, "cache": self.cache, "layer": self.layer, "head": self.head}
        faces = {face: list(panels) for face, panels in FACES.items()}
        offered = {"face": self.face, "faces": faces} if self.face else {"panels": list(self.panels)}
        machine = {"machines": machines()} if "cost" in self.panels else {}
        return {**offered, **shown, **machine}

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
        in_lab = "lab" in self.panels
        met = "weights" not in self.panels or "work" in self.panels  # else the reader has yet to meet it
        shown = chosen(self.trace, self.start, uncached=met, training=in_lab)
        moments = [Moment(self.trace, run, index, self.layer, self.head) for run, index in shown]
        return board.still(moments, set(self.panels))

    def __repr__(self) -> str:
        tokens = len(self.trace.sequences[0].tokens)
        return f"Stepper({self.trace.model.name}: {tokens} tokens, {self._n_passes} passes)"


def _panels(wanted: str | Iterable[str]) -> tuple[str, ...]:
    names = list(LEVELS)
    expected = f"a face or a level, one of {[*FACES, *names]}, or a list of panels out of {list(PANELS)}"
    if isinstance(wanted, str):
        if wanted not in LEVELS:
            raise ValueError(f"got panels={wanted!r}, expected {expected}")
        wanted = [panel for level in names[: names.index(wanted) + 1] for panel in LEVELS[level]]
    chosen = {**dict.fromkeys(LEVELS["passes"]), **dict.fromkeys(wanted)}
    for name in chosen:
        if name not in PANELS:
            raise ValueError(f"got the panel {name!r}, expected panels out of {list(PANELS)}")
    return tuple(panel for panel in PANELS if panel in chosen)


def _start(trace: Trace, start: str | int | None) -> int:
    for run in trace.runs:
        if not run.passes:
            raise ValueError(f"got a trace whose run {run.name!r} has no passes: record it again")
    phases = [event.phase for event in trace.runs[0].passes]
    if start is None:
        return next((i for i, phase in enumerate(phases) if phase != "training"), 0)
    if isinstance(start, str) and start in phases:
        return phases.index(start)
    expected = f"an index from 0 to {len(phases) - 1}, or a phase of {sorted(set(phases))}"
    return _one_of("start", start, range(len(phases)), expected)


def _one_of(name: str, value: Any, values: Collection[int], expected: str) -> int:
    """A whole number of any kind, out of some; True and 1.0 are none."""
    if not is_whole(value) or int(value) not in values:
        raise ValueError(f"got {name}={value!r}, expected {expected}")
    return int(value)
