"""A simulated fleet: a scheduler on each of several machines, with a simulated clock and without a model.

The time of a step is computed by `cost.step_time`, for the share of the card's bandwidth and compute that is
reached. Either every machine runs prefill and decode, or some machines run prefill and send the KV entries to
others that run decode. Requests are assigned to the machines in rotation.
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
    """A turn of a chat, as a request.

    Args:
        num_cached_tokens: number of tokens before the prompt whose KV entries are in the cache.

    The other arguments are those of `Request`.
    """

    num_cached_tokens: int = 0


@dataclass(frozen=True)
class Machine:
    """One machine of a fleet and its link to other machines, with weights and KV entries in 16 bits.

    Args:
        model: the model that the machine serves.
        card: the card that runs the model.
        fraction_of_peak: share of the card's bandwidth and of its compute that is reached, 0 to 1.
        link_bytes_per_second: bandwidth to another machine.
        slots: maximum number of requests that run at the same time.
        token_budget: maximum number of tokens in a step.
        overlap: whether KV entries are read while matrices are multiplied; most engines read them afterwards.

    Raises:
        ValueError: a number is out of range.
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
        """Return how long a step with this plan takes, in seconds."""
        return self.step_seconds(
            (cached_tokens(sequence.request) + sequence.num_computed_tokens, n) for sequence, n in plan
        )

    def step_seconds(self, requests: Iterable[CachedAndNew]) -> float:
        """Return how long a step takes, in seconds.

        Args:
            requests: the numbers of cached tokens and of new tokens of each request in the step.
        """
        return self.step_terms(requests).total

    def step_terms(self, requests: Iterable[CachedAndNew]) -> StepSeconds:
        """Return the terms that make up the time of a step; `requests` as in `step_seconds`."""
        return step_time(
            self.model,
            self.card,
            requests,
            overlap=self.overlap,
            bandwidth_reached=self.fraction_of_peak,
            compute_reached=self.fraction_of_peak,
        )

    def serve(self, arrivals: Arrivals, n: int) -> dict[Hashable, RequestTimes]:
        """Serve requests with n machines like this one.

        Args:
            arrivals: requests with their arrival times, in order of time.
            n: number of machines, to which requests are assigned in rotation.

        Returns:
            The times of all requests, by id.
        """
        check_whole("machines", n)
        longest_text = max(len(request.prompt) + request.max_new_tokens for _, request in arrivals)
        times: dict[Hashable, RequestTimes] = {}
        for first in range(n):
            # One page per slot, large enough for the longest text.
            pages = PageManager(self.slots, longest_text, prefix_caching=False)
            scheduler = Scheduler(pages, self.slots, self.token_budget)
            times |= simulate(scheduler, arrivals[first::n], self.plan_seconds)
        return times


def cached_tokens(request: Request) -> int:
    """Return how many tokens before a request's prompt have KV entries in the cache."""
    return request.num_cached_tokens if isinstance(request, ChatTurn) else 0


def chat_arrivals(
    service: Service, n_turns: int, seed: int, turns_per_second: float, prefix_cached: bool = True
) -> Arrivals:
    """Return turns of a service's chats, with their arrival times in seconds.

    How many turns of the same chat precede each turn is random. The lengths of messages and replies are
    between half and one and a half times their mean.

    Args:
        service: the service: number of turns per chat, and mean lengths.
        n_turns: number of turns.
        seed: seed of the random numbers.
        turns_per_second: mean number of turns that arrive per second, independently of each other.
        prefix_cached: whether the KV entries of all earlier tokens of a chat are cached. If not, the prompt
            of a turn contains all of these tokens.
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
    """Serve requests with n machines that each run prefill and decode; return the times of each request."""
    return list(machine.serve(arrivals, n).values())


def disaggregated(machine: Machine, arrivals: Arrivals, n_prefill: int, n_decode: int) -> list[RequestTimes]:
    """Serve requests with machines that run prefill only, and others that run decode only.

    A prefill machine runs a whole prompt and sends its KV entries to a decode machine. The first token of the
    reply is counted when the decode machine produces it, by running the last token of the prompt again.

    Args:
        machine: what each machine is like.
        arrivals: requests with their arrival times, in order of time.
        n_prefill, n_decode: number of machines that run prefill, and that run decode.

    Returns:
        The times of each request.
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
    """Waits of a request, or of many, in milliseconds."""

    ttft_ms: float  # time to first token
    longest_gap_ms: float  # longest time between two consecutive tokens


def p99_waits(times: Sequence[RequestTimes]) -> Waits:
    """Return the 99th percentile of each wait over requests."""
    index = math.ceil(0.99 * len(times)) - 1
    waits = [request.ttft for request in times], [request.longest_gap for request in times]
    return Waits(*(1000 * sorted(seconds)[index] for seconds in waits))
