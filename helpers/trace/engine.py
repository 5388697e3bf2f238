"""The trace of an engine's run: which requests run or wait in each step, and which pages they use."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from helpers.trace.document import Document, check_indices


@dataclass(frozen=True)
class RequestTrace:
    """The texts of a request's tokens: those of the `prompt` prompt tokens, followed by those of the reply.

    A request is identified by its index in the trace.
    """

    id: str
    prompt: int
    tokens: list[str]


@dataclass(frozen=True)
class Share:
    """A running request in one step.

    In this step, its tokens `start` to `stop` - 1 are processed. If `start` equals `stop`, none is.
    """

    request: int
    slot: int
    start: int  # number of KV entries in its pages before the step
    stop: int  # number of KV entries in its pages after the step
    table: list[int]  # its pages, in token order
    found: int  # if admitted in this step, the number of KV entries in cached pages; else 0
    emitted: bool  # whether it produced a token, whose index is `stop`


@dataclass(frozen=True)
class Step:
    """One step of an engine.

    Requests and pages are identified by their indices, from 0. The content of a page is not recorded: it is
    known from the tokens of the last request that had the page in its page table.
    """

    running: list[Share]  # in order of arrival
    waiting: list[int]  # requests in the queue during the step
    preempted: list[int]  # requests preempted since the last step; they wait, or have been admitted again
    left: list[int]  # requests that ran and have finished or been cancelled since the end of the last step
    freed: list[int]  # pages that have become free since the end of the last step
    findable: list[int]  # free pages that are still cached, in the order in which they will be allocated


@dataclass(frozen=True)
class EngineTrace(Document):
    """The trace of an engine's run, from its first step to its last."""

    FORMAT = "watch-it-decode-engine"

    name: str
    slots: int
    budget: int | None  # maximum number of tokens in a step
    n_pages: int
    page_size: int
    requests: list[RequestTrace] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def check(self) -> None:
        """Raise TraceError if an index is out of range."""
        for request in self.requests:
            check_indices("token", [request.prompt - 1], len(request.tokens))
        for step in self.steps:
            shares = step.running
            requests = [*step.waiting, *step.preempted, *step.left, *(share.request for share in shares)]
            check_indices("request", requests, len(self.requests))
            check_indices("slot", [share.slot for share in shares], self.slots)
            tables = (share.table for share in shares)
            check_indices("page", chain(step.freed, step.findable, *tables), self.n_pages)
            for share in shares:
                n_tokens = len(self.requests[share.request].tokens)
                last = share.stop - (not share.emitted)  # the token that was produced is at `stop`
                check_indices("token", (share.start, share.found, last), n_tokens)
                check_indices("row", [share.found, share.stop - 1], len(share.table) * self.page_size)
