"""Traces of an engine's steps: the documented example, and random runs against the engine's own counts."""

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
from helpers.trace import EngineTrace, TraceError
from tests.machine import ROOT
from tests.test_trace import SCHEMA
from tests.tiny import failing, tiny

MODEL = tiny(vocab_size=20).requires_grad_(False)


def test_the_example_in_format_md_can_be_recorded() -> None:
    text = (ROOT / "helpers/trace/FORMAT.md").read_text(encoding="utf-8")
    example = EngineTrace.from_json(text.rpartition("```json")[2].partition("```")[0])
    words = [word for request in example.requests for word in request.tokens]
    scheduler = Scheduler(PageManager(6, 2), 1)
    replies = {}
    for request in example.requests:
        ids = [words.index(word) for word in request.tokens]
        sequence = scheduler.add(Request(request.id, ids[: request.prompt], len(ids) - request.prompt))
        replies[sequence] = iter(ids[request.prompt :])
    with StepRecorder(scheduler, words.__getitem__, "made") as recorder:
        while plan := scheduler.schedule():
            scheduler.postprocess(plan, {sequence: next(replies[sequence]) for sequence, n in plan})
        inside = recorder.trace  # notebook 16 returns it from inside the block
    assert inside == recorder.trace == example
    step = example.steps[0]
    share = step.running[0]
    for changed, message in (
        ({"freed": [6]}, "page 6 is out of range; expected 0 to 5: record it again"),
        ({"findable": [6]}, "page 6 is out of range"),
        ({"left": [len(example.requests)]}, "request .* is out of range"),
        ({"running": [replace(share, slot=1)]}, "slot 1 is out of range"),
        ({"running": [replace(share, table=[6])]}, "page 6 is out of range"),
        ({"running": [replace(share, stop=9)]}, "token [89] is out of range"),
        ({"running": [replace(share, table=[0])]}, "row .* is out of range"),
    ):
        with pytest.raises(TraceError, match=message):
            EngineTrace.from_json(replace(example, steps=[replace(step, **changed)]).to_json())


def test_a_trace_has_the_engines_own_counts() -> None:
    """Requests with shared beginnings arrive while others run; some are cancelled."""
    happened = set()
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
                    happened.add("cancelled")
                if engine.has_unfinished_requests:
                    happened |= check_step(engine, recorder)
        check_run(engine, recorder.trace)
    assert happened == {"preempted", "found", "findable", "shared", "chunk", "cancelled"}


def check_step(engine: Engine, recorder: StepRecorder) -> set[str]:
    """Run a step, compare it with the engine's own counts, and return what happened in it."""
    scheduler, pages = engine.scheduler, engine.scheduler.pages
    before = {id: len(one.tokens_per_step) for id, one in engine.sequences.items()}
    preemptions = scheduler.preemptions
    with failing(MODEL, "norm"), pytest.raises(KeyboardInterrupt):
        engine.step()  # it is repeated, and recorded once
    on_step_end = StepRecorder.on_step_end

    def interrupted(recorder: StepRecorder, next_tokens: Mapping[Sequence, int]) -> None:
        on_step_end(recorder, next_tokens)
        raise KeyboardInterrupt

    with patch.object(StepRecorder, "on_step_end", interrupted), pytest.raises(KeyboardInterrupt):
        engine.step()  # at the last moment: the engine undoes the step, and so does the recorder
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
    for page in step.findable:  # its content is the text of the last request that had it
        tokens, start = requests[in_table[page].request].tokens, 3 * in_table[page].table.index(page)
        assert pages.contents[page][0][1] == tuple(tokens[start : start + 3])
        assert page in pages.free
    events = {
        "preempted": step.preempted,
        "found": any(share.found for share in step.running),
        "findable": step.findable,
        "shared": len(in_tables) > len({*in_tables}),
        "chunk": any(0 < share.stop - share.start and not share.emitted for share in step.running),
    }
    return {name for name, happened in events.items() if happened}


def check_run(engine: Engine, trace: EngineTrace) -> None:
    """Compare a whole run with the engine's replies."""
    SCHEMA.validate(json.loads(trace.to_json()))
    assert EngineTrace.from_json(trace.to_json()) == trace
    left = [trace.requests[n].id for step in trace.steps for n in step.left]
    last = trace.steps[-1]  # a request that was cancelled after it is not in the trace
    in_last = {trace.requests[n].id for n in [*last.waiting, *(share.request for share in last.running)]}
    assert len(left) == len({*left})
    assert {*map(str, engine.sequences)} - {*left} <= in_last
    for n, request in enumerate(trace.requests):
        sequence = engine.sequences[int(request.id)]
        assert request.tokens[request.prompt :] == [*map(str, sequence.reply)]
        shares = [share for step in trace.steps for share in step.running if share.request == n]
        assert sum(share.emitted for share in shares) == len(sequence.reply)
        assert sum(share.found for share in shares) == sequence.num_cached_tokens
        for before, share in itertools.pairwise(
            shares
        ):  # it starts with the entries it had or found, or none
            assert share.start in (share.found, before.stop)


def test_a_preempted_request_may_run_in_the_same_step() -> None:
    """A and B are equal and started together, each in its own pages. There is no page for B's next token: it
    is preempted, and is admitted at once with A's cached pages."""
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


def test_the_recorder_detaches_after_any_error() -> None:
    engine = Engine(MODEL, n_pages=5)
    engine.add("a", [1, 2], 3)
    recorder = StepRecorder(engine.scheduler)
    with recorder:
        engine.step()
    with pytest.raises(ValueError, match="id 'a' is in use"), recorder:
        engine.add("a", [1], 1)
    engine.run_all()
    assert len(recorder.trace.steps) == 1
