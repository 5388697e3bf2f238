"""The published site: the book, its pages with views, and what is printed."""

from __future__ import annotations

import base64
import html
import itertools
import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import numpy as np
import pytest

from helpers.recording.diary import load_diary
from helpers.stepper.format import percent
from helpers.stepper.page import Link, Section, build_page
from helpers.trace import Trace
from tests.machine import NOTEBOOKS, ROOT, prose_of
from tools import film_page, handout, launch, pdf, site
from tools.book import render
from tools.notebooks import WIDGET_VIEW

MOST = 500_000  # bytes of a page
LOADS = re.compile(
    r'<(?:script|img|iframe|video|source|link rel="(?:stylesheet|preload|icon)")\b[^>]*?\s'
    r'(?:src|href)="(?!data:)([^"]*)'
)
LEADS = re.compile(r'<(?:a|img|source|video|link|script)\b[^>]*?\s(?:href|src|poster)="([^"]*)"')
IDS = re.compile(r'\bid="([^"]+)"')
STATE = re.compile(r"(?!cell-id=)[a-z-]+=")  # what a view shows, in an address


def article_of(text: str) -> str:
    """Return the part of a page between its menus."""
    return text.partition("<article")[2].partition("</article>")[0]


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, str]:
    """The HTML of all pages, by name."""
    found = [*built.glob("*.html"), *built.glob("notebooks/*.html")]
    return {path.relative_to(built).as_posix(): path.read_text(encoding="utf-8") for path in found}


# ---- the whole


def test_pages_are_small_and_load_nothing(pages: dict[str, str], built: Path) -> None:
    """Nothing comes from a network, and a page can send nothing anywhere."""
    for name, text in pages.items():
        assert len(text.encode()) < MOST, name
        assert not [address for address in LOADS.findall(text) if "://" in address], name
        if article_of(text):
            assert "default-src 'none'" in text
            assert "connect-src" not in text
    styles = "".join(path.read_text(encoding="utf-8") for path in built.rglob("*.css"))
    assert not re.findall(r"url\([\"']?(?:https?:)?//", styles)


def test_every_page_has_menu_contents_and_footer(pages: dict[str, str]) -> None:
    """And the buttons of a notebook: Colab with the version, Binder, edit, issue."""
    for path in NOTEBOOKS:
        text = pages[f"notebooks/{path.stem}.html"]
        for way in site.PARTS:
            assert f">{way}</span>" in text
        for link in site.notebook_links():
            assert f">\n    {html.escape(link.text)}\n" in text or f">{html.escape(link.text)}</a>" in text
        source = f"notebooks/{path.name}"
        wanted = [launch.colab_url(source), launch.binder_url(source), f"/edit/main/{source}", "/issues/new?"]
        assert [one for one in wanted if html.escape(one) not in text and one not in text] == []
        assert launch.version_tag() in text.partition("<footer")[2]
        assert 'rel="canonical"' in text


def test_print_command_needs_no_sphinx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["site", "--print"])
    for _ in range(2):
        site.main()
    assert {path.name for path in (tmp_path / "build").iterdir()} == set(site.pages_to_print())
    monkeypatch.setattr("sys.argv", ["site"])
    monkeypatch.setattr(site, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install -r tools/requirements\.txt"):
        site.main()


def test_every_link_leads_to_a_place(pages: dict[str, str], built: Path) -> None:
    """Each link inside the site: its file is there, and the id after the number sign, too."""
    ids = {name: {*IDS.findall(text), *map(html.unescape, IDS.findall(text))} for name, text in pages.items()}
    lost, seen = [], 0
    for name, text in pages.items():
        for address in {html.unescape(one) for one in LEADS.findall(text)}:
            if re.match("[a-z]+:", address):
                continue
            path, _, place = address.partition("#")
            file = (built / name).parent / path.partition("?")[0] if path else built / name
            inside, seen = Path(os.path.relpath(file, built)).as_posix(), seen + 1
            here = not place or STATE.match(place) or {place, unquote(place)} & ids.get(inside, set())
            if not file.exists() or not here:
                lost.append((name, address))
    assert lost == []
    assert seen > 3000


def test_links_to_files_lead_to_github(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        assert not re.findall(r'href="[^":]*(?:\.ipynb|\.py|\.md)\b[^"]*"', article_of(text)), name
    there = f"{launch.GITHUB}{launch.repository_name()}/blob/main/helpers/recording/diary.py"
    assert there in pages["notebooks/00_start_here.html"]


def test_listed_notebooks_match_the_readme(pages: dict[str, str]) -> None:
    found = [link.address for link in site.notebook_links()]
    assert found == [f"notebooks/{path.stem}.html" for path in NOTEBOOKS]
    for link in site.notebook_links():
        assert f">{link.text}</a> <span>{html.escape(link.note)}</span>" in pages["ways.html"]
    assert article_of(pages["ways.html"]).count('09_pause_and_drip.html"') == 3, (
        "on the short way, the whole, and to understand it"
    )


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


def test_every_page_has_a_social_card(pages: dict[str, str], built: Path) -> None:
    root = launch.site_url()
    for name, text in pages.items():
        if article_of(text):
            picture = re.search(r'<meta property="og:image" content="([^"]+)"', text)
            assert picture, name
            assert (built / picture[1].removeprefix(root)).exists(), picture[1]
    assert f'content="{root}race.png"' in pages["index.html"]
    assert f"{root}notebooks/04_kv_cache.html" in (built / "sitemap.xml").read_text(encoding="utf-8")


def test_film_has_its_captions_as_transcript(pages: dict[str, str]) -> None:
    page = pages["film.html"].partition("<article")[2]
    lines = re.findall(r"<li>([^<]+)</li>", page)
    assert tuple(map(html.unescape, lines)) == film_page.CAPTIONS
    assert re.findall(r'<source src="([^"]+)"', page) == [path.name for path in film_page.FILMS]
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


def test_notebooks_show_stored_outputs_and_views_once(pages: dict[str, str]) -> None:
    for path in NOTEBOOKS:
        text = pages[f"notebooks/{path.stem}.html"]
        book = nbformat.read(path, as_version=4)
        outputs = [out for cell in book.cells for out in cell.get("outputs", [])]
        views = re.search(r'id="views">(.*?)</script>', text)
        pictures = [
            base64.b64decode(out.data["image/png"]) for out in outputs if "image/png" in out.get("data", {})
        ]
        n_views = sum(picture in render.stills() for picture in pictures)
        n_other = sum(WIDGET_VIEW in out.get("data", {}) for out in outputs) - n_views  # they need a kernel
        assert len(json.loads(views[1]) if views else []) == n_views, path.stem
        assert text.count('<div class="still"><img alt="') == n_views
        assert len(re.findall(r'<img alt="[^"]+" width="\d+" src="data:image', text)) == n_views + n_other
        figures = [out for out in outputs if "<svg" in out.get("data", {}).get("text/html", "")]
        assert len(re.findall(r'class="wid-figure"[^>]*><svg', text)) == len(figures)
        assert "jupyter_execute" not in text
        assert "Run this cell" not in text, "nothing runs there"
        ids = {f"cell-id={cell.id}" for cell in book.cells if not cell.metadata.get("jupyter")}
        assert ids <= set(re.findall(r'<span id="(cell-id=[^"]+)"', text))
        shown = html.unescape(re.sub("<[^>]+>", "", text))
        said = [out.text.splitlines()[0] for out in outputs if out.output_type == "stream"]
        assert [line for line in said if line not in shown] == []


def test_code_and_formulas_are_as_written(pages: dict[str, str]) -> None:
    new = nbformat.v4
    cells = [
        new.new_markdown_cell("# Two & two\n$x_1 < 2$, `$5`, [next](01_x.ipynb)", id="first"),
        new.new_code_cell("print(1)", id="second"),
    ]
    text = render.book_notebook(new.new_notebook(cells=cells)).cells
    assert text[0].source.startswith('# Two & two\n\n<span id="cell-id=first"></span>\n\n$x_1 < 2$, `$5`')
    assert text[1].source.startswith('<span id="cell-id=second">')
    assert '<div class="math notranslate' in pages["notebooks/12_floor.html"]
    assert 'src="../_static/tex-svg.js' in pages["notebooks/12_floor.html"]
    assert "tex-svg.js" not in pages["notebooks/words.html"], "only where there is a formula"


def test_pages_to_print_keep_links_and_open_folds(built: Path) -> None:
    """A link leads to a page of the same PDF or to the site; a view is its still, an answer is in sight."""
    names = ["03_decode", "04_kv_cache"]
    text = pdf.page_to_print("Two", [built / "notebooks" / f"{name}.html" for name in names])
    ids, addresses = set(IDS.findall(text)), set(LEADS.findall(text.partition("<body")[2]))
    inside = {html.unescape(one)[1:] for one in addresses if one.startswith("#")}
    assert "04_kv_cache--" in inside
    assert inside <= ids
    assert not [one for one in addresses if not one.startswith(("#", "https://", "data:"))]
    assert f"{launch.site_url()}notebooks/05_keep_it_right.html" in addresses
    assert text.count('<div class="still"><img alt="') == 2
    assert "views.js" not in text
    folds = re.findall(r"<details([^>]*)>\s*<summary>(.*?)</summary>", text)
    assert {fold for shown, fold in folds if "open" not in shown} == {"The picture in words"}


def test_the_book_leads_to_a_heading_that_exists() -> None:
    anchor = re.search(r"#([\w-]+)\)$", render.HERE_IT_IS_STORED)
    headings = re.findall("^## (.+)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor
    assert anchor[1] in [heading.lower().replace(" ", "-") for heading in headings]


def test_a_way_is_printed_in_its_order() -> None:
    title, paths = pdf.chosen_pages("understand")
    assert title == "Understand it"
    assert [path.stem[:3] for path in paths] == ["00_", "01_", "02_", "03_", "04_", "09_", "one"]
    assert [path.stem for path in pdf.chosen_pages("")[1]] == [path.stem for path in NOTEBOOKS]
    assert pdf.chosen_pages("12")[0] == "12_floor"


def test_poster_and_threads_name_the_same_bugs(pages: dict[str, str]) -> None:
    drawn, message = (
        set(re.findall(pattern, pages["museum.html"]))
        for pattern in (r"(room \d+): \d+ passes", r"(room \d+): (?!\d+ passes)")
    )
    assert drawn == message
    assert len(drawn) == 10
