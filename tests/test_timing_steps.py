"""Timing a model: the fastest call counts."""

from __future__ import annotations

import pytest
import torch

from helpers.timing import steps
from tests.tiny import tiny

torch.set_num_threads(1)
MODEL = tiny()


def test_fastest_ms_ignores_the_first_call_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.001, 0.014, 0.008, 0.001, 0.03])  # the first and the fourth warm up
    monkeypatch.setattr(steps, "seconds_per_call", lambda task: task())
    assert steps.fastest_ms({"a": lambda: next(seconds)}, turns=2) == {"a": pytest.approx(8)}
    assert not list(seconds)
