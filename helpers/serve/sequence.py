"""Requests, their times, and their sequences: what a scheduler or an engine knows about each request."""

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
    """The arrival time of a request and the times of its reply's tokens, in seconds on the same clock.

    Attributes:
        arrived: when the request arrived.
        token_times: when each token of the reply was produced, in order.
    """

    arrived: float = 0.0
    token_times: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        """The time to first token (TTFT): the seconds from the request's arrival to its first token."""
        return self.token_times[0] - self.arrived


@dataclass(eq=False)
class Sequence:
    """The progress of a request in a scheduler: its tokens so far, and the pages that store KV entries.

    Attributes:
        request: the request.
        tokens: token ids of the prompt and of the reply so far. They are kept when the request is preempted.
        num_computed_tokens: number of tokens whose KV entries are in the pages.
        page_table: indices of the sequence's pages in the pool, in token order (a block table in vLLM).
        slot: index of the slot in which the request runs, from 0; None if it is not running.
        num_cached_tokens: number of tokens that did not have to run, because their KV entries were found in
            cached pages when the request was admitted. If it was preempted and admitted again, this is the
            sum over all admissions.
        extra_key: what the KV entries depend on besides the tokens; in an engine, the version of the weights.
        sampler: object that chooses the tokens of the reply; set only by an engine.
        times: when the request arrived and when its tokens were produced, on the engine's clock; set only by
            an engine.
        tokens_per_step: number of the request's tokens that ran, for each step in which it ran; set only by
            an engine.
        error: the reason why the engine stopped the request; None if it did not.
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
        """The number of tokens that have not run yet.

        During prefill, these are the remaining tokens of the prompt. During decode, it is the newest token.
        """
        return len(self.tokens) - self.num_computed_tokens

    @property
    def reply(self) -> list[int]:
        """The token ids of the reply so far."""
        return self.tokens[len(self.request.prompt) :]
