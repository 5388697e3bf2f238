"""A server in small that is right whatever a probe changes, and eight that are right but for one method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.model.cache import Cache, GrowingCache, WindowCache
from helpers.model.generate import run
from helpers.museum.exhibit import Fingerprint, fingerprint, model_of
from helpers.museum.runner import Runner
from helpers.validate import check_whole

PAGE = 8  # rows
WORDS, ARRIVES = 8, 3  # tokens of a reply; of them, those that are there when somebody comes beside
WINDOWS = (28, None, None, None)  # rows that each layer keeps; None for all


def turned_at(cache: Cache, where: Callable[[int], Tensor]) -> None:
    """Let keys and queries be turned by other positions; what the cache keeps and shows stays right."""
    right = cache.positions

    def rightly(call: Callable[..., Any], *args: Any) -> Any:
        vars(cache).update(positions=right)
        result = call(*args)
        vars(cache).update(positions=where)
        return result

    vars(cache).update(
        positions=where, mask=partial(rightly, cache.mask), advance=partial(rightly, cache.advance)
    )


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return with how many tokens both texts begin."""
    return [*(x == y for x, y in zip(a, b, strict=False)), False].index(False)


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

    An engine with a bug has one other method. Pages are rows of the layers that keep all rows.

    Args:
        windows: rows that each layer keeps; None for all.
    """

    def __init__(self, runner: Runner, probe: Probe, windows: Sequence[int | None] = WINDOWS) -> None:
        super().__init__(runner.model.config, windows)
        self.paged = [layer for layer, window in enumerate(windows) if window is None]
        check_whole("chunk", probe.chunk, minimum=0)
        check_whole("pads", probe.pads, minimum=0)
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
            for layer in self.paged:
                for mine, other in ((self.k, theirs.k), (self.v, theirs.v)):
                    rows = other[layer][:, :, PAGE * page : PAGE * (page + 1)]
                    n = min(rows.shape[2], mine[layer][:, :, ours].shape[2])
                    mine[layer][:, :, ours][:, :, :n] = rows[:, :, :n]

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return who may look at whom, (T, S); see `Cache.mask`."""
        if repair := self.runner.repair:
            return self.widened(repair(T, self.length, self.probe.pads), self.n_blank(T))
        queries = self.corner(T) + torch.arange(T)[:, None]
        keys = torch.cat([self.kept_positions[layer], WindowCache.positions(self, T)])
        seen = (keys <= queries) & self.in_window(keys, queries, layer) & (keys >= self.hidden(T))
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


def plainly(probe: Probe) -> Runner:
    """Return the runner that has answered the same prompt whole, alone and in an empty cache."""
    return Engine.answer(Probe(probe.text, adapter=probe.adapter))


class MaskAtTheCorner(Engine):
    """In several tokens at once the mask begins at its upper left corner (room 1)."""

    def corner(self, T: int) -> int:
        return self.length if T == 1 else 0


class PaddingSeen(Engine):
    """The padding is hidden in prefill and seen in the steps (room 2)."""

    def hidden(self, T: int) -> int:
        return self.probe.pads if T > 1 else 0


class UnwrittenSeen(Engine):
    """Rows of the buffer that nobody has written are looked at (room 7)."""

    def widened(self, seen: Tensor, n: int) -> Tensor:
        return F.pad(seen, (0, n), value=True)


class PageWrittenTwice(Engine):
    """Who begins with the same words shares a page, and writes into it from where the texts part."""

    def given(self) -> list[int]:
        page, rows = divmod(shared(self.ids, self.beside), PAGE)
        return [page] if rows else []


class AdapterForgotten(Engine):
    """Rows that were made without the adapter are found by their tokens alone (room 10)."""

    def found(self) -> int:
        return shared(self.ids[:-1], self.before)


class PageGivenAway(Engine):
    """The first page that was found is still on the free list, and is given away (room 4)."""

    def given(self) -> list[int]:
        return [0] if self.n_found else []


class RowsCounted(Engine):
    """The length is asked of layer 1, which keeps a window (room 9)."""

    def turned(self, T: int) -> Tensor:
        return self.n_stored(0) + torch.arange(T)


class LengthKept(Engine):
    """After a reset the rows are zero, and the length is kept (room 8)."""

    def reset(self) -> None:
        self.k, self.v = ([torch.zeros_like(x) for x in rows] for rows in (self.k, self.v))
