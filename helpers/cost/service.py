"""One believable service, the same in notebooks 11, 12 and 16 to 20: what a chat keeps, and how many live.

Nobody measured it. What follows from it is worked out here once, so that no two pages differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.cost.config import model_of
from helpers.cost.layers import GIB, cache_nbytes, nbytes_of
from helpers.cost.models import CARDS
from helpers.cost.step import StepSeconds, check_between, step_time
from helpers.validate import check_whole


@dataclass(frozen=True)
class Service:
    """Chats with an agent, on one card each: every setting is the reader's to change.

    Args:
        model: what `model_of` takes: a name of MODELS, or any config.json. Kept as a `PublishedModel`.
        card: a name of CARDS. Kept as a `Card`.
        weight_bits, row_bits: bits of a number.
        memory_gib: GiB of the card that an engine leaves to weights and rows together; notebook 11 has a log.
        tools, system: tokens that all chats begin with.
        turns: of a chat.
        message, reply: tokens that a turn adds: first question and results of tools, then the reply.
        pause: seconds from a reply to the next message, or to the end of the chat.
        chats_per_second: that begin, on average.
        ttft_slo, itl_slo: seconds that 99 of 100 wait at most, for a first word and between words.

    Raises:
        ValueError: a number out of its range, a card that is not known; and as `model_of`.
    """

    model: Any = "Llama-3.1-8B"
    card: Any = "H100"
    weight_bits: int = 16
    row_bits: int = 16
    memory_gib: float = 68.25
    tools: int = 4000
    system: int = 2000
    turns: int = 10
    message: int = 300
    reply: int = 250
    pause: float = 30.0
    chats_per_second: float = 0.2
    ttft_slo: float = 0.3
    itl_slo: float = 0.025

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", model_of(self.model))
        if self.card not in CARDS:
            raise ValueError(f"card is {self.card!r}; expected one of {[*CARDS]}")
        object.__setattr__(self, "card", CARDS[self.card])
        for name in ("tools", "system"):
            check_whole(name, getattr(self, name), minimum=0)
        for name in ("turns", "message", "reply"):
            check_whole(name, getattr(self, name))
        for name in ("memory_gib", "pause", "chats_per_second", "ttft_slo", "itl_slo"):
            check_between(0, float("inf"), **{name: getattr(self, name)})

    @property
    def shared(self) -> int:
        """Tokens of the prefix that all chats share."""
        return self.tools + self.system

    @property
    def requests_per_second(self) -> float:
        """Turns that begin in a second."""
        return self.turns * self.chats_per_second

    @property
    def tokens_per_second(self) -> float:
        """Tokens of replies that are asked for in a second."""
        return self.requests_per_second * self.reply

    @property
    def context(self) -> int:
        """Tokens of a chat in a decode step, on average: those it shares, and its own."""
        before = (self.turns - 1) / 2 * (self.message + self.reply)
        return round(self.shared + before + self.message + self.reply / 2)

    @property
    def weights_nbytes(self) -> int:
        """Bytes of the weights."""
        return nbytes_of(self.model.n_parameters, self.weight_bits / 8)

    @property
    def shared_nbytes(self) -> int:
        """Bytes of the rows that all chats share."""
        return self.rows_nbytes(self.shared)

    @property
    def idle_nbytes(self) -> float:
        """Bytes of an idle chat's own rows, the mean over its turns."""
        lengths = [turns * (self.message + self.reply) for turns in range(1, self.turns + 1)]
        return sum(map(self.rows_nbytes, lengths)) / self.turns

    @property
    def idle_chats(self) -> float:
        """Chats in a pause, on average: those that come in a second, times how long they stay (Little)."""
        return self.requests_per_second * self.pause

    def replying(self, step_seconds: float) -> float:
        """Return the replies under way on average, if a step takes so long (Little, too)."""
        return self.tokens_per_second * step_seconds

    def idle_chats_that_fit(self, replying: int) -> int:
        """Return how many idle chats may keep their rows beside the weights and so many replies."""
        own = self.rows_nbytes(self.context - self.shared)
        free = self.memory_gib * GIB - self.weights_nbytes - self.shared_nbytes - replying * own
        return max(0, int(free // self.idle_nbytes))

    def step(self, replying: int, **options: Any) -> StepSeconds:
        """Return a decode step with so many replies under way, each of which reads the shared rows, too.

        Options are those of `step_time`.
        """
        bits = {"weight_bits": self.weight_bits, "row_bits": self.row_bits}
        return step_time(self.model, self.card, self.context, replying, **bits | options)

    def rows_nbytes(self, tokens: int) -> int:
        """Return the bytes of so many tokens' rows."""
        return cache_nbytes(self.model.layers, tokens, self.row_bits / 8)
