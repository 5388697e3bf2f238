"""Simulate a scheduler: a function gives the time of each step, and no model runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, RequestTimes
from helpers.validate import is_number

Arrivals = Sequence[tuple[float, Request]]  # arrival times in seconds, each with its request


def simulate(
    scheduler: Scheduler, arrivals: Arrivals, step_seconds: Callable[[Plan], float]
) -> dict[Hashable, RequestTimes]:
    """Simulate requests that arrive at given times. Every reply has the maximum number of tokens.

    Args:
        scheduler: a scheduler without requests.
        arrivals: requests with their arrival times, in order of time.
        step_seconds: returns how long a step takes, in seconds, given its plan.

    Returns:
        The times of each request, by its id, on the simulated clock.

    Raises:
        ValueError: an arrival time or the time of a step is not a finite number of seconds, 0 or more.
    """
    now, times, coming = 0.0, {}, list(reversed(arrivals))
    for arrived, request in arrivals:
        check_seconds(f"the arrival of {request.id!r}", arrived)
    while coming or scheduler.waiting or scheduler.running:
        if not (scheduler.waiting or scheduler.running):
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            arrived, request = coming.pop()
            times[request.id] = RequestTimes(arrived)
            scheduler.add(request)
        plan = scheduler.schedule()
        now += check_seconds("a step", step_seconds(plan))
        done = [sequence for sequence, n in plan if n == sequence.num_uncomputed_tokens]
        for sequence in done:
            times[sequence.request.id].token_times.append(now)
        scheduler.postprocess(plan, dict.fromkeys(done, -1))  # a token that ends no reply
    return times


def check_seconds(name: str, seconds: float) -> float:
    """Return a number of seconds. ValueError unless it is finite and not negative.

    With any other number, a simulation would never end.

    Args:
        name: what the number is, for the message.
        seconds: the number.
    """
    if not is_number(seconds) or seconds < 0:
        raise ValueError(f"{name} is {seconds!r} seconds; expected a finite number, 0 or more")
    return seconds


def pool_usage(
    scheduler: Scheduler,
    requests: Sequence[Request],
    step_seconds: Callable[[Plan], float] = lambda plan: 1.0,
) -> dict[str, float]:
    """Simulate requests that all arrive at once; return how well the pool was used.

    Args:
        scheduler: a scheduler without requests and without a budget.
        requests: the requests.
        step_seconds: returns how long a step takes, in seconds, given its plan.

    Returns:
        Numbers by name, in this order: the mean number of running requests per step; the mean percentage of
        the pool's slots that had entries, over the steps in which some requests were waiting; the number of
        preemptions; the tokens that ran again, as a percentage of those that had to run; the number of
        steps; and the seconds until all requests were done.
    """
    running, n_run, in_use, seconds = [], 0, [], 0.0
    pages = scheduler.pages

    def note(plan: Plan) -> float:
        nonlocal n_run, seconds
        running.append(len(plan))
        n_run += sum(n for _, n in plan)
        seconds += step_seconds(plan)
        if scheduler.waiting:
            entries = sum(sequence.num_computed_tokens + n for sequence, n in plan)
            in_use.append(entries / (pages.n_pages * pages.page_size))
        return 1.0

    simulate(scheduler, [(0.0, request) for request in requests], note)
    # The last token of a reply is never run.
    needed = sum(len(request.prompt) + request.max_new_tokens - 1 for request in requests)
    return {
        "requests at a time": sum(running) / len(running),
        "% of rows in use": 100 * sum(in_use) / len(in_use) if in_use else 0.0,
        "times preempted": scheduler.preemptions,
        "processed again, % of those needed": 100 * (n_run / needed - 1),
        "steps": len(running),
        "seconds in all": seconds,
    }


def slots_by_step(
    scheduler_class: type[Scheduler], reply_lengths: Sequence[int], slots: int
) -> list[dict[int, str]]:
    """Simulate prompts of one token with enough pages for all; return which request has which slot.

    Args:
        scheduler_class: `Scheduler` or `StaticBatching`.
        reply_lengths: number of tokens of each reply, in order of arrival. The requests are named A, B, C, …
        slots: number of slots.

    Returns:
        For each step, the names of the running requests by their slot, from 0.
    """
    scheduler, steps = scheduler_class(PageManager(sum(reply_lengths)), slots), []
    arrivals = [
        (0.0, Request(chr(65 + n), [1], max_new_tokens=reply)) for n, reply in enumerate(reply_lengths)
    ]

    def note(plan: Plan) -> float:
        steps.append({sequence.slot or 0: str(sequence.request.id) for sequence, _ in plan})
        return 1.0

    simulate(scheduler, arrivals, note)
    return steps


def poisson_arrivals(
    n: int, requests_per_second: float, seed: int, make_request: Callable[[int], Request]
) -> Arrivals:
    """Return n requests that arrive independently of each other, with their arrival times in seconds.

    Args:
        n: number of requests.
        requests_per_second: mean number; infinity makes all requests arrive at once.
        seed: seed of the random numbers.
        make_request: returns a request, given its number, from 0 to n - 1.
    """
    if not requests_per_second > 0:
        raise ValueError(f"requests_per_second is {requests_per_second!r}; expected a number over 0")
    rng, now, arrivals = random.Random(seed), 0.0, []
    for number in range(n):
        now += rng.expovariate(requests_per_second)
        arrivals.append((now, make_request(number)))
    return arrivals
