"""The figure of notebook 11: legible in both layouts, and drawn where its numbers say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helpers import plots
from helpers.plots.smaller import flags
from tests.pictures import check_form, words

DOTS = {
    "MHA": (4096, 20),
    "all rows": (2048, 20),
    "window of 64": (1024, 0),
    "MQA": (1024, 20),
    "8 bits": (992, 20),
    "4 bits": (800, 20),
    "layers 2 to 4: 16": (704, 20),
    "2 bits": (704, 20),
    "window of 16, 4 sinks": (320, 16),
    "yours": (300, 19),
    "window of 16": (256, 0),
}


def test_it_is_legible_themed_small_and_the_same_each_time() -> None:
    for dots in (DOTS, {"w" * 90: (1, 1)}):
        check_form(plots.variants(dots, 20, "yours"), plots.variants(dots, 20, "yours"))


def test_each_variant_is_a_named_dot() -> None:
    picture = plots.variants(DOTS, 20, "yours")
    assert picture.numbers == DOTS
    assert "window of 16, 4 sinks: 320 bytes, 16 signed;" in picture.alt
    for figure in (picture.figure, picture.narrow):
        assert {*DOTS, "bytes a token", "signed right, of 20", "256", "1,024"} <= set(words(figure))


def test_no_pole_crosses_a_name() -> None:
    """A name begins at its pole, so only the poles of dots right of it could cross it: they end below."""
    dots = {str(n): (100.0 + 12 * n, 300.0 - 40 * (n % 3)) for n in range(12)}
    found = flags(dots, right=600)
    for one, (start, y) in found.items():
        for other, (x, foot) in dots.items():
            if start < x < start + 20:
                assert not found[other][1] - 6 <= y <= foot, (one, other)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dots": {}, "most": 20}, "no variants; expected one or more"),
        ({"dots": {"a": (0, 1)}, "most": 20}, "expected numbers over 0"),
        ({"dots": {"a": (1, 21)}, "most": 20}, "expected at most 20"),
        ({"dots": {"a": (math.nan, 1)}, "most": 20}, "expected some finite numbers"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.variants(**given)
