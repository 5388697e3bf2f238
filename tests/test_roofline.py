"""The ridge and the roof, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helpers.cost import roofline
from helpers.cost.models import CARDS
from helpers.cost.roofline import Roof


def test_the_ridge() -> None:
    assert roofline.ridge(CARDS["H100"]) == pytest.approx(295.3, abs=0.1)


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "2", True, None])
def test_what_is_no_size_is_refused(wrong: Any) -> None:
    for both in ((wrong, 1.0), (1.0, wrong)):
        with pytest.raises(ValueError, match="expected a finite number over 0"):
            Roof(*both)
