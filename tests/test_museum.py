"""The museum: an ordinary check catches each bug, one prompt shows it, and another hides it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.chapters.n22 import recorded
from helpers.model.cache import GrowingCache
from helpers.museum import EXHIBITS, Exhibit, ExhibitPrompt
from helpers.museum.exhibit import BFLOAT16_TOLERANCE, load_model
from helpers.museum.runner import Runner
from helpers.plots import fingerprint_grid
from helpers.trace import compare
from tests.machine import ROOT

torch.set_num_threads(1)
PAGE = ROOT / "notebooks/22_museum.ipynb"
NO_BUG = "no_bug_sums_in_another_order"
# With the prompt that hides the bug, the words are the same but the numbers differ.
NUMBERS_DIFFER = (
    "bug_unwritten_entries_visible",
    "bug_uncached_layer_not_shared",
    NO_BUG,
)


@pytest.fixture(params=EXHIBITS)
def exhibit(request: pytest.FixtureRequest) -> Exhibit:
    """Each exhibit."""
    return EXHIBITS[request.param]


def test_one_prompt_shows_the_bug_and_another_hides_it(exhibit: Exhibit) -> None:
    for prompt, differ in ((exhibit.failing_prompt, True), (exhibit.passing_prompt, False)):
        repaired, shipped = (exhibit.answer(prompt, with_bug) for with_bug in (False, True))
        assert (repaired.output_ids != shipped.output_ids) is differ
    if exhibit.name not in NUMBERS_DIFFER:
        assert exhibit.first_difference(exhibit.passing_prompt) == "equal"
        assert exhibit.fingerprint(exhibit.passing_prompt).first_difference is None


def test_only_bugs_make_steps_differ_from_whole_texts(exhibit: Exhibit) -> None:
    """The series' ordinary check: steps with a cache, against the whole text at once with an empty cache."""
    repaired, shipped = exhibit.run_both(exhibit.failing_prompt)
    off = [float((a - b).abs().max()) for a, b in zip(repaired.logits, shipped.logits, strict=True)]
    step = off.index(max(off))
    words = repaired.tokenizer.words(repaired.output_ids[:step])
    text = " ".join([exhibit.failing_prompt.text, *words])
    whole = replace(exhibit, n_tokens=1).answer(ExhibitPrompt(text), with_bug=False).logits[0]
    allowed = 0.5 if exhibit.name == NO_BUG else 1e-3  # a few roundings of bfloat16 at 16
    assert float((repaired.logits[step] - whole).abs().max()) < allowed
    assert (float((shipped.logits[step] - whole).abs().max()) > 2 * allowed) is (exhibit.name != NO_BUG)


def test_fingerprint_and_compare_find_the_same_pass(exhibit: Exhibit) -> None:
    first, where = exhibit.fingerprint().first_difference, exhibit.first_difference()
    assert (first is None) is (exhibit.name == NO_BUG)
    if first:
        pass_number, layer, head, token = (n + 1 for n in first)
        assert where.startswith(f"pass {pass_number} ")
        assert f"layer {layer}, head {head}, token {token}," in where or "visible tokens" in where


def test_runner_traces_are_equal_with_and_without_cache() -> None:
    free, cached, uncached = (Runner(*load_model("diary"), 5, ids) for ids in ((), range(1, 6), range(1, 6)))
    ids = free.encode("Mia writes from Oslo . Today weather is so")
    for runner in (free, cached, uncached):
        runner.generate_reply(ids, None if runner is uncached else GrowingCache(runner.model.config))
    assert free.reply_text.startswith("nice")
    assert compare(cached.trace, uncached.trace) == "equal"
    assert compare(free.trace, cached.trace) != "equal"
    assert uncached.output_ids == [1, 2, 3, 4, 5]


def test_a_notebook_links_each_thread(exhibit: Exhibit) -> None:
    name = "22_museum" if [*EXHIBITS].index(exhibit.name) < 6 else "A2_museum"
    assert f"({exhibit.issue_url})" in (ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8")
    assert len({*exhibit.causes}) == 3


@pytest.fixture
def page() -> dict[str, Any]:
    """The functions that the page defines to compare two runs."""
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(PAGE.read_text("utf-8"))["cells"]}
    names: dict[str, Any] = {"torch": torch}
    for name in ("c22-differences", "c22-kinds"):
        exec(cells[name], names)
    return names


def test_the_page_compares_masks_zeros_and_nan(page: dict[str, Any]) -> None:
    zeros, nan = torch.zeros(3, 4), torch.full((3, 4), torch.nan)
    assert page["apart"](zeros, zeros) == 0
    assert page["apart"](zeros == 0, zeros != 0) == 1
    kinds = "visible tokens", "attention weights", "context"
    runs = [{kind: [[zeros]] for kind in kinds} for _ in range(2)]
    assert page["first_difference"](*runs) == ("-", "-", "nothing")
    runs[1]["attention weights"] = [[nan]]
    assert page["first_difference"](*runs) == (1, 1, "attention weights")
    runs[1]["visible tokens"] = [[zeros == 0]]
    assert page["first_difference"](*runs) == (1, 1, "visible tokens")


def test_the_grid_rings_nan() -> None:
    said = fingerprint_grid([[0.0, np.nan], [0.0, 0.0]]).alt
    assert "first difference: pass 2, layer 1" in said


def test_the_page_finds_what_the_card_says(page: dict[str, Any]) -> None:
    for room in [*EXHIBITS.values()][:6]:
        number, layer, kind = page["first_difference"](*recorded(room), room.tolerance)
        said = room.first_difference()
        assert (kind == "nothing") is (room.name == NO_BUG)
        assert kind == "nothing" or (said.startswith(f"pass {number} ") and kind in said)
        assert "visible" in said or kind == "nothing" or f"layer {layer}," in said


def test_two_halves_differ_by_rounding_alone() -> None:
    rounded = (replace(EXHIBITS[NO_BUG], model_name=name).fingerprint() for name in ("bfloat16", "float32"))
    in_bfloat16, in_float32 = (one.max_differences.max() for one in rounded)
    assert 1e-3 < in_bfloat16 < BFLOAT16_TOLERANCE
    assert 0 < in_float32 < 1e-5
