"""The stepper's Python side: its picture, the saved page, bad arguments."""

from __future__ import annotations

import html
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from helpers.drawing import canvas, outputs
from helpers.drawing.svg import PALETTE
from helpers.recording.diary import load_diary
from helpers.stepper import Stepper, format
from helpers.stepper.moment import Moment
from helpers.stepper.page import Section, build
from helpers.trace import Trace
from tests import oracle
from tests.expected import expected, pass_name
from tests.machine import ROOT
from tests.made_traces import (
    HOSTILE,
    SIZES,
    WALKED,
    every_look,
    kinds,
    record_toy,
)
from tests.pictures import boxes, misplaced, texts, words

SMALL = [name for name in WALKED if name not in SIZES]


@pytest.fixture(scope="module")
def run() -> Trace:
    return record_toy()


@pytest.fixture(scope="module")
def hostile() -> Trace:
    return record_toy(HOSTILE, numbers=list(range(1, 9)))


SIGNS = {
    "●": "now",
    "○": "earlier",
    "×": "masked",
}  # the oracle's signs of a pair, and what a picture calls them
TAGS = {
    "p",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
}  # JupyterLab and GitHub keep these


def cells(text: str) -> list[list[str]]:
    """The lines of a table beneath a picture."""
    lines = re.findall(r"<tr>(.*?)</tr>", text)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>([^<]*)<", line)] for line in lines]


# ---- pictures where nothing runs


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


@pytest.mark.parametrize("name", [*SMALL, "kinds"])
def test_the_facts_of_every_pass_are_the_traces(name: str) -> None:
    trace = {**WALKED, "kinds": kinds}[name]()
    for run, index, layer in every_look(trace):
        event = trace.run(run).passes[index]
        want, moment = expected(trace, run, index, layer), Moment(trace, trace.run(run), index, layer)
        size = len(want["marks"])
        assert [*moment.columns] == [*range(size)][-7:]
        marks = [[moment.mark(query, key) for key in moment.columns] for query in moment.columns]
        lines = [want["marks"][query][moment.columns[0] :] for query in moment.columns]
        assert marks == [[SIGNS.get(mark, mark) for mark in line] for line in lines]
        states = [state.replace("empty", "") for state in want["rows"][:size]]
        assert [moment.row(token) for token in range(size)] == states
        assert moment.rows_note == want["note"]
        assert moment.title.lower().startswith(pass_name(trace.run(run), event))
        for query in want["live"]:
            wanted = want["weights"][str(query)], want["contexts"][str(query)]
            for head, looks, context in zip(moment.heads, *wanted, strict=True):
                assert moment.weights(query, [head]) == pytest.approx(dict(looks or []))
                assert moment.context(query, head) == pytest.approx(context)


def titles(trace: Trace, **settings: Any) -> list[str]:
    return cells(Stepper(trace, **settings).still().numbers)[0][1:]


def test_which_passes_stand_for_a_run(run: Trace) -> None:
    both = ["Decode 1, with the cache", "Decode 1, no cache"]
    assert titles(run) == ["Prefill", *both]
    assert titles(run, start="training") == ["Training", "Prefill", *both]
    in_lab = titles(run, panels="lab", start="prefill")
    assert in_lab == ["Training", "Prefill", both[0]], "training wherever the lab starts"
    assert titles(run.only("uncached")) == ["Prefill", both[1]]
    assert titles(record_toy(["Today"], max_new_tokens=1, training=False)) == ["Prefill"]


@pytest.mark.parametrize("name", [*WALKED, "diary", "published"])
def test_the_numbers_beneath_are_counted(name: str) -> None:
    published = ROOT / "tools/data/smollm2.json"
    result = {**WALKED, "diary": load_diary, "published": lambda: Trace.load(published)}
    trace = result[name]()
    head, *rows = zip(*cells(Stepper(trace, layer=trace.recorded[0][0]).still().numbers), strict=True)
    assert head == ("", "tokens processed", "pairs", "rows read", "rows kept", "next word")
    for title, *counts, output in rows:
        run = next(run for run in trace.runs if (run.cache == "none") == title.endswith("no cache"))
        event = next(e for e in run.passes if title.lower().startswith(pass_name(run, e)))
        part = event.parts[0]
        rows_read = sum(stop - start for start, stop in part.read)
        want = [event.counts["positions"], event.counts["pairs"], rows_read, part.kept[1]]
        assert counts == [f"{n:,}" for n in want]
        words = ", ".join(format.visible(trace.sequences[0].tokens[out.chosen].text) for out in part.out)
        assert output.startswith(words)
        p = [p for out in part.out[-1:] for text, _, p in out.top if text == words.split(", ")[-1]]
        assert all(f"({format.percent(one)}" in output for one in p)


@pytest.mark.parametrize("name", [*SMALL, "n24", "n129", "hostile"])
def test_a_picture_shows_its_passes(name: str) -> None:
    """Nothing is cut off or lies on another, each sign stands as often as it should, K in K's colour."""
    trace = record_toy(HOSTILE, numbers=list(range(1, 9))) if name == "hostile" else WALKED[name]()
    still = Stepper(trace, start="training" if name == "two" else None).still()
    boards = still.draw.keywords["boards"]  # type: ignore[attr-defined]
    figure, moments = still.figure(), [board.moment for board in boards]
    assert misplaced(figure) == []
    output = words(figure)
    assert {moment.title for moment in moments} <= set(output)
    cut = any(moment.columns[0] for moment in moments)
    assert ("; the last" in "".join(output), "; the last 7 columns" in "".join(output)) == (cut, cut)
    if cut:
        return
    grids = [expected(trace, moment.run.name, moment.index, 0)["marks"] for moment in moments]
    marks = [mark for grid in grids for line in grid for mark in line]
    assert output.count("×") == marks.count("×") + ("masked" in output)
    grounds = [box for box in boxes(figure, "query fill") if box.get_width() > box.get_height()]
    assert len(grounds) == marks.count("●") + 1, "and of weights the squares"
    legend = {"now": "this pass", "earlier": "an earlier pass", "masked": "masked", "again": "again"}
    named = {kind for kind, name in legend.items() if name in output}
    assert named == {SIGNS.get(mark, "again") for mark in marks if mark}
    heads = [box for box in figure.findobj(FancyBboxPatch) if box.get_height() == 24]
    run = [box for box in heads if to_hex(box.get_edgecolor()) == PALETTE["query"][0]]
    assert len(run) == sum(len(moment.queries) for moment in moments)
    given = [line for moment in moments if moment.part.target is None for line in moment.gives]
    strokes = [line for line in figure.findobj(Line2D) if line.get_color() == "generated"]
    assert len(strokes) == len(given), "arrows"
    drawers = [box for box in figure.findobj(FancyBboxPatch) if box.get_height() == 60]
    assert [box.get_linestyle() == "-" for box in drawers] == [moment.keeps for moment in moments], (
        "or dashed"
    )
    states = [moment.row(token) for moment in moments for token in moment.columns]
    kept = states.count("written") + states.count("read")
    assert len(boxes(figure, "key fill")) == kept
    assert sum(box.get_linewidth() > 2 for box in boxes(figure, "key fill")) == states.count("written")
    for kind, fill, others in (("K", "key fill", 0), ("V", "value fill", 2)):
        lines = {text.get_position()[1] for text in texts(figure) if text.get_text() == kind}
        assert len({box.get_y() + 10 for box in boxes(figure, fill)} - lines) <= others, "in the legend"


def test_a_file_holds_every_pixel(run: Trace) -> None:
    figure, drawn = Stepper(run).still().figure(), io.BytesIO()
    with mpl.rc_context(canvas.SETTINGS):
        FigureCanvasAgg(figure).print_figure(drawn, format="png", dpi=144, facecolor="paper")
    stored = io.BytesIO(canvas.png(figure))
    got, want = (np.asarray(Image.open(file).convert("RGBA")) for file in (stored, drawn))
    edge = canvas.EDGE * canvas.SHARPNESS
    assert np.array_equal(got[edge:-edge, edge:-edge], want)
    assert got[0, 0, 3] == got[-1, -1, 3] == 0, "a card with round corners, also in a dark page"
    assert (got[edge // 2, edge:-edge] == 255).all(), "paper around it"


def test_a_picture_shows_contexts_keys_in_the_lab_and_whom_a_line_looks_at(run: Trace) -> None:
    assert {"= 12.5", "20"} <= set(words(Stepper(run).still().figure()))
    keys = ["1 · 2" in words(Stepper(run, face).still().figure()) for face in ("story", "lab")]
    assert keys == [False, True]
    assert "even: so looks at weather 0.5, so 0.5." in Stepper(run).still().alt
    trace = WALKED["layers"]()
    found = enumerate(map(format.number, trace.attention_weights(3, 0, 2)))
    most = [f"{trace.sequences[0].tokens[n].text} {w}" for n, w in found if float(w) > 1 / 4]
    assert f"first: dddd looks at {', '.join(most)}." in Stepper(trace).still().alt
    assert 0 < len(most) < 3
    grids = [Stepper(WALKED["layers"](), head=head).still().figure() for head in (None, 1)]
    assert len({tuple(box.get_width() for box in boxes(grid, "query")) for grid in grids}) == 2


def test_the_lab_stands_for_three_passes() -> None:
    still = Stepper(load_diary(), "lab", layer=0).still()
    titles = ["", "Training", "Prefill", "Decode 1, with the cache"]
    assert cells(still.numbers)[:2] == [titles, ["tokens processed", "23", "23", "1"]]
    hidden = 7 * 6 // 2  # in the triangle of the seven columns that are drawn
    assert words(still.figure()).count("×") == 2 * hidden + 1, "of training, of prefill, of the legend"


def test_what_stands_beneath_a_picture(run: Trace, hostile: Trace) -> None:
    for trace in (run, hostile):
        text = Stepper(trace).still().beneath()
        assert set(re.findall(r"<(\w+)", text)) <= TAGS
        assert not re.search("[\u202a-\u202e\u2066-\u2069]|var\\(|class=", text)
    assert canvas.png(Stepper(run).still().figure()) == canvas.png(Stepper(record_toy()).still().figure())
    chosen = Stepper(record_toy(ban_eos=True)).still().numbers
    assert "greedy, &lt;eos&gt; banned" in chosen
    assert "banned. The percentages are those before these settings." in chosen
    assert "targets are weather, is, so, nice" in Stepper(run, start="training").still().alt


@pytest.mark.parametrize("number", [1e308, -1e308, 5e-324])
def test_very_large_and_small_numbers(number: float) -> None:
    trace = record_toy()
    assert trace.values is not None
    trace.values[0].v[0] = [number]
    assert format.number(number) in words(Stepper(trace).still().figure())


def test_numbers_texts_and_templates_are_written_as_in_javascript() -> None:
    cases = json.loads((ROOT / "tests/texts.json").read_text(encoding="utf-8"))
    ways: dict[str, Callable[[Any], str]] = {
        "texts": format.visible,
        "clipped": lambda text: format.clipped(text, 10),
        "numbers": format.number,
        "percents": format.percent,
    }
    for name, write in ways.items():
        assert [write(what) for what, _ in cases[name]] == [sentence for _, sentence in cases[name]]
    for template, values, sentence in cases["filled"]:
        assert format.fill(template, **values) == sentence


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
    assert not re.search(fetched, build("Toy", [Section(view=Stepper(run))]))
    shown = {"id": "view0", "view": "stepper", "data": 0, "address": "", "machines": 1}
    assert json.loads(views[1]) == [
        shown | {"face": "story", "start": 1, "layer": 0, "head": None},
    ]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Stepper(hostile).save_html(tmp_path / "nowhere" / "index.html")
    assert list(tmp_path.iterdir()) == [path]


def test_texts_of_a_page_are_text_and_addresses_can_be_followed() -> None:
    after = ["See https://arxiv.org/abs/1706.03762?b=1.", 'Not https://x"onclick="alert(1)']
    page = build("</title><script>alert(1)</script>", [Section(before="<b>@data@</b>", after=after)])
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
    assert training.invitation == "Run this cell to step through it, pass by pass: 3 in all."


def test_repr_has_no_address(run: Trace) -> None:
    stepper = Stepper(run)
    assert repr(stepper) == "Stepper(toy: 6 tokens, 2 passes)"
    assert repr(stepper.widget) == "ViewWidget()"


def test_the_widget_is_made_once_and_carries_the_trace(run: Trace) -> None:
    stepper = Stepper(run)
    assert stepper.widget is stepper.widget
    assert stepper.widget.get_state(["data"])["data"] == run.to_json()
    assert stepper.widget.get_state(["options"])["options"] == {**stepper.options, "view": "stepper"}


def test_three_outputs(run: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw, **_: shown.append(data))
    stepper = Stepper(run)
    stepper._ipython_display_()
    picture, static, live = shown
    assert picture["image/png"] == canvas.png(stepper.still().figure())
    assert picture["text/plain"] == repr(stepper)
    asked = "<p>Run this cell to step through it, pass by pass: 2 in all.</p>"
    assert static["text/html"] == outputs.static_output(stepper.still().beneath() + asked)
    assert live["text/html"] == " "
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == stepper.widget.model_id
    assert outputs.LIVE in stepper.widget._dom_classes
