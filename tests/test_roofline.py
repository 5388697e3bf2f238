"""Operations, bytes and the roof, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helpers.cost import roofline
from helpers.cost.bytes import read_by_step
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Roof, Work

H100 = CARDS["H100"]


def test_ridge_bound_and_least_time() -> None:
    assert roofline.ridge(H100) == pytest.approx(295.3, abs=0.1)
    few, many = Work(1000, 1000), Work(10**6, 1000)
    assert (roofline.bound_by(few, H100), roofline.bound_by(many, H100)) == ("memory", "arithmetic")
    machine = Roof(flops_per_second=80, bytes_per_second=10)
    assert roofline.bound_by(Work(8, 1), machine) == "arithmetic"  # at the ridge both are busy
    assert roofline.seconds_at_least(Work(40, 10), machine) == 1
    assert roofline.seconds_at_least(Work(160, 10), machine) == 2


def test_the_floor_of_llama_on_an_h100() -> None:
    nbytes = sum(read_by_step(MODELS["Llama-3.1-8B"], 1).values())
    assert H100.bytes_per_second / nbytes == pytest.approx(223, abs=0.5)


def test_tokens_at_the_ridge() -> None:
    assert [roofline.batch_at_ridge(H100, each) for each in (2, 1, 0.5)] == [296, 148, 74]
    n = roofline.batch_at_ridge(H100, 2)
    assert 2 * (n - 1) / 2 < roofline.ridge(H100) <= 2 * n / 2
    assert roofline.batch_at_ridge(Roof(2, 1), 4) == 4  # exactly there


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "2", True, None])
def test_what_is_no_size_is_refused(wrong: Any) -> None:
    for make in (Roof, Work):
        for both in ((wrong, 1.0), (1.0, wrong)):
            with pytest.raises(ValueError, match="expected a finite number over 0"):
                make(*both)
