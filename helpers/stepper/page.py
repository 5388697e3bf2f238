"""One page with the stepper and its trace inside: opens from disk, asks nobody for anything."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.arguments import is_utf8
from helpers.stepper import script
from helpers.stepper.format import HERE
from helpers.trace import Trace, write_whole

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


def build(
    trace: Trace,
    options: dict[str, Any],
    static_html: str,
    *,
    title: str,
    before: str | Iterable[str],
    after: str | Iterable[str],
) -> str:
    """Return the page as text; title and paragraphs are plain text and are escaped."""
    parts = {
        "title": _escaped("title", title),
        "style": script.stylesheet(),
        "before": _paragraphs("before", before),
        "after": _paragraphs("after", after),
        "static": static_html,
        "script": script.joined(),
        "options": _data(json.dumps(options)),
        "trace": _data(trace.to_json()),
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    # In one pass, so that nothing that was filled in is looked at again.
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], template)


def save(path: str | Path, trace: Trace, options: dict[str, Any], static_html: str, **texts: Any) -> None:
    """Write the page, whole or not at all; errors as in `Stepper.save_html`."""
    if Path(path).is_dir():  # "" is the folder that we are in
        raise IsADirectoryError(
            f"got path={str(path)!r}, a folder; expected the name of a file, "
            f"such as {str(Path(path) / 'stepper.html')!r}"
        )
    write_whole(path, build(trace, options, static_html, **texts))
