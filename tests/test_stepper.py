"""The stepper's Python side: its static form, the saved page, bad arguments; and the tests in tests/js."""

from __future__ import annotations

import html
import json
import math
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import outputs
from helpers.stepper import LEVELS, Stepper, format, script, static
from helpers.stepper.format import VIEW
from helpers.trace import Drop, Other, Pass, Trace
from tests import oracle
from tests.expected import expected, expected_marks, pass_name, view, views
from tests.machine import ROOT
from tests.made_traces import (
    DROP,
    HOSTILE,
    SIZES,
    SWAP,
    WALKED,
    every_look,
    record_toy,
    with_event,
    with_fewer_passes,
)
from tests.toy_cases import write_cases

# Those that JavaScript's tests ask for beside the ones that are walked.
TRACES: dict[str, Callable[[], Trace]] = {
    **WALKED,
    "n64": lambda: record_toy(ban_eos=True, max_new=61),
    "rules": lambda: record_toy(form="rules"),
    "one": lambda: record_toy(["Today"], max_new=1, training=False),
}
SMALL = [name for name in WALKED if name not in SIZES]


@pytest.fixture(scope="module")
def run() -> Trace:
    return record_toy()


@pytest.fixture(scope="module")
def hostile() -> Trace:
    return record_toy(HOSTILE, numbers=list(range(1, 9)))


# What the static form is made of: JupyterLab and GitHub leave these in.
TAGS = {"p", "b", "bdi", "br", "div", "table", "caption", "tr", "th", "td", "details", "summary"}


class Tables(HTMLParser):
    """Reads tables as lists of rows of cell texts, and their styles; notes every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.styles: list[list[list[str]]] = []
        self.tags: set[str] = set()
        self.said: list[str] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        both = (self.tables, self.styles)
        if tag == "table":
            for found in both:
                found.append([])
        elif tag == "tr":
            for found in both:
                found[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.styles[-1][-1].append(dict(attrs)["style"] or "")
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


def passes_of(trace: Trace) -> list[tuple[str, int, int, dict[str, Any]]]:
    """What each pass and layer of the first sequence has to show."""
    return [
        (name, index, layer, expected(trace, name, index, layer))
        for name, index, layer, sequence in every_look(trace)
        if sequence == 0
        and any(part.sequence == 0 for part in getattr(trace.run(name).events[index], "parts", []))
    ]


def looks_at(trace: Trace) -> list[Any]:
    """All that can be turned to: each look, what it has to show, and its views by head and line."""
    looks = [(look, expected(trace, *look)) for look in every_look(trace)]
    return [[look, want, [view(want, *pair) for pair in views(want)]] for look, want in looks]


def write_traces(folder: Path) -> None:
    """Write what the tests in JavaScript read: traces, and what each look at them has to show."""
    for name, make in TRACES.items():
        (folder / f"{name}.json").write_text(make().to_json(), encoding="utf-8")
    walked = {name: looks_at(make()) for name, make in WALKED.items()}
    (folder / "expected.json").write_text(json.dumps(walked), encoding="utf-8")
    write_cases(folder)


def test_javascript(node: str, tmp_path: Path) -> None:
    write_traces(tmp_path)
    files = sorted(str(path) for path in (ROOT / "tests/js").glob("*.test.mjs"))
    assert files
    done = subprocess.run(
        [node, "--test", *files],
        env={"WATCH_IT_DECODE_TRACES": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
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


def cut(cells: list[str]) -> list[str]:
    """The cells of a long table: the first and the last six."""
    return cells if len(cells) <= 14 else [*cells[:6], "…", *cells[-6:]]


def lines_of(table: list[list[str]], size: int) -> tuple[list[list[str]], dict[str, list[str]]]:
    """The rows of the grid, and the bands under it by name."""
    grid = len(cut([""] * size))
    return table[1 : 1 + grid], {row[0]: row[1:] for row in table[1 + grid :]}


@pytest.mark.parametrize("name", SMALL)
def test_every_table_is_the_trace(name: str) -> None:
    trace = WALKED[name]()
    panels = {panel for level in LEVELS.values() for panel in level}
    for run, index, layer, want in passes_of(trace):
        read = Tables(static.render_event(trace, trace.run(run), index, panels, layer))
        check_grid(trace, read.tables[0], want)
        check_bands(trace, read.tables[0], layer, want)
        check_caption(trace, run, index, "".join(read.said), want)


def check_grid(trace: Trace, table: list[list[str]], want: dict[str, Any]) -> None:
    tokens, size = trace.sequences[0].tokens, len(want["marks"])
    assert table[0][1:-1] == cut([f"{token.text} {token.position}" for token in tokens[:size]])
    grid, _ = lines_of(table, size)
    assert [row[0] for row in grid] == cut([token.text for token in tokens[:size]])
    shown = [row for row in grid if row[0] != "…"]
    queries = [int(i) for i in cut([*map(str, range(size))]) if i != "…"]
    assert [row[1:-1] for row in shown] == [cut(want["marks"][query]) for query in queries]
    for row, query in zip(shown, queries, strict=True):
        if want["targets"]:
            assert row[-1] == f"→ {want['targets'][query]}"
        elif query in want["live"]:
            assert row[-1] == ", ".join(map(format.number, want["contexts"][str(query)]))
        else:
            last = want["untouched"].get(str(query))
            assert row[-1] == (f"{last}'s, untouched" if last else "")


def check_bands(trace: Trace, table: list[list[str]], layer: int, want: dict[str, Any]) -> None:
    _, bands = lines_of(table, size := len(want["marks"]))
    states = want["rows"][:size]
    words = {"written": "written", "read": "read", "rest": "at rest", "made": "dropped", "empty": ""}
    said = f"{want['work']['kept'] or len(want['live'])} row"
    assert bands["rows of K, V"][:-1] == cut([words[state] for state in states])
    assert bands["rows of K, V"][-1].startswith(said)
    kept = next((values for values in trace.values or [] if values.layer == layer), None)
    if kept is None:
        return
    texts = [
        format.number(v[0]) if state != "empty" else "" for v, state in zip(kept.v, states, strict=False)
    ]
    assert bands["V"][:-1] == cut(texts)
    if trace.model.name != "toy" and kept.k:
        keys = [" · ".join(map(format.number, k)) for k in kept.k]
        assert bands["K"][:-1] == cut(
            [key if s != "empty" else "" for key, s in zip(keys, states, strict=False)]
        )
    query = str(want["live"][-1])
    lines = zip(want["names"], want["weights"][query], want["sums"][query], strict=True)
    for name, looks, total in lines if size <= 8 and len(want["names"]) <= 4 else []:
        seen = {key: format.number(w) if w * len(looks) >= 0.05 else "·" for key, w in looks}
        assert bands[name] == [*(seen.get(key, "") for key in range(size)), total]
    has_weights = size <= 8 and len(want["names"]) <= 4
    assert [name for name in want["names"] if name in bands] == (want["names"] if has_weights else [])


def check_caption(trace: Trace, run: str, index: int, said: str, want: dict[str, Any]) -> None:
    event = trace.run(run).events[index]
    assert isinstance(event, Pass)
    assert said.lower().startswith(pass_name(trace.run(run), event))
    counts, again = want["work"]["counts"], len(want["live"]) - sum(b - a for a, b in event.parts[0].new)
    many = f"{counts['positions']} tokens run together" if counts["positions"] > 1 else "1 token runs"
    pairs = f"{counts['pairs']} pair{'s' * (counts['pairs'] != 1)}"
    assert f". {many}{f', {again} of them again' if again else ''}; {pairs}; {want['note']}." in said
    how = "" if event.phase == "prefill" else ", with the cache" if run == "cached" else ", no cache"
    assert event.phase == "training" or f"{how}. {many}" in said
    for out in want["out"][-1:]:
        p = {word: p for word, _, p in out["top"]}[out["chosen"]]
        aside = "" if out["how"] == "greedy" else f"; {out['how']}; percentages before these settings"
        assert said.endswith(f" Next word: {out['chosen']} ({format.percent(p)}{aside}).")


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


def test_a_colour_has_one_meaning() -> None:
    """Ground by ground: what stands on it in the pictures."""
    meanings: dict[str, set[str]] = defaultdict(set)
    for name in SMALL:
        for ground, text in re.findall(
            r"background-color:(#\w+)[^>]*>([^<]*)", Stepper(WALKED[name]()).static_html()
        ):
            meanings[ground].add("again" if text.isdigit() else text)
    palette, rows = VIEW["palette"]["light"], VIEW["rows"]
    kept = {rows["written"], rows["read"]}
    assert meanings == {palette["qf"]: {"●"}, palette["gf"]: {""}, palette["kf"]: kept, palette["vf"]: kept}


def folded(stepper: Stepper) -> str:
    """The tables, which stand folded under the two pictures."""
    return stepper.static_html().partition("<details>")[2]


def test_static_form_in_words(run: Trace) -> None:
    read = Tables(folded(Stepper(run)))
    text = "".join(read.said)
    assert "Prefill. 4 tokens run together; 10 pairs; 4 rows written. Next word: nice (72.3%)." in text
    assert "Decode 1, with the cache. 1 token runs; 5 pairs; 4 rows read, 1 written." in text
    assert (
        "Decode 1, no cache. 5 tokens run together, 4 of them again; 15 pairs; 5 rows made, 4 again." in text
    )
    assert (
        "The cache runs 1 of 5 tokens and scores 5 of 15 pairs; it avoids 4 and 10, and the word is" in text
    )
    assert text.endswith("2, 3, … scored for the 2nd, 3rd, … time")
    for table, name, index in zip(read.tables, ("cached", "cached", "uncached"), (1, 2, 2), strict=True):
        assert [row[1:-1] for row in lines_of(table, len(table[0]) - 2)[0]] == expected_marks(
            run, name, index
        )
    _, bands = lines_of(read.tables[1], 5)
    assert bands["K"] == ["no · 1", "yes · 2", "no · 3", "yes · 4", "no · 5", "even? · position"]
    assert bands["attention weights"][0] == "of nice, a line for each head"
    assert bands["even"] == ["·", "0.5", "·", "0.5", "·", "0.5 × 20 + 0.5 × 5 = 12.5"]


def test_static_form_that_starts_with_training_shows_the_targets(run: Trace) -> None:
    read = Tables(folded(Stepper(run, start="training")))
    assert len(read.tables) == 4
    assert [row[-1] for row in read.tables[0][:5]] == ["target", "→ weather", "→ is", "→ so", "→ nice"]
    assert "Training, for reference. 4 tokens run together; 10 pairs; 4 rows made" in "".join(read.said)


def test_static_form_needs_nothing_that_notebooks_strip(run: Trace) -> None:
    text = Stepper(run).static_html()
    assert Tables(text).tags <= TAGS
    assert "var(" not in text
    assert "class=" not in text
    for style in re.findall(r'style="([^"]*)"', text):
        both = re.search(r"background-color:#\w+;color:#\w+", style)
        assert bool(both) == ("color" in style), "ground and ink come together, for light and dark themes"
    assert text == Stepper(record_toy()).static_html(), "it is deterministic"


def test_static_form_grows_with_the_levels(run: Trace) -> None:
    few = Stepper(run, "passes").static_html()
    assert not [word for word in ("contexts", "72.3%", "no · 1", "attention") if word in few]
    assert "written" in few
    assert "runs in this pass" in few
    assert "12.5" in Stepper(run, "attention").static_html()
    assert "no · 1" not in Stepper(run, "work").static_html()


def test_static_form_of_a_long_run_is_short_and_says_so() -> None:
    text = Stepper(record_toy(ban_eos=True, max_new=61)).static_html()
    read = Tables(text)
    assert [len(table[0]) for table in read.tables] == [6, 7, 6, 7, 15, 15]
    assert "61 passes in all; 58 between the first and the last are not shown here." in "".join(read.said)
    assert "Next word: nice (13.4%; greedy, <eos> banned; percentages before these settings)." in "".join(
        read.said
    )
    assert read.tables[5][1][1] == "61"
    assert len(text) < 60_000


@pytest.mark.parametrize("number", [1e308, -1e308, 5e-324])
def test_static_form_of_very_large_and_small_numbers(number: float) -> None:
    trace = record_toy()
    assert trace.values is not None
    trace.values[0].v[0] = [number]
    assert f">{format.number(number)}<" in Stepper(trace).static_html()


def test_numbers_texts_and_templates_are_written_as_in_javascript() -> None:
    cases = json.loads((ROOT / "tests/texts.json").read_text(encoding="utf-8"))
    ways: dict[str, Callable[[Any], str]] = {
        "texts": format.visible,
        "clipped": lambda text: format.clipped(text, 10),
        "numbers": format.number,
        "percents": format.percent,
    }
    for name, write in ways.items():
        assert [write(what) for what, _ in cases[name]] == [said for _, said in cases[name]]
    for template, values, said in cases["filled"]:
        assert format.fill(template, **values) == said


@pytest.mark.parametrize(
    ("event", "index", "name"),
    [(DROP, 3, "cached"), *((SWAP, index, name) for index in (0, 2, 3) for name in ("cached", "uncached"))],
)
def test_an_event_in_one_run_only_is_its_sentence_and_moves_no_pass(
    run: Trace, event: Drop | Other, index: int, name: str
) -> None:
    text = Stepper(with_event(event, index, name)).static_html()
    sentence = f"<p>{html.escape(event.say)}</p>"
    assert (sentence in text) == (name == "cached")
    assert text.replace(sentence, "") == Stepper(run).static_html()


def test_a_run_with_fewer_passes_is_compared_where_both_have_one() -> None:
    read = Tables(folded(Stepper(with_fewer_passes())))
    said = "".join(read.said)
    assert len(read.tables) == 4, "prefill, decode 1 and 4 with the cache, decode 1 without"
    assert said.index("Decode 4, with the cache") < said.index("Decode 1, no cache")
    assert "The cache runs 1 of 5 tokens and scores 5 of 15 pairs" in said
    read = Tables(folded(Stepper(with_fewer_passes(4))))
    assert len(read.tables) == 3
    assert not [words for words in ("The cache runs", "2nd, 3rd") if words in "".join(read.said)]


def test_static_form_shows_hostile_text_as_text(hostile: Trace) -> None:
    text = Stepper(hostile).static_html()
    read = Tables(text)
    assert read.tags <= TAGS
    names = [row[0] for row in Tables(folded(Stepper(hostile))).tables[0][1:9]]
    assert (names[0], names[2], names[3]) == ("<img src=x onerror=…", "U+202Eשלום", "U+200B")
    assert names[5] == "x" * 19 + "…"
    assert 'title="' + "x" * 200 + '"' in text
    turned = deepcopy(hostile)
    turned.sequences[0].tokens[0].text = "a\u2069\u202eb"
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", Stepper(turned).static_html())


def test_one_run_without_a_cache() -> None:
    prefill, decode = Tables(folded(Stepper(record_toy(form="rules")))).tables
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
    assert not re.search(r"(src|href)\s*=(?!\"data:)|https?://|@import|url\(", text)
    assert "default-src 'none'" in text
    data = re.search(r'<script type="application/json" id="data0">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == json.loads(run.to_json())
    views = re.search(r'id="views">(.*?)</script>', text)
    assert views is not None
    assert json.loads(views[1])[0] == {
        "id": "view0",
        "view": "stepper",
        "data": 0,
        "address": True,
        "panels": list(LEVELS["passes"]),
        "start": 1,
        "cache": False,
        "layer": 0,
        "head": None,
    }
    assert list(tmp_path.iterdir()) == [path]


def test_saved_page_keeps_hostile_text_inside_its_data(hostile: Trace, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    Stepper(hostile).save_html(path, title="</title><script>alert(1)</script>", before=["@trace@"])
    text = path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "<p>@trace@</p>" in text, "what was filled in is not filled in again"
    data = re.search(r'id="data0">(.*?)</script>', text, re.DOTALL)
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
            r"got start='verify', expected an index from 0 to 2, or a phase of",
        ),
        ({"start": 3}, ValueError, r"got start=3, expected an index from 0 to 2, or a phase of \['decode'"),
        ({"start": 1.0}, ValueError, r"got start=1\.0, expected an index from 0 to 2"),
        ({"layer": 1}, ValueError, r"got layer=1, expected one of the layers that the trace holds: \[0\]"),
        ({"layer": True}, ValueError, r"got layer=True, expected one of the layers"),
        ({"panels": None}, TypeError, r"got panels=None, expected a level, one of \['passes'"),
        ({"cache": "off"}, TypeError, r"got cache='off', expected True \(with a cache\) or False"),
        ({"trace": {}}, TypeError, r"got dict, expected a Trace: pass what record_toy\(\) returns"),
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
    assert repr(stepper.widget) == "ViewWidget()"


def test_the_widget_is_made_once_and_carries_the_trace(run: Trace) -> None:
    stepper = Stepper(run, "work")
    assert stepper.widget is stepper.widget
    assert stepper.widget.get_state(["data"])["data"] == run.to_json()
    assert stepper.widget.get_state(["options"])["options"] == {**stepper.options, "view": "stepper"}


def test_two_outputs(run: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    stepper = Stepper(run)
    stepper._ipython_display_()
    static, live = shown
    assert set(static) == {"text/html", "text/plain"}
    assert static["text/html"] == outputs.static_output(f"{stepper.static_html()}<p>{stepper.invitation}</p>")
    assert live["text/html"] == " "
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == stepper.widget.model_id
    assert outputs.LIVE in stepper.widget._dom_classes


def test_a_run_without_events(run: Trace) -> None:
    empty = replace(run, runs=[run.runs[0], replace(run.runs[1], events=[])])
    with pytest.raises(ValueError, match="whose run 'uncached' has no events, expected one at least"):
        Stepper(empty)


def test_events_of_a_later_kind_do_not_stop_it() -> None:
    trace = with_event(SWAP, 2, "uncached", with_event(SWAP, 2))
    assert len(Tables(folded(Stepper(trace))).tables) == 3
    assert Stepper(trace, start="swap").start == 2
