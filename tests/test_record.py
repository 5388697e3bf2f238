"""PyTorch's own record of a task: known cases, and nothing on stderr."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from helpers.measure.record import count_operators

x, y = torch.ones(2, 1000)
matrix = torch.ones(5, 1000)


def test_an_operator_counts_where_it_is_started() -> None:
    tasks = [lambda: None, lambda: x + y, lambda: torch.nn.functional.linear(x, matrix)]
    tasks += [lambda: x.view(10, 100).T, lambda: [-x, x * y, x * x]]  # views are launched, too
    assert [count_operators(task) for task in tasks] == [0, 1, 1, 2, 3]


def test_nothing_is_written_to_stderr_and_no_file_stays_open(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the task raises the second time: what it raises comes through."""
    free = []
    for raises in (False, True, False):
        calls = iter([None, RuntimeError("stop") if raises else None])

        def task(calls: Iterator[Exception | None] = calls) -> None:
            if (error := next(calls)) is not None:
                raise error

        with pytest.raises(RuntimeError, match="stop") if raises else nullcontext():
            count_operators(task)
        free.append([os.dup(2), os.dup(2)])
        os.close(free[-1][0])
        os.close(free[-1][1])
    assert free[0] == free[1] == free[2]
    assert capfd.readouterr().err == ""
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
