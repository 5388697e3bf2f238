"""An engine: a model that runs what a scheduler says, over pages that all requests share."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch

from helpers.model.cache import PagedCache, PagePool
from helpers.model.config import check_eos
from helpers.model.generate import Tokens, as_tokens
from helpers.model.speculate import Sampler
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Sampling
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, Sequence, Times


class Engine:
    """Serves requests with one model.

    In a step, those that have one token to run are one pass, (B, 1), and each longer text is a pass of its
    own, (1, T). Engines on a GPU put all into one.

    Args:
        slots: requests that run at the same time, at most.
        budget: tokens of a step, at most; None for no limit.
        n_pages, page_size: the pool. The scheduler decides whose they are.
        sharing: whether pages that hold the same beginning are shared.
        eos_ids: tokens that end a reply; None takes the config's.

    Attributes:
        sequences: requests by id, the newest of each: its reply, times, steps and error.

    `add`, `cancel` and `step` happen whole or not at all: whatever is raised in them, Ctrl-C too, no request
    gains or loses a token. Between steps parameters and buffers may change; KV entries from before are not
    found again. PyTorch does not count a change through `.data` or of a tensor made in inference mode, and an
    attribute (`frequencies`, `scale`, `eps`) has no count: make a new engine after such a change.

    Raises:
        ValueError: a model that keeps a recurrent state, or a pool over half of the memory.
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
        eos_ids: Iterable[int] | None = None,
    ) -> None:
        config, weight = model.config, model.embed_tokens.weight
        if states := getattr(config, "state_layers", ()):
            wrong = f"layers {states} of the model keep a recurrent state, and pages hold rows"
            raise ValueError(f"{wrong}; expected a model without: `generate` runs this one")
        ends = check_eos(config.eos_ids if eos_ids is None else eos_ids, config.vocab_size)
        self.model = model
        self.pool = PagePool(config, n_pages, page_size, dtype=weight.dtype, device=weight.device)
        pages = PageManager(n_pages, page_size, sharing=sharing)
        self.scheduler = Scheduler(pages, slots, budget, eos_ids=ends, max_len=config.max_seq_len)
        self.sequences: dict[Hashable, Sequence] = {}
        self.weights, self.version = list[tuple[int, int]](), 0

    def add(self, id: Hashable, prompt: Tokens, max_new_tokens: int, sampling: Sampling = GREEDY) -> None:
        """Let a request wait; nothing runs yet.

        Args:
            id: tells it from those that wait or run.
            prompt: token ids.
            max_new_tokens: tokens at most.
            sampling: how its tokens are chosen.

        Raises:
            ValueError: an id that is taken, a prompt that is empty or no row of ids in range, a top_k over
                the vocabulary, or a text that can get too long for the model or the pool.
        """
        V = self.model.config.vocab_size
        tokens = as_tokens(prompt, V)
        if len(tokens) != 1:
            raise ValueError(f"{len(tokens)} sequences came in; expected one: add each by itself")
        request = Request(id, tokens[0].tolist(), max_new_tokens, sampling)
        sampler = Sampler(sampling, V)
        with self.all_or_nothing():
            one = self.scheduler.add(request)
            one.sampler, one.times = sampler, Times(time.perf_counter())
            self.sequences[id] = one

    def cancel(self, id: Hashable) -> None:
        """Forget a request; its reply stays as it is. ValueError if nobody with this id waits or runs."""
        with self.all_or_nothing():
            self.scheduler.cancel(id)

    def step(self) -> dict[Hashable, int]:
        """Run one step; return the newest token of each request that got one.

        A request whose logits hold NaN or infinity ends with an `error`: its step does not count, so nobody
        can find what it wrote. The others go on.
        """
        self.note_weights()
        with self.all_or_nothing():
            plan = self.scheduler.schedule()
        logits = self.run(plan)  # until the end nobody counts what it writes
        with self.all_or_nothing():
            now, newest = time.perf_counter(), dict[Sequence, int]()
            for one, n in plan:
                if not np.isfinite(logits[one]).all():
                    wrong = f"the logits of {one.request.id!r} hold NaN or infinity"
                    one.error = ValueError(f"{wrong}; expected numbers: look for them in the weights")
                    self.scheduler.cancel(one.request.id)
                    continue
                one.steps.append(n)
                if n < one.n_left:
                    continue  # a chunk: more of the text has to run
                newest[one], _ = one.sampler.pick(logits[one])
                one.times = Times(one.times.arrived, [*one.times.tokens, now])
            self.scheduler.ran([pair for pair in plan if not pair[0].error], newest)
        return {one.request.id: token for one, token in newest.items()}

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Put requests, pages and what a watcher noted back if the block raises. No model runs in it."""
        scheduler = self.scheduler
        ones = [*scheduler.running, *islice(scheduler.waiting, scheduler.slots)]  # no others can run next
        before: list[tuple[Any, dict[str, Any]]] = [
            (part, {k: v.copy() if type(v) in (list, dict, deque) else v for k, v in vars(part).items()})
            for part in (scheduler, scheduler.pages, scheduler.watcher, *ones)
            if part is not None
        ]
        draws = [one.sampler.rng.bit_generator.state for one in ones]
        try:
            yield
        except BaseException:
            for part, values in before:
                vars(part).update(values)
            for one, state in zip(ones, draws, strict=True):
                one.sampler.rng.bit_generator.state = state
            raise

    def note_weights(self) -> None:
        """Give those that wait a key of the weights as they are now."""
        if self.scheduler.waiting:
            tensors = *self.model.parameters(), *self.model.buffers()
            weights = [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in tensors]
            if weights != self.weights:
                self.weights, self.version = weights, self.version + 1
            for one in self.scheduler.waiting:
                one.rows_of = self.version

    def run(self, plan: Plan) -> dict[Sequence, np.ndarray]:
        """Run a plan in passes; return the newest logits of each sequence, (V,).

        Every row goes into them: where one holds NaN, so do they, at the end of a reply or of a chunk.
        """
        passes: dict[Sequence | None, Plan] = {}
        for one, n in plan:
            passes.setdefault(one if n > 1 else None, []).append((one, n))
        logits = dict[Sequence, np.ndarray]()
        for part in passes.values():
            ones = [one for one, _ in part]
            tables, lengths = [one.table for one in ones], [one.n_computed for one in ones]
            cache = PagedCache(self.model.config, len(ones), pool=self.pool, tables=tables, lengths=lengths)
            new = [one.tokens[one.n_computed : one.n_computed + n] for one, n in part]
            with torch.inference_mode():
                rows = self.model(torch.tensor(new, device=cache.device), cache, last_only=True)
            logits |= zip(ones, rows[:, -1].float().cpu().numpy(), strict=True)
        return logits

    @property
    def busy(self) -> bool:
        """Whether somebody waits or runs."""
        return bool(self.scheduler.waiting or self.scheduler.running)

    def run_all(self) -> dict[Hashable, list[int]]:
        """Run steps until nobody waits or runs; return all replies, by id."""
        while self.busy:
            self.step()
        return {id: one.reply for id, one in self.sequences.items()}
