"""One plausible service, the same in notebooks 11, 12 and 16 to 20: its load, and its use of memory.

Its settings are made up, not measured. What follows from them is computed here, so that all notebooks agree.
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
    """Chats with an agent, served by one card. The reader may change every setting.

    Args:
        model: an argument of `model_of`: a name in MODELS, or any config.json. Stored as a `PublishedModel`.
        card: a name in CARDS. Stored as a `Card`.
        weight_bits, kv_bits: bits per number of the weights and of the KV cache.
        memory_gib: GiB of the card that an engine leaves for weights and KV cache; notebook 11 has a log.
        tools, system: tokens of the tools' descriptions and of the system prompt, with which all chats begin.
        turns: turns of a chat.
        message, reply: tokens that a turn adds: the question and the results of tools, then the reply.
        pause: seconds from a reply to the next message, or to the end of the chat.
        chats_per_second: chats that begin, on average.
        ttft_slo, itl_slo: limits in seconds that 99 of 100 waits keep: for the first token, and between two.

    Raises:
        ValueError: a number is out of range, or the card is unknown; and as in `model_of`.
    """

    model: Any = "Llama-3.1-8B"
    card: Any = "H100"
    weight_bits: int = 16
    kv_bits: int = 16
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
    def shared_tokens(self) -> int:
        """Tokens of the prefix that all chats share."""
        return self.tools + self.system

    @property
    def requests_per_second(self) -> float:
        """Turns that begin per second."""
        return self.turns * self.chats_per_second

    @property
    def demand_tokens_per_second(self) -> float:
        """Reply tokens that users ask for per second."""
        return self.requests_per_second * self.reply

    @property
    def context(self) -> int:
        """Tokens of a chat in a decode step, on average: the shared prefix, and its own."""
        earlier_turns = (self.turns - 1) / 2 * (self.message + self.reply)
        return round(self.shared_tokens + earlier_turns + self.message + self.reply / 2)

    @property
    def weights_nbytes(self) -> int:
        """Bytes of the weights."""
        return nbytes_of(self.model.n_parameters, self.weight_bits / 8)

    @property
    def shared_nbytes(self) -> int:
        """Bytes of the KV entries that all chats share."""
        return self.kv_nbytes(self.shared_tokens)

    @property
    def idle_nbytes(self) -> float:
        """Bytes of an idle chat's own KV entries, averaged over its turns."""
        lengths = [turns * (self.message + self.reply) for turns in range(1, self.turns + 1)]
        return sum(map(self.kv_nbytes, lengths)) / self.turns

    @property
    def idle_chats(self) -> float:
        """Chats in a pause, on average: pauses that begin per second × their length (Little's law)."""
        return self.requests_per_second * self.pause

    def replying(self, step_seconds: float) -> float:
        """Return how many replies are being decoded, on average, if a step takes `step_seconds` (Little's
        law, too).
        """
        return self.demand_tokens_per_second * step_seconds

    def idle_chats_that_fit(self, replying: int) -> int:
        """Return how many idle chats' KV entries fit in memory with the weights and `replying` replies."""
        own = self.kv_nbytes(self.context - self.shared_tokens)
        free = self.memory_gib * GIB - self.weights_nbytes - self.shared_nbytes - replying * own
        return max(0, int(free // self.idle_nbytes))

    def step(self, replying: int, **options: Any) -> StepSeconds:
        """Return the time of a decode step of `replying` replies; each reads the shared KV entries, too.

        Options are those of `step_time`.
        """
        bits = {"weight_bits": self.weight_bits, "kv_bits": self.kv_bits}
        return step_time(self.model, self.card, self.context, replying, **bits | options)

    def kv_nbytes(self, tokens: int) -> int:
        """Return the bytes of the KV entries of `tokens` tokens."""
        return cache_nbytes(self.model.layers, tokens, self.kv_bits / 8)
