"""The race's picture and arguments, and the stored diary against the model."""

from __future__ import annotations

import pytest

from helpers.drawing.still import WIDTH
from helpers.recording.diary import load_diary
from helpers.stepper import Race
from helpers.stepper.format import VIEW
from tests.made_traces import HOSTILE, WALKED, record_toy
from tests.pictures import boxes, misplaced, words


def test_the_picture_stands_at_the_moment_when_the_cached_run_is_done() -> None:
    still = Race(load_diary()).still()
    figure = still.figure()
    output = words(figure)
    assert "prompt, 23 tokens" in output
    assert "done: 46 tokens processed instead of 828" in output
    counters = [
        output[output.index(name) + 1 : output.index(name) + 3] for name in ("with the KV cache", "without")
    ]
    assert counters == [["46", "tokens processed"]] * 2
    first, end, *axis = output[output.index("without") + 3 :]
    assert (first, end, " ".join(axis)) == ("A", "828", VIEW["race"]["axis"])
    assert "with the KV cache: A fox slept in the park. Sunday was sunny." in still.alt
    assert "Signed by Mia from Oslo.; without: A." in still.alt
    assert still.numbers == (
        "<p>With the cache all 24 tokens were out after 46 tokens processed. Without it 1 of 24 was out at "
        "that moment: there each further word processes the whole text again.</p><p>The same 24 tokens, for "
        "46 tokens processed instead of 828. Without the cache 782 of the 828 had been processed before.</p>"
    )


@pytest.mark.parametrize("name", ["toy", "n129", "hostile"])
def test_the_picture_is_to_scale(name: str) -> None:
    """Nothing is cut off; what has run is as long as its tokens, of both runs up to the same time."""
    trace = record_toy(HOSTILE, numbers=list(range(1, 9))) if name == "hostile" else WALKED[name]()
    figure = Race(trace).still().figure()
    assert misplaced(figure) == []
    cached, plain = (sum(run.per_step("positions")) for run in trace.runs)
    lanes: dict[float, float] = {}
    for fill in ("ink", "generated"):
        for box in boxes(figure, fill):
            if box.get_height() == 20:
                lanes[box.get_y()] = max(lanes.get(box.get_y(), 0), box.get_x() + box.get_width())
    assert len(lanes) == 2
    done = 10 + (WIDTH - 20) * cached / plain
    assert lanes[min(lanes)] == pytest.approx(done, abs=1)
    assert lanes[max(lanes)] <= done + 1
    prompt = sum(step.counts["positions"] for step in trace.runs[0].steps if step.phase == "prefill")
    ink = [box.get_width() for box in boxes(figure, "ink") if box.get_y() == min(lanes)]
    assert sum(ink) == pytest.approx((WIDTH - 20) * prompt / plain, abs=1.5), "the rest are new words"


def test_pieces_are_one_text_and_bytes_are_their_character() -> None:
    trace = record_toy(["is", " so", " caf", "<0xC3>", "<0xA9>", "<0xF0>"], numbers=[1.0] * 6)
    assert Race(trace).text_of(range(6)) == "is so café<0xF0>"


def test_what_cannot_race() -> None:
    for name in ("cached", "uncached"):
        with pytest.raises(
            ValueError, match=r"got runs with the caches \['\w+'\], expected one with a cache"
        ):
            Race(record_toy().only(name))
