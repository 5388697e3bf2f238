"""Simulate a fleet of machines, each with its own scheduler. The clock is simulated, and no model runs.

The duration of each step is computed by `cost.step_time`, assuming that a given fraction of the card's peak
bandwidth and peak compute is reached. A fleet is either colocated or disaggregated. In a colocated fleet,
every machine runs prefill and decode. In a disaggregated fleet, some machines run prefill and send the KV
entries to other machines, which run decode. Requests are assigned to machines in rotation.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from helpers.cost.layers import cache_nbytes
from helpers.cost.models import Card, PublishedModel
from helpers.cost.service import Service
from helpers.cost.step import CachedAndNew, StepSeconds, check_between, check_counts, step_time
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, RequestTimes
from helpers.serve.simulation import Arrivals, poisson_arrivals, simulate
from helpers.validate import check_whole


@dataclass(frozen=True)
class ChatTurn(Request):
    """A request for one turn of a chat.

    Args:
        num_cached_tokens: number of earlier tokens of the chat whose KV entries are in the cache. The prompt
            does not include these tokens.

    The other arguments are as in `Request`.
    """

    num_cached_tokens: int = 0


@dataclass(frozen=True)
class Machine:
    """One machine of a fleet, with one card. Weights and KV entries are stored in 16 bits.

    Args:
        model: the model that the machine serves.
        card: the card that runs the model.
        fraction_of_peak: fraction of the card's peak bandwidth and peak compute that is reached, over 0 and
            at most 1.
        link_bytes_per_second: bandwidth of the link to another machine.
        slots: maximum number of requests that run at the same time.
        token_budget: maximum number of tokens in a step.
        overlap: whether KV entries are read while matrices are multiplied. In most engines they are not.

    Raises:
        ValueError: `fraction_of_peak`, `link_bytes_per_second`, `slots` or `token_budget` is out of range.
    """

    model: PublishedModel
    card: Card
    fraction_of_peak: float
    link_bytes_per_second: float
    slots: int
    token_budget: int
    overlap: bool = False

    def __post_init__(self) -> None:
        check_between(0, 1, fraction_of_peak=self.fraction_of_peak)
        check_between(0, math.inf, link_bytes_per_second=self.link_bytes_per_second)
        check_counts(slots=self.slots, token_budget=self.token_budget)

    def plan_seconds(self, plan: Plan) -> float:
        """Return the duration of a step with this plan, in seconds."""
        return self.step_seconds(
            (cached_tokens(sequence.request) + sequence.num_computed_tokens, n) for sequence, n in plan
        )

    def step_seconds(self, requests: Iterable[CachedAndNew]) -> float:
        """Return the duration of a step, in seconds.

        Args:
            requests: one pair per request in the step: (number of cached tokens, number of new tokens).
        """
        return self.step_terms(requests).total

    def step_terms(self, requests: Iterable[CachedAndNew]) -> StepSeconds:
        """Return the terms of a step's duration, such as the time to read the weights.

        `requests` is as in `step_seconds`.
        """
        return step_time(
            self.model,
            self.card,
            requests,
            overlap=self.overlap,
            bandwidth_reached=self.fraction_of_peak,
            compute_reached=self.fraction_of_peak,
        )

    def serve(self, arrivals: Arrivals, n: int) -> dict[Hashable, RequestTimes]:
        """Simulate requests served by n machines with the properties of this one.

        Args:
            arrivals: pairs (arrival time in seconds, request), in order of arrival time.
            n: number of machines. Requests are assigned to them in rotation.

        Returns:
            The arrival time and token times of each request, by request id.
        """
        check_whole("machines", n)
        longest_text = max(len(request.prompt) + request.max_new_tokens for _, request in arrivals)
        times: dict[Hashable, RequestTimes] = {}
        for first in range(n):
            # One page per slot, large enough for the longest prompt with its reply.
            pages = PageManager(self.slots, longest_text, prefix_caching=False)
            scheduler = Scheduler(pages, self.slots, self.token_budget)
            times |= simulate(scheduler, arrivals[first::n], self.plan_seconds)
        return times


def cached_tokens(request: Request) -> int:
    """Return the number of tokens before a request's prompt whose KV entries are in the cache."""
    return request.num_cached_tokens if isinstance(request, ChatTurn) else 0


def chat_arrivals(
    service: Service, n_turns: int, seed: int, turns_per_second: float, prefix_cached: bool = True
) -> Arrivals:
    """Return random turns of a service's chats, as pairs (arrival time in seconds, request).

    The turns arrive independently of each other. The number of earlier turns in a turn's chat is random, and
    all earlier messages and replies have the mean length. The length of the turn's own message is random,
    between half and one and a half times the mean, and so is that of its reply.

    Args:
        service: sets the number of turns per chat, the length of the prefix that all chats share, and the
            mean lengths of messages and replies.
        n_turns: number of turns to return.
        seed: seed of the random number generators.
        turns_per_second: mean number of turns that arrive per second.
        prefix_cached: whether the KV entries of all earlier tokens of a chat are cached. If not, each turn's
            prompt contains all of these tokens.
    """
    rng = random.Random(seed)

    def turn(number: int) -> ChatTurn:
        earlier = service.shared_tokens + rng.randrange(service.turns) * (
            service.message_tokens + service.reply_tokens
        )
        message, reply = (
            rng.randint(-(-mean // 2), mean * 3 // 2)
            for mean in (service.message_tokens, service.reply_tokens)
        )
        prompt = [0] * (message if prefix_cached else earlier + message)
        return ChatTurn(number, prompt, reply, num_cached_tokens=earlier if prefix_cached else 0)

    return poisson_arrivals(n_turns, turns_per_second, seed, turn)


def colocated(machine: Machine, arrivals: Arrivals, n: int) -> list[RequestTimes]:
    """Simulate requests served by n machines that each run prefill and decode; return each request's times.

    `arrivals` is as in `Machine.serve`.
    """
    return list(machine.serve(arrivals, n).values())


def disaggregated(machine: Machine, arrivals: Arrivals, n_prefill: int, n_decode: int) -> list[RequestTimes]:
    """Simulate requests served by machines that run only prefill and machines that run only decode.

    A prefill machine runs a whole prompt in one step and sends its KV entries to a decode machine. The decode
    machine runs the last token of the prompt again. The token that it produces is the first token of the
    reply, and its time determines the TTFT.

    Args:
        machine: the hardware and limits of every machine. Its token budget applies only to decode.
        arrivals: pairs (arrival time in seconds, request), in order of arrival time.
        n_prefill: number of machines that run prefill.
        n_decode: number of machines that run decode.

    Returns:
        The arrival time and token times of each request.
    """
    prompts = [(arrived, replace(request, max_new_tokens=1)) for arrived, request in arrivals]
    prefilled = replace(machine, token_budget=10**9).serve(prompts, n_prefill)
    sent = []
    for _, request in arrivals:
        length = cached_tokens(request) + len(request.prompt)
        received = (
            prefilled[request.id].token_times[0]
            + cache_nbytes(machine.model.layers, length) / machine.link_bytes_per_second
        )
        rest = ChatTurn(request.id, [0], request.max_new_tokens, num_cached_tokens=length - 1)
        sent.append((received, rest))
    sent.sort(key=lambda pair: pair[0])
    decoded = machine.serve(sent, n_decode)
    return [RequestTimes(times.arrived, decoded[id].token_times) for id, times in prefilled.items()]


class Waits(NamedTuple):
    """The TTFT and the longest gap between tokens, of one request or as a percentile over many requests."""

    ttft_ms: float  # time to first token
    longest_gap_ms: float  # longest time between two consecutive tokens


def p99_waits(times: Sequence[RequestTimes]) -> Waits:
    """Return the 99th percentile over requests of the TTFT, and that of the longest gap."""
    index = math.ceil(0.99 * len(times)) - 1
    waits = [request.ttft for request in times], [request.longest_gap for request in times]
    return Waits(*(1000 * sorted(seconds)[index] for seconds in waits))
