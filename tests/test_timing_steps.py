"""Timing a model: the fastest call counts, each part is timed, hooks are removed."""

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


def test_each_part_is_timed_and_hooks_are_removed() -> None:
    seconds = dict.fromkeys(steps.PARTS, 0.0)
    step = steps.decode_step_task(MODEL, 5)
    with pytest.raises(ValueError, match="token"), steps.accumulate_part_seconds(MODEL, seconds):  # noqa: PT012
        step()
        MODEL(torch.tensor([[10**6]]))
    assert min(seconds.values()) > 0
    before = dict(seconds)
    step()
    assert seconds == before
