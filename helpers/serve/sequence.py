"""A request, and a sequence: the progress of a request in a scheduler or engine."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field
from typing import Any

from helpers.sampling import GREEDY, Sampling


@dataclass(frozen=True)
class Request:
    """A request to continue a prompt.

    Args:
        id: identifies the request; any hashable object.
        prompt: token ids, at least one.
        max_new_tokens: maximum number of tokens in the reply.
        sampling: how the tokens of the reply are chosen.
    """

    id: abc.Hashable
    prompt: abc.Sequence[int]
    max_new_tokens: int
    sampling: Sampling = GREEDY


@dataclass
class RequestTimes:
    """The times of a request, in seconds of the same clock.

    Attributes:
        arrived: when the request arrived.
        token_times: when each token of the reply was produced.
    """

    arrived: float = 0.0
    token_times: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        """The time to first token in seconds, from the arrival of the request."""
        return self.token_times[0] - self.arrived

    @property
    def longest_gap(self) -> float:
        """The longest time between two consecutive tokens, in seconds; 0 for a reply of one token."""
        return max((b - a for a, b in zip(self.token_times, self.token_times[1:], strict=False)), default=0.0)


@dataclass(eq=False)
class Sequence:
    """A request in progress: its tokens so far, and the pages that hold their KV entries.

    Attributes:
        request: the request.
        tokens: ids of the prompt and of the reply so far, which are kept when the request is preempted.
        num_computed_tokens: number of tokens whose KV entries are in the pages.
        page_table: page numbers in the order of the text (a block table in vLLM).
        slot: number of the slot in which the request runs, from 0; None while it is waiting.
        num_cached_tokens: number of tokens that did not have to run, because they were found in cached pages
            when the request was admitted; the sum over all admissions.
        extra_key: what KV entries depend on besides tokens; in an engine, the version of the weights.
        sampler: object that chooses the tokens of the reply; set only by an engine.
        times: when the request arrived and when its tokens were produced, by the engine's clock.
        tokens_per_step: for each step in which the request ran, how many of its tokens ran.
        error: why the engine stopped the request, or None.
    """

    request: Request
    tokens: list[int]
    num_computed_tokens: int = 0
    page_table: list[int] = field(default_factory=list)
    slot: int | None = None
    num_cached_tokens: int = 0
    extra_key: abc.Hashable = None
    sampler: Any = None
    times: RequestTimes = field(default_factory=RequestTimes)
    tokens_per_step: list[int] = field(default_factory=list)
    error: ValueError | None = None

    @property
    def num_uncomputed_tokens(self) -> int:
        """The number of known tokens that have not run: first those of the prompt, later the newest token."""
        return len(self.tokens) - self.num_computed_tokens

    @property
    def reply(self) -> list[int]:
        """The ids of the reply so far."""
        return self.tokens[len(self.request.prompt) :]
