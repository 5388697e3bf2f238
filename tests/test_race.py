"""The race's static form and arguments, and the stored diary against the model."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from helpers.recording.diary import load_diary
from helpers.stepper import Race
from helpers.trace import Trace
from tests.made_traces import HOSTILE, UNEQUAL, record_toy, with_fewer_passes


def lines_of(trace: Trace) -> list[str]:
    """The texts of the static form, a line for each paragraph and table row."""
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append("") if tag in ("p", "tr") else None  # type: ignore[method-assign]
    parser.handle_data = lambda data: found.append(found.pop() + data)  # type: ignore[method-assign]
    parser.feed(Race(trace).static_html())
    return found


def test_the_static_form_says_who_is_done() -> None:
    said = lines_of(load_diary())
    assert said[0].startswith(
        "With the cache all 24 words were out after 46 tokens run. Without it, 1 of 24 by then: "
    )
    assert said[1].startswith("prompt, 23 tokens: Mia writes from Oslo. Monday is")
    assert said[2] == "with the KV cache██▓ done: 46 tokens run instead of 828"
    assert said[3].endswith("There was snow over the lake. Signed by Mia from Oslo.")
    assert said[4:6] == [f"without██▒{'░' * 45} ", "A"]
    assert said[7].startswith(
        "The same 24 words, for 46 tokens run instead of 828 and 1,081 pairs instead of 15,272."
    )
    assert (
        lines_of(with_fewer_passes())[-1] == "With the cache 8 tokens run and 36 pairs, without it 15 and 46."
    )
    assert "<img" not in Race(record_toy(HOSTILE, numbers=list(range(1, 9)))).static_html()
    assert (
        lines_of(UNEQUAL["drafts"]())[2]
        == f"with the KV cache{'█' * 6}{'▓' * 10} done: 9 tokens run instead of 27"
    )


def test_what_cannot_race() -> None:
    toy = record_toy()
    for name in ("cached", "uncached"):
        with pytest.raises(ValueError, match=r"got runs with the caches \['\w+'\], expected two to race"):
            Race(toy.only(name))
    with pytest.raises(ValueError, match="expected two to race"):
        Race(replace(toy, runs=[toy.runs[0], replace(toy.runs[1], events=toy.runs[1].events[:1])]))
    with pytest.raises(TypeError, match="got dict, expected a Trace"):
        Race({})  # type: ignore[arg-type]
