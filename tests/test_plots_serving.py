"""The figures of notebook 12: legible in both layouts, and drawn where their numbers say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helpers import plots
from helpers.plots.serving import stretches
from tests.pictures import check_form, texts, words

STATIC = [{0: "A", 1: "B"}, {1: "B"}, {1: "B"}, {0: "C", 1: "D"}]
FULL = [{0: "A", 1: "B"}, {0: "C", 1: "B"}, {0: "D", 1: "B"}]
PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "slots": lambda: plots.slots({"static": STATIC, "continuous": FULL}, 2),
    "slots, one step": lambda: plots.slots({"w" * 80: [{}]}, 1),
    "slots, twenty": lambda: plots.slots({"long": [{3: "A" * 30}] * 20}, 5),
    "stall": lambda: plots.stall([16, 64, 256], [900.0, 300, 120], [5.0, 12, 60]),
}


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_legible_themed_small_and_the_same_each_time(name: str) -> None:
    check_form(PICTURES[name](), PICTURES[name]())


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


def test_what_cannot_be_drawn_is_refused() -> None:
    cases: list[Any] = [({}, "0 steps"), ({"a": []}, "0 steps"), ({"a": [{}] * 21}, "21 steps")]
    for runs, told in cases:
        with pytest.raises(ValueError, match=f"{told} in the longest run; expected 1 to 20"):
            plots.slots(runs, 2)
    with pytest.raises(ValueError, match=r"slots \[2\] are taken; expected 0 to 1"):
        plots.slots({"a": [{2: "A"}]}, 2)
