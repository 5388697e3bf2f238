"""The record of an engine's run: at every step who runs, who waits, and whose each page of the pool is."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from helpers.trace.document import Document, check_names


@dataclass(frozen=True)
class RequestTrace:
    """A text: so many tokens of prompt, then its reply. It is named by its index in the trace."""

    id: str
    prompt: int
    tokens: list[str]


@dataclass(frozen=True)
class Share:
    """What one that runs does in a step: it runs tokens `start` up to `stop` of its text, or none."""

    request: int
    slot: int
    start: int  # rows filled in its pages before the step
    stop: int  # and after it
    table: list[int]  # its pages, in the order of the text
    found: int  # rows that it found again as it was admitted in this step: those of its first pages
    emitted: bool  # whether a token came of it, which stands at `stop`


@dataclass(frozen=True)
class Step:
    """One step of an engine. What lies in a page is the text of the last in whose table it stood."""

    running: list[Share]  # in the order in which they came
    waiting: list[int]  # in line, while the others run
    preempted: list[int]  # who had to give up slot and pages before this step ran, and waits or begins anew
    left: list[int]  # who ran in it, or until then, and is gone: its reply has ended, or was cancelled
    freed: list[int]  # pages that nobody owns any more
    findable: list[int]  # free pages whose rows can still be found; the first is taken first


@dataclass(frozen=True)
class EngineTrace(Document):
    """An engine's run, from its first step to the last."""

    FORMAT = "watch-it-decode-engine"

    name: str
    slots: int
    budget: int | None  # tokens of a step, at most
    n_pages: int
    page_size: int
    requests: list[RequestTrace] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def check(self) -> None:
        """Raise TraceError for a number that names nothing that is there."""
        for request in self.requests:
            check_names("token", [request.prompt - 1], len(request.tokens))
        for step in self.steps:
            shares = step.running
            requests = [*step.waiting, *step.preempted, *step.left, *(share.request for share in shares)]
            check_names("request", requests, len(self.requests))
            check_names("slot", [share.slot for share in shares], self.slots)
            tables = (share.table for share in shares)
            check_names("page", chain(step.freed, step.findable, *tables), self.n_pages)
            for share in shares:
                n_tokens = len(self.requests[share.request].tokens)
                named = (
                    share.start,
                    share.found,
                    share.stop - (not share.emitted),
                )  # the one at `stop` came of it
                check_names("token", named, n_tokens)
                n_rows = len(share.table) * self.page_size
                check_names("row", [share.found, share.stop - 1], n_rows)
