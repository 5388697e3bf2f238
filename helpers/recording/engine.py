"""Record who runs in each step of an engine, and whose pages are whose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Sequence
from helpers.trace import EngineTrace, RequestTrace, Share, Step


class StepRecorder:
    """While it is entered, every step of a scheduler is written into `trace`, at its end the texts.

    Args:
        scheduler: of an engine, or of a simulation.
        text_of: the text of a token, by its id.
        name: the model's, in the trace.
    """

    def __init__(
        self, scheduler: Scheduler, text_of: Callable[[int], str] = "<{}>".format, name: str = "model"
    ) -> None:
        pages, budget = scheduler.pages, scheduler.budget
        self.scheduler = scheduler
        self.pages, self.text_of = pages, text_of
        self.requests: dict[Sequence, int] = {}
        self.texts: list[RequestTrace] = []
        self.steps: list[Step] = []  # an engine that takes a step back puts this back, too
        self.name, most = name, None if budget == math.inf else int(budget)
        self.sizes = scheduler.slots, most, pages.n_pages, pages.page_size

    @property
    def trace(self) -> EngineTrace:
        """The record of the steps so far."""
        return EngineTrace(self.name, *self.sizes, self.texts, self.steps)

    def __enter__(self) -> StepRecorder:
        self.scheduler.watcher = self
        self.in_slots, self.in_use = [*self.scheduler.running], self.owned()  # when the last step was over
        return self

    def __exit__(self, *error: Any) -> None:
        self.scheduler.watcher = None
        self.texts[:] = [  # a trace that was taken in the block has them, too
            RequestTrace(str(one.request.id), len(one.request.prompt), list(map(self.text_of, one.tokens)))
            for one in self.requests
        ]

    def number(self, one: Sequence) -> int:
        """Return which request it is, in the order in which they were seen."""
        return self.requests.setdefault(one, len(self.requests))

    def scheduled(self, plan: Plan) -> None:
        """Note who runs, in which pages, who waits, and who was preempted."""
        self.preempted = [self.number(one) for one in self.scheduler.preempted]
        n, waiting = dict(plan), [*self.scheduler.waiting]
        stayed = [one for one in self.in_slots if self.number(one) not in self.preempted]
        self.running = {
            one: Share(
                request=self.number(one),
                slot=one.slot or 0,
                start=one.n_computed,
                stop=one.n_computed + n.get(one, 0),
                table=[*one.table],
                found=0 if one in stayed else one.n_computed,
                emitted=False,
            )
            for one in self.scheduler.running
        }
        self.waiting = [self.number(one) for one in waiting]

    def ran(self, chosen: Mapping[Sequence, int]) -> None:
        """Note what came of the step: it is over."""
        shares = [replace(share, emitted=one in chosen) for one, share in self.running.items()]
        there = [*self.scheduler.running, *self.scheduler.waiting]
        ran_so_far = dict.fromkeys([*self.in_slots, *self.running])
        left = [self.number(one) for one in ran_so_far if one not in there]
        freed = sorted(self.in_use.union(*(share.table for share in shares)) - self.owned())
        findable = {*self.pages.holds}
        kept = [page for page in self.pages.free if page in findable]
        self.steps.append(Step(shares, self.waiting, self.preempted, left, freed, kept))
        self.in_slots, self.in_use = [*self.scheduler.running], self.owned()

    def owned(self) -> set[int]:
        """Return the pages that somebody owns."""
        return {page for page, owners in enumerate(self.pages.owners) if owners}
