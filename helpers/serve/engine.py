"""An engine: a model that runs what a scheduler says, over pages that all requests share."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from itertools import islice
from typing import Any

import numpy as np
import torch

from helpers.arguments import check_whole
from helpers.model.cache import PagedCache, PagePool
from helpers.model.config import ModelConfig, check_eos
from helpers.model.generate import Tokens, as_tokens
from helpers.model.speculate import Draft, PromptLookup, Sampler
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Sampling
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, Sequence
from helpers.serve.simulation import Times

# Half of this machine's memory; of 64 GiB where the system does not say how much there is.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**36
MOST_BYTES = MEMORY // 2


class Engine:
    """Serves requests with one model.

    In a step, those that have one token to run are one pass, (B, 1), for each adapter, and each longer text
    is a pass of its own, (1, T). Engines on a GPU put all into one. With a drafter the first is (B, 1 + d),
    d the most drafts of any, and each takes its own number of them.

    Args:
        slots: requests that run at the same time, at most.
        budget: tokens of a step, at most; None for no limit.
        n_pages, page_size: the pool. The scheduler decides whose they are.
        sharing: whether pages that hold the same beginning are shared.
        kind: `Scheduler`, or `Static`.
        eos_ids: tokens that end a reply; None takes the config's.
        adapters: models of the same config, by name, such as `with_adapter` makes.
        drafter: says what may follow from the text alone, such as `PromptLookup`; None for word by word.
        k: tokens drafted for a pass, at most.

    Attributes:
        sequences: every request that came, by its id.

    `add`, `cancel` and `step` happen whole or not at all: whatever is raised in them, Ctrl-C too, leaves the
    engine as it was. Between steps weights may change; rows from before are not found again, unless a change
    went through `.data`, which PyTorch does not count.

    Raises:
        ValueError: a model that keeps a recurrent state, or a pool that this machine's memory cannot hold.
    """

    def __init__(
        self,
        model: Transformer,
        slots: int = 8,
        budget: int | None = None,
        *,
        n_pages: int = 256,
        page_size: int = 16,
        sharing: bool = True,
        kind: type[Scheduler] = Scheduler,
        eos_ids: Collection[int] | None = None,
        adapters: Mapping[Hashable, Transformer] | None = None,
        drafter: PromptLookup | None = None,
        k: int = 4,
    ) -> None:
        config, weight = model.config, model.embed_tokens.weight
        if states := getattr(config, "state_layers", ()):
            raise ValueError(
                f"layers {states} of the model keep a recurrent state, and pages hold rows; expected a model "
                "without: `generate` runs this one"
            )
        check_fits_memory(config, n_pages, page_size, weight.dtype)
        pages = PageManager(n_pages, page_size, sharing=sharing)
        ends = config.eos_ids if eos_ids is None else eos_ids
        check_eos(ends, config.vocab_size)
        self.model, self.drafter, self.k = model, drafter, check_whole("k", k)
        self.models = {**(adapters or {}), None: model}
        self.scheduler = kind(pages, slots, budget, eos_ids=ends, max_len=config.max_seq_len)
        self.pool = PagePool(config, n_pages, page_size, dtype=weight.dtype, device=weight.device)
        self.sequences: dict[Hashable, Sequence] = {}
        self.weights, self.version = list[tuple[int, int]](), 0

    def add(
        self,
        id: Hashable,
        prompt: Tokens,
        max_new: int,
        sampling: Sampling = GREEDY,
        adapter: Hashable = None,
    ) -> None:
        """Let a request wait; nothing runs yet.

        Args:
            id: tells it from those that wait or run.
            prompt: token ids.
            max_new: tokens at most.
            sampling: how its tokens are chosen.
            adapter: the name of one of the engine's; None for the model alone.

        Raises:
            ValueError: an id that is taken, a prompt that is empty or no row of ids in range, a top_k over
                the vocabulary, no such adapter, or a text that can get too long for the model or the pool.
        """
        if adapter not in self.models:
            raise ValueError(f"no adapter {adapter!r}; expected one of {[*self.models]}")
        V = self.model.config.vocab_size
        tokens = as_tokens(prompt, V)
        if len(tokens) != 1:
            raise ValueError(f"{len(tokens)} sequences came in; expected one: add each by itself")
        request = Request(id, tokens[0].tolist(), max_new, sampling, adapter)
        sampler = Sampler(sampling, V)
        with self.all_or_nothing():
            one = self.scheduler.add(request)
            one.sampler, one.arrived = sampler, time.perf_counter()
            self.sequences[id] = one

    def cancel(self, id: Hashable) -> None:
        """Forget a request; its reply stays as it is. ValueError if nobody with this id waits or runs."""
        with self.all_or_nothing():
            self.scheduler.cancel(id)

    def step(self) -> dict[Hashable, int]:
        """Run one step; return the newest token of each request that got one.

        A request whose logits hold NaN or infinity ends, which `failed` says: its step does not count, so
        nobody can find what it wrote. The others go on.
        """
        with self.all_or_nothing():
            self.note_weights()
            drafts = self.propose()
            plan = self.scheduler.schedule()
            logits = self.run(plan)
            for one in [one for one, rows in logits.items() if not np.isfinite(rows).all()]:
                one.error = ValueError(
                    f"the logits of {one.request.id!r} hold NaN or infinity; expected numbers: "
                    "look for them in the weights"
                )
                self.scheduler.cancel(one.request.id)
            plan = [(one, n) for one, n in plan if not one.error]
            now, newest = time.perf_counter(), dict[Sequence, int]()
            for at, (one, n) in enumerate(plan):
                one.steps.append(n)
                if n < one.n_left:
                    continue
                new = self.verify(one, drafts.get(one, Draft([])), logits[one])
                one.token_times += [now] * len(new)
                plan[at] = one, n - len(one.drafts) + len(new) - 1
                *one.drafts, newest[one] = new
            self.scheduler.ran(plan, newest)
            return {one.request.id: token for one, token in newest.items()}

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Put everything back as it was if the block raises; pages that it took are not found any more."""
        scheduler, pages = self.scheduler, self.scheduler.pages
        parts: list[Any] = [self, scheduler, pages, *scheduler.running]
        parts += islice(scheduler.waiting, scheduler.slots)  # nobody behind them can begin in one step
        before = [{name: as_it_is(value) for name, value in vars(part).items()} for part in parts]
        draws = [(one.sampler.rng.bit_generator, one.sampler.rng.bit_generator.state) for one in parts[3:]]
        try:
            yield
        except BaseException:
            holds = pages.holds
            for part, its in zip(parts, before, strict=True):
                vars(part).update(its)
            for bits, state in draws:
                bits.state = state
            pages.holds = {page: its for page, its in pages.holds.items() if holds.get(page) is its}
            pages.found = {key: page for key, page in pages.found.items() if page in pages.holds}
            raise

    def note_weights(self) -> None:
        """Give those that wait a key of the weights as they are now."""
        if self.scheduler.waiting:
            tensors = (x for model in self.models.values() for x in (*model.parameters(), *model.buffers()))
            weights = [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in tensors]
            if weights != self.weights:
                self.weights, self.version = weights, self.version + 1
            for one in self.scheduler.waiting:
                one.rows_of = one.request.adapter, self.version

    def propose(self) -> dict[Sequence, Draft]:
        """Draft what may follow for those whose newest token is all that they have to run."""
        drafts = dict[Sequence, Draft]()
        if self.drafter is None:
            return drafts
        for one in self.scheduler.running:
            room = one.request.max_new - len(one.reply) - 1  # a pass gives one token more than were drafted
            if one.n_left == 1 and room:
                drafts[one] = self.drafter.propose(one.tokens, min(self.k, room), None, one.sampler)
                one.drafts = [*drafts[one].tokens]
        return drafts

    def verify(self, one: Sequence, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return its new tokens: the drafts that are accepted, and one of the model's; none behind an end."""
        q = None if draft.q is None else draft.q[: len(one.drafts)]  # for all drafts there may be no room
        new = one.sampler.verify(Draft(one.drafts, q), logits)
        ends = self.scheduler.eos_ids
        return new[: next((n for n, token in enumerate(new, 1) if token in ends), len(new))]

    def run(self, plan: Plan) -> dict[Sequence, np.ndarray]:
        """Run a plan in passes; return the logits of each sequence: the last (d + 1, V), for d drafts."""
        newest = [pair for pair in plan if pair[1] == 1 + len(pair[0].drafts)]
        passes = [[pair for pair in newest if pair[0].request.adapter == name] for name in self.models]
        logits: dict[Sequence, np.ndarray] = {}
        for part in [*filter(None, passes), *([pair] for pair in plan if pair not in newest)]:
            logits |= self.run_pass(part)
        return logits

    def run_pass(self, part: Plan) -> dict[Sequence, np.ndarray]:
        """Run one pass, of one adapter; return the logits of each, (d + 1, V): the last ones, for d drafts.

        Every row goes into them: where one holds NaN, so do they, at the end of a reply or of a chunk.
        """
        new = [(one.tokens + one.drafts)[one.n_computed : one.n_computed + n] for one, n in part]
        T, d = max(map(len, new)), max(len(one.drafts) for one, _ in part)
        tokens = torch.tensor([[0] * (T - len(its)) + its for its in new])
        cache = PagedCache(
            self.model.config,
            len(part),
            pool=self.pool,
            tables=[one.table for one, _ in part],
            lengths=[one.n_computed for one, _ in part],
        )
        cache.expect([len(its) for its in new])
        with torch.inference_mode():
            every = self.models[part[0][0].request.adapter](tokens.to(cache.device), cache, last_only=not d)
            logits = every[:, -1 - d :].float().cpu().numpy()
        return {one: rows[d - len(one.drafts) :] for (one, _), rows in zip(part, logits, strict=True)}

    @property
    def busy(self) -> bool:
        """Whether somebody waits or runs."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def run_all(self) -> dict[Hashable, list[int]]:
        """Run steps until nobody waits or runs; return all replies, by id."""
        while self.busy:
            self.step()
        return self.replies

    @property
    def replies(self) -> dict[Hashable, list[int]]:
        """Token ids of each request so far, by its id."""
        return {id: one.reply for id, one in self.sequences.items()}

    @property
    def times(self) -> dict[Hashable, Times]:
        """When each request came, and when its tokens came, by its id."""
        return {id: Times(one.arrived, one.token_times) for id, one in self.sequences.items()}

    @property
    def ran(self) -> dict[Hashable, list[int]]:
        """Tokens of each request that were processed in each of its steps, by its id."""
        return {id: one.steps for id, one in self.sequences.items()}

    @property
    def found(self) -> dict[Hashable, int]:
        """Tokens of each request whose rows were there when it began, by its id: not processed again."""
        return {id: one.n_cached for id, one in self.sequences.items()}

    @property
    def failed(self) -> dict[Hashable, ValueError]:
        """The error of each request that ended because its logits were no numbers, by its id."""
        return {id: one.error for id, one in self.sequences.items() if one.error}


def as_it_is(value: Any) -> Any:
    """Return a copy of a container; anything else as it is."""
    return copy(value) if isinstance(value, list | dict | deque) else value


def check_fits_memory(sizes: ModelConfig, n_pages: int, page_size: int, dtype: torch.dtype) -> None:
    """Raise ValueError where so many pages take more bytes than this machine has."""
    n_rows = check_whole("n_pages", n_pages) * check_whole("page_size", page_size)
    width = sizes.n_layers * sizes.n_kv_heads * (sizes.k_dim + sizes.v_dim)
    n_bytes = n_rows * width * dtype.itemsize + 100 * n_pages  # and whose they are
    if n_bytes > MOST_BYTES:
        raise ValueError(
            f"{n_pages} pages of {page_size} rows take {n_bytes / 2**30:,.1f} GiB; "
            f"expected {MOST_BYTES / 2**30:,.0f} at most: ask for fewer pages"
        )
