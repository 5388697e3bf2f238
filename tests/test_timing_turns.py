"""Timing in turns: the order of the calls, and the length of a turn."""

from __future__ import annotations

import gc
from collections.abc import Callable
from unittest import mock

import pytest

from helpers.timing import calls_per_turn, seconds_per_call, time_in_turns


def test_tasks_are_called_in_turns() -> None:
    called = ""

    def note(letter: str) -> None:
        nonlocal called
        called += letter

    timings = time_in_turns({"a": lambda: note("a"), "b": lambda: note("b")}, turns=3, min_seconds=0)
    assert called == "ab" + "ababab"  # once each to warm up
    assert [len(timing.seconds) for timing in timings.values()] == [3, 3]


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that advances a simulated clock, so that a busy machine does not matter."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("helpers.timing.turns.time.perf_counter", lambda: now)
    return sleep


def test_a_turn_takes_at_least_min_seconds(sleep: Callable[[float], None]) -> None:
    task = mock.Mock(side_effect=lambda: sleep(2**-10))
    assert calls_per_turn(task, min_seconds=2**-5) == 32
    assert task.call_count == 1 + 32  # the first call tells how many are needed
    assert calls_per_turn(lambda: sleep(1.0), min_seconds=2**-5) == 1
    assert seconds_per_call(lambda: sleep(0.25), 3) == 0.25


def test_a_turn_ends_early_on_a_busy_machine(sleep: Callable[[float], None]) -> None:
    waits = iter([2**-10] * 60 + [1.0] * 1000)  # after 60 calls the machine is busy
    calls = []

    def task() -> None:
        calls.append(1)
        sleep(next(waits))

    assert time_in_turns({"task": task}, turns=2, min_seconds=2**-5)["task"].seconds[1] == 1.0
    assert len(calls) < 70


@pytest.mark.parametrize("collecting", [False, True])
def test_the_garbage_collector_is_off_and_then_restored(collecting: bool) -> None:
    calls = []

    def task() -> None:
        calls.append(gc.isenabled())
        if len(calls) == 3:
            raise RuntimeError("stop")

    try:
        gc.enable() if collecting else gc.disable()
        with pytest.raises(RuntimeError, match="stop"):
            time_in_turns({"task": task}, min_seconds=0)
        assert gc.isenabled() == collecting
    finally:
        gc.enable()
    assert calls == [collecting, False, False]
