"""The stepper's Python side: what a notebook shows of it, the saved page, bad arguments."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.drawing import outputs
from helpers.stepper import Stepper, page
from helpers.stepper.format import fill_template, percent
from helpers.stepper.page import Section, build_page
from helpers.stepper.still import Still, still_name
from helpers.trace import Trace
from tests import oracle, written
from tests.machine import ROOT
from tests.made_traces import HOSTILE, WALKED, record_toy


@pytest.fixture(scope="module")
def run() -> Trace:
    return record_toy()


@pytest.fixture(scope="module")
def hostile() -> Trace:
    return record_toy(HOSTILE, numbers=list(range(1, 9)))


@pytest.mark.parametrize("name", [name for name in WALKED if name != "n300"])
def test_what_is_walked_could_have_been_recorded(name: str) -> None:
    """What the views print beside each other has to fit: p, for one, is the softmax of all logits shown."""
    trace = WALKED[name]()
    if name != "heads":  # which leaves a row out
        oracle.check(trace)
    for out in (out for run in trace.runs for event in run.passes for out in event.parts[0].out):
        total = sum(math.exp(logit) for _, logit, _ in out.top)
        assert [p for *_, p in out.top] == pytest.approx(
            [math.exp(x) / total for _, x, _ in out.top], abs=1e-6
        )


def test_numbers_texts_and_templates_are_written_as_in_javascript() -> None:
    cases = json.loads((ROOT / "tests/texts.json").read_text(encoding="utf-8"))
    ways: dict[str, Callable[[Any], str]] = {
        "texts": written.visible,
        "clipped": lambda text: written.clipped(text, 10),
        "numbers": written.number,
        "percents": percent,
    }
    for name, write in ways.items():
        assert [write(what) for what, _ in cases[name]] == [sentence for _, sentence in cases[name]]
    for template, values, sentence in cases["filled"]:
        assert fill_template(template, **values) == sentence


# ---- the saved page


def test_saved_page_stands_alone_with_hostile_text_inside_its_data(
    run: Trace, hostile: Trace, tmp_path: Path
) -> None:
    path = tmp_path / "index.html"
    Stepper(hostile).save_html(path)
    text = path.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    data = re.search(r'<script type="application/json" id="data0">(.*?)</script>', text, re.DOTALL)
    views = re.search(r'id="views">(.*?)</script>', text)
    assert data is not None
    assert views is not None
    assert json.loads(data[1]) == json.loads(hostile.to_json())
    # The names of namespaces, which Preact has in it, are addresses of nothing that is fetched.
    fetched = r"(src|href)\s*=(?!\"data:)|https?://(?!www\.w3\.org/)|@import|url\("
    assert not re.search(fetched, build_page("Toy", [Section(view=Stepper(run))]))
    shown = {"id": "view0", "view": "stepper", "data": 0, "address": "", "machines": 1}
    assert json.loads(views[1]) == [
        shown | {"face": "story", "start": 1, "layer": 0, "head": None},
    ]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Stepper(hostile).save_html(tmp_path / "nowhere" / "index.html")
    assert list(tmp_path.iterdir()) == [path]


def test_texts_of_a_page_are_text_and_addresses_can_be_followed() -> None:
    after = ["See https://arxiv.org/abs/1706.03762?b=1.", 'Not https://x"onclick="alert(1)']
    page = build_page("</title><script>alert(1)</script>", [Section(before="<b>@data@</b>", after=after)])
    there = "https://arxiv.org/abs/1706.03762?b=1"
    assert f'<p>See <a href="{there}">{there}</a>.</p>' in page
    assert "onclick=&quot;" in page
    assert "<script>alert" not in page
    assert "<p>&lt;b&gt;@data@&lt;/b&gt;</p>" in page, "what was filled in is not filled in again"


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"panels": "x"}, r"got panels='x', expected one of \['story', 'lab'\]"),
        ({"start": "chunk"}, r"got start='chunk', expected one of \['training', 'prefill', 'decode'\]"),
        ({"layer": 1}, r"got layer=1, expected one of \[0\]"),
        ({"head": 4}, r"got head=4, expected one of \[None, 0, 1, 2, 3\]"),
    ],
)
def test_bad_arguments(run: Trace, arguments: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Stepper(run, **arguments)


def test_start_and_panels(run: Trace) -> None:
    assert [Stepper(run, face).start for face in ("story", "lab")] == [1, 0], "the lab opens at Training"
    assert Stepper(run, "lab", start="prefill").start == 1
    training = Stepper(run, start="training")
    assert training.run_hint == "Run this cell to step through it, pass by pass: 3 in all."


def test_repr_has_no_address(run: Trace) -> None:
    stepper = Stepper(run)
    assert repr(stepper) == "Stepper(toy: 6 tokens, 2 passes)"
    assert repr(stepper.widget) == "ViewWidget()"


def test_the_widget_is_made_once_and_carries_the_trace(run: Trace) -> None:
    stepper = Stepper(run)
    assert stepper.widget is stepper.widget
    sent = stepper.widget.get_state()  # only what the browser gets
    assert (sent["data"], sent["file"]) == (run.to_json(), b"")
    assert sent["options"] == {**stepper.options, "view": "stepper"}


def test_a_still_is_found_by_what_the_view_is_made_of(run: Trace) -> None:
    """The last digits of a number differ between machines and change nothing; the third is another number."""
    names = {
        Stepper(trace).data: still_name(Stepper(trace).data, {"start": 1}) for trace in (run, record_toy())
    }
    assert len(names) == 1
    (data,) = names
    found = [
        still_name(data.replace("10.333333333333332", text), {"start": 1})
        for text in ("10.3333333333", "10.4")
    ]
    assert [name == names[data] for name in found] == [True, False]
    assert still_name(data, {"start": 0}) != names[data] != still_name(data, {"start": 1}, b"file")


def test_three_outputs(run: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw, **_: shown.append(data))
    stepper = Stepper(run)
    asked = "<p>Run this cell to step through it, pass by pass: 2 in all.</p>"
    stepper._ipython_display_()  # of which there is no still
    picture, static, live = shown
    assert picture == {"text/plain": repr(stepper)}
    assert static["text/html"] == outputs.static_output_html(asked)
    monkeypatch.setattr("helpers.stepper.still.FOLDER", tmp_path)
    still = Still(
        stepper.data, page.front_end_options(stepper), "A <view>", 424, ["4 < 5"], ["one", "<b>"], b"png"
    )
    still.save(still_name(stepper.data, page.front_end_options(stepper)))
    assert stepper.still is not None
    assert stepper.still.caption_html() == still.caption_html()
    shown.clear()
    stepper._ipython_display_()
    picture, static, live = shown
    assert picture == {"image/png": b"png", "text/plain": repr(stepper)}
    assert static["text/html"] == outputs.static_output_html(still.caption_html() + asked)
    assert still.caption_html().startswith("<p>4 &lt; 5</p><details")
    assert 'alt="A &lt;view&gt;" width="424" src="data:image/png;base64,' in build_page(
        "", [Section(view=stepper)]
    )
    assert live["text/html"] == " "
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == stepper.widget.model_id
    assert outputs.LIVE in stepper.widget._dom_classes
