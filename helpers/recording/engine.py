"""Record which requests run in each step of an engine, and which pages they use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Sequence
from helpers.trace import EngineTrace, RequestTrace, Share, Step


class StepRecorder:
    """A context manager that records every step of a scheduler inside the `with` block.

    The texts of the requests' tokens are recorded at the end of the block.

    Args:
        scheduler: the scheduler of an engine or of a simulation.
        text_of: a function that takes a token's id and returns its text.
        name: name of the model in the trace.
    """

    def __init__(
        self, scheduler: Scheduler, text_of: Callable[[int], str] = "<{}>".format, name: str = "model"
    ) -> None:
        pages, budget = scheduler.pages, scheduler.token_budget
        self.scheduler = scheduler
        self.pages, self.text_of = pages, text_of
        self.requests: dict[Sequence, int] = {}
        self.texts: list[RequestTrace] = []
        self.steps: list[Step] = []  # an engine that undoes a step restores this, too
        self.name, max_tokens = name, None if budget == math.inf else int(budget)
        self.sizes = scheduler.slots, max_tokens, pages.n_pages, pages.page_size

    @property
    def trace(self) -> EngineTrace:
        """The trace of the steps recorded so far."""
        return EngineTrace(self.name, *self.sizes, self.texts, self.steps)

    def __enter__(self) -> StepRecorder:
        self.scheduler.observer = self
        self.in_slots, self.in_use = [*self.scheduler.running], self.pages_in_use()  # after the last step
        return self

    def __exit__(self, *error: Any) -> None:
        self.scheduler.observer = None
        self.texts[:] = [  # in place, so that a trace that was taken in the block has them, too
            RequestTrace(
                str(sequence.request.id),
                len(sequence.request.prompt),
                list(map(self.text_of, sequence.tokens)),
            )
            for sequence in self.requests
        ]

    def request_index(self, sequence: Sequence) -> int:
        """Return the index of a request in the trace, from 0.

        A request that has no index yet gets the next one.
        """
        return self.requests.setdefault(sequence, len(self.requests))

    def on_schedule(self, plan: Plan) -> None:
        """Record which requests run, wait or were preempted, and which pages the running requests use.

        Args:
            plan: pairs (sequence, number of its tokens that run in the step).
        """
        self.preempted = [self.request_index(sequence) for sequence in self.scheduler.preempted]
        n, waiting = dict(plan), [*self.scheduler.waiting]
        stayed = [
            sequence for sequence in self.in_slots if self.request_index(sequence) not in self.preempted
        ]
        self.running = {
            sequence: Share(
                request=self.request_index(sequence),
                slot=sequence.slot or 0,
                start=sequence.num_computed_tokens,
                stop=sequence.num_computed_tokens + n.get(sequence, 0),
                table=[*sequence.page_table],
                found=0 if sequence in stayed else sequence.num_computed_tokens,
                emitted=False,
            )
            for sequence in self.scheduler.running
        }
        self.waiting = [self.request_index(sequence) for sequence in waiting]

    def on_step_end(self, next_tokens: Mapping[Sequence, int]) -> None:
        """Add the step to the trace.

        Args:
            next_tokens: id of the token that each sequence produced in this step. Sequences that produced no
                token are absent.
        """
        shares = [replace(share, emitted=sequence in next_tokens) for sequence, share in self.running.items()]
        unfinished = [*self.scheduler.running, *self.scheduler.waiting]
        ran_so_far = dict.fromkeys([*self.in_slots, *self.running])
        finished = [self.request_index(sequence) for sequence in ran_so_far if sequence not in unfinished]
        freed = sorted(self.in_use.union(*(share.table for share in shares)) - self.pages_in_use())
        findable = [page for page in self.pages.free if page in self.pages.contents]
        self.steps.append(Step(shares, self.waiting, self.preempted, finished, freed, findable))
        self.in_slots, self.in_use = [*self.scheduler.running], self.pages_in_use()

    def pages_in_use(self) -> set[int]:
        """Return the indices of all pages that are in the page table of at least one request."""
        return {page for page, n in enumerate(self.pages.ref_counts) if n}
