"""What A2 uses: the sealed engine, one of eight servers that are right but for one method."""

from __future__ import annotations

import inspect
import random
from textwrap import dedent
from typing import Any

from IPython.display import Markdown

from helpers import plots
from helpers.chapters.n22 import cause as cause
from helpers.check.result import Result
from helpers.drawing.canvas import Picture
from helpers.drawing.tables import Table
from helpers.museum import engine
from helpers.museum.engine import Engine, Probe, plainly
from helpers.museum.exhibits import CARLA, MIA, ROME

OSLO = "Mia writes from Oslo . Monday is sunny in Oslo . Mia"
ELSEWHERE = "Mia writes from Oslo . Monday is sunny in Rome . Mia likes the soup"
KYIV = "Tomas lives in Kyiv . Tomas walked to the garden in Kyiv . The evening in Kyiv was snowy . Tomas"
# Engines with a bug, and a probe after which each says other words.
BAD = {
    engine.MaskAtTheCorner: Probe(OSLO, chunk=2),
    engine.PaddingSeen: Probe(ROME, pads=32),
    engine.UnwrittenSeen: Probe(MIA, chunk=256),
    engine.PageWrittenTwice: Probe(OSLO, beside=ELSEWHERE),
    engine.AdapterForgotten: Probe(MIA, before=MIA, adapter=True),
    engine.PageGivenAway: Probe(KYIV, before=KYIV, beside=CARLA),
    engine.RowsCounted: Probe(CARLA),
    engine.LengthKept: Probe(MIA.replace("Mia", "Jonas"), before=CARLA),
}
BUGS = [*BAD]


def eight() -> Table:
    """Return what each engine says at a bad moment, beside the right words."""
    lines = [[f"… {plainly(probe).text}", f"… {kind.answer(probe).text}"] for kind, probe in BAD.items()]
    return Table(sorted(lines), [f"reply {n}" for n in range(1, 9)], ["right", "said"])


class Sealed:
    """An engine with one of eight bugs, drawn by a seed: each of the seeds 0 to 7 has another.

    Attributes:
        asked: the probes so far.
    """

    def __init__(self, seed: int) -> None:
        kinds = random.Random(seed // len(BUGS)).sample(BUGS, len(BUGS))
        self.asked, self._kind = list[Probe](), kinds[seed % len(BUGS)]

    def ask(self, *probes: Probe) -> Picture:
        """Draw each probe's fingerprint against a plain run of the same words, and print both replies."""
        for n, probe in enumerate(probes, 1):
            plain, mine = (f"… {runner.text}" for runner in (plainly(probe), self._kind.answer(probe)))
            print(f"probe {n}: {probe}\n    plain  {plain}\n    engine {mine}")
        self.asked += [probe for probe in probes if probe not in self.asked]
        prints = {f"probe {n}": self._kind.fingerprint(probe) for n, probe in enumerate(probes, 1)}
        return plots.fingerprints(prints, "Engine against plain run")

    def open(self, wrong: Any, right: Any) -> Result | Markdown:
        """Open if the probes differ in one thing, and no other of the eight engines does the same on both."""
        if not (isinstance(wrong, Probe) and isinstance(right, Probe)):
            return Result("not solved yet", "write two probes, Probe(…), in place of the dots.")
        if problem := self.problem(wrong, right):
            return Result("not right yet", problem)
        [name] = [name for name, part in vars(self._kind).items() if inspect.isfunction(part)]
        code = [dedent(inspect.getsource(getattr(kind, name))) for kind in (self._kind, Engine)]
        sources = "\n\nand right would be\n\n".join(f"```python\n{one}```" for one in code)
        asked = len({*self.asked, wrong, right})
        return Markdown(f"**Open, after {asked} probes.** {self._kind.__doc__}\n\n{sources}")

    def problem(self, wrong: Probe, right: Probe) -> str:
        """Return why two probes do not leave one cause; "" if they do."""
        changed = sum(a != b for a, b in zip(wrong, right, strict=True))
        if changed != 1:
            return (
                f"the probes differ in {changed} things; change one, so that nothing else can be the cause."
            )
        ring, none = (self._kind.fingerprint(probe).first for probe in (wrong, right))
        if not ring:
            return "the engine is right on `wrong`: its fingerprint there has no ring."
        if none:
            return "the engine is wrong on `right`, too: its fingerprint there has a ring."
        others = [kind for kind in BUGS if not kind.fingerprint(right).first]
        n = [(kind.fingerprint(wrong).first or (None,))[:2] for kind in others].count(ring[:2])
        return f"{n} of the eight engines have these two fingerprints." if n > 1 else ""
