"""The figures of notebook 10: legible in both layouts, and drawn where their numbers say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from helpers import plots
from tests.pictures import boxes, check_form, words

SIZES = [2**n for n in range(15, 30, 2)]
SPEEDS = {"threads: 1": [173e9, 132e9, 133e9, 63e9, 29e9, 28e9, 15e9, 14e9], "threads: 2": [20e9] * 8}
TOKENS = [2**n for n in range(10)]
TIMES = [1.2, 4.8, 4.9, 5.0, 5.2, 5.5, 7.5, 13.0, 27.0, 54.0]
DOTS = {
    "decode, weights": (0.5, 12e9),
    "decode, attention": (1.5, 8e9),
    "prefill, weights": (109.0, 250e9),
    "prefill, attention": (96.0, 60e9),
}
STEPS = {
    "as it stands": (6.8, 7.2),
    "all cores share each matrix": (3.1, 2.5),
    "a quarter of the bytes": (1.8, 2.0),
}
PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "staircase": lambda: plots.staircase(SIZES, SPEEDS),
    "sweep": lambda: plots.time_by_tokens(TOKENS, TIMES, memory=1.2, arithmetic=0.1),
    "roofline": lambda: plots.roofline(328e9, 55e9, DOTS, "16 M parameters, here"),
    "waterfall": lambda: plots.waterfall(STEPS, 0.6, "one decode step"),
    "waterfall, one": lambda: plots.waterfall({"w" * 90: (0.0, 0.0)}, 0.0, "w" * 200),
}


def both(name: str) -> list[Any]:
    picture = PICTURES[name]()
    return [picture.figure, picture.narrow]


def lines(figure: Any, marker: str) -> list[list[tuple[float, float]]]:
    """The points of the lines of a plot that have this marker."""
    drawn = [line for line in figure.axes[0].child_axes[0].lines if line.get_marker() == marker]
    return [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in drawn]


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_legible_themed_small_and_the_same_each_time(name: str) -> None:
    check_form(PICTURES[name](), PICTURES[name]())


def test_a_staircase_is_in_gb_and_mib() -> None:
    picture = PICTURES["staircase"]()
    assert picture.numbers["at"][0] == 1 / 32
    assert picture.numbers["threads: 1"][-1] == 14
    for figure in both("staircase"):
        assert {"14 GB/s", "20 GB/s", *SPEEDS} <= set(words(figure))


def test_a_sweep_lies_over_its_two_lines() -> None:
    for figure in both("sweep"):
        assert lines(figure, "None") == [[(1, 1.2), (512, 1.2)], [(1, 0.1), (512, pytest.approx(51.2))]]
        assert lines(figure, "o") == [[dot] for dot in zip(TOKENS, TIMES, strict=True)]
        assert {"read the matrix", "do the arithmetic"} <= set(words(figure))


def test_the_roof_bends_at_the_ridge() -> None:
    picture = PICTURES["roofline"]()
    assert picture.numbers["prefill, weights"] == (109, 250)
    for figure in both("roofline"):
        slope, flat = lines(figure, "None")
        ridge = (pytest.approx(328 / 55), pytest.approx(328))
        assert slope == [(0.25, pytest.approx(0.25 * 55)), ridge]
        assert flat == [ridge, (pytest.approx(327), pytest.approx(328))]
        assert lines(figure, "o") == [[(x, y / 1e9)] for x, y in DOTS.values()]
        assert {*DOTS, "memory", "arithmetic"} <= set(words(figure))


def test_a_waterfall_shows_measured_beside_predicted() -> None:
    picture = PICTURES["waterfall"]()
    assert picture.numbers == STEPS
    assert "as it stands: predicted 6.80, measured 7.20;" in picture.alt
    for figure in both("waterfall"):
        measured = [box.get_width() for box in boxes(figure, "query")]
        scale = measured[0] / 7.2
        assert measured == pytest.approx([scale * 7.2, scale * 2.5, scale * 2.0])
        assert {"7.20 ms", "2.50 ms", "2.00 ms", "grey mark: the floor, 0.600 ms", *STEPS} <= set(
            words(figure)
        )


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.staircase([32, 16], {"a": [1.0, 2.0]}), "grow from over 0"),
        (lambda: plots.time_by_tokens([1, 2], [1.0, 0.0], 1.0, 1.0), "expected numbers over 0"),
        (lambda: plots.roofline(1e9, 1e9, {}, "x"), "no dots; expected one or more"),
        (lambda: plots.roofline(0.0, 1e9, {"a": (1.0, 1.0)}, "x"), "the roof: .*; expected numbers over 0"),
        (lambda: plots.roofline(1e9, 1e9, {"a": (math.nan, 1.0)}, "x"), "expected some finite numbers"),
        (lambda: plots.waterfall({}, 1.0, "x"), "no steps"),
        (lambda: plots.waterfall({"a": (1.0, -1.0)}, 1.0, "x"), "steps are"),
        (lambda: plots.waterfall({"a": (1.0, 1.0)}, math.inf, "x"), "floor are"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
