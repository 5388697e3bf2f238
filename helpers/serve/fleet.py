"""A fleet on paper: the scheduler on one or many machines and a clock of its own; no model runs.

A step takes what `cost.step_time` says at a share of the bandwidth and the compute of the card. Machines do
both prefill and decode, or some do the one and some the other, and rows travel between them. Requests are
dealt out in turn.
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
from helpers.serve.simulation import poisson, simulate
from helpers.validate import check_whole

Arrivals = Sequence[tuple[float, Request]]


@dataclass(frozen=True)
class Turn(Request):
    """A turn of a chat: its prompt has to be processed, behind so many tokens whose rows are found."""

    found: int = 0


@dataclass(frozen=True)
class Machine:
    """One machine of a fleet, and the link to the next; weights and rows in 16 bits.

    Args:
        model, card: a model, and what runs it.
        speed: what it reaches of the card's best, 0 to 1.
        link: bytes a second to another machine.
        slots: requests that run at the same time, at most.
        budget: tokens of a step, at most.
        overlap: rows are read while matrices multiply; most engines read them afterwards.

    Raises:
        ValueError: a number out of its range.
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

    def step(self, plan: Plan) -> float:
        """Return the seconds of a step, by `step_time`."""
        return self.seconds([(n, getattr(one.request, "found", 0) + one.n_computed + n) for one, n in plan])

    def seconds(self, texts: Iterable[tuple[int, int]]) -> float:
        """Return the seconds of a step that runs, of each text, so many tokens, the newest of so many."""
        return self.terms(texts).total

    def terms(self, texts: Iterable[tuple[int, int]]) -> StepSeconds:
        """Return the step's terms."""
        return step_time(
            self.model,
            self.card,
            [(length - new, new) for new, length in texts],
            overlap=self.overlap,
            bandwidth_reached=self.speed,
            compute_reached=self.speed,
        )

    def serve(self, arrivals: Arrivals, n: int) -> dict[Hashable, Times]:
        """Deal requests out to n machines like this; return the times of all."""
        check_whole("machines", n)
        longest_text = max(len(request.prompt) + request.max_new_tokens for _, request in arrivals)
        times: dict[Hashable, Times] = {}
        for first in range(n):
            pages = PageManager(self.slots, longest_text, sharing=False)  # room for every slot
            times |= simulate(Scheduler(pages, self.slots, self.budget), arrivals[first::n], self.step)
        return times


def turns(service: Service, n: int, seed: int, per_second: float, hits: bool = True) -> Arrivals:
    """Return n turns of a service's chats, each the first to the last of its chat by chance.

    Messages and replies have half to one and a half times their length.

    Args:
        per_second: how many come, independently of each other.
        hits: rows of all earlier tokens are found; else the whole prompt has to be processed.
    """
    rng = random.Random(seed)

    def turn(number: int) -> Turn:
        earlier = service.shared + rng.randrange(service.turns) * (service.message + service.reply)
        message, reply = (
            rng.randint(-(-mean // 2), mean * 3 // 2) for mean in (service.message, service.reply)
        )
        return Turn(number, [0] * (message + earlier * (not hits)), reply, found=earlier * hits)

    return poisson(n, per_second, seed, turn)


def together(machine: Machine, arrivals: Arrivals, n: int) -> list[Times]:
    """Serve requests by n machines, each of which runs prompts and replies."""
    return list(machine.serve(arrivals, n).values())


def disaggregated(machine: Machine, arrivals: Arrivals, n_prefill: int, n_decode: int) -> list[Times]:
    """Serve requests by machines that run prompts whole, and others that go on from their rows.

    A first word is said where the rows have come: the machine that gets them runs the last token again.
    """
    prompts = [(arrived, replace(request, max_new_tokens=1)) for arrived, request in arrivals]
    first = replace(machine, budget=10**9).serve(prompts, n_prefill)
    handed = []
    for _, request in arrivals:
        length = getattr(request, "found", 0) + len(request.prompt)
        there = first[request.id].tokens[0] + cache_nbytes(machine.model.layers, length) / machine.link
        handed.append((there, Turn(request.id, [0], request.max_new_tokens, found=length - 1)))
    handed.sort(key=lambda pair: pair[0])
    later = machine.serve(handed, n_decode)
    return [Times(one.arrived, later[id].tokens) for id, one in first.items()]


def slowest(times: Sequence[Times]) -> tuple[float, float]:
    """Return the ms that 99 of 100 requests do not exceed: TTFT, and the longest wait for a next word."""
    at = math.ceil(0.99 * len(times)) - 1
    return 1000 * sorted(one.ttft for one in times)[at], 1000 * sorted(one.longest_gap for one in times)[at]
