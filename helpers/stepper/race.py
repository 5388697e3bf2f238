"""The race: the same words twice on one clock, with the cache and without."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Any

from helpers.drawing.canvas import Sheet
from helpers.drawing.still import Still
from helpers.drawing.words import LARGE, SMALL, TEXT, drawable, text_width
from helpers.stepper.format import VIEW, clipped, fill
from helpers.stepper.view import View
from helpers.trace import Run, Trace, join, spread

RACE = VIEW["race"]
_GLUED = re.compile(VIEW["glued"])
_CARRIES_SPACE = re.compile(r"^\s\S|\S\s$")
EDGE, TRACK = 10, 20  # px: the margin, and the height of a lane's bar


class Race(View):
    """Two runs of the same tokens on one clock; a pass lasts one unit for each token that it processes.

    Args:
        trace: the result of `record_toy()`, `record_model()` or `load_diary()`.

    Raises:
        ValueError: the trace lacks a run with a cache, or one without.
    """

    view = "race"

    def __init__(self, trace: Trace) -> None:
        self.trace, caches = trace, [run.cache for run in trace.runs]
        if len(caches) != 2 or caches[1] != "none":
            raise ValueError(
                f"got runs with the caches {caches}, expected one with a cache and one with none"
            )
        self.cached, self.plain = trace.runs
        self.lanes = dict(zip(RACE["lanes"], map(_Lane, trace.runs), strict=True))

    @property
    def data(self) -> str:
        """The trace."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """No options: a race always starts at the beginning."""
        return {}

    def still(self) -> Still:
        """Return both lanes at the moment when the run with the cache is done."""
        cached, plain = self.lanes.values()
        values = {"words": len(cached.words), "out": len(plain.words_at(cached.end))}
        values |= {"positions": cached.end, "all": plain.end, "again": plain.again}
        sentence = [fill(RACE["say"][stage], **values) for stage in ("ahead", "done")]
        prompt = self.trace.sequences[0].prompt
        texts = {fill(RACE["prompt"], prompt=prompt): range(prompt)}
        texts |= {name: lane.words_at(cached.end) for name, lane in self.lanes.items()}
        alt = "; ".join(f"{name}: {self.text_of(tokens)}" for name, tokens in texts.items())
        return Still(self._draw, alt + ".", sentence)

    def text_of(self, indices: Iterable[int]) -> str:
        """Tokens as running text, as in js/format.ts: a blank before each word, or those that pieces have."""
        tokens = self.trace.sequences[0].tokens
        texts = [tokens[index].text for index in indices]
        if any(_CARRIES_SPACE.search(token.text) for token in tokens):
            return clipped(" ".join(join(texts).split()), sys.maxsize)
        blanks = ["" if n == 0 or _GLUED.match(text) else " " for n, text in enumerate(texts)]
        return "".join(blank + clipped(text, 24) for blank, text in zip(blanks, texts, strict=True))

    def _draw(self, sheet: Sheet) -> None:
        prompt, cached, plain = self.trace.sequences[0].prompt, *self.lanes.values()
        wide, unit = sheet.width - 2 * EDGE, (sheet.width - 2 * EDGE) / plain.end
        _legend(sheet)
        sheet.note(EDGE, 42, fill(RACE["prompt"], prompt=prompt))
        y = running(sheet, self.text_of(range(prompt)), wide, 65, "ink")
        for name, lane in self.lanes.items():
            y += 42
            sheet.text(EDGE, y, name, bold=True)
            sheet.text(220, y, f"{min(cached.end, lane.end):,}", size=LARGE, bold=True)
            sheet.note(220, y + 22, RACE["positions"])
            y = running(sheet, self.text_of(lane.words_at(cached.end)), wide, y + 46, "generated") + 18
            lane.draw(sheet, cached.end, unit, y)
            x = EDGE + unit * lane.end + 10
            sentence = [fill(one, positions=lane.end, all=plain.end) for one in RACE["instead"]]
            fitting = (one for one in sentence if x + text_width(one, bold=True) < sheet.width)
            sheet.text(x, y + TRACK / 2, next(fitting, "") if lane is cached else "", bold=True)
            y += TRACK
        y += 16
        sheet.line((EDGE, y), (EDGE + wide, y), colour="soft")
        sheet.disc(EDGE + unit * cached.end, y, 6, "ink")
        end = f"{plain.end:,}"
        sheet.note(EDGE + wide, y + 20, end, at="right")
        running(sheet, RACE["axis"], wide - text_width(end, SMALL) - 20, y + 20, "soft", SMALL)

    def __repr__(self) -> str:
        return f"Race({self.trace.model.name}: {len(self.trace.sequences[0].tokens)} tokens)"


class _Lane:
    """A run on the clock: where its passes end, what they run again, and when each word is out."""

    def __init__(self, run: Run) -> None:
        self.steps = run.steps
        self.ends = [0, *accumulate(run.per_step("positions"))]  # tokens processed until then
        self.end = self.ends[-1]
        outs = zip(self.ends[1:], self.steps, strict=True)
        self.words = [(end, out.chosen) for end, step in outs for out in step.parts[0].out]
        self.again = sum(len(spread(step.parts[0].repeated)) for step in self.steps)

    def words_at(self, t: int) -> list[int]:
        """The tokens that are out when so many have run."""
        return [token for out_at, token in self.words if out_at <= t]

    def draw(self, sheet: Sheet, t: int, unit: float, y: float) -> None:
        """Draw the passes up to a time, `unit` px a token, and pale what is still to come."""
        for step, (start, end) in zip(self.steps, pairwise(self.ends), strict=True):
            again = start + len(spread(step.parts[0].repeated))
            kinds = (("again", start, again), ("prompt" if step.phase == "prefill" else "fresh", again, end))
            x, to = (round(EDGE + unit * n) for n in (start, end))
            if end > t:
                sheet.box(x, y, max(1, to - x - 1), TRACK, fill="panel", edge="line", radius=0)
            for kind, since, until in kinds:
                x, to = (round(EDGE + unit * min(n, t)) for n in (since, until))
                if to > x:
                    _block(sheet, kind, x, y, to - x, TRACK)


def _block(sheet: Sheet, kind: str, x: float, y: float, wide: float, high: float) -> None:
    """Tokens that have run: hatched where they had run before."""
    if kind != "again":
        sheet.box(x, y, wide, high, fill="ink" if kind == "prompt" else "generated", radius=0)
        return
    sheet.box(x, y, wide, high, fill="paper", edge="soft", line=0.8, radius=0)
    for n in range(8, int(wide) - 2, 6):
        sheet.line((x + n - 5, y + high - 2), (x + n, y + 2), colour="soft", width=1)


def running(sheet: Sheet, text: str, room: float, y: float, colour: str, size: float = TEXT + 2) -> float:
    """Write running text in as many lines as it takes; return the height of the last one."""
    line = ""
    for word in re.findall(r"\s*\S{1,24}", drawable(text)):
        if line and text_width(line + word, size) > room:
            sheet.text(EDGE, y, line, size=size, colour=colour)
            line, y = "", y + round(size * 1.45)
        line += word if line else word.lstrip()
    sheet.text(EDGE, y, line, size=size, colour=colour)
    return y


def _legend(sheet: Sheet) -> None:
    x = EDGE
    for kind, sentence in RACE["legend"].items():
        _block(sheet, kind, x, 5, 22, 14)
        sheet.note(x + 30, 12, sentence)
        x += round(text_width(sentence, SMALL)) + 50
