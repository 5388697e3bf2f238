"""Timing in turns: the order of the calls, the middle of the turns."""

from __future__ import annotations

import gc
from collections.abc import Callable
from unittest import mock

import pytest

from helpers.timing import calls_for, in_turns, seconds_of


def test_tasks_take_turns() -> None:
    called = ""

    def note(letter: str) -> None:
        nonlocal called
        called += letter

    timings = in_turns({"a": lambda: note("a"), "b": lambda: note("b")}, turns=3, at_least=0)
    assert called == "ab" + "ababab"  # once each to warm up
    assert [len(timing.seconds) for timing in timings.values()] == [3, 3]


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that only sleeping moves on: what is busy beside the test does not count."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("helpers.timing.turns.time.perf_counter", lambda: now)
    return sleep


def test_a_turn_is_long_enough(sleep: Callable[[float], None]) -> None:
    task = mock.Mock(side_effect=lambda: sleep(2**-10))
    assert calls_for(task, at_least=2**-5) == 32
    assert task.call_count == 1 + 32  # one says how many it takes
    assert calls_for(lambda: sleep(1.0), at_least=2**-5) == 1
    assert seconds_of(lambda: sleep(0.25), 3) == 0.25


def test_a_turn_does_not_last_for_ever(sleep: Callable[[float], None]) -> None:
    waits = iter([2**-10] * 60 + [1.0] * 1000)  # from some call on, the machine is busy
    calls = []

    def task() -> None:
        calls.append(1)
        sleep(next(waits))

    assert in_turns({"task": task}, turns=2, at_least=2**-5)["task"].seconds[1] == 1.0
    assert len(calls) < 70


@pytest.mark.parametrize("collecting", [False, True])
def test_the_garbage_collector_rests_and_is_as_it_was(collecting: bool) -> None:
    calls = []

    def task() -> None:
        calls.append(gc.isenabled())
        if len(calls) == 3:
            raise RuntimeError("stop")

    try:
        gc.enable() if collecting else gc.disable()
        with pytest.raises(RuntimeError, match="stop"):
            in_turns({"task": task}, at_least=0)
        assert gc.isenabled() == collecting
    finally:
        gc.enable()
    assert calls == [collecting, False, False]
