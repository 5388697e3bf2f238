"""One page with the stepper and its trace inside: opens from disk, asks nobody for anything."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.stepper import script
from helpers.trace import Trace, write_whole

ADDRESS = re.compile(r"https://[^\s<>&\"']+[\w/]")


def _paragraphs(texts: str | Iterable[str]) -> str:
    """Plain text as paragraphs; an address that begins with https:// can be followed."""
    texts = [texts] if isinstance(texts, str) else list(texts)
    linked = (ADDRESS.sub(r'<a href="\g<0>">\g<0></a>', html.escape(text)) for text in texts)
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
        "title": html.escape(title),
        "style": script.stylesheet(),
        "before": _paragraphs(before),
        "after": _paragraphs(after),
        "static": static_html,
        "script": script.joined(),
        "options": _data(json.dumps(options)),
        "trace": _data(trace.to_json()),
    }
    template = (script.HERE / "page.html").read_text(encoding="utf-8")
    # In one pass, so that nothing that was filled in is looked at again.
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], template)


def save(path: str | Path, trace: Trace, options: dict[str, Any], static_html: str, **texts: Any) -> None:
    """Write the page, whole or not at all. FileNotFoundError if its folder is not there."""
    write_whole(path, build(trace, options, static_html, **texts))
