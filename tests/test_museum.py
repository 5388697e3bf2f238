"""The museum: each bug is caught by an ordinary check, shown by one text and hidden by another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from helpers import museum, plots
from helpers.model.cache import GrowingCache
from helpers.museum import EXHIBITS, Ask, Exhibit
from helpers.museum.desk import Desk
from helpers.museum.exhibit import ROOMS, model_of
from helpers.trace import compare
from tests.machine import ROOT
from tests.pictures import check_form

torch.set_num_threads(1)
NO_BUG = "rounding"
NUMBERS_DIFFER = (
    "capacity",
    "rewind",
    "uncached",
    NO_BUG,
)  # with the text that hides it, the words are the same only
TEXT = "Mia writes from Oslo . Today weather is so"


@pytest.fixture(params=EXHIBITS)
def room(request: pytest.FixtureRequest) -> Exhibit:
    """Each exhibit."""
    return EXHIBITS[request.param]


def test_there_are_as_many_as_are_told_of() -> None:
    assert [*EXHIBITS] == [*ROOMS]
    assert {len({*room.causes}) for room in EXHIBITS.values()} == {3}


def test_one_text_shows_it_and_the_other_does_not(room: Exhibit) -> None:
    for ask, differ in ((room.shows, True), (room.hides, False)):
        right, wrong = (room.answer(ask, shipped) for shipped in (False, True))
        assert (right.said != wrong.said) is differ
    if room.name not in NUMBERS_DIFFER:
        assert room.parts(room.hides) == "equal"
        assert room.fingerprint(room.hides).first is None


def test_a_step_gives_what_the_whole_text_at_once_gives_but_for_the_bug(room: Exhibit) -> None:
    """The house's ordinary check: a cache in use, in steps, against an empty one and everything at once."""
    repaired, shipped = room.pair(room.shows)
    off = [float((a - b).abs().max()) for a, b in zip(repaired.logits, shipped.logits, strict=True)]
    at = off.index(max(off))
    output = repaired.tokenizer.words(repaired.said[:at])
    whole = replace(room, n=1).answer(Ask(" ".join([room.shows.text, *output])), shipped=False).logits[0]
    allowed = 0.5 if room.name == NO_BUG else 1e-3  # of bfloat16 a few steps at 16
    assert float((repaired.logits[at] - whole).abs().max()) < allowed
    assert (float((shipped.logits[at] - whole).abs().max()) > 2 * allowed) is (room.name != NO_BUG)


def test_the_traces_part_in_the_pass_that_the_fingerprint_marks(room: Exhibit) -> None:
    first = room.fingerprint().first
    if room.name == NO_BUG:
        assert first is None
    else:
        assert first is not None
        assert room.parts().startswith(f"pass {first.number} ")
    if first and "layer" in room.parts():
        assert f"layer {first.layer}, head {first.head}, position {first.position}," in room.parts()


def test_three_have_one_fingerprint_and_texts_tell_them_apart() -> None:
    alike = [EXHIBITS[name].fingerprint().first for name in ("padding", "shift", "slides")]
    assert {place[:2] for place in alike if place} == {(1, 0)}
    assert EXHIBITS["shift"].parts(Ask("Today weather is so")) == "equal"
    assert EXHIBITS["padding"].parts(Ask("Today weather is so")) != "equal"


def test_a_desk_writes_the_same_trace_with_a_cache_and_without() -> None:
    desks = [Desk(*model_of("diary"), 5, message) for message in ((), [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])]
    config, ids = desks[0].model.config, desks[0].ids(TEXT)
    desks[0].reply(ids, GrowingCache(config))
    desks[1].reply(ids, GrowingCache(config))
    desks[2].reply(ids, lambda: GrowingCache(config))
    assert desks[0].words.startswith("nice")
    assert compare(desks[1].trace, desks[2].trace)
    assert not compare(desks[0].trace, desks[1].trace)
    assert desks[2].said == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_hunted_bug_says_wrong_words_and_is_the_same_each_time(seed: int) -> None:
    case, again = museum.hunt(seed), museum.hunt(seed)
    assert (case.shows, case.cause, repr(case)) == (again.shows, again.cause, repr(again))
    assert case.fingerprint().first == again.fingerprint().first is not None
    kind = ("visible tokens", "attention weights", "context")[case.cause]
    assert case.parts().endswith(kind), "what differs first tells the cause"


def test_the_poster_marks_the_first_place_of_each() -> None:
    prints = {name: room.fingerprint() for name, room in EXHIBITS.items()}
    picture = plots.fingerprints(prints)
    check_form(picture, plots.fingerprints(prints))
    for name, one in prints.items():
        message = picture.alt.partition(f"{name}: ")[2].partition(".")[0]
        assert ("no more than rounding" in message) is (one.first is None)


def test_the_notebook_links_each_thread() -> None:
    text = json.dumps(json.loads((ROOT / "notebooks/22_museum.ipynb").read_text(encoding="utf-8")))
    for room in EXHIBITS.values():
        repository, number = room.reported.replace(" PR", "").split(" #")
        kind = "pull" if " PR " in room.reported else "issues"
        assert f"https://github.com/{repository}/{kind}/{number}" in text, room.name
