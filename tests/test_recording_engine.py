"""The record of an engine's steps: the example on its page, and any run against the engine's own counts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from helpers.recording.engine import StepRecorder
from helpers.serve.engine import Engine
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Scheduler
from helpers.serve.sequence import Request, Sequence
from helpers.stepper import Pool
from helpers.trace import EngineTrace, TraceError
from tests.machine import ROOT
from tests.test_trace import SCHEMA
from tests.tiny import failing, tiny

MODEL = tiny(vocab_size=20).requires_grad_(False)


def test_the_example_on_the_page() -> None:
    text = (ROOT / "helpers/trace/FORMAT.md").read_text(encoding="utf-8")
    example = EngineTrace.from_json(text.rpartition("```json")[2].partition("```")[0])
    words = [word for request in example.requests for word in request.tokens]
    scheduler = Scheduler(PageManager(6, 2), 1)
    replies = {}
    for request in example.requests:
        ids = [words.index(word) for word in request.tokens]
        one = scheduler.add(Request(request.id, ids[: request.prompt], len(ids) - request.prompt))
        replies[one] = iter(ids[request.prompt :])
    with StepRecorder(scheduler, words.__getitem__, "made") as recorder:
        while plan := scheduler.schedule():
            scheduler.postprocess(plan, {one: next(replies[one]) for one, n in plan})
        taken = recorder.trace  # as notebook 16 returns it from within the block
    assert taken == recorder.trace == example
    with pytest.raises(TraceError, match="page 6 is named, and there are 6; save or record it again"):
        EngineTrace.from_json(replace(example, steps=[replace(example.steps[0], freed=[6])]).to_json())


def test_any_run_is_what_the_engine_counts() -> None:
    """Requests that share beginnings come while others run; some are cancelled."""
    met = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        engine = Engine(
            MODEL, 1 + seed % 3, [None, 3, 5][seed % 3], n_pages=int(rng.integers(5, 9)), page_size=3
        )
        with StepRecorder(engine.scheduler, str) as recorder:
            for n in range(99):
                if n < 5:
                    engine.add(n, rng.integers(0, 2, rng.integers(1, 10)).tolist(), int(rng.integers(1, 7)))
                if n == 7 and seed % 2 and (running := engine.scheduler.running):
                    engine.cancel(running[0].request.id)
                    met.add("cancelled")
                if engine.busy:
                    met |= one_step(engine, recorder)
        check_whole(engine, recorder.trace)
    assert met == {"preempted", "found", "findable", "shared", "chunk", "cancelled"}


def one_step(engine: Engine, recorder: StepRecorder) -> set[str]:
    """Hold a step against the engine's own counts; return what happened in it."""
    scheduler, pages = engine.scheduler, engine.scheduler.pages
    before = {id: len(one.tokens_per_step) for id, one in engine.sequences.items()}
    preemptions = scheduler.preemptions
    with failing(MODEL, "norm"), pytest.raises(KeyboardInterrupt):
        engine.step()  # it comes again, and is recorded once
    noted = StepRecorder.step_ended

    def interrupted(recorder: StepRecorder, chosen: Mapping[Sequence, int]) -> None:
        noted(recorder, chosen)
        raise KeyboardInterrupt

    with patch.object(StepRecorder, "step_ended", interrupted), pytest.raises(KeyboardInterrupt):
        engine.step()  # as late as can be: the engine takes the step back, and so does the record
    engine.step()
    step, requests = recorder.trace.steps[-1], [*recorder.requests]
    ran = {
        id: one.tokens_per_step[-1]
        for id, one in engine.sequences.items()
        if len(one.tokens_per_step) > before[id]
    }
    run = {requests[share.request].request.id: share.stop - share.start for share in step.running}
    assert {id: n for id, n in run.items() if n} == ran
    assert [requests[n] for n in step.waiting] == [*scheduler.waiting]
    assert len(step.preempted) == scheduler.preemptions - preemptions
    in_tables = [page for share in step.running for page in share.table]
    assert {*in_tables} - {*step.freed} == {page for page, owners in enumerate(pages.ref_counts) if owners}
    in_table = {
        page: share for past in recorder.trace.steps for share in past.running for page in share.table
    }
    for page in step.findable:  # what lies there is the text of the last that had it
        tokens, at = requests[in_table[page].request].tokens, 3 * in_table[page].table.index(page)
        assert pages.contents[page][0][1] == tuple(tokens[at : at + 3])
        assert page in pages.free
    happened = {
        "preempted": step.preempted,
        "found": any(share.found for share in step.running),
        "findable": step.findable,
        "shared": len(in_tables) > len({*in_tables}),
        "chunk": any(0 < share.stop - share.start and not share.emitted for share in step.running),
    }
    return {name for name, what in happened.items() if what}


def check_whole(engine: Engine, trace: EngineTrace) -> None:
    """Hold a whole run against the engine's replies."""
    SCHEMA.validate(json.loads(trace.to_json()))
    assert EngineTrace.from_json(trace.to_json()) == trace
    left = [trace.requests[n].id for step in trace.steps for n in step.left]
    last = trace.steps[-1]  # who was cancelled after it is not in the trace
    there = {trace.requests[n].id for n in [*last.waiting, *(share.request for share in last.running)]}
    assert len(left) == len({*left})
    assert {*map(str, engine.sequences)} - {*left} <= there
    for n, request in enumerate(trace.requests):
        one = engine.sequences[int(request.id)]
        assert request.tokens[request.prompt :] == [*map(str, one.reply)]
        shares = [share for step in trace.steps for share in step.running if share.request == n]
        assert sum(share.emitted for share in shares) == len(one.reply)
        assert sum(share.found for share in shares) == one.num_cached_tokens
        for before, share in itertools.pairwise(shares):  # its rows are those it had, those it found, or none
            assert share.start in (share.found, before.stop)


def test_who_is_preempted_may_run_again_in_the_same_step() -> None:
    """A and B are alike and began together, each in pages of its own. B's next token has no page; it goes
    back, and finds A's pages at once."""
    scheduler = Scheduler(PageManager(5, 1), 2)
    for id in "AB":
        scheduler.add(Request(id, [0, 0], 3))
    with StepRecorder(scheduler) as recorder:
        for _ in range(2):
            plan = scheduler.schedule()
            scheduler.postprocess(plan, {one: 1 for one, n in plan if n == one.num_uncomputed_tokens})
    first, second = recorder.trace.steps
    assert [share.table for share in first.running] == [[0, 1], [2, 3]]
    assert (second.preempted, second.waiting) == ([1], [])
    (a, b) = second.running
    assert (b.found, b.start, b.stop) == (2, 2, 3)
    assert b.table[:2] == a.table[:2] == [0, 1]
    assert [(stay["request"], stay["back"]) for stay in Pool(recorder.trace).stays()] == [
        (0, False),
        (1, True),
        (1, False),
    ]


def test_it_lets_go_whatever_is_raised() -> None:
    engine = Engine(MODEL, n_pages=5)
    engine.add("a", [1, 2], 3)
    recorder = StepRecorder(engine.scheduler)
    with recorder:
        engine.step()
    with pytest.raises(ValueError, match="id 'a' is in use"), recorder:
        engine.add("a", [1], 1)
    engine.run_all()
    assert len(recorder.trace.steps) == 1
