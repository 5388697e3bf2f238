"""Probes of the machine: what they compute, with a simulated clock, and that they run here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from helpers.timing import machine
from helpers.timing.turns import Timing


def fake_turns(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[str], float]) -> list[tuple[int, Any]]:
    """Let the best turn of a task take `seconds(name)`, and its other turns ten times as long.

    Returns:
        For each task that is timed, the number of turns, and what the task returns.
    """
    calls: list[tuple[int, Any]] = []

    def time_in_turns(tasks: dict[str, Callable[[], object]], turns: int, **_: object) -> dict[str, Timing]:
        calls.extend((turns, task()) for task in tasks.values())
        return {name: Timing((10 * seconds(name), seconds(name), 10 * seconds(name))) for name in tasks}

    monkeypatch.setattr(machine, "time_in_turns", time_in_turns)
    return calls


def test_bandwidth_is_bytes_moved_over_the_best_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_turns(monkeypatch, lambda name: 0.5 if name == "copy" else 1.0)
    assert machine.measure_bandwidth(2**27) == 2**28
    calls = fake_turns(monkeypatch, lambda name: 1.0)
    assert [machine.measure_bandwidth(n, turns=4) for n in (2**16, 2**28)] == [2**26, 2**28]
    assert [turns for turns, _ in calls] == [4] * 10


def test_probes_read_the_whole_buffer() -> None:
    for nbytes in (2**12, 10_000, 2**27):
        probes = machine.read_probes(nbytes)
        n, rounds = nbytes // 8 * 2, max(1, 2**26 // nbytes)
        assert probes["sum"].task().tolist() == [n] * rounds
        as_float64 = torch.ones(n).view(torch.float64).sum()
        torch.testing.assert_close(probes["sum in float64"].task(), as_float64.expand(rounds))
        assert probes["maximum"].task().shape == (rounds,)
        assert probes["copy"].task().shape == (n // 2,)
        task, moved = probes[machine.ONE_TOKEN]
        width = min(n, 1024)
        assert task().tolist() == [[float(width)] * (n // width)]
        assert moved == 4 * (n // width) * width


def test_launch_overhead_is_the_slope_of_time_against_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1)

    def adding(n: int) -> Callable[[], list[torch.Tensor]]:
        return lambda: [x + x for _ in range(n)]

    fake_turns(monkeypatch, lambda name: 5e-6 + 2e-6 * (1, 3, 10)[int(name)])
    assert machine.measure_launch_overhead([adding(n) for n in (1, 3, 10)]) == pytest.approx(2e-6)


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    with contextlib.suppress(KeyError), machine.torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise KeyError
    assert torch.get_num_threads() == before


def test_bandwidth_is_measured_here_and_checks_nbytes() -> None:
    assert machine.measure_bandwidth(2**20, turns=1) > 1e6
    for nbytes in (0, 4095, 1e6, None):
        with pytest.raises(ValueError, match="nbytes is"):
            machine.measure_bandwidth(nbytes)  # type: ignore[arg-type]
