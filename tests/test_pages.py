"""The published site: the main page, the gallery, rendered notebooks."""

from __future__ import annotations

import html
import itertools
import json
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from helpers.recording.diary import load_diary
from helpers.stepper import Live
from helpers.stepper.format import percent
from helpers.stepper.page import Link, Section, build_page, file_script
from helpers.trace import Trace
from tests.machine import NOTEBOOKS, ROOT, prose_of
from tests.made_traces import record_toy
from tools import film_page, handout, launch, site
from tools.notebooks import KERNELSPEC, execute_notebook

MOST = 500_000  # bytes of a page that is sent, with the lab, StepTime, the families it reads and two stills


@pytest.fixture(scope="module")
def plain() -> dict[str, str]:
    """What site.py writes without the notebooks."""
    pytest.importorskip("torch", reason="the gallery has the run of an engine")
    return site.link_missing_pages_to_site(site.pages_without_notebooks())


@pytest.fixture(scope="module")
def pages(plain: dict[str, str]) -> dict[str, str]:
    """The pages to send and to step through."""
    return {name: text for name, text in plain.items() if name not in ("film.html", "slides.html")}


# ---- the page to send, and the gallery


def test_pages_are_small_and_load_nothing(pages: dict[str, str]) -> None:
    assert "connect-src" not in pages["index.html"], "such a page can send nothing anywhere"
    for name, text in pages.items():
        assert len(text.encode()) < MOST, name
        headings = re.findall(r"<section[^>]*>\n<h2>(.*?)</h2>", text)
        assert re.findall(r'class="skip"[^>]*>(.*?)</a>', text) == headings, name
        assert not re.search(r"<(?!a\b)[a-z]+[^>]*\s(src|href)=(?!\"data:)|@import|url\(", text), name


def test_command_writes_all_files_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "pages_without_notebooks", lambda published: {"index.html": "×"})
    monkeypatch.setattr("sys.argv", ["site"])
    for _ in range(2):
        site.main()
    written = {path.name for path in (tmp_path / "build").iterdir() if path.is_file()}
    others = {site.PREVIEW.name, *(path.name for path in film_page.FILMS), file_script(Live.file)[0]}
    assert written == others | {"index.html"}
    assert (tmp_path / "build/index.html").read_text(encoding="utf-8") == "×"


def test_links_between_pages_exist(plain: dict[str, str]) -> None:
    """To a page or a file that is made with it, or to one that is published with the notebooks."""
    published = {launch.site_url() + name for name in [*plain, "search.html"]}
    published |= {f"{launch.site_url()}notebooks/{path.stem}.html" for path in NOTEBOOKS}
    here = {*plain, site.PREVIEW.name, *(path.name for path in film_page.FILMS)}
    seen = set()
    for name, text in plain.items():
        for address in re.findall(r'<(?:a|img|source|video|link)\b[^>]* (?:href|src|poster)="([^"]*)"', text):
            target = html.unescape(address).partition("#")[0]
            seen.add(target)
            elsewhere = target.startswith(("https:", "data:")) and not target.startswith(launch.site_url())
            assert not target or elsewhere or target in here | published, (name, address)
    assert len(seen & published) > len(NOTEBOOKS)
    assert len(seen & here) > 15


def test_listed_notebooks_match_the_readme(pages: dict[str, str]) -> None:
    found = [link.address for link in site.notebook_links()]
    assert found == [f"notebooks/{path.stem}.html" for path in NOTEBOOKS]
    for link in site.notebook_links():
        assert f">{link.text}</a> <span>{html.escape(link.note)}</span>" in pages["ways.html"]
    listed = pages["ways.html"].count('09_pause_and_drip.html"')
    assert listed == 3, "on the short way, on the whole, and on the way to understand it"


def test_questions_have_one_short_answer(
    pages: dict[str, str],
) -> None:
    asked = site.question_links()
    text = prose_of(ROOT / "notebooks" / "questions.ipynb")
    lines = [line for line in text.splitlines() if line.startswith("| ") and "| you ask |" not in line]
    assert len(asked) == len(lines), "all are read"
    assert len({link.text for link in asked}) == len(asked)
    for link in asked:
        assert re.fullmatch(r"[A-Z].*\.", link.note), link.text
        assert len(re.findall(r"[.?] ", link.note)) <= 2, link.text
    few = re.findall(r"^- \[(.+\?)\]\((\S+)\.ipynb(#\S+)\)$", site.readme_text(), re.MULTILINE)
    assert len(few) == 6
    assert {(q, f"{page}.html{cell}") for q, page, cell in few} <= {(one.text, one.address) for one in asked}
    for words in (site.readme_text(), text):
        assert f"{len(asked)} questions that people ask" in words
    assert f"Six of [{len(asked)}]" in site.readme_text()
    assert f"“{site.CATCHING}” and {len(asked) - 1} more." in pages["index.html"]
    assert site.CATCHING in {link.text for link in asked}


def test_preview_picture_is_in_the_metadata() -> None:
    address = "https://OWNER.github.io/race.png"
    assert f'<meta property="og:image" content="{address}">' in build_page("Title", [], picture=address)
    assert "og:image" not in build_page("Title", [])


def test_film_has_its_captions_as_transcript() -> None:
    """To make it again: python -m tools film_page."""
    page = film_page.film_page()
    lines = re.findall(r"<li>([^<]+)</li>", page)
    assert tuple(map(html.unescape, lines)) == film_page.CAPTIONS
    assert re.findall(r'<source src="([^"]+)"', page) == ["film.webm", "film.mp4"]
    assert f"a film** of {film_page.FILM_SECONDS:.0f} seconds" in site.readme_text()
    _, mp4 = (file.read_bytes() for file in film_page.FILMS)
    assert mp4.index(b"moov") < mp4.index(b"mdat"), "it begins before all of it is there"


def test_main_page_has_views_and_their_pictures(pages: dict[str, str]) -> None:
    views = re.search(r'id="views">(.*?)</script>', pages["index.html"])
    assert views is not None
    found = [(view["view"], view["data"]) for view in json.loads(views[1])]
    assert found == [("live", 0), ("stepper", 1), ("what_if", 2), ("step_time", 3)]
    assert pages["index.html"].count('<noscript><img alt="') == 2, "those that a notebook has, too"
    for moment in re.findall(r'href="#[^"]*at=(view\d)"', pages["index.html"]):
        assert f'<div class="view" id="{moment}">' in pages["index.html"]
    assert "<noscript><p>StepTime(" in pages["index.html"]


def test_main_page_shows_the_percentages_of_the_diary() -> None:
    diary = load_diary()
    shown = [
        [percent(p) for step in run.passes for part in step.parts for out in part.out for *_, p in out.top]
        for trace in (diary, site.round_trace(diary))
        for run in trace.runs
    ]
    half = len(shown) // 2
    assert shown[:half] == shown[half:]
    assert {"<0.1%", ">99.9%"} <= {text for run in shown for text in run}


def test_prefill_against_decode_matches_a_recorded_run(pages: dict[str, str]) -> None:
    """Its formulas, with T and S put in, are what a recorder counted and the shapes that it saw."""
    from helpers.model import shipped  # with PyTorch
    from helpers.recording.model import record_model

    rows = re.findall(
        r'rowheader">(.+?)</th><td role="cell">(.+?)</td><td role="cell">(.+?)</td>', pages["index.html"]
    )
    cells = {name: both for name, *both in rows}
    assert len(cells) == len(handout.match_section()["table"].splitlines()) - 2
    model, tokenizer = shipped.load_shipped()
    trace = record_model(model, "Mia writes from Oslo.", tokenizer, max_new_tokens=3)
    T = trace.sequences[0].prompt
    runs = zip(*(trace.only_run(name).runs[0].steps for name in ("cached", "uncached")), strict=True)
    for n, (kept, again) in enumerate(runs):
        sizes = {"T": T, "S": T + n}

        def numbers(name: str, column: int = min(n, 1), sizes: dict[str, int] = sizes) -> list[int]:
            text = re.sub(r"T\(", "T*(", cells[name][column].replace("\xa0", " ").replace("−", "-"))
            formulas = re.findall(r"(?<![\w>])(?:T\*\(.+?\) / 2|S - 1|[TS\d])(?!\w)", text)
            return [int(eval(one, {}, sizes)) for one in formulas]

        assert numbers("scores of a head")[:2] == kept.shapes[0]["scores"][2:]
        assert numbers("scores of a head")[2:] == ([kept.counts["pairs"]] if n == 0 else [])
        assert kept.counts["pairs"] < kept.counts["products"] or n > 0, "none is masked in a decode step"
        taken = {0: ["kv_rows"]}.get(n, ["rows_read", "kv_rows"])
        assert numbers("the cache") == [
            *(kept.counts[one] for one in taken),
            *[again.counts["positions"]] * (n > 0),
        ]


def test_gallery_text_on_the_published_model(pages: dict[str, str]) -> None:
    trace = Trace.load(ROOT / "tools/data/smollm2.json")
    assert (ROOT / "tools/data/smollm2.json").stat().st_size < 150_000
    size, shown = trace.model, itertools.product((1, 16, 23), (0, 2, 8))
    assert (size.n_layers, size.n_heads, size.n_kv_heads, trace.recorded) == (30, 9, 3, [*shown])
    first = [trace.attention_weights(token, 23, head)[0] for token in range(1, 16) for head in (0, 2, 8)]
    assert np.mean(first) > 0.95, "nearly all of the weight lies on the first token"


def test_link_texts_are_escaped() -> None:
    text = build_page(
        "a", [Section(links=[Link("<b>", 'x"onclick="alert(1)', "<img src=x>")])], summary='"><b>'
    )
    assert (
        '<li><a href="x&quot;onclick=&quot;alert(1)">&lt;b&gt;</a> <span>&lt;img src=x&gt;</span></li>'
        in text
    )
    assert 'content="&quot;&gt;&lt;b&gt;"' in text


# ---- notebooks as pages


def test_rendered_notebook_keeps_outputs_and_views(tmp_path: Path) -> None:
    """Its stored outputs stay; a view comes to life under its picture; nothing comes from the network."""
    new = nbformat.v4
    stepper = "from helpers.recording.toy import record_toy\nfrom helpers.stepper import Stepper\n"
    cells = [
        new.new_markdown_cell("# Two & two\n$x_1 < 2$, `$5`, [next](01_x.ipynb), [code](../helpers/toy.py)"),
        new.new_code_cell("print(6 * 7)"),
        new.new_code_cell(stepper + "Stepper(record_toy())"),
        new.new_code_cell("from helpers.stepper import Live\nLive()"),
    ]
    book = new.new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC})
    execute_notebook(book, ROOT)
    book.cells[1].outputs[0].text = "as it was stored"
    nbformat.write(book, tmp_path / "00_two.ipynb")
    renderer = pytest.importorskip("tools.render")  # its libraries are the tests', not a reader's
    page = renderer.render_notebook(tmp_path / "00_two.ipynb")
    assert "<title>Two &amp; two</title>" in page
    assert "as it was stored" in page
    assert page.index('class="wid-static"') < page.index('<div class="view" id="view0">')
    assert record_toy().to_json().replace("<", "\\u003c") in page
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in page
    assert "<code>$5</code>" in page
    assert 'href="01_x.html"' in page
    assert "/blob/main/helpers/toy.py" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=(?!\"data:)|@import|url\(", page)
    views = json.loads(page.partition('id="views">')[2].partition("</script>")[0])
    beside = [f"{view['file']}.js" for view in views if "file" in view]
    assert beside == [file_script(Live.file)[0]], "site.py lays it beside the page"


def test_poster_and_threads_name_the_same_bugs(pages: dict[str, str]) -> None:
    drawn, message = (
        set(re.findall(pattern, pages["museum.html"]))
        for pattern in (r"(room \d+): \d+ passes", r"(room \d+): (?!\d+ passes)")
    )
    assert drawn == message
    assert len(drawn) == 10
