"""The race: the same words twice on one clock, with the cache and without."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable
from typing import Any

from helpers.stepper.format import VIEW, clipped, fill
from helpers.stepper.view import View
from helpers.trace import Run, Trace, spread

RACE = VIEW["race"]
_GLUED = re.compile(VIEW["glued"])
_COLOURS = VIEW["palette"]["light"]
# Ground and ink together, literally, so that it reads the same in a light and in a dark theme.
_STYLE = f"background-color:{_COLOURS['bg']};color:{_COLOURS['ink']};text-align:left"
BLOCKS = 48  # characters of the longer bar
INKS = {"prompt": "ink", "fresh": "gen", "again": "soft", "to come": "ring"}


class Race(View):
    """Two runs of the same tokens on one clock, in which a pass lasts as long as the positions it runs.

    Args:
        trace: what `record_toy()` and `record_model()` return, and `load_diary()`.

    Raises:
        TypeError: what came is no trace.
        ValueError: the trace has no run with a cache, or none without.
    """

    view = "race"

    def __init__(self, trace: Trace) -> None:
        if not isinstance(trace, Trace):
            raise TypeError(f"got {type(trace).__name__}, expected a Trace: pass what record_toy() returns")
        runs = [run for run in trace.runs if run.steps]
        cached = [run for run in runs if run.cache != "none"]
        plain = [run for run in runs if run.cache == "none"]
        if not (cached and plain):
            raise ValueError(
                f"got runs with the caches {[run.cache for run in runs]}, expected two to race, one with a "
                "cache and one without ('none'): record the trace with both"
            )
        self.trace, self.cached, self.plain = trace, cached[0], plain[0]

    @property
    def data(self) -> str:
        """The trace."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """Nothing: a race starts at its start."""
        return {}

    def static_html(self) -> str:
        """Return both lanes as a table at the moment when the run with the cache is done."""
        lanes = [_Lane(run) for run in (self.cached, self.plain)]
        (end, whole), n_prompt = (lane.end for lane in lanes), self.trace.sequences[0].prompt
        notes = (fill(RACE["instead"][0], positions=end, all=whole), "")
        rows = [
            _row(name, f"{lane.bar(end, whole)} {note}") + _row("", self._text(lane.words_at(end)))
            for name, lane, note in zip(RACE["lanes"], lanes, notes, strict=True)
        ]
        prompt = f"{fill(RACE['prompt'], prompt=n_prompt)}: {self._text(range(n_prompt))}"
        names = {**RACE["legend"], "to come": RACE["to come"]}
        legend = ", ".join(f"{block} {names[kind]}" for kind, block in RACE["blocks"].items())
        before, after = _say(*lanes)
        return f"<p>{before}</p><p>{prompt}</p><table>{''.join(rows)}</table><p>{legend}</p><p>{after}</p>"

    def _text(self, indices: Iterable[int]) -> str:
        """Tokens as running text: no blank before a full stop, none at all where tokens bring their own."""
        tokens = self.trace.sequences[0].tokens
        own = any(re.match(r"\s\S", token.text) for token in tokens[1:])
        said = ""
        for index in indices:
            text = tokens[index].text
            said += " " if said and not own and not _GLUED.match(text) else ""
            said += f"<bdi>{html.escape(clipped(text, 24))}</bdi>"
        return said

    def __repr__(self) -> str:
        return f"Race({self.trace.model.name}: {len(self.trace.sequences[0].tokens)} tokens)"


class _Lane:
    """A run on the clock: the kind of each position in the order of the run, and when each word is out."""

    def __init__(self, run: Run) -> None:
        self.kinds: list[str] = []
        self.words: list[tuple[int, int]] = []  # tokens run until then, token
        self.pairs = sum(run.counted("pairs"))
        for step in run.steps:
            again = sum(len(spread(part.repeated)) for part in step.parts)
            new = "prompt" if step.phase == "prefill" else "fresh"
            self.kinds += ["again"] * again + [new] * (step.counts["positions"] - again)
            outs = (out for part in step.parts if part.sequence == 0 for out in part.out)
            self.words += [(self.end, out.chosen) for out in outs]

    @property
    def end(self) -> int:
        return len(self.kinds)

    def words_at(self, t: int) -> list[int]:
        return [token for out_at, token in self.words if out_at <= t]

    def bar(self, t: int, whole: int) -> str:
        """The run as characters, `BLOCKS` for the whole clock; pale is what is still to come at a time."""
        kinds = self.kinds[:t] + ["to come"] * (self.end - t)
        shown = (kinds[n * whole // BLOCKS] for n in range(-(-BLOCKS * self.end // whole)))
        return "".join(
            f'<span style="color:{_COLOURS[INKS[kind]]}">{RACE["blocks"][kind] * len(list(some))}</span>'
            for kind, some in itertools.groupby(shown)
        )


def _say(cached: _Lane, plain: _Lane) -> list[str]:
    """What the page says when the run with the cache is done, and at the end."""
    words = [[token for _, token in lane.words] for lane in (cached, plain)]
    values = {"words": len(words[0]), "out": len(plain.words_at(cached.end)), "positions": cached.end}
    values |= {"all": plain.end, "pairs": cached.pairs, "all_pairs": plain.pairs}
    stages = ("ahead", "done" if words[0] == words[1] else "apart")
    return [fill(RACE["say"][stage], **values, again=plain.kinds.count("again")) for stage in stages]


def _row(name: str, text: str) -> str:
    return f'<tr><th>{name}</th><td style="{_STYLE}">{text}</td></tr>'
