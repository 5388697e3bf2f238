"""Scheduler runs for tests/js/pool.test.mjs: their traces, and the state of the scheduler in each step."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from helpers.recording.engine import StepRecorder
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request
from helpers.trace import EngineTrace
from tests.made_traces import HOSTILE

WORDS = "Mia writes from Oslo . Monday is sunny in the park A fox slept over lake Sunday was nice".split()
Books = list[dict[str, Any]]


def made(
    n: int = 6, n_pages: int = 12, page_size: int = 4, slots: int = 3, budget: int | None = None, *,
    seed: int = 36, own: tuple[int, int] = (3, 14), new: tuple[int, int] = (5, 12), words: list[str] = WORDS,
    ids: Callable[[int], Any] = lambda n: chr(65 + n), kind: type[Scheduler] = Scheduler,
) -> tuple[EngineTrace, Books]:  # fmt: skip
    """Run a scheduler on requests that arrive one per step, and return the trace and the state in each step.

    About half of the requests have a shared prefix of two pages.

    Args:
        n: number of requests.
        n_pages, page_size: number of pages in the pool, and number of KV entries per page.
        slots, budget: the scheduler's number of slots and its token budget.
        seed: seed of the random prompts and replies.
        own: minimum and maximum number of prompt tokens after the prefix.
        new: minimum and maximum number of reply tokens.
        words: the vocabulary.
        ids: returns the id of the request with a given index.
        kind: the scheduler class.
    """
    rng, books = random.Random(seed), Books()
    tokens = partial(rng.choices, range(len(words)))
    scheduler = kind(PageManager(n_pages, page_size), slots, budget)
    begin = tokens(k=2 * page_size)
    todo = [
        Request(ids(i), begin * (rng.random() < 0.5) + tokens(k=rng.randint(*own)), rng.randint(*new))
        for i in range(n)
    ]
    with StepRecorder(scheduler, words.__getitem__, "made") as recorder:
        while todo or scheduler.waiting or scheduler.running:
            if todo:
                scheduler.add(todo.pop(0))
            there = [*scheduler.running]
            plan = scheduler.schedule()
            books.append(booked(scheduler, plan, there))
            done = [one for one, n in plan if n == one.num_uncomputed_tokens]
            scheduler.postprocess(plan, {one: tokens(k=1)[0] for one in done})
            pages = scheduler.pages
            found = {page for page in pages.contents if not books[-1]["owners"][page]}
            books[-1]["findable"] = {page: [words[i] for i in pages.contents[page][0][1]] for page in found}
    return recorder.trace, books


class Late(Scheduler):
    """A scheduler that, in every third step, removes the last planned request from the plan."""

    steps = 0

    def schedule(self, *draft: Any) -> Plan:
        observer, self.observer = self.observer, None
        plan = super().schedule(*draft)
        self.steps += 1
        plan = plan[:-1] if self.steps % 3 == 0 else plan
        self.observer = observer
        if observer:
            observer.on_schedule(plan)
        return plan


def booked(scheduler: Scheduler, plan: Plan, there: list[Any]) -> dict[str, Any]:
    """Return the state of a scheduler and its pages for a step that is planned but has not been run.

    Args:
        scheduler: the scheduler.
        plan: the plan of the step.
        there: the requests that were running before the step was planned.
    """
    size, n = scheduler.pages.page_size, dict(plan)
    owners = [*scheduler.pages.ref_counts]
    rows = {
        (r.page_table[i // size], i % size)
        for r in scheduler.running
        for i in range(r.num_computed_tokens + n.get(r, 0))
    }
    counts = {
        "run": sum(n.values()),
        "found": sum(one.num_computed_tokens for one in scheduler.running if one not in there),
        "used": sum(map(bool, owners)),
        "wasted": size * sum(map(bool, owners)) - len(rows),
        "waiting": len(scheduler.waiting),
        "shared": sum(many > 1 for many in owners),
    }
    filled = [sum((page, i) in rows for i in range(size)) for page in range(len(owners))]
    return {"owners": owners, "filled": filled, "counts": counts}


MADE: dict[str, Callable[[], tuple[EngineTrace, Books]]] = {
    "six": cache(made),
    "chunks": cache(partial(made, budget=5, seed=8)),
    "idle": cache(partial(made, seed=2, kind=Late)),
    "numbers": cache(partial(made, n=30, n_pages=20, slots=6, seed=5, ids=lambda n: n)),
    "hostile": cache(partial(made, seed=4, words=HOSTILE, ids=lambda n: f"<b>{n}</b>")),
    "many": cache(partial(made, 64, 512, 16, 32, 256, seed=1, own=(40, 200), new=(20, 60), ids=lambda n: n)),
}


def trace(name: str) -> EngineTrace:
    """Return the trace of the run with this name in MADE."""
    return MADE[name]()[0]


def write_pools(folder: Path) -> None:
    """Write one JSON file per run for the JavaScript tests, with its trace and the state in each step."""
    for name, make_request in MADE.items():
        run, books = make_request()
        text = json.dumps({"trace": json.loads(run.to_json()), "books": books})
        (folder / f"pool_{name}.json").write_text(text, encoding="utf-8")
