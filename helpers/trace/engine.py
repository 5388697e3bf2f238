"""The trace of an engine's run: which requests run or wait in each step, and which pages they own."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from helpers.trace.document import Document, check_indices


@dataclass(frozen=True)
class RequestTrace:
    """A request's text: `prompt` tokens, then its reply. Its index in the trace identifies the request."""

    id: str
    prompt: int
    tokens: list[str]


@dataclass(frozen=True)
class Share:
    """A running request in one step, in which its tokens `start` to `stop` - 1 are processed, if any."""

    request: int
    slot: int
    start: int  # KV entries in its pages before the step
    stop: int  # KV entries after the step
    table: list[int]  # its pages, in the order of the text
    found: int  # KV entries in cached pages with which it was admitted in this step, else 0
    emitted: bool  # whether it produced a token, whose index is `stop`


@dataclass(frozen=True)
class Step:
    """One step of an engine.

    Requests and pages are indices, from 0. The content of a page is the text of the last request that had the
    page in its table.
    """

    running: list[Share]  # in order of arrival
    waiting: list[int]  # requests in the queue during the step
    preempted: list[int]  # requests preempted before this step; they wait, or have been admitted again
    left: list[int]  # requests that ran and have left since the last step: finished or cancelled
    freed: list[int]  # pages that have become free
    findable: list[int]  # free pages that are still cached; the first is allocated first


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
