"""Simulate a scheduler. No model runs, and a function that the caller passes gives each step's duration."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request, RequestTimes
from helpers.validate import is_number

Arrivals = Sequence[tuple[float, Request]]  # pairs (arrival time in seconds, request)


def simulate(
    scheduler: Scheduler, arrivals: Arrivals, step_seconds: Callable[[Plan], float]
) -> dict[Hashable, RequestTimes]:
    """Simulate a scheduler whose requests arrive at given times.

    No model produces tokens, so every reply has `max_new_tokens` tokens.

    Args:
        scheduler: a scheduler without requests.
        arrivals: pairs (arrival time in seconds, request), in order of arrival time.
        step_seconds: a function that takes a step's plan and returns the step's duration in seconds.

    Returns:
        The arrival time and token times of each request, on the simulated clock, by request id.

    Raises:
        ValueError: an arrival time or the duration of a step is negative or not a finite number.
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
    """Return `seconds` if it is finite and not negative; otherwise, raise ValueError.

    An invalid time could make a simulation endless.

    Args:
        name: what the time is, for the error message.
        seconds: the time to check.
    """
    if not is_number(seconds) or seconds < 0:
        raise ValueError(f"{name} is {seconds!r} seconds; expected a finite number, 0 or more")
    return seconds


def slots_by_step(
    scheduler_class: type[Scheduler], reply_lengths: Sequence[int], slots: int
) -> list[dict[int, str]]:
    """Simulate requests with prompts of one token; return which request is in which slot in each step.

    All requests arrive at time 0, and there are enough pages for all of them.

    Args:
        scheduler_class: `Scheduler` or `StaticBatching`.
        reply_lengths: number of tokens in each request's reply. The requests are named A, B, C, …
        slots: number of slots.

    Returns:
        One dict per step, from the index of each occupied slot to the name of the request in it.
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
