"""A simulated fleet: the scheduler on one or more machines, with a simulated clock; no model runs.

A step takes what `cost.step_time` says at the share of the card's bandwidth and compute that is reached.
Either every machine runs both prefill and decode, or some machines run prefill and others decode, and KV
entries are sent between them. Requests are assigned to machines in turn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from helpers.cost.layers import cache_nbytes
from helpers.cost.models import Card, PublishedModel
from helpers.cost.service import Service
from helpers.cost.step import StepSeconds, check_between, check_counts, step_time
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, Times
from helpers.serve.simulation import poisson_arrivals, simulate
from helpers.validate import check_whole

Arrivals = Sequence[tuple[float, Request]]


@dataclass(frozen=True)
class ChatTurn(Request):
    """A turn of a chat: its prompt is processed after num_cached_tokens tokens that are in the cache."""

    num_cached_tokens: int = 0


@dataclass(frozen=True)
class Machine:
    """One machine of a fleet, and its link to another; weights and KV entries in 16 bits.

    Args:
        model, card: the model, and the card that runs it.
        speed: the share of the card's bandwidth and compute that is reached, 0 to 1.
        link: bytes per second to another machine.
        slots: maximum number of requests that run at the same time.
        budget: maximum number of tokens in a step.
        overlap: whether KV entries are read while matrices are multiplied; most engines read them afterwards.

    Raises:
        ValueError: a number is out of range.
    """

    model: PublishedModel
    card: Card
    speed: float
    link: float
    slots: int
    budget: int
    overlap: bool = False

    def __post_init__(self) -> None:
        check_between(0, 1, speed=self.speed)
        check_between(0, math.inf, link=self.link)
        check_counts(slots=self.slots, budget=self.budget)

    def plan_seconds(self, plan: Plan) -> float:
        """Return the seconds that a step with this plan takes."""
        return self.seconds(
            [(n, cached_tokens(one.request) + one.num_computed_tokens + n) for one, n in plan]
        )

    def seconds(self, texts: Iterable[tuple[int, int]]) -> float:
        """Return the seconds that a step takes.

        Args:
            texts: for each text, how many tokens run, and how many it has in all, with those that run.
        """
        return self.terms(texts).total

    def terms(self, texts: Iterable[tuple[int, int]]) -> StepSeconds:
        """Return the terms of a step's time; `texts` as in `seconds`."""
        return step_time(
            self.model,
            self.card,
            [(length - new, new) for new, length in texts],
            overlap=self.overlap,
            bandwidth_reached=self.speed,
            compute_reached=self.speed,
        )

    def serve(self, arrivals: Arrivals, n: int) -> dict[Hashable, Times]:
        """Assign requests to n machines like this one; return the times of all requests, by id."""
        check_whole("machines", n)
        longest_text = max(len(request.prompt) + request.max_new_tokens for _, request in arrivals)
        times: dict[Hashable, Times] = {}
        for first in range(n):
            # one page of the longest text for each slot
            pages = PageManager(self.slots, longest_text, prefix_caching=False)
            scheduler = Scheduler(pages, self.slots, self.budget)
            times |= simulate(scheduler, arrivals[first::n], self.plan_seconds)
        return times


def cached_tokens(request: Request) -> int:
    """Return how many tokens before a request's prompt have cached KV entries."""
    return request.num_cached_tokens if isinstance(request, ChatTurn) else 0


def chat_turns(service: Service, n: int, seed: int, per_second: float, hits: bool = True) -> Arrivals:
    """Return n turns of a service's chats, with their arrival times; each turn's place in its chat is random.

    Messages and replies have between half and one and a half times their mean length.

    Args:
        per_second: mean number of turns that arrive per second, independently of each other.
        hits: whether the KV entries of all earlier tokens are cached; else the whole prompt is processed.
    """
    rng = random.Random(seed)

    def turn(number: int) -> ChatTurn:
        earlier = service.shared_tokens + rng.randrange(service.turns) * (service.message + service.reply)
        message, reply = (
            rng.randint(-(-mean // 2), mean * 3 // 2) for mean in (service.message, service.reply)
        )
        prompt = [0] * (message if hits else earlier + message)
        return ChatTurn(number, prompt, reply, num_cached_tokens=earlier if hits else 0)

    return poisson_arrivals(n, per_second, seed, turn)


def colocated(machine: Machine, arrivals: Arrivals, n: int) -> list[Times]:
    """Serve requests with n machines, each of which runs both prefill and decode."""
    return list(machine.serve(arrivals, n).values())


def disaggregated(machine: Machine, arrivals: Arrivals, n_prefill: int, n_decode: int) -> list[Times]:
    """Serve requests with machines that run whole prompts, and others that decode from their KV entries.

    The first token is produced where the KV entries are sent to: that machine runs the last token again.
    """
    prompts = [(arrived, replace(request, max_new_tokens=1)) for arrived, request in arrivals]
    prefilled = replace(machine, budget=10**9).serve(prompts, n_prefill)
    sent = []
    for _, request in arrivals:
        length = cached_tokens(request) + len(request.prompt)
        received = prefilled[request.id].tokens[0] + cache_nbytes(machine.model.layers, length) / machine.link
        rest = ChatTurn(request.id, [0], request.max_new_tokens, num_cached_tokens=length - 1)
        sent.append((received, rest))
    sent.sort(key=lambda pair: pair[0])
    decoded = machine.serve(sent, n_decode)
    return [Times(times.arrived, decoded[id].tokens) for id, times in prefilled.items()]


def p99_waits(times: Sequence[Times]) -> tuple[float, float]:
    """Return the 99th percentiles of TTFT and of the longest gap between two tokens, in milliseconds."""
    index = math.ceil(0.99 * len(times)) - 1
    waits = [one.ttft for one in times], [one.longest_gap for one in times]
    ttft, gap = (1000 * sorted(seconds)[index] for seconds in waits)
    return ttft, gap
