"""What if, the Python face: its static form and its errors; tests/js and tests/browser hold the rest."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.stepper import WhatIf
from tests.made_traces import HOSTILE
from tests.test_stepper import Tables


def test_the_static_form_says_which_rows_are_stale() -> None:
    shown = Tables(WhatIf().static_html())
    stale = (("8.75", "16.25"), ("6.33", "10.33"), ("6.88", "9.13"), ("9.53", "11.63"))
    keys = ["no · 1", "yes · 2", "no · 3", "yes · 4", "no · 5"]
    assert shown.tables[0] == [
        ["", "Today", "weather", "is", "so", "nice"],
        ["K, layer 1", *keys],
        ["V, layer 1", "10", "8 stale, was 20", "1", "5", "14"],
        ["K, layer 2", *keys],
        ["V, layer 2", "7.5", *(f"{now} stale, was {was}" for now, was in stale)],
        ["", "kept", *["runs again"] * 4],
    ]
    said = "1 row may be kept, 4 tokens must run again. It said: <eos> 51.7%. It says now: <eos> 69.5%."
    assert shown.said == [said]


def test_the_static_form_of_a_word_put_in_and_of_hostile_ones() -> None:
    moved = WhatIf(["Today", "so"], changed=(["Oslo", "Today", "so"], [8, 10, 5]))
    assert Tables(moved.static_html()).tables[0][1:3] == [
        ["K, layer 1", "no · 1 new", "yes · 2 stale, was no · 1", "no · 3 stale, was yes · 2"],
        ["V, layer 1", "8 new", "10", "5"],
    ]
    text = WhatIf(HOSTILE, list(range(8))).static_html()
    assert Tables(text).tags == {"table", "tr", "th", "td", "p"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"words": ["Oslo"]}, "'Oslo', has no number; expected one of"),
        ({"words": ["is"] * 65}, "the prompt has 65 tokens; expected at most 64"),
        ({"words": ["is"], "numbers": [1e9]}, "number 1 is 1e.09; expected at most 1,000 either way"),
        ({"changed": [("Today", 10)]}, "expected .words, numbers., such as"),
        ({"changed": (["Today"], [float("nan")])}, "number 1 is nan"),
    ],
)
def test_errors(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WhatIf(**arguments)
