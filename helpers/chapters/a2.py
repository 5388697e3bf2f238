"""The sealed engine of notebook A2, one of eight servers with one wrong method each, and its pictures."""

from __future__ import annotations

import inspect
import random
from textwrap import dedent
from typing import Any

from IPython.display import Markdown

from helpers import plots
from helpers.chapters.n22 import check_cause_guess as check_cause_guess
from helpers.chapters.n22 import grid as grid
from helpers.check.result import Result
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.tables import Table
from helpers.museum import engine
from helpers.museum.engine import Probe, ReferenceServer, reference_run
from helpers.museum.exhibits import CARLA, MIA, ROME

OSLO = "Mia writes from Oslo . Monday is sunny in Oslo . Mia"
ELSEWHERE = "Mia writes from Oslo . Monday is sunny in Rome . Mia likes the soup"
KYIV = "Tomas lives in Kyiv . Tomas walked to the garden in Kyiv . The evening in Kyiv was snowy . Tomas"
# Maps each server with a bug to a probe to which its reply is wrong.
REVEALING_PROBES = {
    engine.MaskAlignedTopLeft: Probe(OSLO, chunk=2),
    engine.PaddingVisibleInDecode: Probe(ROME, pads=32),
    engine.UnwrittenEntriesVisible: Probe(MIA, chunk=256),
    engine.PartialPageShared: Probe(OSLO, concurrent_request=ELSEWHERE),
    engine.AdapterIgnoredInPrefixCache: Probe(MIA, earlier_request=MIA, adapter=True),
    engine.CachedPageReallocated: Probe(KYIV, earlier_request=KYIV, concurrent_request=CARLA),
    engine.EntriesCountedAsPosition: Probe(CARLA),
    engine.ResetKeepsLength: Probe(MIA.replace("Mia", "Jonas"), earlier_request=CARLA),
}
BUGGY_SERVERS = [*REVEALING_PROBES]


def wrong_replies_table() -> Table:
    """Return a table with one wrong reply from each of the eight servers, next to the right reply.

    The replies are sorted, so their order does not reveal which server gave which reply.
    """
    lines = [
        [f"… {reference_run(probe).reply_text}", f"… {server.answer(probe).reply_text}"]
        for server, probe in REVEALING_PROBES.items()
    ]
    return Table(sorted(lines), [f"reply {n}" for n in range(1, 9)], ["right", "generated"])


def timeline(probe: Probe) -> Picture:
    """Draw what happens around a probe's prompt in an engine without a bug, from left to right."""
    runner = ReferenceServer.answer(probe)
    passes = [(one.phase, one.parts[0].new[0]) for one in runner.trace.runs[0].passes]
    n_earlier, n_other = (len(runner.encode(x)) for x in (probe.earlier_request, probe.concurrent_request))
    rows: list[tuple[str, list[tuple[float, float, str, str]]]] = [
        (name, []) for name in ("an earlier request", "your probe", "another request")
    ]
    x = 18.0

    def add(row: int, width: float, text: str, fill: str = "panel") -> None:
        nonlocal x
        rows[row][1].append((x, width, text, fill))
        x += width + 3

    if n_earlier:
        add(0, 52, str(n_earlier), "soft")
    if found := max(0, passes[0][1][0] - probe.pads):
        add(1, 40, str(found), "key")
    n_steps = 0
    for phase, (start, stop) in passes:
        add(1, 40 if phase == "prefill" else 20, str(stop - start), "query")
        n_steps += phase == "decode"
        if n_other and n_steps == engine.ARRIVES_AFTER - 1 and phase == "decode":
            add(2, 52, str(n_other), "soft")

    def draw(sheet: Sheet) -> None:
        scale = min(1.0, (sheet.width - 36) / (x - 18))
        for n, (name, boxes) in enumerate(rows):
            top = 34 + 58 * n
            first = 18 + scale * (boxes[0][0] - 18) if boxes else 18
            sheet.note(min(first, 300), top - 14, name if boxes else f"{name}: none")
            for left, width, text, fill in boxes:
                across, size = 18 + scale * (left - 18), scale * width
                sheet.box(across, top, size, 24, fill=fill, opacity=0.35)
                sheet.text(across + size / 2, top + 12, text, at="center")
        for k, (fill, text) in enumerate(
            (("key", "found and used again"), ("query", "processed in one pass"))
        ):
            sheet.box(18.0 + 222 * k, 190, 14, 14, fill=fill, opacity=0.35)
            sheet.note(38.0 + 222 * k, 197, text)

    counts = "; ".join(
        f"{name}: {', '.join(text for _, _, text, _ in boxes) or 'none'}" for name, boxes in rows
    )
    return Picture(draw, f"Tokens in each pass, from left to right. {counts}. Entries found: {found}.")


class OpenedEngine(Markdown):
    """The bug of an engine that was opened; also readable where Markdown is not shown."""

    def __repr__(self) -> str:
        return str(self.data)


class SealedEngine:
    """An engine that has one of eight bugs, which the reader should identify by asking probes.

    Args:
        seed: chooses the bug. Each of the seeds 0 to 7 chooses a different bug.

    Attributes:
        asked_probes: the probes asked so far, each of them once.
    """

    def __init__(self, seed: int) -> None:
        servers = random.Random(seed // len(BUGGY_SERVERS)).sample(BUGGY_SERVERS, len(BUGGY_SERVERS))
        self.asked_probes, self._server = list[Probe](), servers[seed % len(BUGGY_SERVERS)]

    def ask(self, *probes: Probe) -> Picture:
        """Draw the engine's fingerprint on each probe, and print the engine's reply and that of a plain run.

        The fingerprint shows where the engine's computation differs from a plain run over the same words.
        """
        for n, probe in enumerate(probes, 1):
            plain, actual = (
                f"… {runner.reply_text}" for runner in (reference_run(probe), self._server.answer(probe))
            )
            print(f"probe {n}: {probe}\n    plain  {plain}\n    engine {actual}")
        self.asked_probes += [probe for probe in probes if probe not in self.asked_probes]
        prints = {f"probe {n}": self._server.fingerprint(probe) for n, probe in enumerate(probes, 1)}
        return plots.fingerprint_grids(prints, "Engine against plain run")

    def open(self, failing_probe: Any, passing_probe: Any) -> Result | Markdown:
        """Show the bug if two probes identify it; otherwise return a `Result` that says why they do not.

        The probes must differ in exactly one field. No other of the eight engines may have its ring in the
        same pass and layer on the first probe, and none on the second.

        Args:
            failing_probe: a probe on which the engine differs from a plain run.
            passing_probe: a probe on which the engine does not differ from a plain run.
        """
        if not (isinstance(failing_probe, Probe) and isinstance(passing_probe, Probe)):
            return Result("not solved yet", "write two probes, Probe(…), instead of the dots.")
        if problem := self.why_not_identified(failing_probe, passing_probe):
            return Result("not right yet", problem)
        [name] = [name for name, method in vars(self._server).items() if inspect.isfunction(method)]
        methods = [getattr(server, name) for server in (self._server, ReferenceServer)]
        fences = [f"```python\n{dedent(inspect.getsource(method))}```" for method in methods]
        sources = "\n\nand right would be\n\n".join(fences)
        n_probes = len({*self.asked_probes, failing_probe, passing_probe})
        return OpenedEngine(f"**Open, after {n_probes} probes.** {self._server.__doc__}\n\n{sources}")

    def why_not_identified(self, failing_probe: Probe, passing_probe: Probe) -> str:
        """Return why two probes do not identify the bug, or "" if they do. The arguments are as in `open`."""
        changed = sum(a != b for a, b in zip(failing_probe, passing_probe, strict=True))
        if changed != 1:
            return (
                f"the probes differ in {changed} things; change one, so that nothing else can be the cause."
            )
        ring, unexpected_ring = (
            self._server.fingerprint(probe).first_difference for probe in (failing_probe, passing_probe)
        )
        if not ring:
            return "the engine is right on `failing_probe`: its fingerprint there has no ring."
        if unexpected_ring:
            return "the engine is wrong on `passing_probe` as well: its fingerprint there has a ring."
        candidates = [
            server for server in BUGGY_SERVERS if not server.fingerprint(passing_probe).first_difference
        ]
        n = [
            (server.fingerprint(failing_probe).first_difference or (None,))[:2] for server in candidates
        ].count(ring[:2])
        same = f"{n} of the eight engines have the ring in the same pass and layer: separate them."
        return same if n > 1 else ""
