"""A request, and how far it has come."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field
from typing import Any

from helpers.sampling import GREEDY, Sampling


@dataclass(frozen=True)
class Request:
    """What somebody asks for.

    Args:
        id: tells it from the others.
        prompt: token ids, at least one.
        max_new_tokens: tokens of the reply at most.
        sampling: how its tokens are chosen.
    """

    id: abc.Hashable
    prompt: abc.Sequence[int]
    max_new_tokens: int
    sampling: Sampling = GREEDY


@dataclass
class Times:
    """When a request came and when its tokens came, in seconds."""

    arrived: float = 0.0
    tokens: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        """Time to first token, waiting among it."""
        return self.tokens[0] - self.arrived

    @property
    def longest_gap(self) -> float:
        """The longest wait between two tokens that follow each other; 0 for a reply of one token."""
        return max((b - a for a, b in zip(self.tokens, self.tokens[1:], strict=False)), default=0.0)


@dataclass(eq=False)
class Sequence:
    """A request on its way: its text so far, and where the rows of it lie.

    Attributes:
        tokens: prompt and reply so far. They are kept when the request has to give up its pages.
        n_computed: tokens whose rows are in its pages.
        table: the pages, in the order of the text.
        slot: where it runs; None while it waits.
        n_cached: tokens whose rows were there when it began: they did not run.
        rows_of: what rows depend on beside the tokens: in an engine the version of its weights.
        sampler: chooses its tokens; in an engine alone, as the rest.
        times: when it and its tokens came, by the engine's clock.
        steps: tokens that were processed in each of its steps.
        error: why it ended without an end; None if nothing is wrong.
    """

    request: Request
    tokens: list[int]
    n_computed: int = 0
    table: list[int] = field(default_factory=list)
    slot: int | None = None
    n_cached: int = 0
    rows_of: abc.Hashable = None
    sampler: Any = None
    times: Times = field(default_factory=Times)
    steps: list[int] = field(default_factory=list)
    error: ValueError | None = None

    @property
    def n_left(self) -> int:
        """Tokens that are known and have not been run: the prompt at first, then the newest alone."""
        return len(self.tokens) - self.n_computed

    @property
    def reply(self) -> list[int]:
        """Tokens of the reply so far."""
        return self.tokens[len(self.request.prompt) :]
