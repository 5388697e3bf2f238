"""A decode step beside its floor: what is known adds up, and each step is timed once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.cost import roofline
from helpers.cost.models import CARDS, MODELS
from helpers.model.sizes import CONFIGS, narrow
from helpers.recording import floor
from tests.tiny import tiny

LLAMA, H100 = MODELS["Llama-3.1-8B"], CARDS["H100"]


def test_the_least_time_of_a_step() -> None:
    step = roofline.decode_step_of(LLAMA, 100, users=8)
    assert step.rows == 8 * 101 * 131_072
    assert step.operations == pytest.approx(8 * step.weights, rel=1e-4)  # 2 bytes and 2 operations a number
    rows, weights = step.rows / 3.35e12, step.weights / 3.35e12
    assert roofline.least_time(step, H100, 1e-3) == {
        "rows": rows,
        "weights or arithmetic": weights,
        "starts": 1e-3,
    }
    many = roofline.least_time(roofline.decode_step_of(LLAMA, 1, users=400), H100, 0)
    assert many["weights or arithmetic"] == pytest.approx(400 * step.operations / 8 / 989.4e12)


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let a clock say 5 ms, 4, 3, 2, … and note what was timed."""
    asked: list[Any] = []

    def fastest(tasks: dict[Any, Any], turns: int) -> dict[Any, float]:
        for name, task in tasks.items():
            task()
            asked.append(name)
        return {name: 6.0 - len(asked) for name in tasks}

    monkeypatch.setattr(floor, "fastest", fastest)
    return asked


def test_a_ladder_times_each_step_once(clocked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, "tiny", narrow(2))
    ladder = floor.Ladder("tiny", cores=1)
    last = [*floor.WAYS][-1]
    assert [ladder.measured(way) for way in ("as it is", last, "as it is")] == [5, 4, 5]
    assert clocked == ["as it is", last]
    assert ladder.operators(last) < ladder.operators("as it is")
    parts = ladder.predicted(last, start=1e-6, rate=1e9)
    assert parts["starts"] == pytest.approx(1e-3 * ladder.operators(last))
    step = roofline.decode_step_of(narrow(2), floor.TOKENS)
    assert parts["arithmetic"] == pytest.approx(1e-6 * step.operations / 2)
    for rate in (1e6, 1e9, 1e15):  # the arithmetic is the longest, or the reading
        parts = ladder.predicted(last, start=1e-6, rate=rate)
        least = parts["starts"] + max(parts["bytes"], parts["arithmetic"])
        rows = 1000 * ladder.work(8).rows / ladder.speed(1, 8)
        assert least <= ladder.floor(last, 1e-6, rate) <= least + rows + 1e-12
    left = ladder.left(last, parts)
    assert sum(left.values()) == pytest.approx(ladder.measured(last))
    assert left["attention"] == 4 - 3


def test_a_ledger_adds_up() -> None:
    least = {"rows": 1.0, "weights or arithmetic": 2.0, "starts": 3.0}
    found = floor.ledger(tiny(max_seq_len=300), least, start=1e-6, among_reading=3e-6, measured=10.0)
    *parts, measured = found.values()
    assert sum(parts) == pytest.approx(measured) == 10
    assert found["least"] == 6
    assert found["starts"] > 0


def test_parts_under_the_roof() -> None:
    work = floor.under_the_roof(narrow(1), users=3, prompt=5)
    assert [*work] == ["1 user", "3 users", "their rows", "a prompt"]
    assert [len(task()[0]) for name, (task, _) in work.items() if name != "their rows"] == [1, 3, 5]
    assert work["their rows"][0]().shape[0] == 3
    assert work["3 users"][1].operations == 3 * work["1 user"][1].operations


def test_prices_are_measured_here() -> None:
    torch.set_num_threads(1)
    assert 0 < floor.rate_of_loop() < 1e13
    assert abs(floor.price_of_start()) < 1e-3
