"""The load and memory use of one plausible service, the example of notebooks 11, 12 and 16 to 20.

Its settings are made up, not measured. Everything that follows from them is computed here, so that all
notebooks agree.
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
    """A service that runs chats with an agent on one card. The reader may change every setting.

    Args:
        model: any argument of `model_of`, such as a name in MODELS. Stored as a `PublishedModel`.
        card: a name in CARDS. Stored as a `Card`.
        weight_bits, kv_bits: bits per number of the weights and of the KV cache.
        memory_gib: GiB of the card's memory that an engine leaves for weights and KV cache; notebook 11 shows
            a log.
        tool_tokens, system_tokens: tokens of the tool descriptions and of the system prompt, with which every
            chat begins.
        turns: number of turns in a chat.
        message_tokens, reply_tokens: tokens that each turn adds: first the question and the results of tools,
            then the reply.
        pause_seconds: seconds from a reply to the next message, or to the end of the chat.
        chats_per_second: chats that begin per second, on average.
        ttft_slo, itl_slo: limits, in seconds, on the time to first token and on the time between two tokens;
            99 of 100 must be within them.

    Raises:
        ValueError: a number is out of range, the card is unknown, or `model_of` raises it.
    """

    model: Any = "Llama-3.1-8B"
    card: Any = "H100"
    weight_bits: int = 16
    kv_bits: int = 16
    memory_gib: float = 68.25
    tool_tokens: int = 4000
    system_tokens: int = 2000
    turns: int = 10
    message_tokens: int = 300
    reply_tokens: int = 250
    pause_seconds: float = 30.0
    chats_per_second: float = 0.2
    ttft_slo: float = 0.3
    itl_slo: float = 0.025

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", model_of(self.model))
        if self.card not in CARDS:
            raise ValueError(f"card is {self.card!r}; expected one of {[*CARDS]}")
        object.__setattr__(self, "card", CARDS[self.card])
        for name in ("tool_tokens", "system_tokens"):
            check_whole(name, getattr(self, name), minimum=0)
        for name in ("turns", "message_tokens", "reply_tokens"):
            check_whole(name, getattr(self, name))
        for name in ("memory_gib", "pause_seconds", "chats_per_second", "ttft_slo", "itl_slo"):
            check_between(0, float("inf"), **{name: getattr(self, name)})

    @property
    def shared_tokens(self) -> int:
        """Number of tokens in the prefix that all chats share."""
        return self.tool_tokens + self.system_tokens

    @property
    def requests_per_second(self) -> float:
        """Number of turns that begin per second, on average."""
        return self.turns * self.chats_per_second

    @property
    def demand_tokens_per_second(self) -> float:
        """Number of reply tokens that users request per second."""
        return self.requests_per_second * self.reply_tokens

    @property
    def mean_context(self) -> int:
        """Average number of cached tokens of a chat during a decode step, including the shared prefix."""
        earlier_turns = (self.turns - 1) / 2 * (self.message_tokens + self.reply_tokens)
        return round(self.shared_tokens + earlier_turns + self.message_tokens + self.reply_tokens / 2)

    @property
    def weights_nbytes(self) -> int:
        """Size of the weights, in bytes."""
        return nbytes_of(self.model.n_parameters, self.weight_bits / 8)

    @property
    def shared_nbytes(self) -> int:
        """Size of the KV entries that all chats share, in bytes."""
        return self.kv_nbytes(self.shared_tokens)

    @property
    def idle_nbytes(self) -> float:
        """Size of the KV entries that an idle chat does not share, in bytes, averaged over its turns."""
        lengths = [turns * (self.message_tokens + self.reply_tokens) for turns in range(1, self.turns + 1)]
        return sum(map(self.kv_nbytes, lengths)) / self.turns

    @property
    def idle_chats(self) -> float:
        """Average number of chats in a pause: pauses begun per second × length of a pause (Little's law)."""
        return self.requests_per_second * self.pause_seconds

    def mean_replying(self, step_seconds: float) -> float:
        """Return the average number of replies being decoded (Little's law).

        Args:
            step_seconds: duration of a decode step.
        """
        return self.demand_tokens_per_second * step_seconds

    def idle_chats_that_fit(self, n_replying: int) -> int:
        """Return how many idle chats fit in memory next to the weights and `n_replying` replies."""
        own = self.kv_nbytes(self.mean_context - self.shared_tokens)
        free = self.memory_gib * GIB - self.weights_nbytes - self.shared_nbytes - n_replying * own
        return max(0, int(free // self.idle_nbytes))

    def decode_step(self, n_replying: int, **options: Any) -> StepSeconds:
        """Return the time of a decode step of `n_replying` replies, each of which reads the shared entries.

        `options` are those of `step_time`.
        """
        bits = {"weight_bits": self.weight_bits, "kv_bits": self.kv_bits}
        return step_time(self.model, self.card, self.mean_context, n_replying, **bits | options)

    def kv_nbytes(self, tokens: int) -> int:
        """Return the size of the KV entries of `tokens` tokens, in bytes."""
        return cache_nbytes(self.model.layers, tokens, self.kv_bits / 8)
