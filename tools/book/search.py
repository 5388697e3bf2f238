"""The search of the book: its page, and the index that this page searches in the reader's browser.

Sphinx's own search finds pages that have all words of a query. This one finds cells, forgives a slip, and
puts questions and words of the glossary first. Each entry in the index is a section of a page, a question, or
a term. Folded text, such as the answer to an exercise, is not indexed. Cell outputs are not indexed either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from helpers.stepper.format import VIEW
from helpers.stepper.page import Link, Section, escape_for_script
from tools import words as glossary
from tools.book.build import BookPage
from tools.launch import DATA

UI_TEXTS = VIEW["page"]["search"]
IMPORT = re.compile(r"^(?:from \S+ )?import .*$", re.MULTILINE)
DRAWN = re.compile(r"<(svg|script|style)\b.*?</\1>", re.DOTALL)
NOT_INDEXED = "details, noscript, .math, .headerlink, .cell_output, .view, .still"
# Their items are indexed, or nothing is in them.
PAGES_NOT_INDEXED = (
    "ways.html",
    "search.html",
    "404.html",
    "notebooks/words.html",
    "notebooks/questions.html",
)
ASKED = dict(row.rsplit(": ", 1) for row in (DATA / "asked.txt").read_text(encoding="utf-8").splitlines())
SEARCH_PAGE = BookPage(
    UI_TEXTS["title"],
    [
        Section(
            body=f'<label for="query">{UI_TEXTS["label"]}</label>\n'
            '<input id="query" type="search" autofocus autocomplete="off" spellcheck="false">\n'
            '<p id="count" role="status"></p>\n<ol id="found"></ol>\n'
            f"<noscript><p>{UI_TEXTS['no script']}</p></noscript>\n"
            '<script src="places.js"></script>\n<script defer src="_static/search.js"></script>'
        )
    ],
    UI_TEXTS["label"],
)


def asked_for(heading: str) -> str:
    """Return what people type who look for a question or a term, by its heading or the first of its names."""
    return ASKED.get(heading) or ASKED.get(heading.split(", ")[0], "")


def one_line(text: str) -> str:
    """Return text on one line, without import statements."""
    return " ".join(IMPORT.sub("", text).split())


def page_entries(name: str, text: str) -> Iterator[dict[str, str]]:
    """Yield the index entries for a page, in its order. The page is split at its headings and its cells.

    Args:
        name: the file name of the page.
        text: the page's HTML.
    """
    from bs4 import BeautifulSoup, NavigableString, Tag  # not among a reader's requirements

    whole = re.search(r"<article.*?</article>", text, re.DOTALL)
    assert whole, name
    article = BeautifulSoup(DRAWN.sub("", whole[0]), "html.parser")
    for tag in article.select(NOT_INDEXED):
        tag.decompose()
    for tag in article.select("li, p, td, th, pre"):
        tag.append(" · " if tag.name in ("td", "th") else " ")
    for tag in article.select("h1, h2, h3"):
        tag["data-heading"] = one_line(tag.get_text())
        tag.clear()
    title = heading = str(article.h1["data-heading"]) if article.h1 else name
    address, found = name, ""

    def entry() -> dict[str, str]:
        return {"address": address, "page": title, "heading": heading, "text": one_line(found)}

    for part in article.descendants:
        if isinstance(part, NavigableString):
            found += part
        elif isinstance(part, Tag) and str(part.get("id")).startswith("cell-id="):
            yield entry()
            address, found = f"{name}#{part['id']}", ""
        elif isinstance(part, Tag) and "data-heading" in part.attrs:
            yield entry()
            heading, found = str(part["data-heading"]), ""
    yield entry()


def glossary_entries(folder: Path) -> Iterator[dict[str, str]]:
    """Yield one index entry per term in the glossary, with its meaning.

    The entry's address is the cell that introduces the term.

    Args:
        folder: the folder with the notebooks.
    """
    bold = glossary.bold_texts(folder)
    for group in glossary.read_glossary().values():
        for word, meaning in group.items():
            notebook, cell = next(glossary.first_bold_cells(word, bold), ("words", ""))
            address = f"notebooks/{notebook}.html#cell-id={cell}"
            heading = ", ".join((*glossary.bold_forms(word), *glossary.other_terms(word)))
            yield {"address": address, "heading": heading, "text": meaning}


def write_search_index(folder: Path, questions: list[Link], notebooks: Path) -> None:
    """Write the index of a built book: the questions with their answers, the glossary, the pages.

    Args:
        folder: the folder with the book.
        questions: links to the cells that answer the questions.
        notebooks: the folder with the notebooks.
    """
    pages = [*sorted(folder.glob("notebooks/*.html")), *sorted(folder.glob("*.html"))]
    entries = {
        name: [*page_entries(name, text)]
        for path in pages
        if "<article" in (text := path.read_text(encoding="utf-8"))
        and (name := path.relative_to(folder).as_posix())
    }
    answered = [
        {"address": link.address, "heading": link.text, "text": link.note.replace("`", "")}
        for link in questions
    ]
    linked = [
        {**place, "page": entries[page][0]["page"], "asked": asked_for(place["heading"])}
        for place in (*answered, *glossary_entries(notebooks))
        if (page := place["address"].partition("#")[0]) in entries
    ]
    found = [
        place
        for name, all in entries.items()
        if name not in PAGES_NOT_INDEXED
        for place in all
        if place["text"]
    ]
    index = {"places": [{"id": n, **place} for n, place in enumerate([*linked, *found])], "said": UI_TEXTS}
    text = escape_for_script(json.dumps(index, ensure_ascii=False))
    (folder / "places.js").write_text(f"const index = {text};\n", encoding="utf-8")
