"""What if, the Python face: its picture; tests/js and tests/browser hold the rest."""

from __future__ import annotations

from helpers.stepper import WhatIf
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
