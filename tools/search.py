"""The site's search page, written by site.py. The page contains the search index.

Each entry in the index is a section of a notebook, a question, a term from the glossary, or one of the other
pages. Folded text, such as the answer to an exercise, is not indexed. Cell outputs are not indexed either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from helpers.stepper.format import VIEW
from helpers.stepper.page import Link, assemble_page, escape_for_script
from tools import words as glossary

UI_TEXTS = VIEW["page"]["search"]
IMPORT = re.compile(r"^(?:from \S+ )?import .*$", re.MULTILINE)
SCRIPT = Path(__file__).with_name("search_bundle.js")
HEADINGS = ["h1", "h2", "h3"]
NOT_INDEXED = "details, script, style, noscript, svg, math, .anchor-link"
PAGES_NOT_INDEXED = (
    "ways.html",
    "notebooks/words.html",
    "notebooks/questions.html",
)  # their items are indexed
STYLE = """
#query { box-sizing: border-box; width: 100%; max-width: 34em; padding: 9px 12px;
  border: 1px solid var(--soft); border-radius: 6px; background: var(--paper); color: var(--ink);
  font: inherit; }
label { display: block; margin-bottom: 6px; }
#count { min-height: 1.5em; margin: 10px 0; color: var(--soft); }
#found { margin: 0; padding: 0; list-style: none; border-top: 1px solid var(--line); }
#found li { padding: 10px 0; border-bottom: 1px solid var(--line); }
#found a { font-weight: 600; }
#found span { color: var(--soft); font-size: 15px; }
#found p { max-width: 44em; margin: 2px 0 0; font-size: 15px; line-height: 1.45; }
mark { background: none; color: inherit; font-weight: 700; }
"""


def element_text(tag: Tag) -> str:
    """Return the text of an HTML element on one line, without import statements."""
    return " ".join(IMPORT.sub("", tag.get_text()).split())


def notebook_sections(name: str, soup: BeautifulSoup) -> Iterator[dict[str, str]]:
    """Yield the index entries for a notebook.

    Each cell is split at its headings, and each piece becomes an entry. The text before a cell's first
    heading is an entry under the last heading of the earlier cells.

    Args:
        name: the file name of the notebook's page.
        soup: the parsed HTML of the page.
    """
    title = heading = element_text(soup.h1 or soup)
    for cell in soup.select('[id^="cell-id="]'):
        place = {"address": f"{name}#{cell['id']}", "page": title}
        text = ""
        for tag in cell.select(".rendered_html > *, .input_area pre"):
            if tag.name in HEADINGS:
                yield {**place, "heading": heading, "text": text}
                heading, text = element_text(tag), ""
            else:
                text += f"{element_text(tag)} "
        yield {**place, "heading": heading, "text": text}


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


def search_entries(pages: dict[str, str], questions: list[Link], folder: Path) -> list[dict[str, str]]:
    """Return all index entries: first the questions with their answers, then the glossary, then the pages.

    Args:
        pages: the HTML of each page, by file name.
        questions: links to the cells that answer the questions.
        folder: the folder with the notebooks.
    """
    found: list[dict[str, str]] = []
    titles: dict[str, str] = {}
    for name, text in pages.items():
        soup = BeautifulSoup(text, "html.parser")
        for tag in soup.select(NOT_INDEXED):
            tag.decompose()
        for tag in soup.select("li, p, td, th"):
            tag.append(" · " if tag.name in ("td", "th") else " ")
        titles[name] = element_text(soup.h1 or soup.title or soup)
        if name in PAGES_NOT_INDEXED or not soup.body:
            continue
        if name.startswith("notebooks/"):
            found += (place for place in notebook_sections(name, soup) if place["text"])
        else:
            found.append(
                {"address": name, "page": "", "heading": titles[name], "text": element_text(soup.body)}
            )
    answered = [{"address": link.address, "heading": link.text, "text": link.note} for link in questions]
    linked = [
        {**place, "page": titles[page]}
        for place in (*answered, *glossary_entries(folder))
        if (page := place["address"].partition("#")[0]) in titles
    ]
    return [*linked, *found]


def search_page(pages: dict[str, str], questions: list[Link], folder: Path) -> str:
    """Return the HTML of the search page for `pages`. The arguments are those of `search_entries`."""
    index = [{"id": n, **place} for n, place in enumerate(search_entries(pages, questions, folder))]
    data = escape_for_script(json.dumps({"places": index, "said": UI_TEXTS}, ensure_ascii=False))
    body = (
        f'<h1>{UI_TEXTS["title"]}</h1>\n<label for="query">{UI_TEXTS["label"]}</label>\n'
        '<input id="query" type="search" autofocus autocomplete="off" spellcheck="false">\n'
        f'<p id="count" role="status"></p>\n<ol id="found"></ol>\n'
        f"<noscript><p>{UI_TEXTS['no script']}</p></noscript>\n"
        f'<script type="application/json" id="places">{data}</script>\n'
        f"<script>{SCRIPT.read_text(encoding='utf-8')}</script>"
    )
    return assemble_page(UI_TEXTS["title"], body, {}, UI_TEXTS["label"], STYLE)
