"""The figures of notebooks 10 to 14: legible in both layouts, and drawn where their numbers say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from helpers import plots
from helpers.plots.machines import Heads
from helpers.plots.serving import stretches
from helpers.plots.smaller import flags
from tests.pictures import boxes, check_form, texts, words

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
VARIANTS: dict[str, tuple[float, float]] = {
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
STATIC = [{0: "A", 1: "B"}, {1: "B"}, {1: "B"}, {0: "C", 1: "D"}]
FULL = [{0: "A", 1: "B"}, {0: "C", 1: "B"}, {0: "D", 1: "B"}]
HALVES: list[Heads] = [([0, 1], [0]), ([2, 3], [1])]
SHARED: list[Heads] = [([0, 1, 2, 3], [0, 1]), ([4, 5, 6, 7], [1, 2])]  # both hold KV head 1
PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "staircase": lambda: plots.staircase(SIZES, SPEEDS),
    "sweep": lambda: plots.time_by_tokens(TOKENS, TIMES, memory=1.2, arithmetic=0.1),
    "roofline": lambda: plots.roofline(328e9, 55e9, DOTS, "16 M parameters, here"),
    "waterfall": lambda: plots.waterfall(STEPS, 0.6, "one decode step"),
    "waterfall, one": lambda: plots.waterfall({"w" * 90: (0.0, 0.0)}, 0.0, "w" * 200),
    "variants": lambda: plots.variants(VARIANTS, 20, "yours"),
    "variants, one": lambda: plots.variants({"w" * 90: (1, 1)}, 20, "yours"),
    "slots": lambda: plots.slots({"static": STATIC, "continuous": FULL}, 2),
    "slots, one step": lambda: plots.slots({"w" * 80: [{}]}, 1),
    "slots, twenty": lambda: plots.slots({"long": [{3: "A" * 30}] * 20}, 5),
    "stall": lambda: plots.stall([16, 64, 256], [900.0, 300, 120], [5.0, 12, 60]),
    "ranks": lambda: plots.two_ranks(HALVES, 17, 4, 512),
    "ranks, one row": lambda: plots.two_ranks(SHARED, 1, 4, 512),
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


def test_each_variant_is_a_named_dot() -> None:
    picture = plots.variants(VARIANTS, 20, "yours")
    assert picture.numbers == VARIANTS
    assert "window of 16, 4 sinks: 320 bytes, 16 signed;" in picture.alt
    for figure in (picture.figure, picture.narrow):
        assert {*VARIANTS, "bytes a token", "signed right, of 20", "256", "1,024"} <= set(words(figure))


def test_no_pole_crosses_a_name() -> None:
    """A name begins at its pole, so only the poles of dots right of it could cross it: they end below."""
    dots = {str(n): (100.0 + 12 * n, 300.0 - 40 * (n % 3)) for n in range(12)}
    found = flags(dots, right=600)
    for one, (start, y) in found.items():
        for other, (x, foot) in dots.items():
            if start < x < start + 20:
                assert not found[other][1] - 6 <= y <= foot, (one, other)


def test_a_block_for_each_request_and_each_idle_stretch() -> None:
    assert stretches(STATIC, 0) == [("A", 0, 1), ("", 1, 3), ("C", 3, 4)]
    picture = PICTURES["slots"]()
    assert picture.numbers == {"static": 4, "continuous": 3}
    assert "static: 4 steps, 2 of 8 places idle, slot 1 A 1 idle 2 C 1, slot 2 B 3 D 1" in picture.alt
    assert "continuous: 3 steps, 0 of 6 places idle" in picture.alt
    for figure in (picture.figure, picture.narrow):
        assert [sum(word == who for word in words(figure)) for who in "ABCD"] == [2, 2, 2, 2]


def test_of_two_lines_that_end_on_one_spot_the_first_is_named_above() -> None:
    for gap in ([5.0, 12, 64.01], [5.0, 12, 63.99]):
        figure = plots.stall([16, 64, 256], [900.0, 300, 64], gap).figure
        heights = {text.get_text(): text.get_window_extent().y0 for text in texts(figure)}
        assert heights["TTFT of the long prompt"] > heights["longest wait of others"]


def test_each_head_and_row_is_drawn_where_it_is() -> None:
    picture = plots.two_ranks(HALVES, 17, 4, 512)
    for figure in (picture.figure, picture.narrow):
        assert len(boxes(figure, "query fill")) == 4
        assert len(boxes(figure, "key fill")) == 2
        assert len(boxes(figure, "value fill")) == 2 * 17
        assert words(figure).count("512 bytes") == 2
    assert picture.numbers == {"sum": 512, "token": 4096}
    assert "Rank 1 holds query heads 2 and 3 of 4, KV head 1 of 2 with its part of 17 rows" in picture.alt


def test_slots_that_cannot_be_drawn_are_refused() -> None:
    cases: list[Any] = [({}, "0 steps"), ({"a": []}, "0 steps"), ({"a": [{}] * 21}, "21 steps")]
    for runs, told in cases:
        with pytest.raises(ValueError, match=f"{told} in the longest run; expected 1 to 20"):
            plots.slots(runs, 2)
    with pytest.raises(ValueError, match=r"slots \[2\] are taken; expected 0 to 1"):
        plots.slots({"a": [{2: "A"}]}, 2)


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
        (lambda: plots.variants({}, 20), "no variants; expected one or more"),
        (lambda: plots.variants({"a": (0, 1)}, 20), "expected numbers over 0"),
        (lambda: plots.variants({"a": (1, 21)}, 20), "expected at most 20"),
        (lambda: plots.variants({"a": (math.nan, 1)}, 20), "expected some finite numbers"),
        (lambda: plots.two_ranks([*HALVES, HALVES[0]], 17, 4, 512), "3 ranks; expected 2"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
