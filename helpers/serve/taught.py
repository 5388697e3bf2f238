"""The scheduler of notebook 16, the clock that drives it, and the traffic of a service, all simulated.

The notebook defines these names in its cells; the notebooks after it import them from here. A test keeps the
two equal. The engine has its own scheduler, with pages, in `serve.scheduler`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from helpers.cost.models import CARDS


class Request:
    """A request of a number of tokens; see notebook 16."""

    def __init__(self, name: object, arrived: float, prompt: int, reply: int) -> None:
        self.name, self.arrived = name, arrived  # who, and when (seconds)
        self.prompt, self.reply = prompt, reply  # tokens; a real engine cannot know the reply's yet
        self.known = prompt  # tokens known so far: the prompt, later the reply's tokens too
        self.computed = 0  # how many of them have run and left their KV entries
        self.started: float | None = None  # when the first of them began to run
        self.times: list[float] = []  # when each token of the reply came out


Plan = list[tuple[Request, int]]  # which requests run in a step, and how many tokens of each


class Scheduler:
    """Notebook 16's scheduler: replies first, then prompts in chunks, in order of arrival."""

    waiting: deque[Request]
    running: list[Request]

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int, kv_entries: int) -> None:
        self.max_num_seqs = max_num_seqs  # slots
        self.max_num_batched_tokens = max_num_batched_tokens  # token budget, no smaller than the slots
        self.kv_entries = kv_entries  # tokens for which memory has room
        self.waiting, self.running = deque(), []  # both in order of arrival

    def schedule(self) -> Plan:
        """Plan the next step: which requests run, and how many tokens of each."""
        while self.used() > self.kv_entries:
            self.preempt()
        plan: Plan
        plan, budget = [], self.max_num_batched_tokens
        for request in self.running:  # rules 1 and 2: a token of each reply, then a piece of a prompt
            n = min(request.known - request.computed, budget)
            plan.append((request, n))
            budget -= n
        while budget and self.can_admit():  # rule 3
            request = self.waiting.popleft()
            self.running.append(request)
            n = min(request.known - request.computed, budget)
            plan.append((request, n))
            budget -= n
        return plan

    def used(self) -> int:
        return sum([request.known for request in self.running])

    def can_admit(self) -> bool:
        if not self.waiting or len(self.running) == self.max_num_seqs:
            return False
        return self.used() + self.waiting[0].known <= self.kv_entries

    def preempt(self) -> None:
        request = self.running.pop()  # the youngest gives up its KV entries
        request.computed = 0
        self.waiting.appendleft(request)


def serve(
    scheduler: Scheduler, requests: Sequence[Request], seconds: Callable[[Plan], float]
) -> Iterator[tuple[float, float, Plan]]:
    """Run requests on a simulated clock; yield the begin, the end and the plan of each step."""
    clock, coming = 0.0, deque(requests)  # seconds, and the requests that have not arrived yet
    while coming or scheduler.waiting or scheduler.running:
        if not scheduler.waiting and not scheduler.running:
            clock = max(clock, coming[0].arrived)  # nothing to do: wait for the next request
        while coming and coming[0].arrived <= clock:
            scheduler.waiting.append(coming.popleft())
        plan = scheduler.schedule()
        assert plan, "a request has more tokens than memory has room for"
        begin, clock = clock, clock + seconds(plan)
        yield begin, clock, plan
        for request, n in plan:
            request.computed += n
            if request.started is None:
                request.started = begin
            if request.computed == request.known:  # it has caught up: the model gives the next token
                request.known += 1
                request.times.append(clock)
                if len(request.times) == request.reply:
                    scheduler.running.remove(request)


BANDWIDTH = 0.7 * CARDS["H100"].bytes_per_second
COMPUTE = 0.7 * CARDS["H100"].flops_per_second
KV_ENTRIES = int(53.29 * 2**30 / 131_072)  # notebook 11: 53.29 GiB, by the bytes of a token


def seconds(plan: Plan) -> float:
    """Return how long a step of Llama-3.1-8B takes on an H100, in 16 bits, by notebook 12's equation."""
    tokens, entries, pairs = 0, 0, 0.0
    for request, n in plan:
        tokens += n
        entries += request.computed + n  # read, or written just now
        pairs += n * (request.computed + (n + 1) / 2)  # of a query and a key
    attention = max(131_072 * entries / BANDWIDTH, 524_288 * pairs / COMPUTE)
    weights = 15.01e9 / BANDWIDTH
    products = 2 * (6.98e9 * tokens + 0.525e9 * len(plan)) / COMPUTE  # the LM head: once a request
    return attention + max(weights, products)


def traffic(n: int, per_second: float, seed: int) -> list[Request]:
    """Return n requests, turns of chats, that arrive independently of each other."""
    rng, clock, requests = random.Random(seed), 0.0, []
    for name in range(n):
        clock += rng.expovariate(per_second)
        chat = 6000 + rng.randrange(10) * (300 + 250)  # what all chats share, and earlier turns
        requests.append(Request(name, clock, chat + rng.randint(150, 450), rng.randint(125, 375)))
    return requests


def waits(requests: Sequence[Request]) -> tuple[float, float]:
    """Return the P99 of TTFT and the P99 of ITL, in milliseconds."""
    ttft = [request.times[0] - request.arrived for request in requests]
    itl = np.concatenate([np.diff(request.times) for request in requests])
    return 1000 * np.percentile(ttft, 99), 1000 * np.percentile(itl, 99)
