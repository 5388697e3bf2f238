"""A scheduler on a clock of its own: requests arrive, a step takes what a formula says, no model runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, Times
from helpers.validate import is_number


def simulate(
    scheduler: Scheduler, arrivals: Sequence[tuple[float, Request]], seconds_of: Callable[[Plan], float]
) -> dict[Hashable, Times]:
    """Serve requests that arrive at such times; every reply has max_new_tokens tokens.

    Args:
        scheduler: an empty one.
        arrivals: seconds and request, in order.
        seconds_of: what a step takes, by its plan.

    Returns:
        The times of each request, by its id.

    Raises:
        ValueError: an arrival or a step that is not a finite number of seconds, 0 or more.
    """
    now, times, coming = 0.0, {}, list(reversed(arrivals))
    for arrived, request in arrivals:
        check_seconds(f"the arrival of {request.id!r}", arrived)
    while coming or scheduler.waiting or scheduler.running:
        if not (scheduler.waiting or scheduler.running):
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            arrived, request = coming.pop()
            times[request.id] = Times(arrived)
            scheduler.add(request)
        plan = scheduler.schedule()
        now += check_seconds("a step", seconds_of(plan))
        done = [one for one, n in plan if n == one.n_left]
        for one in done:
            times[one.request.id].tokens.append(now)
        scheduler.ran(plan, dict.fromkeys(done, -1))  # a token that ends nothing
    return times


def check_seconds(name: str, seconds: float) -> float:
    """Return seconds. ValueError unless they are a finite number, 0 or more: others end no simulation."""
    if not is_number(seconds) or seconds < 0:
        raise ValueError(f"{name} is {seconds!r} seconds; expected a finite number, 0 or more")
    return seconds


def fill(
    scheduler: Scheduler, requests: Sequence[Request], seconds_of: Callable[[Plan], float] = lambda plan: 1.0
) -> dict[str, float]:
    """Serve requests that all come at once, and count.

    Args:
        scheduler: an empty one, without a budget.
        seconds_of: what a step takes, by its plan.

    Returns:
        Means of its steps: requests that run, and the percent of all rows in use while some wait. Then how
        often somebody was preempted, the tokens that ran again as percent of those needed, the steps, and
        the seconds until all were done.
    """
    running, ran, in_use, seconds = [], 0, [], 0.0
    pages = scheduler.pages

    def note(plan: Plan) -> float:
        nonlocal ran, seconds
        running.append(len(plan))
        ran += sum(n for _, n in plan)
        seconds += seconds_of(plan)
        if scheduler.waiting:
            in_use.append(sum(one.n_computed + n for one, n in plan) / (pages.n_pages * pages.page_size))
        return 1.0

    simulate(scheduler, [(0.0, request) for request in requests], note)
    needed = sum(
        len(one.prompt) + one.max_new_tokens - 1 for one in requests
    )  # a reply's last token is not run
    return {
        "requests at a time": sum(running) / len(running),
        "% of rows in use": 100 * sum(in_use) / len(in_use) if in_use else 0.0,
        "times preempted": scheduler.preemptions,
        "processed again, % of those needed": 100 * (ran / needed - 1),
        "steps": len(running),
        "seconds in all": seconds,
    }


def who_runs(kind: type[Scheduler], replies: Sequence[int], slots: int) -> list[dict[int, str]]:
    """Return who has which slot in each step, by letters, for prompts of one token and memory for all.

    Args:
        kind: `Scheduler`, or `Static`.
        replies: tokens of each, in the order in which they come: A, B, C, …
    """
    scheduler, steps = kind(PageManager(sum(replies)), slots), []
    arrivals = [(0.0, Request(chr(65 + n), [1], max_new_tokens=reply)) for n, reply in enumerate(replies)]

    def note(plan: Plan) -> float:
        steps.append({one.slot or 0: str(one.request.id) for one, _ in plan})
        return 1.0

    simulate(scheduler, arrivals, note)
    return steps


def poisson(n: int, rate: float, seed: int, make: Callable[[int], Request]) -> list[tuple[float, Request]]:
    """Return n requests that arrive independently, `rate` a second on average; if inf, all at once."""
    if not rate > 0:
        raise ValueError(f"rate is {rate!r}; expected requests a second, over 0")
    rng, now, arrivals = random.Random(seed), 0.0, []
    for number in range(n):
        now += rng.expovariate(rate)
        arrivals.append((now, make(number)))
    return arrivals
