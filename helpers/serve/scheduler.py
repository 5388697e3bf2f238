"""Who runs in the next step: a scheduler for requests that come and go.

A request *waits* until there is a slot and room for its text, then it *runs* until its reply ends. Each step:

1.  Every running request whose newest token is all that it has to run gets that one token, oldest first.
2.  What is left of the budget goes to longer texts, oldest first: to those that run, then to those that
    wait, in the order in which they came. A text that does not fit in the budget runs in chunks.
3.  A request that begins takes pages for all of its text, first those that hold its beginning already.
    Later it takes a page whenever its newest token needs one.
4.  Where no page is free, the youngest running request goes back to wait, first in line. Its pages are
    free, its tokens are kept: prompt and reply so far run again as a prompt when it comes back.

So the oldest request always gets on, and nobody overtakes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Hashable, Mapping
from typing import Any

from helpers.serve.pages import PageManager
from helpers.serve.sequence import Request, Sequence
from helpers.validate import check_whole

Plan = list[tuple[Sequence, int]]  # who runs, and how many tokens


class Scheduler:
    """Decides who runs, and never looks at a model.

    Args:
        pages: who owns which.
        slots: requests that run at the same time, at most.
        budget: tokens of a step, at most; None for no limit, so that every prompt runs whole.
        eos_ids: tokens that end a reply.
        max_len: tokens of a text that the model reads at most; None for no limit.

    Attributes:
        waiting, running: requests in the order in which they came.
        preemptions: how often somebody had to give up pages.
        preempted: who had to since the last step was over.
        watcher: looks on; its `scheduled(plan)` is called once a step is scheduled, also where the step fails
            and comes again, and its `ran(chosen)`, with the newest tokens, once it is over. None for nobody.
    """

    def __init__(
        self,
        pages: PageManager,
        slots: int,
        budget: int | None = None,
        *,
        eos_ids: Collection[int] = (),
        max_len: int | None = None,
    ) -> None:
        self.pages, self.slots = pages, check_whole("slots", slots)
        self.budget, self.eos_ids, self.max_len = budget or math.inf, frozenset(eos_ids), max_len
        if budget is not None and check_whole("budget", budget) < slots:
            raise ValueError(
                f"budget is {budget}; expected {slots} or more, a token for each slot: or the running wait"
            )
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions, self.preempted = 0, list[Sequence]()
        self.watcher: Any = None

    def add(self, request: Request) -> Sequence:
        """Let a request wait.

        Raises:
            ValueError: its id is taken, its prompt is empty, max_new_tokens is not a whole number over 0, or
                its text can get longer than the model reads, or than all pages hold.
        """
        if request.id in {one.request.id for one in [*self.waiting, *self.running]}:
            raise ValueError(
                f"id {request.id!r} is taken; expected another, or wait until that one has ended"
            )
        if not len(request.prompt):
            raise ValueError(f"the prompt of {request.id!r} is empty; expected at least one token")
        check_whole("max_new_tokens", request.max_new_tokens)
        n_rows = len(request.prompt) + request.max_new_tokens - 1  # the last is not run
        if self.max_len is not None and n_rows > self.max_len:
            raise ValueError(
                f"{request.id!r} may run {n_rows} tokens; the model reads {self.max_len} at most"
            )
        pages = self.pages
        if (needed := pages.needed(n_rows)) > pages.n_pages:
            raise ValueError(
                f"{request.id!r} may run {n_rows} tokens, which take {needed} pages of {pages.page_size}; "
                f"the pool has {pages.n_pages}: ask for less, or lay out more"
            )
        self.waiting.append(Sequence(request, list(request.prompt)))
        return self.waiting[-1]

    def cancel(self, id: Hashable) -> None:
        """Forget a request and free its pages. ValueError if nobody has this id."""
        for one in [*self.waiting, *self.running]:
            if one.request.id == id:
                return self.leave(one)
        raise ValueError(f"nobody with id {id!r} waits or runs; expected the id of a request that does")

    def schedule(self) -> Plan:
        """Return who runs in the next step, and how many tokens; empty if nobody waits or runs.

        A plan that is not run may be given up: scheduled again, those who run have their pages already.
        """
        plan: Plan = []
        for newest in [one for one in self.running if one.n_left == 1]:
            if self.make_room(newest):
                plan.append((newest, 1))
        texts = [one for one in self.running if one.n_left > 1]
        left = self.budget - len(plan)
        while left and (texts or self.can_admit()):
            one = texts.pop(0) if texts else self.admit()
            n = int(min(one.n_left, left))
            plan.append((one, n))
            left -= n
        if self.watcher:
            self.watcher.scheduled(plan)
        return plan

    def make_room(self, one: Sequence) -> bool:
        """Take a page if the newest token needs one; return whether it still runs."""
        while one.slot is not None and len(one.table) < self.pages.needed(one.n_computed + 1):
            if self.pages.free:
                one.table.append(self.pages.take())
            else:
                self.preempt(self.running[-1])
        return one.slot is not None

    def can_admit(self) -> bool:
        """Whether the first that waits can run: there is a slot, and pages for all of its text."""
        if not self.waiting or len(self.running) == self.slots:
            return False
        return self.pages.fits(self.waiting[0].tokens, self.waiting[0].rows_of)

    def admit(self) -> Sequence:
        """Let the first that waits run, in pages that hold its beginning already and in free ones."""
        one, pages = self.waiting.popleft(), self.pages
        one.table = pages.match_prefix(one.tokens, one.rows_of)
        one.n_computed = len(one.table) * pages.page_size
        one.n_cached += one.n_computed
        for page in one.table:
            pages.incref(page)
        one.table += [pages.take() for _ in range(pages.needed(len(one.tokens)) - len(one.table))]
        taken = {other.slot for other in self.running}
        one.slot = next(n for n in range(self.slots) if n not in taken)
        self.running.append(one)
        return one

    def ran(self, plan: Plan, chosen: Mapping[Sequence, int]) -> None:
        """Count what has run, and let those go whose reply has ended.

        Args:
            plan: what `schedule` returned. Until this is called nothing of it counts.
            chosen: the next token of each whose known tokens have all run.
        """
        for one, n in plan:
            self.pages.publish(one.table, one.tokens, one.n_computed, one.n_computed + n, one.rows_of)
            one.n_computed += n
        for one, token in chosen.items():
            one.tokens.append(token)
            if (
                token in self.eos_ids
                or len(one.tokens) == len(one.request.prompt) + one.request.max_new_tokens
            ):
                self.leave(one)
        if self.watcher:
            self.watcher.ran(chosen)
        self.preempted = []

    def leave(self, one: Sequence) -> None:
        """Free the pages and the slot of a request, or its place in line."""
        self.pages.release(one.table)
        self.waiting.remove(one) if one.slot is None else self.running.remove(one)
        one.slot, one.n_computed = None, 0

    def preempt(self, one: Sequence) -> None:
        """Let a running request wait again, first in line."""
        self.leave(one)
        self.waiting.appendleft(one)
        self.preemptions += 1
        self.preempted.append(one)


class Static(Scheduler):
    """Batches as servers had them first: those that begin together, and nobody else until all have ended."""

    def schedule(self) -> Plan:
        """Return who runs in the next step; see `Scheduler.schedule`."""
        self.closed = bool(self.running)
        return super().schedule()

    def can_admit(self) -> bool:
        """Whether the first that waits can run: nobody ran before this step, and there is room."""
        return not self.closed and super().can_admit()
