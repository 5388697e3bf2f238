"""A small server that is right whatever a probe changes, and eight that differ from it in one method."""

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

PAGE = 8  # KV entries
WORDS, ARRIVES = 8, 3  # tokens of a reply; tokens that exist when another request arrives
WINDOWS = (28, None, None, None)  # KV entries that each layer keeps; None for all


def rotate_at(cache: Cache, positions: Callable[[int], Tensor]) -> None:
    """Let keys and queries be rotated by other positions; the cache's mask and entries stay right."""
    original = cache.positions

    def with_original(call: Callable[..., Any], *args: Any) -> Any:
        vars(cache).update(positions=original)
        result = call(*args)
        vars(cache).update(positions=positions)
        return result

    mask, advance = partial(with_original, cache.mask), partial(with_original, cache.advance)
    vars(cache).update(positions=positions, mask=mask, advance=advance)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens at the beginning of two texts are the same."""
    return [*(x == y for x, y in zip(a, b, strict=False)), False].index(False)


class Probe(NamedTuple):
    """A prompt for an engine, and what else happens there.

    Attributes:
        text: the prompt.
        chunk: tokens of the chunks in which the prompt runs; 0 runs it whole.
        pads: tokens of padding at its left.
        before: an earlier request; pages with a prefix that both share are found.
        beside: a request that arrives during the reply.
        adapter: whether the prompt runs with the adapter; the other texts run without it.
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


class SmallServer(WindowCache):
    """A server's cache, and how the server answers one request: right, whatever a probe changes.

    A subclass with a bug overrides one method. Only layers that keep all KV entries have pages.

    Args:
        windows: KV entries that each layer keeps; None for all.
    """

    def __init__(self, runner: Runner, probe: Probe, windows: Sequence[int | None] = WINDOWS) -> None:
        super().__init__(runner.model.config, windows)
        self.paged = [layer for layer, window in enumerate(windows) if window is None]
        check_whole("chunk", probe.chunk, minimum=0)
        check_whole("pads", probe.pads, minimum=0)
        self.runner, self.probe, self.base_model = runner, probe, model_of("diary")[0]
        texts = probe.text, probe.before, probe.beside
        self.ids, self.before, self.beside = (runner.ids(text) for text in texts)
        check_whole("the number of words in text", len(self.ids))
        rotate_at(self, self.rotary_positions)

    @classmethod
    @cache
    def answer(cls, probe: Probe, forced: tuple[int, ...] = ()) -> Runner:
        """Answer a probe, and return the runner that ran it; `forced` as in `Runner`."""
        runner = Runner(*model_of("adapter" if probe.adapter else "diary"), WORDS, forced)
        cls(runner, probe).serve()
        return runner

    @classmethod
    def fingerprint(cls, probe: Probe) -> Fingerprint:
        """Return where the server differs from a plain run of the same words."""
        expected = plain_run(probe)
        actual = cls.answer(probe, tuple(expected.output_ids))
        return fingerprint(expected.trace, actual.trace, pads=probe.pads)

    def serve(self) -> None:
        """Run the earlier request, and answer the prompt."""
        if self.before:
            run(self.base_model, torch.tensor([self.before]), self)
            self.reset()
        prompt = [*self.runner.model.config.eos_ids] * self.probe.pads + self.ids
        self.n_found = self.n_cached_tokens() // PAGE * PAGE
        n_cached = self.probe.pads + self.n_found if self.n_found else 0
        if n_cached:
            run(self.base_model, torch.tensor([prompt[:n_cached]]), self)
        self.runner.before_step = self.serve_other
        self.runner.reply(prompt, self, self.probe.chunk or len(prompt), n_cached)

    @torch.inference_mode()
    def serve_other(self, n: int) -> None:
        """Serve the request that arrives after n tokens, in its own pages and in any that it shares."""
        if n != ARRIVES or not self.beside:
            return
        other = GrowingCache(self.sizes)
        run(self.base_model, torch.tensor([self.beside]), other)
        for page in self.shared_pages():  # both requests write to them
            own = slice(self.probe.pads + PAGE * page, self.probe.pads + PAGE * (page + 1))
            for layer in self.paged:
                for own_x, other_x in ((self.k, other.k), (self.v, other.v)):
                    entries = other_x[layer][:, :, PAGE * page : PAGE * (page + 1)]
                    n = min(entries.shape[2], own_x[layer][:, :, own].shape[2])
                    own_x[layer][:, :, own][:, :, :n] = entries[:, :, :n]

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return which KV entries each token may attend to, (T, S); see `Cache.mask`."""
        if repair := self.runner.repair:
            return self.extend_mask(repair(T, self.length, self.probe.pads), self.n_unwritten(T))
        queries = self.mask_start(T) + torch.arange(T)[:, None]
        keys = torch.cat([self.kept_positions[layer], WindowCache.positions(self, T)])
        visible = (keys <= queries) & self.in_window(keys, queries, layer) & (keys >= self.n_hidden(T))
        return self.extend_mask(visible, self.n_unwritten(T))

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whole buffer, whose length is a multiple of the chunk's; see `Cache.append`."""
        unwritten = (0, 0, 0, self.n_unwritten(k.shape[2]))
        keys, values = super().append(layer, k, v)
        return F.pad(keys, unwritten), F.pad(values, unwritten)

    def n_unwritten(self, T: int) -> int:
        """Return the number of entries in the buffer that have not been written."""
        return -(self.length + T) % (self.probe.chunk or 1)

    def mask_start(self, T: int) -> int:
        """Return the position of the first of T new tokens, for the mask."""
        return self.length

    def n_hidden(self, T: int) -> int:
        """Return how many entries at the left T new tokens may not see: the padding."""
        return self.probe.pads

    def extend_mask(self, mask: Tensor, n: int) -> Tensor:
        """Append n columns to a mask, for entries of the buffer that have not been written."""
        return F.pad(mask, (0, n), value=False)

    def rotary_positions(self, T: int) -> Tensor:
        """Return the positions by which T new tokens are rotated."""
        return self.length + torch.arange(T)

    def n_cached_tokens(self) -> int:
        """Return how many tokens at the beginning have entries from an earlier request without adapter."""
        return 0 if self.probe.adapter else common_prefix(self.ids[:-1], self.before)

    def shared_pages(self) -> list[int]:
        """Return the pages of this request to which the other request writes as well."""
        return []


def plain_run(probe: Probe) -> Runner:
    """Answer the same prompt whole, alone and with an empty cache; return the runner that ran it."""
    return SmallServer.answer(Probe(probe.text, adapter=probe.adapter))


class MaskAtTheCorner(SmallServer):
    """With several tokens at once the mask begins at its upper left corner (room 1)."""

    def mask_start(self, T: int) -> int:
        return self.length if T == 1 else 0


class PaddingSeen(SmallServer):
    """The padding is hidden in prefill and seen in the steps (room 2)."""

    def n_hidden(self, T: int) -> int:
        return self.probe.pads if T > 1 else 0


class UnwrittenSeen(SmallServer):
    """Entries of the buffer that have not been written are attended to (room 7)."""

    def extend_mask(self, mask: Tensor, n: int) -> Tensor:
        return F.pad(mask, (0, n), value=True)


class PageWrittenTwice(SmallServer):
    """A request with the same beginning shares a page, and writes to it from where the texts differ."""

    def shared_pages(self) -> list[int]:
        page, n_tokens = divmod(common_prefix(self.ids, self.beside), PAGE)
        return [page] if n_tokens else []


class AdapterForgotten(SmallServer):
    """KV entries computed without the adapter are found by their tokens alone (room 10)."""

    def n_cached_tokens(self) -> int:
        return common_prefix(self.ids[:-1], self.before)


class PageGivenAway(SmallServer):
    """The first page that was found is still on the free list, and is allocated again (room 4)."""

    def shared_pages(self) -> list[int]:
        return [0] if self.n_found else []


class RowsCounted(SmallServer):
    """The length is asked of layer 1, which keeps a window (room 9)."""

    def rotary_positions(self, T: int) -> Tensor:
        return self.n_stored(0) + torch.arange(T)


class LengthKept(SmallServer):
    """After a reset the entries are zero, and the length is kept (room 8)."""

    def reset(self) -> None:
        self.k, self.v = ([torch.zeros_like(x) for x in layers] for layers in (self.k, self.v))
