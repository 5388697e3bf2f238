"""The museum: each bug is caught by an ordinary check, shown by one prompt and hidden by another."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from helpers.model.cache import GrowingCache
from helpers.museum import EXHIBITS, Exhibit, Prompt
from helpers.museum.exhibit import model_of
from helpers.museum.runner import Runner
from helpers.trace import compare
from tests.machine import ROOT

torch.set_num_threads(1)
NO_BUG = "sums_in_another_order"
# With the prompt that hides it, the words are the same, and the numbers are not.
NUMBERS_DIFFER = ("unwritten_rows_are_seen", "state_is_not_rewound", "uncached_layer_shares_no_rows", NO_BUG)


@pytest.fixture(params=EXHIBITS)
def room(request: pytest.FixtureRequest) -> Exhibit:
    """Each exhibit."""
    return EXHIBITS[request.param]


def test_one_prompt_shows_it_and_the_other_does_not(room: Exhibit) -> None:
    for prompt, differ in ((room.shows, True), (room.hides, False)):
        right, wrong = (room.answer(prompt, shipped) for shipped in (False, True))
        assert (right.output_ids != wrong.output_ids) is differ
    if room.name not in NUMBERS_DIFFER:
        assert room.first_difference(room.hides) == "equal"
        assert room.fingerprint(room.hides).first is None


def test_a_step_gives_what_the_whole_text_at_once_gives_but_for_the_bug(room: Exhibit) -> None:
    """The house's ordinary check: a cache in use, in steps, against an empty one and everything at once."""
    repaired, shipped = room.pair(room.shows)
    off = [float((a - b).abs().max()) for a, b in zip(repaired.logits, shipped.logits, strict=True)]
    at = off.index(max(off))
    words = repaired.tokenizer.words(repaired.output_ids[:at])
    whole = replace(room, n=1).answer(Prompt(" ".join([room.shows.text, *words])), shipped=False).logits[0]
    allowed = 0.5 if room.name == NO_BUG else 1e-3  # of bfloat16 a few steps at 16
    assert float((repaired.logits[at] - whole).abs().max()) < allowed
    assert (float((shipped.logits[at] - whole).abs().max()) > 2 * allowed) is (room.name != NO_BUG)


def test_the_traces_part_in_the_pass_that_the_fingerprint_marks(room: Exhibit) -> None:
    first, where = room.fingerprint().first, room.first_difference()
    assert (first is None) is (room.name == NO_BUG)
    if first:
        number, layer, head, token = (n + 1 for n in first)
        assert where.startswith(f"pass {number} ")
        assert f"layer {layer}, head {head}, token {token}," in where or "visible tokens" in where


def test_a_runner_writes_the_same_trace_with_a_cache_and_without() -> None:
    free, cached, uncached = (Runner(*model_of("diary"), 5, ids) for ids in ((), range(1, 6), range(1, 6)))
    ids = free.ids("Mia writes from Oslo . Today weather is so")
    for runner in (free, cached, uncached):
        runner.reply(ids, None if runner is uncached else GrowingCache(runner.model.config))
    assert free.text.startswith("nice")
    assert compare(cached.trace, uncached.trace) == "equal"
    assert compare(free.trace, cached.trace) != "equal"
    assert uncached.output_ids == [1, 2, 3, 4, 5]


def test_a_notebook_links_each_thread(room: Exhibit) -> None:
    name = "22_museum" if [*EXHIBITS].index(room.name) < 6 else "A2_museum"
    assert f"({room.address})" in (ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8")
    assert len({*room.causes}) == 3
