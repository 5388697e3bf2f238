"""One page with views and what they show inside: opens from disk, asks nobody for anything."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from helpers.arguments import is_utf8
from helpers.stepper import script
from helpers.stepper.format import HERE
from helpers.trace import write_whole

ADDRESS = re.compile(r"https://[^\s<>&\"']+[\w/]")


def _escaped(name: str, text: str) -> str:
    if not isinstance(text, str):
        raise TypeError(f"got {text!r} in {name}, expected text: put it into quotes, or str(…) around it")
    if not is_utf8(text):
        raise ValueError(
            f"got {text!r} in {name}, expected text that a file can hold: "
            "it holds half of a surrogate pair, take that character out"
        )
    return html.escape(text)


def _paragraphs(name: str, texts: str | Iterable[str]) -> str:
    """Plain text as paragraphs; an address that begins with https:// can be followed."""
    if not isinstance(texts, Iterable):
        raise TypeError(f"got {name}={texts!r}, expected a paragraph of text or a list of them")
    texts = [texts] if isinstance(texts, str) else list(texts)
    linked = (ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', _escaped(name, text)) for text in texts)
    return "\n".join(f"<p>{text}</p>" for text in linked)


def _data(text: str) -> str:
    """JSON that cannot end the script element that it stands in."""
    return text.replace("<", "\\u003c")


class Shown(Protocol):
    """What a page asks of a view; `view.View` is one."""

    view: ClassVar[str]

    @property
    def data(self) -> str: ...

    @property
    def options(self) -> dict[str, Any]: ...

    def static_html(self) -> str: ...


@dataclass(frozen=True)
class Link:
    """A line of a list: text that leads to an address, and a few words beside it."""

    text: str
    address: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A view of a page, or none, with plain paragraphs above it and under it, and a list of links last."""

    before: str | Iterable[str] = ()
    view: Shown | None = None
    after: str | Iterable[str] = ()
    heading: str = ""
    links: Sequence[Link] = ()


def _section(section: Section, n: int) -> str:
    heading = f"<h2>{_escaped('heading', section.heading)}</h2>\n" if section.heading else ""
    view = section.view
    shown = (
        f'<div class="view" id="view{n}"></div>\n<noscript>{view.static_html()}</noscript>' if view else ""
    )
    before, after = (_paragraphs(name, getattr(section, name)) for name in ("before", "after"))
    lines = [
        f'<li><a href="{_escaped("address", link.address)}">{_escaped("text", link.text)}</a> '
        f"<span>{_escaped('note', link.note)}</span></li>"
        for link in section.links
    ]
    links = f"<ul>{''.join(lines)}</ul>\n" if lines else ""
    return f"<section>\n{heading}{before}\n{shown}\n{after}\n{links}</section>"


def build(title: str, sections: Sequence[Section], summary: str = "") -> str:
    """Return a page as text; titles and paragraphs are plain text and are escaped.

    The summary, a sentence, is what a messenger shows beside the page's address.
    """
    views = {f"view{n}": section.view for n, section in enumerate(sections) if section.view}
    body = "\n".join(_section(section, n) for n, section in enumerate(sections))
    styles: dict[str, str] = {}  # static forms say them in every cell, for notebooks; a page says them once
    body = re.sub(
        r' style="([^"]*)"', lambda s: f' class="{styles.setdefault(s[1], f"s{len(styles)}")}"', body
    )
    live = {name: (v.data, {**v.options, "view": v.view, "address": True}) for name, v in views.items()}
    style = "".join(f".{name} {{ {style} }}\n" for style, name in styles.items())
    return assemble(title, f"<h1>{_escaped('title', title)}</h1>\n{body}", live, summary, style)


def assemble(
    title: str, body: str, views: Mapping[str, tuple[str, dict[str, Any]]], summary: str = "", style: str = ""
) -> str:
    """Return a page with this HTML in it, whose views come to life.

    Args:
        title: the page's title, plain text.
        body: HTML, escaped by whoever made it.
        views: the data and options of each by the id of its element in the body. Views of the same data
            share it: it stands in the page once.
        summary: a sentence on the page, plain text.
        style: CSS beside that of the views.
    """
    data = list(dict.fromkeys(text for text, _ in views.values()))
    shown = [{**options, "id": name, "data": data.index(text)} for name, (text, options) in views.items()]
    parts = {
        "title": _escaped("title", title),
        "summary": _escaped("summary", summary),
        "style": (script.stylesheet() if views else "") + style,
        "body": body,
        "script": script.joined() if views else "",
        "views": _data(json.dumps(shown)),
        "data": "\n".join(
            f'<script type="application/json" id="data{n}">{_data(text)}</script>'
            for n, text in enumerate(data)
        ),
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    # In one pass, so that nothing that was filled in is looked at again.
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], template)


def save(path: str | Path, title: str, sections: Sequence[Section]) -> None:
    """Write a page, whole or not at all; errors as in `View.save_html`."""
    if Path(path).is_dir():  # "" is the folder that we are in
        raise IsADirectoryError(
            f"got path={str(path)!r}, a folder; expected the name of a file, "
            f"such as {str(Path(path) / 'stepper.html')!r}"
        )
    write_whole(path, build(title, sections))
