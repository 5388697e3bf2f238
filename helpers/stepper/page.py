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

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>@title@</title>
<style>
:root { color-scheme: light dark; }
body { max-width: 940px; margin: 0 auto; padding: 28px 16px 40px; background: #fff; color: #1b1f24; font: 16px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { margin: 0 0 8px; font-size: 26px; line-height: 1.25; }
body > p { max-width: 42em; margin: 10px 0; overflow-wrap: anywhere; }
#stepper { margin: 18px 0; }
@media (max-width: 500px) { body { padding: 16px 8px 24px; } }
@media (prefers-color-scheme: dark) { body { background: #111418; color: #e6e8eb; } }
@style@
</style>
</head>
<body>
<h1>@title@</h1>
@before@
<div id="stepper"></div>
<noscript>@static@</noscript>
@after@
<script type="application/json" id="trace">@trace@</script>
<script type="application/json" id="options">@options@</script>
<script>
{
@script@
const read = (id) => JSON.parse(document.getElementById(id).textContent);
mountStepper(document.getElementById("stepper"), read("trace"), read("options"));
}
</script>
</body>
</html>
"""


def _paragraphs(texts: str | Iterable[str]) -> str:
    texts = [texts] if isinstance(texts, str) else list(texts)
    return "\n".join(f"<p>{html.escape(text)}</p>" for text in texts)


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
    # In one pass, so that nothing that was filled in is looked at again.
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], _TEMPLATE)


def save(path: str | Path, trace: Trace, options: dict[str, Any], static_html: str, **texts: Any) -> None:
    """Write the page, whole or not at all. FileNotFoundError if its folder is not there."""
    write_whole(path, build(trace, options, static_html, **texts))
