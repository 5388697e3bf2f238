"""The explorer shows what sampling returns, follows its controls, and has a picture without a kernel."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import IPython.display
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import explorers, toy
from helpers.sampling import next_probabilities
from helpers.stepper.format import percent
from tests.pictures import boxes, misplaced
from tests.pictures import words as written

LOGITS = toy.step(toy.PROMPT)
ALL: dict[str, Any] = {"temperature": 1.0, "top_k": 4, "top_p": 1.0}
EVIL = "<img src=x onerror=alert(1)>"


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def toys() -> explorers.NextWordExplorer:
    return explorers.next_word(LOGITS, toy.VOCABULARY)


def test_which_setting_excludes_a_word() -> None:
    explorer = toys()
    assert explorer.setting_excluding_each_word(1.0, 4, 1.0) == [None] * 4
    assert explorer.setting_excluding_each_word(1.0, 2, 1.0) == [None, None, "top-k", "top-k"]
    assert explorer.setting_excluding_each_word(1.0, 4, 0.9) == [None, None, "top-p", "top-p"]
    assert explorer.setting_excluding_each_word(1.0, 3, 0.9) == [None, None, "top-k", "top-p"]
    falling = explorers.next_word(np.log([0.4, 0.3, 0.2, 0.1]), "abcd")
    assert falling.setting_excluding_each_word(1.0, 2, 0.5) == [
        None,
        "top-p",
        "top-k",
        "top-k",
    ]  # 0.4 of 0.7 is over 0.5
    assert explorer.setting_excluding_each_word(0.001, 4, 1.0) == [
        None,
        "temperature",
        "temperature",
        "temperature",
    ]


@settings(deadline=None)
@given(
    logits=st.lists(st.floats(-50, 50), min_size=1, max_size=6),
    temperature=st.floats(0.1, 3),
    top_k=st.integers(1, 6),
    top_p=st.floats(0.05, 1),
)
def test_every_excluded_word_has_a_reason(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    explorer = explorers.next_word(logits, [f"word {n}" for n in range(len(logits))])
    setting: dict[str, Any] = {"temperature": temperature, "top_k": min(top_k, len(logits)), "top_p": top_p}
    after, why = (
        next_probabilities(np.array(logits), **setting),
        explorer.setting_excluding_each_word(**setting),
    )
    assert [reason is None for reason in why] == [p > 0 for p in after]
    html = explorer.picture_html(**setting)
    assert html.count("→ out") == sum(reason is not None for reason in why)
    for p in after:
        assert not p or percent(p) in unescape(plain(html))
    assert f"{int((after > 0).sum())} of {len(logits)} words" in explorer.sentence_html(**setting)


def test_next_word_shows_before_and_after() -> None:
    explorer = toys()
    html = plain(explorer.picture_html(temperature=0.5, top_k=2, top_p=1.0))
    for row in ("nice 72.3% → 88.1%", "warm 26.6% → 11.9%", "delicious 0.2% → out", "0.9% → out"):
        assert row in html
    assert "top-k keeps the 2 largest" in html
    output = plain(explorer.sentence_html(temperature=0.5, top_k=2, top_p=1.0))
    assert "2 of 4 words can be drawn; nice goes from 72.3% to 88.1%" in output
    assert "the model's own" in explorer.sentence_html(temperature=1.0, top_k=4, top_p=1.0)
    assert "larger ones reach top-p 0.9" in explorer.picture_html(temperature=1.0, top_k=4, top_p=0.9)


def test_hidden_words_are_summed_up() -> None:
    explorer = explorers.next_word(np.log([0.1, 0.2, 0.4, 0.3]), "abcd", n_shown=2)
    assert "c 40.0% → 40.0% d 30.0% → 30.0% 2 others 30.0% → 30.0%" in plain(explorer.picture_html(**ALL))
    assert "d 30.0% → 33.3% 2 others 30.0% → 22.2%" in plain(explorer.picture_html(**ALL | {"top_k": 3}))
    assert "2 others 30.0% → out top-k keeps the 2 largest" in plain(
        explorer.picture_html(**ALL | {"top_k": 2})
    )
    assert "3 of 4 words can be drawn" in explorer.sentence_html(**ALL | {"top_k": 3})


def test_draws_depend_only_on_settings() -> None:
    one, again = (toys().picture_html(temperature=1.0, top_k=4, top_p=1.0) for _ in range(2))
    assert one == again
    assert sum(map(int, re.findall(r" (\d+)", one.split("seed 0:")[1].split("<")[0]))) == 20


def test_words_are_escaped() -> None:
    explorer = explorers.next_word([2.0, 1.0], [EVIL, "</td><script>"])
    shown = explorer.picture_html(temperature=1.0, top_k=1, top_p=1.0) + explorer.sentence_html(
        temperature=0.5
    )
    for html in (shown, explorer.still().caption_html()):
        assert "<img" not in html
        assert "<script" not in html
        assert "&lt;img" in html


def test_invalid_logits_are_rejected() -> None:
    with pytest.raises(ValueError, match="got 2 logits and 4 words"):
        explorers.next_word([1.0, 2.0], "abcd")
    with pytest.raises(ValueError, match="is NaN"):
        explorers.next_word([float("nan"), 1.0], ["a", "b"])


def test_controls_redraw_and_reset_restores() -> None:
    explorer = toys()
    *knobs, reset, output, picture, _ = explorer.widget.children
    first = output.value, picture.value
    for knob in knobs:
        start = knob.value
        knob.value = knob.min
        assert (output.value, picture.value) != first
        knob.value = start
        assert (output.value, picture.value) == first
    for knob in knobs:
        knob.value = knob.min
    assert (output.value, picture.value) != first
    reset.click()
    assert (output.value, picture.value) == first
    assert explorer.widget is explorer.widget


def test_three_outputs_are_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, raw, **_: shown.append(bundle))
    first, second = toys(), toys()
    for explorer in (first, second, first):
        explorer._ipython_display_()
    texts = [{kind: text for kind, text in bundle.items() if kind.startswith("text/")} for bundle in shown]
    assert texts[0:3] == texts[3:6] == texts[6:9]
    assert shown[0]["image/png"] == shown[3]["image/png"]
    assert "application/vnd.jupyter.widget-view+json" in shown[2]
    assert first.still().caption_html() in texts[1]["text/html"]
    assert texts[0]["text/plain"] == repr(first)
    assert "0x" not in repr(first)


def test_picture_matches_the_initial_live_form() -> None:
    explorer = toys()
    still, settings = explorer.still(), {name: knob.value for name, knob in explorer.controls().items()}
    figure, grid = still.figure(), explorer.picture(**settings)
    assert misplaced(figure) == []
    drawn, shown = " ".join(written(figure)), unescape(plain(explorer.picture_html(**settings)))
    for row in grid.rows:
        for text in (row.word, row.change_text):
            assert text in drawn
            assert text in shown
    wide = [box.get_width() for box in boxes(figure, "generated")]
    shares = [row.probability_after for row in grid.rows if row.probability_after]
    assert len(wide) == len(shares)
    assert min(wide) / max(wide) == pytest.approx(min(shares) / max(shares), abs=0.01)
    assert unescape(plain(explorer.sentence_html(**settings))).replace(" .", ".") in unescape(
        still.sentences_html
    )
    assert re.findall(r"<(\w+)", still.caption_html()) == ["p"] * 3 + ["details", "summary"]
