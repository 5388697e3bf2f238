"""Build a page with interactive views and the data of the views.

The page can be opened from disk, and loads nothing from other sites.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from helpers.stepper import script
from helpers.stepper.format import HERE, VIEW

if TYPE_CHECKING:
    from helpers.stepper.still import Still

ADDRESS = re.compile(r"https://[^\s<>&\"']+[\w/]")


class ViewData(NamedTuple):
    """What the front end needs to show a view: the view's data, as JSON, and the view's options."""

    data: str
    options: dict[str, Any]


class ViewLike(Protocol):
    """An object with the attributes of a view that `build_page` needs."""

    @property
    def view(self) -> str: ...

    @property
    def file(self) -> Path | None: ...

    @property
    def data(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]: ...

    @property
    def still(self) -> Still | None: ...


def _paragraphs(texts: str | Iterable[str]) -> str:
    """Return plain text as HTML paragraphs. Addresses in it that begin with https:// become links."""
    texts = [texts] if isinstance(texts, str) else texts
    linked = (ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', escape(text)) for text in texts)
    return "\n".join(f"<p>{text}</p>" for text in linked)


def escape_for_script(text: str) -> str:
    """Return JSON, escaped so that it cannot end the script element that contains it."""
    return text.replace("<", "\\u003c")


@dataclass(frozen=True)
class Link:
    """A link, and a note that a list of links shows after it."""

    text: str
    address: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        before, after: paragraphs before and after the view, as plain text.
        view: the section's view, or None.
        heading: the section's heading, or "".
        links: links that are listed at the end of the section.
        moments: links to states of the page's views, on one line below the view.
        name: the section's name in addresses. The address `#at=name` leads to the section.
        body: escaped HTML between the paragraphs of `before` and the view.
    """

    before: str | Iterable[str] = ()
    view: ViewLike | None = None
    after: str | Iterable[str] = ()
    heading: str = ""
    links: Sequence[Link] = ()
    moments: Sequence[Link] = ()
    name: str = ""
    body: str = ""


def _links(links: Iterable[Link]) -> list[str]:
    return [f'<a href="{escape(link.address)}">{escape(link.text)}</a>' for link in links]


def section_content(section: Section, n: int) -> str:
    """Return the HTML of a section without its heading. Its view, if any, is in the element `view{n}`."""
    before, after = _paragraphs(section.before), _paragraphs(section.after)
    notes = [f"<span>{escape(link.note)}</span>" for link in section.links]
    lines = [f"<li>{link} {note}</li>" for link, note in zip(_links(section.links), notes, strict=True)]
    links = f"<ul>{''.join(lines)}</ul>\n" if lines else ""
    jumps = " ".join(_links(section.moments))
    moments = f'<p class="moments">{jumps}</p>\n' if jumps else ""
    view = section.view
    still = view and (view.still.html() if view.still else f"<p>{escape(repr(view))}</p>")
    shown = f'<div class="view" id="view{n}"></div>\n<noscript>{still}</noscript>' if view else ""
    return f"{before}\n{section.body}{shown}\n{moments}{after}\n{links}"


def _section(section: Section, n: int) -> str:
    heading = f"<h2>{escape(section.heading)}</h2>\n" if section.heading else ""
    name = f' id="{escape(section.name)}"' if section.name else ""
    return f"<section{name}>\n{heading}{section_content(section, n)}</section>"


def section_views(sections: Iterable[Section]) -> dict[str, ViewData]:
    """Return what the front end needs to show the views of sections, by the ids of their elements."""
    views = {f"view{n}": section.view for n, section in enumerate(sections) if section.view}
    return {name: ViewData(view.data, front_end_options(view)) for name, view in views.items()}


def build_page(
    title: str,
    sections: Sequence[Section],
    summary: str = "",
    *,
    separate_files: bool = False,
    style: str = "",
) -> str:
    """Return the HTML of a page that has a title and sections.

    Args:
        title: the page's title, as plain text.
        sections: the page's content.
        summary: a sentence, as plain text, that messaging apps show in a preview of the page.
        separate_files: where the files are stored that views run, such as a model's weights. If True, they
            are in scripts in the page's folder (see `file_script`), which are loaded when the reader scrolls
            near a view. If False, they are in the page.
        style: CSS that is added to the page's own CSS.
    """
    named = [section for section in sections if section.name]
    skips = "".join(
        f'<a class="skip" href="#at={section.name}">{escape(section.heading)}</a>\n' for section in named
    )
    head = f"{skips}<h1>{escape(title)}</h1>"
    views = section_views(sections)
    body = "\n".join(_section(section, n) for n, section in enumerate(sections))
    styles: dict[str, str] = {}  # tables repeat them in every cell, for notebooks; a page needs them once
    body = re.sub(
        r' style="([^"]*)"', lambda s: f' class="{styles.setdefault(s[1], f"s{len(styles)}")}"', body
    )
    files = [] if separate_files else [s.view.file for s in sections if s.view and s.view.file]
    style += "".join(f".{name} {{ {said} }}\n" for said, name in styles.items())
    return assemble_page(title, f"{head}\n{body}", views, summary, style, files)


def front_end_options(view: ViewLike) -> dict[str, Any]:
    """Return the options for the front end: the view's initial state, its type, and the name of its file."""
    file = {"file": _file_name(view.file)} if view.file else {}
    return {**view.options, "view": view.view, **file}


def _file_name(file: Path) -> str:
    return file.name.partition(".")[0]


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


class FileScript(NamedTuple):
    """A script, with its file name, that loads a view's file into a page built with `separate_files`."""

    name: str
    text: str


def file_script(file: Path) -> FileScript:
    """Return a script that contains a file, encoded, and loads it into a page."""
    return FileScript(f"{_file_name(file)}.js", f'watchItDecodeFile("{_base64(file)}");\n')


def view_scripts(views: Mapping[str, ViewData]) -> str:
    """Return script elements with the data and options of views, which `page.js` reads.

    Data that several views share, and tables of models and cards, are in the page only once.

    Args:
        views: the data and options of each view, by the id of its element.
    """
    tables = {
        name: json.dumps(message["machines"]) for name, (_, message) in views.items() if "machines" in message
    }
    data = list(dict.fromkeys([*(text for text, _ in views.values()), *tables.values()]))
    shown = [{**message, "id": name, "data": data.index(text)} for name, (text, message) in views.items()]
    kinds = Counter(message["view"] for message in shown)
    for message in shown:
        # Views of the same type need a prefix in the page's address, so that they do not share their state.
        message["address"] = f"{message['id']}." if kinds[message["view"]] > 1 else ""
        if message["id"] in tables:
            message["machines"] = data.index(tables[message["id"]])
    texts = {"views": json.dumps(shown), "copied": json.dumps(VIEW["page"]["copy"])}
    texts |= {f"data{n}": text for n, text in enumerate(data)}
    return "\n".join(
        f'<script type="application/json" id="{name}">{escape_for_script(text)}</script>'
        for name, text in texts.items()
    )


def assemble_page(
    title: str,
    body: str,
    views: Mapping[str, ViewData],
    summary: str = "",
    style: str = "",
    files: Iterable[Path] = (),
) -> str:
    """Return a page that consists of `body` and interactive views.

    Args:
        title: the page's title, as plain text.
        body: escaped HTML.
        views: the data and options of each view, by the id of its element in `body`.
        summary: a sentence about the page, as plain text; see `build_page`.
        style: CSS that is added to the CSS of the views.
        files: the files that views run, to be stored in the page.
    """
    unused = () if any(message["view"] == "pool" for _, message in views.values()) else ("pool",)
    fetches = any("published" in message for _, message in views.values())
    parts = {
        "connect": "connect-src 'self'; " if fetches else "",  # else a page can send nothing anywhere
        "title": escape(title),
        "summary": escape(summary),
        "style": (script.stylesheet(unused) if views else "") + style,
        "body": body,
        "views": view_scripts(views),
        "script": (script.bundle() if views else "") + script.page_script(),
        "files": "\n".join(
            f'<script type="text/plain" id="file-{_file_name(file)}">{_base64(file)}</script>'
            for file in files
        ),
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    # In one pass, so that text that was filled in is not itself searched for slots.
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], template)
