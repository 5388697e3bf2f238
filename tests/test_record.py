"""PyTorch's own record of a task: known cases, and the same in every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from helpers.measure.record import record_of
from helpers.model import shipped
from helpers.model.cache import StaticCache
from helpers.model.generate import decode_step

x, y = torch.ones(2, 1000)
matrix = torch.ones(5, 1000)


def test_an_operator_counts_where_it_is_started() -> None:
    tasks = [lambda: None, lambda: x + y, lambda: torch.nn.functional.linear(x, matrix)]
    tasks += [lambda: x.view(10, 100).T, lambda: [-x, x * y, x * x]]  # views are launched, too
    assert [record_of(task).n_operators for task in tasks] == [0, 1, 1, 2, 3]


def test_bytes_that_are_allocated_together() -> None:
    one_by_one = record_of(lambda: [(x + y).sum().item() for _ in range(3)])
    kept = record_of(lambda: [x + y for _ in range(3)])
    assert one_by_one.allocated == 3 * 4004  # freed in between or not
    assert kept.allocated == 3 * 4000
    view = record_of(lambda: x[:10])
    assert (view.n_operators, view.allocated) == (1, 0)


def test_the_same_in_every_run() -> None:
    model = shipped.load()[0]
    cache = StaticCache(model.config)

    def step() -> None:
        cache.truncate(0)
        decode_step(model, [1], cache)

    assert record_of(step) == record_of(step)


def test_nothing_is_written_to_stderr_and_no_file_stays_open(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the task raises the second time: what it raises comes through."""
    free = []
    for raises in (False, True, False):
        calls = iter([None, RuntimeError("stop") if raises else None])

        def task(calls: Iterator[Exception | None] = calls) -> None:
            if (error := next(calls)) is not None:
                raise error

        with pytest.raises(RuntimeError, match="stop") if raises else nullcontext():
            record_of(task)
        free.append([os.dup(2), os.dup(2)])
        os.close(free[-1][0])
        os.close(free[-1][1])
    assert free[0] == free[1] == free[2]
    assert capfd.readouterr().err == ""
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"
