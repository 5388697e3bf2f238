"""Counts of operators: known cases, and nothing on stderr."""

from __future__ import annotations

import os

import pytest
import torch

from helpers.timing.operators import count_operators

x, y = torch.ones(2, 1000)
matrix = torch.ones(5, 1000)


def test_only_operators_that_python_calls_count() -> None:
    tasks = [lambda: None, lambda: x + y, lambda: torch.nn.functional.linear(x, matrix)]
    tasks += [lambda: x.view(10, 100).T, lambda: [-x, x * y, x * x]]  # views are launched, too
    assert [count_operators(task) for task in tasks] == [0, 1, 1, 2, 3]


def test_stderr_is_silenced_only_while_profiling(capfd: pytest.CaptureFixture[str]) -> None:
    calls = iter([None, ZeroDivisionError()])  # the second call raises; stderr works again afterwards
    with pytest.raises(ZeroDivisionError):
        count_operators(lambda: [0 / 0 for error in [next(calls)] if error])
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
