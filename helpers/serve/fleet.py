"""A fleet on paper: the scheduler on one or many machines and a clock of its own; no model runs.

A step takes what `cost.step_time` says at a share of the bandwidth and the compute of the card. Machines do
both prefill and decode, or some do the one and some the other, and rows travel between them. Requests are
dealt out in turn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from helpers.arguments import check_whole
from helpers.cost.models import Card, PublishedModel
from helpers.cost.step import step_time
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, Times
from helpers.serve.simulation import poisson, simulate

Arrivals = Sequence[tuple[float, Request]]


@dataclass(frozen=True)
class Machine:
    """One machine of a fleet, and the link to the next; weights and rows in 16 bits.

    Args:
        model, card: a dense model of one kind of layer, and what runs it.
        speed: what it reaches of the card's best, 0 to 1.
        link: bytes a second to another machine.
        slots: requests that run at the same time, at most.
        budget: tokens of a step, at most.
        overlap: rows are read while matrices multiply.
    """

    model: PublishedModel
    card: Card
    speed: float
    link: float
    slots: int
    budget: int
    overlap: bool = True

    def step(self, plan: Plan) -> float:
        """Return the seconds of a step, by `step_time`."""
        return self.seconds([(n, one.n_computed + n) for one, n in plan])

    def decode_step(self, plan: Plan) -> float:
        """Return the seconds of a step of those whose rows came by the link: one token of each."""
        return self.seconds([(1, one.n_computed + n) for one, n in plan])

    def seconds(self, texts: Iterable[tuple[int, int]]) -> float:
        """Return the seconds of a step that runs, of each text, so many tokens, the newest of so many."""
        pairs = [(length - new, new) for new, length in texts]
        return step_time(
            self.model,
            self.card,
            pairs,
            overlap=self.overlap,
            bandwidth_reached=self.speed,
            compute_reached=self.speed,
        ).total

    def serve(
        self, arrivals: Arrivals, n: int, seconds_of: Callable[[Plan], float], watched: int | None = None
    ) -> dict[Hashable, Times]:
        """Deal requests out to n machines like this; return the times of all, or of those on a few."""
        check_whole("machines", n)
        longest_text = max(len(request.prompt) + request.max_new for _, request in arrivals)
        times: dict[Hashable, Times] = {}
        for first in range(min(n, watched or n)):
            pages = PageManager(self.slots, longest_text, sharing=False)  # room for every slot
            times |= simulate(Scheduler(pages, self.slots, self.budget), arrivals[first::n], seconds_of)
        return times


def random_arrivals(n: int, rate: float, prompt: int, reply: int, seed: int) -> Arrivals:
    """Return n requests, `rate` a second, with texts of half to one and a half times these lengths."""
    rng = random.Random(seed)

    def request(number: int) -> Request:
        n_prompt, max_new = (rng.randint(-(-mean // 2), mean * 3 // 2) for mean in (prompt, reply))
        return Request(number, [0] * n_prompt, max_new)

    return poisson(n, rate, seed, request)


def together(machine: Machine, arrivals: Arrivals, n: int, watched: int | None = None) -> list[Times]:
    """Serve requests by n machines, each of which runs prompts and replies; see `disaggregated`."""
    return list(machine.serve(arrivals, n, machine.step, watched).values())


def disaggregated(
    machine: Machine, arrivals: Arrivals, n_prefill: int, n_decode: int, watched: int | None = None
) -> list[Times]:
    """Serve requests by machines that run prompts, and others that go on from their rows.

    Args:
        arrivals: every reply is of two words or more.
        watched: simulate so many of those that say replies, and no more; all are alike.
    """
    prompts = [(arrived, replace(request, max_new=1)) for arrived, request in arrivals]
    first = machine.serve(prompts, n_prefill, machine.step)
    handed, row = [], machine.model.cache_nbytes_per_token()
    for _, request in arrivals:
        sent = len(request.prompt) * row / machine.link
        rest = replace(request, prompt=[*request.prompt, 0], max_new=request.max_new - 1)
        handed.append((first[request.id].tokens[0] + sent, rest))
    handed.sort(key=lambda pair: pair[0])
    whole = replace(machine, budget=10**9)
    later = whole.serve(handed, n_decode, machine.decode_step, watched)
    return [Times(one.arrived, one.tokens + later[id].tokens) for id, one in first.items() if id in later]


def slowest(times: Sequence[Times], of: float = 0.99) -> list[float]:
    """Return the ms that this part of requests does not exceed: TTFT, TPOT, longest wait for a next word."""
    kinds = zip(*((one.ttft, one.tpot, one.longest_gap) for one in times), strict=True)
    return [1000 * sorted(kind)[math.ceil(of * len(times)) - 1] for kind in kinds]


def waits(
    serve: Callable[[Arrivals, int], Sequence[Times]], asked: Sequence[Arrivals], n: int
) -> tuple[float, float]:
    """Return the ms that 99 of 100 do not exceed with n machines, the worst of all that was asked.

    Returns:
        TTFT, and the longest wait for a next word.
    """
    found = [slowest(serve(one, n)) for one in asked]
    return max(ttft for ttft, _, _ in found), max(longest for _, _, longest in found)
