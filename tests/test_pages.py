"""What is published: pictures of the static form, the page to send, the gallery, notebooks as pages."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import make_page
import nbformat
import numpy as np
import pytest
from run_notebooks import KERNELSPEC, execute

from helpers.recording.diary import load_diary
from helpers.stepper import Stepper
from helpers.stepper.format import clipped
from helpers.stepper.page import Link, Section, build
from helpers.trace import Trace
from tests.machine import NOTEBOOKS, ROOT
from tests.made_traces import HOSTILE, record_toy
from tests.test_stepper import Tables

MOST = 400_000  # bytes of a page that is sent
TRACES: dict[str, Callable[[], Trace]] = {
    "toy": record_toy,
    "two layers": lambda: record_toy(n_layers=2),
    "rules": lambda: record_toy(form="rules"),
    "hostile": lambda: record_toy(HOSTILE, numbers=list(range(1, 9))),
    "12 columns": lambda: record_toy(["Today"] * 12, numbers=[1] * 12, max_new=2),
    "diary": load_diary,
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """What the workflow publishes, but for the notebooks."""
    diary = load_diary()
    return {"index.html": make_page.index(diary), **make_page.gallery(diary)}


# ---- the pictures of a stepper that is not running


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("start", ["prefill", "training"])
def test_a_picture_shows_what_the_table_of_its_pass_does(name: str, start: str) -> None:
    """Tables are held against the trace. Both hold all columns of a short run, the last six of a long one."""
    trace = TRACES[name]()
    run, tokens = trace.runs[0], trace.sequences[0].tokens
    passes = [event for event in run.passes if event.phase == start == "training"] + run.steps
    if start not in {event.phase for event in passes}:
        pytest.skip("recorded without training")
    pictures, _, tables = Stepper(trace, start=start).static_html().partition("<details>")
    drawn, full = Tables(pictures).tables, Tables(tables).tables
    assert len(drawn) == min(2, len(passes))
    for picture, table, event in zip(drawn, full, passes, strict=False):
        part, columns = event.parts[0], len(table[0]) - 2
        n = columns if columns <= 12 and "…" not in table[0] else 6
        grid, bands = table[1 : 1 + columns], {row[0]: row[1:-1] for row in table[1 + columns :]}
        lines, drawer = picture[1:-2], picture[-1]
        assert [line[1:-1][-n:] for line in lines[-n:]] == [row[1:-1][-n:] for row in grid[-n:]]
        assert drawer[1:-1][-n:] == [word * 2 for word in bands["rows of K, V"][-n:]], "K and V"
        gives = {out.query: out.chosen for out in part.out} | dict(
            zip(part.queries, part.target or [], strict=False)
        )
        said = {query: f"→ {clipped(tokens[token].text, 9)}" for query, token in gives.items()}
        size = part.queries[-1] + 1
        assert [line[-1] for line in lines[-n:]] == [said.get(query, "") for query in range(size)][-n:]
        assert picture[0][0] == (f"… {size - 12} more" if size > 12 else "")


def test_pictures_come_first_and_a_cell_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    Stepper(record_toy(), start="training")._ipython_display_()
    text = shown[0]["text/html"]
    assert [name in text for name in ("training keeps nothing", "KV cache")] == [True, True]
    assert text.index("KV cache") < text.index("<details>")
    assert "<p>Run this cell to step through it, pass by pass: 2 in all.</p>" in text
    assert "Run this cell" not in Stepper(record_toy()).static_html(), "a page has no cells"


# ---- the page to send, and the gallery


def test_pages_are_small_and_ask_nobody_for_anything(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        assert len(text.encode()) < MOST, name
        assert not re.search(r"<(?!a\b)[a-z]+[^>]*\s(src|href)=(?!\"data:)|@import|url\(", text), name
        for address in re.findall(r'href="([^"]*\.html)"', text):
            assert (
                address in {*pages, "worksheet.html"} or (ROOT / address.replace(".html", ".ipynb")).is_file()
            )


def test_the_map_is_the_readmes(pages: dict[str, str]) -> None:
    found = [link.address for link in make_page.notebooks()]
    assert found == [f"notebooks/{path.stem}.html" for path in NOTEBOOKS]
    for link in make_page.notebooks():
        assert f">{link.text}</a> <span>{html.escape(link.note)}</span>" in pages["index.html"]


def test_race_stepper_and_what_if_share_what_they_can(pages: dict[str, str]) -> None:
    views = re.search(r'id="views">(.*?)</script>', pages["index.html"])
    assert views is not None
    found = [(view["view"], view["data"]) for view in json.loads(views[1])]
    assert found == [("race", 0), ("stepper", 0), ("what_if", 1)], "one trace for both"
    assert pages["index.html"].count("<noscript>") == 3
    assert "46 tokens run or 828" in pages["index.html"]


def test_what_the_gallery_says_of_the_published_model(pages: dict[str, str]) -> None:
    trace = Trace.load(ROOT / ".ci/smollm2.json")
    assert (ROOT / ".ci/smollm2.json").stat().st_size < 150_000
    said = "30 layers of 9 heads, with 3 heads of K and V. Shown are heads 1, 3 and 9 of layers 2, 17 and 24"
    assert said in pages["smollm2.html"]
    first = [trace.attention_weights(token, 23, head)[0] for token in range(1, 16) for head in (0, 2, 8)]
    assert np.mean(first) > 0.95, "nearly all of the weight lies on the first token"


def test_links_of_a_page_are_text() -> None:
    text = build("a", [Section(links=[Link("<b>", 'x"onclick="alert(1)', "<img src=x>")])], summary='"><b>')
    assert (
        '<li><a href="x&quot;onclick=&quot;alert(1)">&lt;b&gt;</a> <span>&lt;img src=x&gt;</span></li>'
        in text
    )
    assert 'content="&quot;&gt;&lt;b&gt;"' in text


# ---- notebooks as pages


def test_a_notebook_as_a_page(tmp_path: Path) -> None:
    """Its stored outputs stay; a view comes to life over its static form; nothing comes from the network."""
    new = nbformat.v4
    stepper = "from helpers.recording.toy import record_toy\nfrom helpers.stepper import Stepper\n"
    cells = [
        new.new_markdown_cell("# Two & two\n$x_1 < 2$, `$5`, [next](01_x.ipynb), [code](../helpers/toy.py)"),
        new.new_code_cell("print(6 * 7)"),
        new.new_code_cell(stepper + "Stepper(record_toy())"),
    ]
    book = new.new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC})
    execute(book, ROOT)
    book.cells[1].outputs[0].text = "as it was stored"
    nbformat.write(book, tmp_path / "00_two.ipynb")
    renderer = pytest.importorskip("render_notebooks")  # its libraries are the tests', not a reader's
    page = renderer.render(tmp_path / "00_two.ipynb")
    assert "<title>Two &amp; two</title>" in page
    assert "as it was stored" in page
    assert page.index('class="wid-static"') < page.index('<div class="view" id="view0">')
    assert record_toy().to_json().replace("<", "\\u003c") in page
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in page
    assert "<code>$5</code>" in page
    assert 'href="01_x.html"' in page
    assert "/blob/main/helpers/toy.py" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=(?!\"data:)|@import|url\(", page)
