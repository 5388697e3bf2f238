"""The scheduler of notebook 16, which counts tokens and runs no model, and the clock that drives it.

The notebook defines these names in its cells; the notebooks after it import them from here. A test keeps the
two equal. The engine has its own scheduler, with pages, in `serve.scheduler`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence


class Request:
    """A request of a number of tokens; see notebook 16."""

    def __init__(self, name: object, arrived: float, prompt: int, reply: int) -> None:
        self.name, self.arrived = name, arrived  # who, and when (seconds)
        self.prompt, self.reply = prompt, reply  # tokens; a real engine cannot know the reply's yet
        self.known = prompt  # tokens known so far: the prompt, later the reply's tokens too
        self.computed = 0  # how many of them have run
        self.times: list[float] = []  # when each token of the reply came out


Plan = list[tuple[Request, int]]  # which requests run in a step, and how many tokens of each


class Scheduler:
    """Notebook 16's scheduler: replies first, then prompts in chunks, in order of arrival."""

    def __init__(self, max_num_seqs: int, max_num_batched_tokens: int, kv_entries: int) -> None:
        self.max_num_seqs = max_num_seqs  # slots
        self.max_num_batched_tokens = max_num_batched_tokens  # token budget, no smaller than the slots
        self.kv_entries = kv_entries  # tokens for which memory has room
        self.waiting: deque[Request] = deque()  # in order of arrival
        self.running: list[Request] = []  # in order of arrival

    def schedule(self) -> Plan:
        """Plan the next step: who runs, and how many tokens of each."""
        while self.used() > self.kv_entries:
            self.preempt()
        plan: Plan = []
        budget = self.max_num_batched_tokens
        for request in self.running:  # rules 1 and 2: a token of each reply, then a piece of a prompt
            n = min(request.known - request.computed, budget)
            plan.append((request, n))
            budget -= n
        while budget and self.can_admit():  # rule 3
            request = self.waiting.popleft()
            self.running.append(request)
            n = min(request.known, budget)
            plan.append((request, n))
            budget -= n
        return plan

    def used(self) -> int:
        return sum(request.known for request in self.running)

    def can_admit(self) -> bool:
        if not self.waiting or len(self.running) == self.max_num_seqs:
            return False
        return self.used() + self.waiting[0].known <= self.kv_entries

    def preempt(self) -> None:
        """Memory is full: the youngest gives up its KV entries, and waits again, first in the queue."""
        request = self.running.pop()
        request.computed = 0
        self.waiting.appendleft(request)


def serve(
    scheduler: Scheduler, requests: Sequence[Request], seconds: Callable[[Plan], float]
) -> Iterator[tuple[float, float, Plan]]:
    """Run requests on a simulated clock; yield the begin, the end and the plan of each step."""
    clock, coming = 0.0, deque(requests)
    while coming or scheduler.waiting or scheduler.running:
        if not scheduler.waiting and not scheduler.running:
            clock = max(clock, coming[0].arrived)  # nobody is here: wait for the next
        while coming and coming[0].arrived <= clock:
            scheduler.waiting.append(coming.popleft())
        plan = scheduler.schedule()
        assert plan, "a request has more tokens than memory has room for"
        begin, clock = clock, clock + seconds(plan)
        yield begin, clock, plan
        for request, n in plan:
            request.computed += n
            if request.computed == request.known:  # it has caught up: the model gives the next token
                request.known += 1
                request.times.append(clock)
                if len(request.times) == request.reply:
                    scheduler.running.remove(request)
