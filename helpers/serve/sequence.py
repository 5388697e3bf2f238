"""A request and its progress in the engine."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field
from typing import Any

from helpers.sampling import GREEDY, Sampling


@dataclass(frozen=True)
class Request:
    """A prompt to be continued.

    Args:
        id: identifies the request.
        prompt: token ids, at least one.
        max_new_tokens: maximum number of tokens in the reply.
        sampling: how the tokens of the reply are chosen.
    """

    id: abc.Hashable
    prompt: abc.Sequence[int]
    max_new_tokens: int
    sampling: Sampling = GREEDY


@dataclass
class Times:
    """When a request arrived and when each token of its reply was produced, in seconds."""

    arrived: float = 0.0
    tokens: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        """Time to first token, including the time spent waiting."""
        return self.tokens[0] - self.arrived

    @property
    def longest_gap(self) -> float:
        """The longest time between two consecutive tokens; 0 for a reply of one token."""
        return max((b - a for a, b in zip(self.tokens, self.tokens[1:], strict=False)), default=0.0)


@dataclass(eq=False)
class Sequence:
    """A request in progress: its tokens so far, and the pages that hold their KV entries.

    Attributes:
        tokens: prompt and reply so far. They are kept when the request is preempted.
        num_computed_tokens: tokens whose KV entries are in its pages.
        page_table: its pages, in the order of the text; a block table in vLLM.
        slot: the slot in which it runs; None while it waits.
        num_cached_tokens: tokens that were found in cached pages when it was admitted, and did not run.
        extra_key: what KV entries depend on besides the tokens; in an engine, the version of the weights.
        sampler: chooses its tokens; set by an engine only.
        times: when it arrived and when its tokens were produced, by the engine's clock.
        tokens_per_step: how many of its tokens ran in each step in which it ran.
        error: why it was stopped; None if nothing went wrong.
    """

    request: Request
    tokens: list[int]
    num_computed_tokens: int = 0
    page_table: list[int] = field(default_factory=list)
    slot: int | None = None
    num_cached_tokens: int = 0
    extra_key: abc.Hashable = None
    sampler: Any = None
    times: Times = field(default_factory=Times)
    tokens_per_step: list[int] = field(default_factory=list)
    error: ValueError | None = None

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens that are known and have not run: at first the whole prompt, later only the newest token."""
        return len(self.tokens) - self.num_computed_tokens

    @property
    def reply(self) -> list[int]:
        """Tokens of the reply so far."""
        return self.tokens[len(self.request.prompt) :]
