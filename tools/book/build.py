"""Build the book with Sphinx: from the notebooks, as stored, and from pages of sections with views."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from helpers.stepper import script
from helpers.stepper.page import Section, section_content, section_views, view_scripts
from tools.handout import TABLE_STYLE

HERE = Path(__file__).parent


class BookPage(NamedTuple):
    """A page of the book that is not a notebook.

    Attributes:
        title: the title, as plain text.
        sections: the content.
        summary: a sentence, as plain text, for search engines and for previews in messengers.
    """

    title: str
    sections: Sequence[Section]
    summary: str


def raw_html(html: str) -> str:
    """Return Markdown that is this HTML, in which nothing is read as Markdown."""
    return f"``````{{raw}} html\n{html}\n``````\n"


def page_markdown(page: BookPage, fields: Mapping[str, str] | None = None) -> str:
    """Return a page as Markdown for MyST.

    Args:
        page: the page.
        fields: further fields of its front matter, such as `orphan`.
    """
    front = {"myst": {"html_meta": {"description": page.summary}}, **(fields or {})}
    parts = [f"---\n{json.dumps(front, ensure_ascii=False)}\n---\n# {page.title}\n"]
    for n, section in enumerate(page.sections):
        name = f' id="{section.name}"' if section.name else ""
        heading = f"## {section.heading}\n\n" if section.heading else ""
        content = raw_html(f'<div class="part"{name}>\n{section_content(section, n)}\n</div>')
        parts.append(f"{heading}{content}")
    if views := section_views(page.sections):
        parts.append(raw_html(view_scripts(views)))
    return "\n".join(parts)


def toctree(entries: Iterable[str], caption: str = "") -> str:
    """Return the Markdown of a part of the book's menu. An entry is a page's name, or "title <name>"."""
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return f"```{{toctree}}\n{options}\n{chr(10).join(entries)}\n```\n"


def build_book(pages: Mapping[str, str], notebooks: Iterable[Path], folder: Path) -> None:
    """Build the book, and add it to a folder.

    Args:
        pages: the Markdown of the pages that are not notebooks, by name. "index" has the book's menu.
        notebooks: the paths of the notebooks.
        folder: the folder. It is left as it was if the book cannot be built.

    Raises:
        ValueError: Sphinx warned of something, such as a page that is in no part of the menu.
    """
    from sphinx.application import Sphinx  # not among a reader's requirements

    with tempfile.TemporaryDirectory() as temporary:
        source, built = Path(temporary) / "source", Path(temporary) / "built"
        (source / "static").mkdir(parents=True)
        (source / "notebooks").mkdir()
        for name, text in pages.items():
            (source / f"{name}.md").write_text(text, encoding="utf-8")
        for path in notebooks:
            shutil.copy(path, source / "notebooks")
        statics = {
            "views.js": f"{{\n{script.bundle()}\n{script.page_script()}}}\n",
            "page.js": f"{{\n{script.page_script()}}}\n",
            "views.css": script.stylesheet() + TABLE_STYLE,
            "tex-svg.js": files("sphinx-mathjax-offline")
            .joinpath("static/mathjax/tex-svg.js")
            .read_text(encoding="utf-8"),
        }
        for name, text in statics.items():
            (source / "static" / name).write_text(text, encoding="utf-8")
        places = (source, HERE, built, Path(temporary) / "doctrees")
        app = Sphinx(*places, "html", warningiserror=True, parallel=2)
        app.build()
        if app.statuscode:
            raise ValueError("Sphinx warned of what is above; nothing was written")
        shutil.copytree(built, folder, dirs_exist_ok=True)
