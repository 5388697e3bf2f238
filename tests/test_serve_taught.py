"""The scheduler and the clock that notebook 16 shows: as the engine plans, and as notebook 12's equation."""

from __future__ import annotations

import random

import pytest

from helpers.cost.models import CARDS, MODELS
from helpers.cost.step import step_time
from helpers.serve import scheduler as engine
from helpers.serve.pages import PageManager
from helpers.serve.sequence import Request as EngineRequest
from helpers.serve.simulation import simulate
from helpers.serve.taught import Request, Scheduler, seconds, serve, traffic, waits

LLAMA, H100 = MODELS["Llama-3.1-8B"], CARDS["H100"]


@pytest.mark.parametrize(("slots", "budget", "entries"), [(4, 48, 384), (3, 16, 40), (8, 8, 60), (2, 7, 34)])
def test_taught_scheduler_plans_as_the_engines_does(slots: int, budget: int, entries: int) -> None:
    rng, theirs = random.Random(slots), list[dict[object, int]]()
    sizes = [(rng.randint(1, 20), rng.randint(1, 14)) for _ in range(12)]
    requests = [Request(name, 0.0, *pair) for name, pair in enumerate(sizes)]
    ours = [
        {request.name: n for request, n in plan if n}
        for *_, plan in serve(Scheduler(slots, budget, entries), requests, lambda plan: 1.0)
    ]
    pages = PageManager(entries, 1, prefix_caching=False)

    def note(plan: engine.Plan) -> float:
        theirs.append({sequence.request.id: n for sequence, n in plan})
        return 1.0

    arrivals = [(0.0, EngineRequest(name, [0] * prompt, reply)) for name, (prompt, reply) in enumerate(sizes)]
    simulate(engine.Scheduler(pages, slots, budget), arrivals, note)
    assert ours == theirs


def test_seconds_are_those_of_step_time() -> None:
    for texts in ([(0, 1)], [(9000, 1)] * 8, [(9000, 1)] * 7 + [(4500, 505)], [(0, 16_384)]):
        plan = []
        for cached, n in texts:
            request = Request("", 0.0, cached + n, 1)
            request.computed = cached
            plan.append((request, n))
        same = step_time(LLAMA, H100, texts, bandwidth_reached=0.7, compute_reached=0.7)
        assert seconds(plan) == pytest.approx(same.total, rel=1e-3)


def test_waits_of_a_lone_request_are_its_chunks_and_a_step() -> None:
    (request,) = traffic(1, 2.0, seed=0)
    lasts = [end - begin for begin, end, _ in serve(Scheduler(1, 512, 10**6), [request], seconds)]
    chunks = -(-request.prompt // 512)
    ttft, itl = waits([request])
    assert request.started == request.arrived
    assert ttft == pytest.approx(1000 * sum(lasts[:chunks]))
    assert itl == pytest.approx(1000 * lasts[-1], rel=0.01)
    assert len(request.times) == request.reply
