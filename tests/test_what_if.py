"""What if, the Python face: its picture and its errors; tests/js and tests/browser hold the rest."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from helpers.drawing.svg import PALETTE
from helpers.stepper import WhatIf
from tests.made_traces import HOSTILE
from tests.pictures import boxes, misplaced, texts, words


def test_the_picture_says_which_rows_are_stale() -> None:
    still = WhatIf().still()
    figure = still.figure()
    assert misplaced(figure) == []
    output = words(figure)
    heights = {text.get_position()[1] for text in texts(figure) if text.get_text() == "was"}
    stood = [text.get_text() for text in texts(figure) if text.get_position()[1] in heights]
    assert stood == ["was", "20", "was", "16.25", "10.33", "9.13", "11.63"]
    assert [word for word in output if word in ("kept", "runs again")] == [
        "kept",
        *["runs again"] * 4,
        "kept",
    ]
    assert output[-3:] == ["kept", "stale in the cache", "as before, but made again"], "the key"
    for kind, fill in (("K", "key fill"), ("V", "value fill")):
        lines = [text.get_position()[1] for text in texts(figure) if text.get_text() == kind]
        assert [box.get_y() + 13 for box in boxes(figure, fill)][:2] == lines
    assert len(boxes(figure, "panel")) == 4
    assert "V, layer 1: Today 10, weather 8 (was 20), is 1, so 5, nice 14." in still.alt
    assert "V, layer 2: Today 7.5, weather 8.75 (was 16.25), is 6.33 (was 10.33)" in still.alt
    message = "It said: &lt;eos&gt; 51.7%. It says now: &lt;eos&gt; 69.5%."
    assert still.numbers == f"<p>The rows of 1 token may be kept, 4 tokens must run again. {message}</p>"


def test_the_picture_of_a_word_put_in_of_many_and_of_hostile_ones() -> None:
    moved = WhatIf(["Today", "so"], changed=(["Oslo", "Today", "so"], [8, 10, 5])).still()
    assert "K, layer 1: Oslo 0 · 1 (new), Today 1 · 2 (was 0 · 1), so 0 · 3 (was 1 · 2)." in moved.alt
    assert "V, layer 1: Oslo 8 (new), Today 10, so 5." in moved.alt
    dashed = [box for box in moved.figure().findobj(FancyBboxPatch) if box.get_linestyle() != "-"]
    assert [to_hex(box.get_edgecolor()) for box in dashed] == [PALETTE["generated"][0]] * 5, (
        "the new rows and the key"
    )
    assert "weather 3 (was 0)" in WhatIf(["weather"], [0], changed=(["weather"], [3])).still().alt
    many, hostile = WhatIf(["is"] * 64), WhatIf(HOSTILE, list(range(8)))
    for still in (moved, many.still(), hostile.still()):
        assert misplaced(still.figure()) == []
    assert "rows of 64 tokens may be kept, 1 token must run again." in many.still().numbers
    output = words(many.still().figure())
    assert f"… and {64 - output.count('is')} more" in output
    assert "<img" not in hostile.still().beneath()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"words": ["Oslo"]}, "'Oslo', has no number; expected one of"),
        ({"words": ["is"] * 65}, "the prompt has 65 tokens; expected at most 64"),
        ({"words": ["is"], "numbers": [1e9]}, "number 1 is 1e.09; expected at most 1,000 either way"),
        ({"changed": [("Today", 10)]}, "expected .words, numbers., such as"),
        ({"changed": (["Today"], [float("nan")])}, "number 1 is nan"),
    ],
)
def test_errors(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        WhatIf(**arguments)
