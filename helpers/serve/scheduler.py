"""A scheduler that decides which requests run in each step of an engine.

A request waits in a queue until a slot and enough pages for its prompt are free. Then it is admitted. It runs
until its reply ends or until it is preempted. The rules are:

1.  Every running request that has only its newest token left to run is scheduled with that token, the oldest
    request first.
2.  The remaining token budget is spent on requests with more tokens to run: first running requests, then
    waiting requests, each in order of arrival. Tokens that do not fit into the budget run in a later step, so
    a long prompt runs in chunks.
3.  When a request is admitted, it gets pages for all of its tokens, including cached pages that contain the
    beginning of its prompt. Later it gets one more page whenever its newest token needs one.
4.  If no page is free for a newest token, the youngest running request is preempted and becomes the first in
    the queue. Its pages are released but its tokens are kept. When it is admitted again, its prompt and its
    reply so far run as one prompt.

Therefore, the oldest request always makes progress, and no request overtakes another.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Hashable, Mapping
from typing import Protocol

from helpers.serve.pages import PageManager
from helpers.serve.sequence import Request, Sequence
from helpers.validate import check_whole

Plan = list[tuple[Sequence, int]]  # pairs (sequence, number of its tokens that run in the step)


class SchedulerObserver(Protocol):
    """An object that a scheduler notifies of each step."""

    def on_schedule(self, plan: Plan) -> None:
        """Receive the plan at the end of each call of `schedule`.

        If a step fails and is repeated, `on_schedule` is called again with the new plan.
        """

    def on_step_end(self, next_tokens: Mapping[Sequence, int]) -> None:
        """Receive the new token ids, by sequence, at the end of each call of `postprocess`."""


class Scheduler:
    """Decides which requests run in each step. It does not run the model.

    Args:
        pages: manager of the pages that store KV entries.
        slots: maximum number of requests that run at the same time (vLLM's `max_num_seqs`).
        token_budget: maximum number of tokens in a step (vLLM's `max_num_batched_tokens`). None for no
            limit, so that no prompt is split into chunks.
        eos_ids: ids of the tokens that end a reply.
        max_len: maximum number of tokens that the model can process in one sequence; None for no limit.

    Attributes:
        waiting: sequences of waiting requests, in order of arrival.
        running: sequences of running requests, in order of arrival.
        preemptions: number of preemptions so far.
        preempted: sequences that were preempted since the end of the last step.
        observer: receives the plan and the new tokens of each step; None for no observer.
    """

    def __init__(
        self,
        pages: PageManager,
        slots: int,
        token_budget: int | None = None,
        *,
        eos_ids: Collection[int] = (),
        max_len: int | None = None,
    ) -> None:
        self.pages, self.slots = pages, check_whole("slots", slots)
        self.token_budget, self.eos_ids, self.max_len = token_budget or math.inf, frozenset(eos_ids), max_len
        if token_budget is not None and check_whole("token_budget", token_budget) < slots:
            raise ValueError(
                f"token_budget is {token_budget}; expected {slots} or more, one token for each slot, "
                "so that no running request has to wait"
            )
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions, self.preempted = 0, list[Sequence]()
        self.observer: SchedulerObserver | None = None

    def add(self, request: Request) -> Sequence:
        """Add a request to the end of the queue; return its sequence.

        Raises:
            ValueError: the id is in use, the prompt is empty, max_new_tokens is not a whole number greater
                than 0, or prompt and reply together can become too long for the model or for the pool.
        """
        if request.id in {sequence.request.id for sequence in [*self.waiting, *self.running]}:
            raise ValueError(
                f"id {request.id!r} is in use; expected another id, or wait until that request has ended"
            )
        if not len(request.prompt):
            raise ValueError(f"the prompt of {request.id!r} is empty; expected at least one token")
        # The last token of a reply is never run.
        n_tokens = len(request.prompt) + check_whole("max_new_tokens", request.max_new_tokens) - 1
        if self.max_len is not None and n_tokens > self.max_len:
            raise ValueError(
                f"{request.id!r} may run {n_tokens} tokens; the model can process at most {self.max_len}"
            )
        pages = self.pages
        if (needed := pages.pages_needed(n_tokens)) > pages.n_pages:
            raise ValueError(
                f"{request.id!r} may run {n_tokens} tokens, which need {needed} pages of {pages.page_size}; "
                f"the pool has {pages.n_pages}: ask for fewer tokens, or make a larger pool"
            )
        self.waiting.append(Sequence(request, list(request.prompt)))
        return self.waiting[-1]

    def cancel(self, id: Hashable) -> None:
        """Remove a request, and release its pages and its slot.

        Raises:
            ValueError: no waiting or running request has this id.
        """
        for sequence in [*self.waiting, *self.running]:
            if sequence.request.id == id:
                return self.remove(sequence)
        raise ValueError(f"id {id!r} is unknown; expected the id of a request that waits or runs")

    def schedule(self) -> Plan:
        """Return the plan of the next step: pairs (sequence, number of its tokens to run).

        The plan is empty if no sequence can run. `schedule` may be called again without carrying out the plan
        first: running requests keep their pages.
        """
        plan: Plan = []
        for sequence in [sequence for sequence in self.running if sequence.num_uncomputed_tokens == 1]:
            if self.reserve_page(sequence):
                plan.append((sequence, 1))
        longer = [sequence for sequence in self.running if sequence.num_uncomputed_tokens > 1]
        remaining = self.token_budget - len(plan)
        while remaining and (longer or self.can_admit()):
            sequence = longer.pop(0) if longer else self.admit()
            n = int(min(sequence.num_uncomputed_tokens, remaining))
            plan.append((sequence, n))
            remaining -= n
        if self.observer:
            self.observer.on_schedule(plan)
        return plan

    def reserve_page(self, sequence: Sequence) -> bool:
        """Allocate a page for the newest token of a running sequence if its pages are full.

        While no page is free, the youngest running request is preempted. This may be the sequence itself.

        Returns:
            Whether the sequence is still running.
        """
        needed = self.pages.pages_needed(sequence.num_computed_tokens + 1)
        while sequence.slot is not None and len(sequence.page_table) < needed:
            if self.pages.free:
                sequence.page_table.append(self.pages.allocate())
            else:
                self.preempt(self.running[-1])
        return sequence.slot is not None

    def can_admit(self) -> bool:
        """Return whether the first waiting request can be admitted.

        It can if a slot and enough pages for all of its tokens are free.
        """
        if not self.waiting or len(self.running) == self.slots:
            return False
        return self.pages.can_allocate(self.waiting[0].tokens, self.waiting[0].extra_key)

    def admit(self) -> Sequence:
        """Admit the first waiting request; return its sequence.

        The request gets a slot, and pages for all of its tokens. Cached pages that contain the beginning of
        the sequence are shared, and their tokens need not run again. The other pages are newly allocated.
        """
        sequence, pages = self.waiting.popleft(), self.pages
        table = pages.match_prefix(sequence.tokens, sequence.extra_key)
        sequence.page_table, sequence.num_computed_tokens = table, len(table) * pages.page_size
        sequence.num_cached_tokens += sequence.num_computed_tokens
        for page in table:
            pages.incref(page)
        table += [pages.allocate() for _ in range(pages.pages_needed(len(sequence.tokens)) - len(table))]
        taken = {other.slot for other in self.running}
        sequence.slot = next(n for n in range(self.slots) if n not in taken)
        self.running.append(sequence)
        return sequence

    def postprocess(self, plan: Plan, next_tokens: Mapping[Sequence, int]) -> None:
        """Record the results of a step, and remove the requests whose replies have ended.

        Args:
            plan: the plan that was carried out. Its tokens are recorded as computed only by this call.
            next_tokens: the new token's id, for each sequence whose tokens so far have all run.
        """
        for sequence, n in plan:
            start, end = sequence.num_computed_tokens, sequence.num_computed_tokens + n
            self.pages.cache_full_pages(sequence.page_table, sequence.tokens, start, end, sequence.extra_key)
            sequence.num_computed_tokens = end
        for sequence, token in next_tokens.items():
            sequence.tokens.append(token)
            if token in self.eos_ids or len(sequence.reply) == sequence.request.max_new_tokens:
                self.remove(sequence)
        if self.observer:
            self.observer.on_step_end(next_tokens)
        self.preempted = []

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that is waiting or running, and release its pages and its slot, if any."""
        self.pages.release(sequence.page_table)
        self.waiting.remove(sequence) if sequence.slot is None else self.running.remove(sequence)
        sequence.slot, sequence.num_computed_tokens = None, 0

    def preempt(self, sequence: Sequence) -> None:
        """Preempt a running sequence: release its pages and its slot, and make it the first in the queue."""
        self.remove(sequence)
        self.waiting.appendleft(sequence)
        self.preemptions += 1
        self.preempted.append(sequence)


class StaticBatching(Scheduler):
    """A scheduler for static batching, the oldest form of batching.

    Requests start together. The next requests start when all of these have ended.
    """

    def schedule(self) -> Plan:
        """Return the plan of the next step; see `Scheduler.schedule`."""
        self.closed = bool(self.running)
        return super().schedule()

    def can_admit(self) -> bool:
        """Return whether the first waiting request can be admitted, as in `Scheduler.can_admit`.

        No request is admitted in a step that begins with running requests.
        """
        return not self.closed and super().can_admit()
