"""The stepper's Python side: its static form, the saved page, bad arguments; and the tests in tests/js."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import outputs
from helpers.recording.toy import record_toy
from helpers.stepper import LEVELS, Stepper, script
from helpers.trace import Other, Trace
from tests.expected import expected_marks
from tests.machine import ROOT

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\u202eשלום",
    "\u200b",
    "👩‍👩‍👧",
    "x" * 200,
    '"quote\'s" & @title@',
    "\n",
]
DROP = {"op": "drop", "sequence": 0, "rows": [[0, 2]], "why": "evicted", "say": "Two rows leave."}
SWAP = {"op": "swap", "say": "The rows <b>move</b>."}


def with_event(event: dict, index: int, name: str = "cached", **options: Any) -> Trace:
    """A toy's trace with one event more in one of its runs."""
    data = record_toy(**options).to_dict()
    next(run for run in data["runs"] if run["name"] == name)["events"].insert(index, event)
    return Trace.from_dict(data)


def with_fewer_passes(missing: int = 2) -> Trace:
    """A long run whose replay without a cache stops earlier."""
    data = record_toy(ban_eos=True, max_new=5).to_dict()
    del data["runs"][1]["events"][-missing:]
    return Trace.from_dict(data)


TRACES = {
    "toy": lambda: record_toy(),
    "two": lambda: record_toy(n_layers=2),
    "long": lambda: record_toy(ban_eos=True),
    "n64": lambda: record_toy(ban_eos=True, max_new=61),
    "rules": lambda: record_toy(form="rules"),
    "one": lambda: record_toy(["Today"], max_new=1, training=False),
    "drop": lambda: with_event(DROP, 3),
    "swap": lambda: with_event(SWAP, 2),
    "fewer": with_fewer_passes,
}


@pytest.fixture(scope="module")
def run() -> Trace:
    return record_toy()


@pytest.fixture(scope="module")
def hostile() -> Trace:
    return record_toy(HOSTILE, numbers=list(range(1, 9)))


class Tables(HTMLParser):
    """Reads tables as lists of rows of cell texts, and notes every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.tags: set[str] = set()
        self.said: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True
        elif tag == "br" and self._cell:
            self.tables[-1][-1][-1] += " "

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.tables[-1][-1][-1] += data
        else:
            self.said.append(data)


def test_javascript(node: str, tmp_path: Path) -> None:
    for name, make in TRACES.items():
        (tmp_path / f"{name}.json").write_text(make().to_json(), encoding="utf-8")
    files = sorted(str(path) for path in (ROOT / "tests/js").glob("*.test.mjs"))
    assert files
    done = subprocess.run(
        [node, "--test", *files],
        env={"WATCH_IT_DECODE_TRACES": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE) or re.search(r"pass (\d+)", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 20


# ---- one script out of the modules


def test_modules_are_joined_in_the_order_of_their_imports() -> None:
    modules = {path.stem for path in (script.HERE / "js").glob("*.js")}
    assert set(script.MODULES) == modules
    late = {("canvas", "board"), ("panels", "board")}  # pairs of drawing modules may look at each other
    for k, name in enumerate(script.MODULES):
        text = (script.HERE / "js" / f"{name}.js").read_text(encoding="utf-8")
        for other in re.findall(r'from "\./(\w+)\.js"', text):
            assert other in script.MODULES[:k] or (other, name) in late | {(b, a) for a, b in late}, (
                name,
                other,
            )


def test_names_are_unique_across_modules() -> None:
    names: list[str] = []
    for name in script.MODULES:
        text = (script.HERE / "js" / f"{name}.js").read_text(encoding="utf-8")
        names += re.findall(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) > 100
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_joined_script_is_valid_and_ends_no_script_element(node: str, tmp_path: Path) -> None:
    path = tmp_path / "widget.mjs"
    path.write_text(script.widget_module(), encoding="utf-8")
    subprocess.run([node, "--check", str(path)], check=True, capture_output=True, timeout=60)
    assert not re.search(r"^(import|export (?!default))", script.joined(), re.MULTILINE)
    assert "</script" not in script.joined().lower()
    assert "innerHTML" not in script.joined()
    assert "insertAdjacentHTML" not in script.joined()


# ---- the static form


def marks(table: list[list[str]], size: int) -> list[list[str]]:
    """The symbols of the grid: rows under the head, without their names and asides."""
    return [row[1 : 1 + size] for row in table[1 : 1 + size]]


@pytest.mark.parametrize("make", [TRACES["toy"], TRACES["two"], lambda: record_toy(ban_eos=True, max_new=2)])
def test_static_form_is_the_trace(make: Callable[[], Trace]) -> None:
    trace = make()
    prefill, cached, uncached = Tables(Stepper(trace).static_html()).tables
    for table, name, index in ((prefill, "cached", 1), (cached, "cached", 2), (uncached, "uncached", 2)):
        assert marks(table, len(table[0]) - 2) == expected_marks(trace, name, index)


def test_static_form_in_words(run: Trace) -> None:
    read = Tables(Stepper(run).static_html())
    text = "".join(read.said)
    assert "Prefill. 4 tokens run together; 10 pairs; rows: 4 written. Next word: nice (72.3%)." in text
    assert "Decode 1, with the cache. 1 token runs; 5 pairs; rows: 4 read, 1 written." in text
    assert "Decode 1, no cache. 5 tokens run together, 4 of them again; 15 pairs." in text
    assert "The cache runs 1 of 5 positions and scores 5 of 15 pairs; it avoids 4 and 10" in text
    prefill, cached, uncached = read.tables
    assert prefill[4][-1] == "12.5, 5, 10, 9"
    assert [row[-1] for row in cached[1:6]] == ["prefill's, untouched"] * 4 + ["12.5, 14, 10, 10"]
    assert cached[-1][1:6] == ["read"] * 4 + ["written"]
    assert cached[-2][1:6] == ["10", "20", "1", "5", "14"]
    assert cached[-7][:2] == ["attention weights", "of nice, a line for each head"]
    assert prefill[-7][:2] == ["attention weights", "of so, a line for each head"]
    assert [row[:6] for row in cached[-6:-2]] == [
        ["even", "·", "0.5", "·", "0.5", "·"],
        ["newest", "·", "·", "·", "·", "1"],
        ["first", "1", "·", "·", "·", "·"],
        ["all", "0.2", "0.2", "0.2", "0.2", "0.2"],
    ]
    assert [row[-1] for row in cached[-6:-2]] == [
        "0.5 × 20 + 0.5 × 5 = 12.5",
        "1 × 14 = 14",
        "1 × 10 = 10",
        "average of 5 = 10",
    ]
    assert cached[-8][1:6] == ["no · 1", "yes · 2", "no · 3", "yes · 4", "no · 5"]
    assert uncached[-1][1:6] == ["dropped"] * 5


def test_static_form_that_starts_with_training_shows_the_targets(run: Trace) -> None:
    read = Tables(Stepper(run, start="training").static_html())
    assert len(read.tables) == 4
    training = read.tables[0]
    assert [row[-1] for row in training[:5]] == ["target", "→ weather", "→ is", "→ so", "→ nice"]
    assert marks(training, 4) == expected_marks(run, "cached", 0)
    assert "Training, for reference. 4 tokens run together; 10 pairs. Every row has" in "".join(read.said)


def test_static_form_needs_nothing_that_notebooks_strip(run: Trace) -> None:
    text = Stepper(run).static_html()
    assert Tables(text).tags <= {"p", "b", "bdi", "br", "table", "tr", "th", "td"}
    assert "var(" not in text
    assert "class=" not in text
    for style in re.findall(r'style="([^"]*)"', text):
        grounded = "background-color" in style
        assert grounded == ("color:#1b1f24" in style), (
            "ground and ink come together, for light and dark themes"
        )


def test_static_form_grows_with_the_levels(run: Trace) -> None:
    few = Stepper(run, "passes").static_html()
    assert "contexts" not in few
    assert "72.3%" not in few
    assert "no · 1" not in few
    assert "written" in few
    assert "12.5" in Stepper(run, "attention").static_html()
    assert "no · 1" not in Stepper(run, "work").static_html()


def test_static_form_of_a_long_run_is_short_and_says_so() -> None:
    text = Stepper(record_toy(ban_eos=True, max_new=61)).static_html()
    read = Tables(text)
    assert [len(table[0]) for table in read.tables] == [6, 7, 15, 15]
    assert "61 passes in all; 58 between the first and the last are not shown here." in "".join(read.said)
    assert read.tables[3][1][1] == "61"
    assert text.count("attention weights") == 2, "of 4 and of 5 tokens; no digits for 64"
    assert len(text) < 40_000


def test_static_form_says_how_a_word_was_chosen_where_it_is_not_the_largest() -> None:
    text = Stepper(record_toy(max_new=8, ban_eos=True)).static_html()
    said = "".join(Tables(text).said)
    assert "Next word: nice (72.3%; greedy, <eos> banned)." in said
    assert "Next word: nice (13.4%; greedy, <eos> banned)." in said
    assert "&lt;eos&gt; banned" in text
    sampled = Stepper(record_toy(temperature=2.0, top_k=3, seed=3)).static_html()
    assert "(72.3%; sampled, temperature 2, top-k 3)" in sampled
    assert "banned" not in Stepper(record_toy(max_new=8, ban_eos=True), "attention").static_html()


def test_static_form_without_recorded_weights(run: Trace) -> None:
    data = run.to_dict()
    data["weights"]["rows"] = {}
    assert "attention weights" not in Stepper(Trace.from_dict(data)).static_html()


def test_static_form_shows_the_same_weights_as_the_stepper() -> None:
    """A weight under a twentieth of an equal share is a dot; over it, its digits."""
    trace = record_toy()
    trace.weights["0.3.0.3"] = np.round(np.array([0.011, 0.014, 0.48, 0.5]) * 65535).astype("<u2")
    row = Tables(Stepper(trace).static_html()).tables[0][-3]
    assert row == ["all", "·", "0.01", "0.48", "0.5", "sum of 3 products = 9"]


@pytest.mark.parametrize(
    ("event", "index", "name"),
    [(DROP, 3, "cached"), *((SWAP, index, name) for index in (0, 2, 3) for name in ("cached", "uncached"))],
)
def test_an_event_in_one_run_only_is_its_sentence_and_moves_no_pass(
    run: Trace, event: dict, index: int, name: str
) -> None:
    text = Stepper(with_event(event, index, name)).static_html()
    sentence = f"<p>{html.escape(event['say'])}</p>"
    assert (sentence in text) == (name == "cached")
    assert text.replace(sentence, "") == Stepper(run).static_html()


def test_a_run_with_fewer_passes_is_compared_where_both_have_one() -> None:
    read = Tables(Stepper(with_fewer_passes()).static_html())
    said = "".join(read.said)
    assert len(read.tables) == 4, "prefill, decode 1 and 4 with the cache, decode 1 without"
    assert said.index("Decode 4, with the cache") < said.index("Decode 1, no cache")
    assert "The cache runs 1 of 5 positions and scores 5 of 15 pairs" in said
    read = Tables(Stepper(with_fewer_passes(4)).static_html())
    assert len(read.tables) == 3
    assert "The cache runs" not in "".join(read.said)
    assert "2nd, 3rd" not in "".join(read.said)


def test_static_form_is_deterministic() -> None:
    assert Stepper(record_toy()).static_html() == Stepper(record_toy()).static_html()


def test_static_form_shows_hostile_text_as_text(hostile: Trace) -> None:
    text = Stepper(hostile).static_html()
    read = Tables(text)
    assert read.tags <= {"p", "b", "bdi", "br", "table", "tr", "th", "td"}
    names = [row[0] for row in read.tables[0][1:9]]
    assert names[0] == "<img src=x onerror=…"
    assert names[3] == "U+200B"
    assert names[5] == "x" * 19 + "…"
    assert 'title="' + "x" * 200 + '"' in text


def test_one_run_without_a_cache() -> None:
    prefill, decode = Tables(Stepper(record_toy(form="rules")).static_html()).tables
    assert len(prefill[0]) == 6
    assert decode[1][1] == "2"


# ---- the saved page


def test_saved_page_stands_alone(run: Trace, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    Stepper(run, "passes", cache=False).save_html(
        path, title="A & B", before="<b>one</b>", after=["two", "three"]
    )
    text = path.read_text(encoding="utf-8")
    assert "<title>A &amp; B</title>" in text
    assert "<p>&lt;b&gt;one&lt;/b&gt;</p>" in text
    assert text.index("two") < text.index("three")
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", text)
    assert "default-src 'none'" in text
    data = re.search(r'<script type="application/json" id="trace">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == run.to_dict() or Trace.from_json(data[1]).to_json() == run.to_json()
    options = re.search(r'id="options">(.*?)</script>', text)
    assert options is not None
    assert json.loads(options[1]) == {
        "panels": list(LEVELS["passes"]),
        "start": 1,
        "cache": False,
        "layer": 0,
    }
    assert list(tmp_path.iterdir()) == [path]


def test_saved_page_keeps_hostile_text_inside_its_data(hostile: Trace, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    Stepper(hostile).save_html(path, title="</title><script>alert(1)</script>", before=["@trace@"])
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "<p>@trace@</p>" in text, "what was filled in is not filled in again"
    data = re.search(r'id="trace">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert [t["text"] for t in json.loads(data[1])["sequences"][0]["tokens"]][:8] == HOSTILE


def test_addresses_around_a_saved_page_can_be_followed(run: Trace, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    Stepper(run).save_html(
        path, after=["See https://arxiv.org/abs/1706.03762?b=1.", 'Not https://x"onclick="alert(1)']
    )
    page = path.read_text(encoding="utf-8")
    there = "https://arxiv.org/abs/1706.03762?b=1"
    assert f'<p>See <a href="{there}">{there}</a>.</p>' in page
    assert "onclick=&quot;" in page
    assert 'onclick="' not in page.split("<script")[0]


def test_saved_page_into_a_folder_that_is_not_there(run: Trace, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*make it first"):
        Stepper(run).save_html(tmp_path / "nowhere" / "index.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "folder"])
def test_saved_page_under_the_name_of_a_folder(
    run: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError, match=rf"^got path='{name}', a folder; expected .*stepper\.html'$"):
        Stepper(run).save_html(name)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


@pytest.mark.parametrize("where", ["title", "before", "after"])
@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("half \ud83d", ValueError, r"got 'half \\ud83d' in {where}.*half of a surrogate pair"),
        (5, TypeError, r"got (5 in {where}|{where}=5), expected"),
        ([None], TypeError, r"got \[?None\]? in {where}, expected text"),
    ],
)
def test_saved_page_with_texts_that_are_none(
    run: Trace, tmp_path: Path, where: str, text: Any, error: type[Exception], words: str
) -> None:
    path = tmp_path / "index.html"
    path.write_text("as it was", encoding="utf-8")
    with pytest.raises(error, match=words.format(where=where)):
        Stepper(run).save_html(path, **{where: text})
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text(encoding="utf-8") == "as it was"


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"panels": "all"}, ValueError, r"got panels='all', expected a level, one of \['passes'"),
        ({"panels": ["wieghts"]}, ValueError, r"got the panel 'wieghts', expected panels out of \['tokens'"),
        (
            {"start": "verify"},
            ValueError,
            r"got start='verify', but this run has \['decode', 'prefill', 'training'\]",
        ),
        ({"start": 3}, ValueError, r"got start=3, expected an index from 0 to 2"),
        ({"start": -1}, ValueError, r"got start=-1, expected an index from 0 to 2"),
        ({"layer": 1}, ValueError, r"got layer=1, but the trace holds layers \[0\]"),
        (
            {"start": 1.5},
            TypeError,
            r"got start=1\.5, expected an index from 0 to 2, or a phase of \['decode'",
        ),
        ({"start": True}, TypeError, r"got start=True, expected an index from 0 to 2"),
        ({"start": [1]}, TypeError, r"got start=\[1\], expected an index from 0 to 2"),
        ({"panels": None}, TypeError, r"got panels=None, expected a level, one of \['passes'"),
        (
            {"layer": True},
            TypeError,
            r"got layer=True, expected one of the layers that the trace holds: \[0\]",
        ),
        ({"layer": 0.0}, TypeError, r"got layer=0\.0, expected one of the layers"),
        ({"cache": "off"}, TypeError, r"got cache='off', expected True \(with a cache\) or False"),
        ({"trace": {}}, TypeError, r"got dict, expected a Trace: pass what toy\.record\(\) returns"),
    ],
)
def test_bad_arguments(run: Trace, arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Stepper(**{"trace": run, **arguments})


def test_start_and_panels(run: Trace) -> None:
    assert Stepper(run).start == 1
    assert Stepper(run, start="training").start == 0
    assert Stepper(run, start=2).start == 2
    whole: Any = np.int64(0)  # a whole number of another kind
    assert type(Stepper(run, start=whole, layer=whole).options["start"]) is int
    assert Stepper(run, [*LEVELS["passes"], "targets"]).panels == (*LEVELS["passes"], "targets")
    assert Stepper(run, ["work"]).panels == (*LEVELS["passes"], "work")
    assert set(Stepper(run).panels) == {panel for level in LEVELS.values() for panel in level}


def test_repr_has_no_address(run: Trace) -> None:
    stepper = Stepper(run)
    assert repr(stepper) == "Stepper(toy: 6 tokens, 2 passes)"
    assert repr(stepper.widget) == "StepperWidget()"


def test_the_widget_is_made_once_and_carries_the_trace(run: Trace) -> None:
    stepper = Stepper(run, "work")
    assert stepper.widget is stepper.widget
    assert stepper.widget.get_state(["trace"])["trace"] == run.to_json()
    assert stepper.widget.get_state(["options"])["options"] == stepper.options


def test_two_outputs(run: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    stepper = Stepper(run)
    stepper._ipython_display_()
    static, live = shown
    assert set(static) == {"text/html", "text/plain"}
    assert static["text/html"] == outputs.static_output(stepper.static_html())
    assert live["text/html"] == " "
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == stepper.widget.model_id
    assert outputs.LIVE in stepper.widget._dom_classes


def test_a_run_without_events(run: Trace) -> None:
    empty = replace(run, runs=[run.runs[0], replace(run.runs[1], events=[])])
    with pytest.raises(ValueError, match="whose run 'uncached' has no events, expected one at least"):
        Stepper(empty)


def test_events_of_a_later_kind_do_not_stop_it(run: Trace) -> None:
    data = run.to_dict()
    for name in data["runs"]:
        name["events"].insert(2, {"op": "swap", "say": "The rows move."})
    trace = Trace.from_dict(data)
    assert isinstance(trace.runs[0].events[2], Other)
    assert len(Tables(Stepper(trace).static_html()).tables) == 3
    assert Stepper(trace, start="swap").start == 2
