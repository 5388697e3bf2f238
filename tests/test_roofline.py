"""The ridge and the roof, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helpers.cost import roofline
from helpers.cost.models import CARDS
from helpers.cost.roofline import Roof

H100 = CARDS["H100"]


def test_tokens_at_the_ridge() -> None:
    assert [roofline.batch_at_ridge(H100, each) for each in (2, 1, 0.5)] == [296, 148, 74]
    assert roofline.ridge(H100) == pytest.approx(295.3, abs=0.1)
    n = roofline.batch_at_ridge(H100, 2)
    assert 2 * (n - 1) / 2 < roofline.ridge(H100) <= 2 * n / 2
    assert roofline.batch_at_ridge(Roof(2, 1), 4) == 4  # exactly there


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "2", True, None])
def test_what_is_no_size_is_refused(wrong: Any) -> None:
    for both in ((wrong, 1.0), (1.0, wrong)):
        with pytest.raises(ValueError, match="expected a finite number over 0"):
            Roof(*both)
