"""An engine: a model that runs what a scheduler says, over pages that all requests share."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Mapping

import numpy as np
import torch

from helpers.arguments import check_whole
from helpers.model.cache import PagedCache, PagePool
from helpers.model.config import check_eos
from helpers.model.generate import Tokens, as_tokens
from helpers.model.speculate import Draft, LookUp, Sampler
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Sampling
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, Sequence
from helpers.serve.simulation import Times


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
        drafter: says what may follow from the text alone, such as `LookUp`; None for word by word.
        k: tokens drafted for a pass, at most.

    Attributes:
        replies: token ids of each request so far, by its id.
        times: when each came, and when its tokens came, by its id.
        ran: tokens of each that ran in each of its steps, by its id.
        found: tokens of each whose rows were there when it began, by its id: used again, and not run.
        failed: the error of each request whose logits were no numbers, by its id; it has ended.
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
        drafter: LookUp | None = None,
        k: int = 4,
    ) -> None:
        config, weight = model.config, model.embed_tokens.weight
        pages = PageManager(n_pages, page_size, sharing=sharing)
        ends = config.eos_ids if eos_ids is None else eos_ids
        check_eos(ends, config.vocab_size)
        self.model, self.samplers = model, dict[Sequence, Sampler]()
        self.drafter, self.k = drafter, check_whole("k", k)
        self.models = {**(adapters or {}), None: model}
        self.scheduler = kind(pages, slots, budget, eos_ids=ends, max_len=config.max_seq_len)
        self.pool = PagePool(config, n_pages, page_size, dtype=weight.dtype, device=weight.device)
        self.replies: dict[Hashable, list[int]] = {}
        self.times: dict[Hashable, Times] = {}
        self.ran: dict[Hashable, list[int]] = {}
        self.found: dict[Hashable, int] = {}
        self.failed: dict[Hashable, ValueError] = {}

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
        one = self.scheduler.add(request)
        self.samplers[one], self.replies[id], self.ran[id], self.found[id] = sampler, [], [], 0
        self.times[id] = Times(time.perf_counter())
        self.failed.pop(id, None)

    def cancel(self, id: Hashable) -> None:
        """Forget a request; its reply stays as it is. ValueError if nobody with this id waits or runs."""
        self.scheduler.cancel(id)
        self.samplers = {one: its for one, its in self.samplers.items() if one.request.id != id}

    def step(self) -> dict[Hashable, int]:
        """Run one step; return the newest token of each request that got one.

        A request whose logits hold NaN or infinity ends, which `failed` says: its step does not count, so
        nobody can find what it wrote. The others go on.
        """
        drafts = self.drafts()
        plan = self.scheduler.schedule()
        ones = [pair for pair in plan if pair[1] == 1 + len(pair[0].drafts)]
        passes = [[pair for pair in ones if pair[0].request.adapter == name] for name in self.models]
        logits: dict[Sequence, np.ndarray] = {}
        for part in [*filter(None, passes), *([pair] for pair in plan if pair not in ones)]:
            logits |= self.run(part)
        for id in [one.request.id for one, rows in logits.items() if not np.isfinite(rows).all()]:
            self.failed[id] = ValueError(
                f"the logits of {id!r} hold NaN or infinity; expected numbers: look for them in the weights"
            )
            self.cancel(id)
        plan = [(one, n) for one, n in plan if one in self.samplers]
        now, chosen = time.perf_counter(), dict[Sequence, int]()
        for at, (one, n) in enumerate(plan):
            self.ran[one.request.id].append(n)
            self.found[one.request.id] = one.n_found
            if n < one.n_left:
                continue
            said = self.judge(one, drafts.get(one, Draft([])), logits[one])
            self.replies[one.request.id] += said
            self.times[one.request.id].tokens += [now] * len(said)
            plan[at] = one, n - len(one.drafts) + len(said) - 1
            *one.drafts, chosen[one] = said
        for one in self.scheduler.ran(plan, chosen):
            del self.samplers[one]
        return {one.request.id: token for one, token in chosen.items()}

    def drafts(self) -> dict[Sequence, Draft]:
        """Draft what may follow for those whose newest token is all that they have to run."""
        made = dict[Sequence, Draft]()
        if self.drafter is None:
            return made
        for one in self.scheduler.running:
            room = one.request.max_new - len(one.reply) - 1  # a pass says one token more than were drafted
            if one.n_left == 1 and room:
                made[one] = self.drafter.propose(one.tokens, min(self.k, room), None, self.samplers[one])
                one.drafts = [*made[one].tokens]
        return made

    def judge(self, one: Sequence, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return its new tokens: the drafts that are taken, and one of the model's; nothing behind an end."""
        q = None if draft.q is None else draft.q[: len(one.drafts)]  # for all drafts there may be no room
        said = self.samplers[one].judge(Draft(one.drafts, q), logits)
        ends = self.scheduler.eos_ids
        return said[: next((n for n, token in enumerate(said, 1) if token in ends), len(said))]

    def run(self, part: Plan) -> dict[Sequence, np.ndarray]:
        """Run one pass, of one adapter; return the logits of each, (d + 1, V): the last ones, for d drafts.

        Every row goes into them: where one holds NaN, so do they, at the end of a reply or of a chunk.
        """
        new = [(one.tokens + one.drafts)[one.n_run : one.n_run + n] for one, n in part]
        T, d = max(map(len, new)), max(len(one.drafts) for one, _ in part)
        tokens = torch.tensor([[0] * (T - len(its)) + its for its in new])
        cache = PagedCache(
            self.model.config,
            len(part),
            pool=self.pool,
            tables=[one.table for one, _ in part],
            lengths=[one.n_run for one, _ in part],
        )
        cache.expect([len(its) for its in new])
        with torch.inference_mode():
            every = self.models[part[0][0].request.adapter](tokens.to(cache.device), cache, last_only=not d)
            logits = every[:, -1 - d :].float().cpu().numpy()
        return {one: rows[d - len(one.drafts) :] for (one, _), rows in zip(part, logits, strict=True)}

    @property
    def busy(self) -> bool:
        """Whether somebody waits or runs."""
        return bool(self.samplers)

    def run_all(self) -> dict[Hashable, list[int]]:
        """Run steps until nobody waits or runs; return all replies, by id."""
        while self.busy:
            self.step()
        return self.replies
