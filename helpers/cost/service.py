"""The load and memory use of one plausible service, the example in notebooks 11, 12 and 16 to 20.

The settings of the service are made up, not measured. Everything that follows from them is computed here, so
that all notebooks agree.
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
        model: any argument of `model_of`, such as the name of a model in MODELS. It is stored as a
            `PublishedModel`.
        card: the name of a card in CARDS. It is stored as a `Card`.
        weight_bits: bits per weight.
        kv_bits: bits per value in the KV cache.
        memory_gib: memory, in GiB, that an engine leaves for weights and KV cache. Notebook 11 shows engine
            logs from which such a value can be computed.
        tool_tokens: number of tokens in the tool descriptions. Every chat begins with these and the system
            prompt.
        system_tokens: number of tokens in the system prompt.
        turns: number of turns per chat.
        message_tokens: number of tokens in each turn's message, which contains the question and the results
            of tools.
        reply_tokens: number of tokens in each turn's reply.
        pause_seconds: seconds from the end of a reply to the next message, or to the end of the chat.
        chats_per_second: mean number of chats that begin per second.
        ttft_slo: limit on the time to first token, in seconds, for 99% of requests.
        itl_slo: limit on the time between two consecutive tokens, in seconds, for 99% of these times.

    Raises:
        ValueError: a setting is out of range, the card is unknown, or the model is not accepted by
            `model_of`.
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
        """The number of tokens in the prefix that all chats share."""
        return self.tool_tokens + self.system_tokens

    @property
    def requests_per_second(self) -> float:
        """The mean number of turns that begin per second. Each turn is one request."""
        return self.turns * self.chats_per_second

    @property
    def demand_tokens_per_second(self) -> float:
        """The mean number of reply tokens that users request per second."""
        return self.requests_per_second * self.reply_tokens

    @property
    def mean_context(self) -> int:
        """The mean number of cached tokens per chat during a decode step, including the shared prefix."""
        earlier_turns = (self.turns - 1) / 2 * (self.message_tokens + self.reply_tokens)
        return round(self.shared_tokens + earlier_turns + self.message_tokens + self.reply_tokens / 2)

    @property
    def weights_nbytes(self) -> int:
        """The size of the model's weights, in bytes."""
        return nbytes_of(self.model.n_parameters, self.weight_bits / 8)

    @property
    def shared_nbytes(self) -> int:
        """The size, in bytes, of the KV entries for the prefix that all chats share."""
        return self.kv_nbytes(self.shared_tokens)

    @property
    def idle_nbytes(self) -> float:
        """The size, in bytes, of the KV entries that an idle chat has in addition to the shared prefix.

        This is the mean over the pauses after each turn.
        """
        lengths = [turns * (self.message_tokens + self.reply_tokens) for turns in range(1, self.turns + 1)]
        return sum(map(self.kv_nbytes, lengths)) / self.turns

    @property
    def idle_chats(self) -> float:
        """The mean number of chats that are in a pause.

        By Little's law, it is the number of pauses that begin per second times the duration of a pause.
        """
        return self.requests_per_second * self.pause_seconds

    def mean_replying(self, step_seconds: float) -> float:
        """Return the mean number of replies that are being decoded at the same time.

        By Little's law, it is the number of reply tokens requested per second times the time per token.

        Args:
            step_seconds: duration of a decode step, in seconds.
        """
        return self.demand_tokens_per_second * step_seconds

    def idle_chats_that_fit(self, n_replying: int) -> int:
        """Return the number of idle chats whose KV entries fit in the memory that is left.

        The memory also holds the weights, the shared prefix and the KV entries of `n_replying` chats that are
        being decoded.
        """
        own = self.kv_nbytes(self.mean_context - self.shared_tokens)
        free = self.memory_gib * GIB - self.weights_nbytes - self.shared_nbytes - n_replying * own
        return max(0, int(free // self.idle_nbytes))

    def decode_step(self, n_replying: int, **options: Any) -> StepSeconds:
        """Return the terms of the duration of a decode step for `n_replying` replies.

        The KV entries of the shared prefix are read once per reply. `options` are keyword arguments of
        `step_time`.
        """
        bits = {"weight_bits": self.weight_bits, "kv_bits": self.kv_bits}
        return step_time(self.model, self.card, self.mean_context, n_replying, **bits | options)

    def kv_nbytes(self, tokens: int) -> int:
        """Return the size of the KV entries for `tokens` tokens, in bytes."""
        return cache_nbytes(self.model.layers, tokens, self.kv_bits / 8)
