"""A small server that answers every probe correctly, and eight servers with one wrong method each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.model.cache import Cache, GrowingCache, WindowCache
from helpers.model.generate import next_token_logits
from helpers.museum.exhibit import Fingerprint, fingerprint, load_model
from helpers.museum.runner import Runner
from helpers.validate import check_whole

PAGE_SIZE = 8  # KV entries
REPLY_LENGTH, ARRIVES_AFTER = 8, 3  # tokens per reply; reply tokens before a concurrent request arrives
WINDOWS = (28, None, None, None)  # number of KV entries that each layer keeps; None for all


def override_rotary_positions(cache: Cache, positions: Callable[[int], Tensor]) -> None:
    """Make a cache rotate queries and keys by the positions that `positions` returns for T new tokens.

    The cache still uses its original positions to compute its mask and to decide which entries it keeps.
    """
    original = cache.positions

    def with_original(call: Callable[..., Any], *args: Any) -> Any:
        vars(cache).update(positions=original)
        result = call(*args)
        vars(cache).update(positions=positions)
        return result

    mask, advance = partial(with_original, cache.mask), partial(with_original, cache.advance)
    vars(cache).update(positions=positions, mask=mask, advance=advance)


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common prefix of two token sequences."""
    return [*(x == y for x, y in zip(a, b, strict=False)), False].index(False)


class Probe(NamedTuple):
    """A prompt for a server, and the conditions under which the server answers it.

    Attributes:
        text: the prompt.
        chunk: number of tokens per prefill chunk; 0 runs the whole prompt in one pass.
        pads: number of padding tokens to the left of the prompt.
        earlier_request: the prompt of a request that is served first. The full pages of a prefix that both
            prompts have in common are reused.
        concurrent_request: the prompt of a request that arrives while the reply is being generated.
        adapter: whether the prompt runs with the adapter. The other two requests always run without it.
    """

    text: str
    chunk: int = 0
    pads: int = 0
    earlier_request: str = ""
    concurrent_request: str = ""
    adapter: bool = False

    def __str__(self) -> str:
        n = len(load_model("diary")[1].encode(self.text))
        changed = [(name, value) for name, value in self._asdict().items() if name != "text" and value]
        parts = [name if isinstance(value, str | bool) else f"{name} {value}" for name, value in changed]
        return ", ".join([f"{n} tokens", *parts])


class ReferenceServer(WindowCache):
    """A server that answers a probe's prompt correctly under all conditions. It is also its own cache.

    Each server with a bug is a subclass that overrides one method. Only layers that keep all KV entries have
    pages.

    Args:
        runner: the runner that runs the passes and records them.
        probe: the prompt and the conditions under which to answer it.
        windows: for each layer, the number of KV entries that it keeps; None for all.
    """

    def __init__(self, runner: Runner, probe: Probe, windows: Sequence[int | None] = WINDOWS) -> None:
        super().__init__(runner.model.config, windows)
        self.paged = [layer for layer, window in enumerate(windows) if window is None]
        check_whole("chunk", probe.chunk, minimum=0)
        check_whole("pads", probe.pads, minimum=0)
        self.runner, self.probe, self.base_model = runner, probe, load_model("diary")[0]
        texts = probe.text, probe.earlier_request, probe.concurrent_request
        self.prompt_ids, self.earlier_ids, self.concurrent_ids = (runner.encode(text) for text in texts)
        check_whole("the number of words in text", len(self.prompt_ids))
        override_rotary_positions(self, self.rotary_positions)

    @classmethod
    @cache
    def answer(cls, probe: Probe, forced_ids: tuple[int, ...] = ()) -> Runner:
        """Answer a probe's prompt and return the runner. `forced_ids` is as in `Runner`."""
        runner = Runner(*load_model("adapter" if probe.adapter else "diary"), REPLY_LENGTH, forced_ids)
        cls(runner, probe).serve()
        return runner

    @classmethod
    def fingerprint(cls, probe: Probe) -> Fingerprint:
        """Compare the server's run with the reference run of the same tokens. Return the fingerprint."""
        expected = reference_run(probe)
        actual = cls.answer(probe, tuple(expected.output_ids))
        return fingerprint(expected.trace, actual.trace, n_pads=probe.pads)

    def serve(self) -> None:
        """Serve the probe's earlier request, if it has one. Then answer its prompt."""
        if self.earlier_ids:
            next_token_logits(self.base_model, torch.tensor([self.earlier_ids]), self)
            self.reset()
        prompt = [*self.runner.model.config.eos_ids] * self.probe.pads + self.prompt_ids
        self.n_reused = self.n_cached_tokens() // PAGE_SIZE * PAGE_SIZE
        n_cached = self.probe.pads + self.n_reused if self.n_reused else 0
        if n_cached:
            next_token_logits(self.base_model, torch.tensor([prompt[:n_cached]]), self)
        self.runner.before_step = self.serve_concurrent_request
        self.runner.generate_reply(prompt, self, self.probe.chunk or len(prompt), n_cached)

    @torch.inference_mode()
    def serve_concurrent_request(self, n: int) -> None:
        """Serve the concurrent request if it arrives after n tokens of the reply.

        The request runs in a cache of its own. If it also writes to pages of this cache (see
        `overwritten_pages`), its KV entries replace the ones there.
        """
        if n != ARRIVES_AFTER or not self.concurrent_ids:
            return
        other = GrowingCache(self.config)
        next_token_logits(self.base_model, torch.tensor([self.concurrent_ids]), other)
        for page in self.overwritten_pages():  # both requests write to them
            own = slice(self.probe.pads + PAGE_SIZE * page, self.probe.pads + PAGE_SIZE * (page + 1))
            for layer in self.paged:
                for own_x, other_x in ((self.k, other.k), (self.v, other.v)):
                    entries = other_x[layer][:, :, PAGE_SIZE * page : PAGE_SIZE * (page + 1)]
                    n = min(entries.shape[2], own_x[layer][:, :, own].shape[2])
                    own_x[layer][:, :, own][:, :, :n] = entries[:, :, :n]

    def mask(self, T: int, layer: int = 0) -> Tensor:
        """Return a mask of shape (T, S): which KV entries each new token may attend to; see `Cache.mask`."""
        if mask_function := self.runner.mask_function:
            return self.extend_mask(
                mask_function(T, self.length, self.probe.pads), self.n_unwritten_entries(T)
            )
        queries = self.mask_start(T) + torch.arange(T)[:, None]
        keys = torch.cat([self.kept_positions[layer], WindowCache.positions(self, T)])
        visible = (
            (keys <= queries) & self.in_window(keys, queries, layer) & (keys >= self.n_hidden_entries(T))
        )
        return self.extend_mask(visible, self.n_unwritten_entries(T))

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new tokens' KV entries and return the whole buffer; see `Cache.append`.

        The buffer's length is rounded up to a multiple of `Probe.chunk`. Unwritten entries are zero.
        """
        unwritten = (0, 0, 0, self.n_unwritten_entries(k.shape[2]))
        keys, values = super().append(layer, k, v)
        return F.pad(keys, unwritten), F.pad(values, unwritten)

    def n_unwritten_entries(self, T: int) -> int:
        """Return the number of entries of the buffer that are still unwritten after T new tokens."""
        return -(self.length + T) % (self.probe.chunk or 1)

    def mask_start(self, T: int) -> int:
        """Return the position that the mask assumes for the first of T new tokens."""
        return self.length

    def n_hidden_entries(self, T: int) -> int:
        """Return the number of first entries, those of the padding, that the mask hides from T new tokens."""
        return self.probe.pads

    def extend_mask(self, mask: Tensor, n: int) -> Tensor:
        """Append n columns to a mask, one for each unwritten entry of the buffer."""
        return F.pad(mask, (0, n), value=False)

    def rotary_positions(self, T: int) -> Tensor:
        """Return the positions by which T new tokens are rotated."""
        return self.length + torch.arange(T)

    def n_cached_tokens(self) -> int:
        """Return how many of the prompt's first tokens have KV entries from the earlier request.

        That request ran without the adapter, so a prompt with the adapter cannot use its entries.
        """
        return 0 if self.probe.adapter else common_prefix_length(self.prompt_ids[:-1], self.earlier_ids)

    def overwritten_pages(self) -> list[int]:
        """Return the indices, from 0, of this request's pages that the concurrent request overwrites."""
        return []


def reference_run(probe: Probe) -> Runner:
    """Run the probe's prompt as the only request, in one chunk, starting from an empty cache.

    The prompt runs with the adapter if the probe says so. Return the runner.
    """
    return ReferenceServer.answer(Probe(probe.text, adapter=probe.adapter))


class MaskAlignedTopLeft(ReferenceServer):
    """With several new tokens, the mask is aligned at its upper left corner (room 1)."""

    def mask_start(self, T: int) -> int:
        return self.length if T == 1 else 0


class PaddingVisibleInDecode(ReferenceServer):
    """The padding is hidden during prefill, but visible in decode steps (room 2)."""

    def n_hidden_entries(self, T: int) -> int:
        return self.probe.pads if T > 1 else 0


class UnwrittenEntriesVisible(ReferenceServer):
    """Entries of the buffer that have not been written are attended to (room 7)."""

    def extend_mask(self, mask: Tensor, n: int) -> Tensor:
        return F.pad(mask, (0, n), value=True)


class PartialPageShared(ReferenceServer):
    """A request with the same prefix shares a partial page, and writes to it where the texts differ."""

    def overwritten_pages(self) -> list[int]:
        page, n_tokens = divmod(common_prefix_length(self.prompt_ids, self.concurrent_ids), PAGE_SIZE)
        return [page] if n_tokens else []


class AdapterIgnoredInPrefixCache(ReferenceServer):
    """KV entries computed without the adapter are used again: the lookup compares only tokens (room 10)."""

    def n_cached_tokens(self) -> int:
        return common_prefix_length(self.prompt_ids[:-1], self.earlier_ids)


class CachedPageReallocated(ReferenceServer):
    """A cached page is on the free list although it is in use, and is given to another request (room 4)."""

    def overwritten_pages(self) -> list[int]:
        return [0] if self.n_reused else []


class EntriesCountedAsPosition(ReferenceServer):
    """The position is the number of entries in layer 1, which keeps only a window (room 9)."""

    def rotary_positions(self, T: int) -> Tensor:
        return self.n_stored(0) + torch.arange(T)


class ResetKeepsLength(ReferenceServer):
    """A reset sets the entries to zero, but keeps the length (room 8)."""

    def reset(self) -> None:
        self.k = [torch.zeros_like(keys) for keys in self.k]
        self.v = [torch.zeros_like(values) for values in self.v]
