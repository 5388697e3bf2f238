"""What A2 uses: the sealed engine, one of eight servers that are right but for one method."""

from __future__ import annotations

import inspect
import random
from functools import cache
from textwrap import dedent
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from IPython.display import Markdown
from torch import Tensor

from helpers import plots
from helpers.arguments import check_whole
from helpers.chapters.n22 import cause as cause
from helpers.check.result import Result
from helpers.drawing.canvas import Picture
from helpers.model.cache import GrowingCache, WindowCache
from helpers.model.generate import run
from helpers.museum.exhibit import Fingerprint, fingerprint, model_of
from helpers.museum.exhibits import CARLA, MIA, PAGE, ROME, shared, turned_at
from helpers.museum.runner import Runner
from helpers.tables import Table

WORDS, ARRIVES = 8, 3  # tokens of a reply; of them, those that are there when somebody comes beside
WINDOWS = [28, None, None, None]  # rows that each layer keeps; None for all
OSLO = "Mia writes from Oslo . Monday is sunny in Oslo . Mia"
KYIV = "Tomas lives in Kyiv . Tomas walked to the garden in Kyiv . The evening in Kyiv was snowy . Tomas"


class Probe(NamedTuple):
    """What is asked of an engine, and what else goes on there.

    Attributes:
        text: the prompt.
        chunk: tokens of a piece in which the prompt runs; 0 runs it whole.
        pads: tokens of padding that fill it up, at its left.
        before: what somebody asked before; pages of words that both begin with are found.
        beside: what somebody asks who comes during the reply.
        adapter: whether the prompt runs with the adapter; the other texts run without.
    """

    text: str
    chunk: int = 0
    pads: int = 0
    before: str = ""
    beside: str = ""
    adapter: bool = False

    def __str__(self) -> str:
        n = len(model_of("diary")[1].encode(self.text))
        changed = [(name, value) for name, value in self._asdict().items() if name != "text" and value]
        parts = [name if isinstance(value, str | bool) else f"{name} {value}" for name, value in changed]
        return ", ".join([f"{n} tokens", *parts])


class Engine(WindowCache):
    """A server's cache, and what the server does for one request: right, whatever a probe changes.

    A sealed engine has one method of another kind. Pages are rows of the layers that keep all rows.

    Attributes:
        bad: a probe after which a sealed engine says other words.
    """

    bad: Probe

    def __init__(self, runner: Runner, probe: Probe) -> None:
        super().__init__(runner.model.config, WINDOWS)
        check_whole("chunk", probe.chunk, least=0)
        check_whole("pads", probe.pads, least=0)
        self.runner, self.probe, self.plain = runner, probe, model_of("diary")[0]
        texts = probe.text, probe.before, probe.beside
        self.ids, self.before, self.beside = (runner.ids(text) for text in texts)
        check_whole("the number of words in text", len(self.ids))
        turned_at(self, self.turned)

    @classmethod
    @cache
    def answer(cls, probe: Probe, forced: tuple[int, ...] = ()) -> Runner:
        """Return the runner that has answered a probe; `forced` as in `Runner`."""
        runner = Runner(*model_of("adapter" if probe.adapter else "diary"), WORDS, forced)
        cls(runner, probe).serve()
        return runner

    @classmethod
    def fingerprint(cls, probe: Probe) -> Fingerprint:
        """Return where it differs from a plain run of the same words."""
        right = plainly(probe)
        wrong = cls.answer(probe, tuple(right.output_ids))
        return fingerprint(right.trace, wrong.trace, pads=probe.pads)

    def serve(self) -> None:
        """Run what was asked before, and answer."""
        if self.before:
            run(self.plain, torch.tensor([self.before]), self)
            self.reset()
        prompt = [*self.runner.model.config.eos_ids] * self.probe.pads + self.ids
        self.n_found = self.found() // PAGE * PAGE
        n_cached = self.probe.pads + self.n_found if self.n_found else 0
        if n_cached:
            run(self.plain, torch.tensor([prompt[:n_cached]]), self)
        self.runner.before_step = self.step
        self.runner.reply(prompt, self, self.probe.chunk or len(prompt), n_cached)

    @torch.inference_mode()
    def step(self, n: int) -> None:
        """Serve who comes beside when n tokens are there: in pages of its own, but for those it is given."""
        if n != ARRIVES or not self.beside:
            return
        theirs = GrowingCache(self.sizes)
        run(self.plain, torch.tensor([self.beside]), theirs)
        for page in self.given():  # in which both write
            ours = slice(self.probe.pads + PAGE * page, self.probe.pads + PAGE * (page + 1))
            for layer in range(1, self.n_layers):
                for mine, other in ((self.k, theirs.k), (self.v, theirs.v)):
                    rows = other[layer][:, :, PAGE * page : PAGE * (page + 1)]
                    n = min(rows.shape[2], mine[layer][:, :, ours].shape[2])
                    mine[layer][:, :, ours][:, :, :n] = rows[:, :, :n]

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return who may look at whom, (T, S); see `Cache.mask`."""
        queries = self.corner(T) + torch.arange(T)[:, None]
        keys = torch.cat([self.at[layer], WindowCache.positions(self, T)])
        seen = (keys <= queries) & self.near(keys, queries, layer) & (keys >= self.hidden(T))
        return self.widened(seen, self.n_blank(T))

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Hand out the whole buffer, which grows by pieces; see `Cache.append`."""
        blank = (0, 0, 0, self.n_blank(k.shape[2]))
        keys, values = super().append(layer, k, v)
        return F.pad(keys, blank), F.pad(values, blank)

    def n_blank(self, T: int) -> int:
        """Rows of the buffer that nobody has written."""
        return -(self.length + T) % (self.probe.chunk or 1)

    def corner(self, T: int) -> int:
        """Where the first of T new tokens stands, for the mask."""
        return self.length

    def hidden(self, T: int) -> int:
        """Rows at the left that T new tokens may not see: the padding."""
        return self.probe.pads

    def widened(self, seen: Tensor, n: int) -> Tensor:
        """A mask with n columns more, for rows of the buffer that nobody has written."""
        return F.pad(seen, (0, n), value=False)

    def turned(self, T: int) -> Tensor:
        """The positions by which T new tokens are turned."""
        return self.length + torch.arange(T)

    def found(self) -> int:
        """Tokens at the beginning whose rows are there from before; that request had no adapter."""
        return 0 if self.probe.adapter else shared(self.ids[:-1], self.before)

    def given(self) -> list[int]:
        """Pages of this request that are given to somebody who comes beside."""
        return []


class MaskAtTheCorner(Engine):
    """In several tokens at once the mask begins at its upper left corner (room 1)."""

    bad = Probe(OSLO, chunk=2)

    def corner(self, T: int) -> int:
        return self.length if T == 1 else 0


class PaddingSeen(Engine):
    """The padding is hidden in prefill and seen in the steps (room 2)."""

    bad = Probe(ROME, pads=32)

    def hidden(self, T: int) -> int:
        return self.probe.pads if T > 1 else 0


class UnwrittenSeen(Engine):
    """Rows of the buffer that nobody has written are looked at (room 7)."""

    bad = Probe(MIA, chunk=256)

    def widened(self, seen: Tensor, n: int) -> Tensor:
        return F.pad(seen, (0, n), value=True)


class PageWrittenTwice(Engine):
    """Who begins with the same words shares a page, and writes into it from where the texts part."""

    bad = Probe(OSLO, beside="Mia writes from Oslo . Monday is sunny in Rome . Mia likes the soup")

    def given(self) -> list[int]:
        page, rows = divmod(shared(self.ids, self.beside), PAGE)
        return [page] if rows else []


class AdapterForgotten(Engine):
    """Rows that were made without the adapter are found by their tokens alone (room 10)."""

    bad = Probe(MIA, before=MIA, adapter=True)

    def found(self) -> int:
        return shared(self.ids[:-1], self.before)


class PageGivenAway(Engine):
    """The first page that was found is still on the free list, and is given away (room 4)."""

    bad = Probe(KYIV, before=KYIV, beside=CARLA)

    def given(self) -> list[int]:
        return [0] if self.n_found else []


class RowsCounted(Engine):
    """The length is asked of layer 1, which keeps a window (room 9)."""

    bad = Probe(CARLA)

    def turned(self, T: int) -> Tensor:
        return self.rows_of(0) + torch.arange(T)


class LengthKept(Engine):
    """After a reset the rows are zero, and the length is kept (room 8)."""

    bad = Probe(MIA.replace("Mia", "Jonas"), before=CARLA)

    def reset(self) -> None:
        self.k, self.v = ([torch.zeros_like(x) for x in rows] for rows in (self.k, self.v))


BUGS = Engine.__subclasses__()


def plainly(probe: Probe) -> Runner:
    """Return the runner that has answered the same prompt whole, alone and in an empty cache."""
    return Engine.answer(Probe(probe.text, adapter=probe.adapter))


def eight() -> Table:
    """Return what each engine says at a bad moment, beside the right words."""
    lines = [[f"… {plainly(kind.bad).text}", f"… {kind.answer(kind.bad).text}"] for kind in BUGS]
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
