"""The front end as one script: the ES modules of js/ joined, so that no build step is needed."""

from __future__ import annotations

import json
import re
from functools import cache

from helpers.stepper.format import HERE, VIEW

# Each module after those that it imports from, but for the drawing functions, which call each other late.
MODULES: tuple[str, ...] = ("format", "trace", "frame", "words", "geometry", "dom", "address", "view")
MODULES += ("links", "canvas", "ribbon", "board", "motion", "panels", "stepper")
MODULES += ("race", "toy", "what_if", "mount")
STYLES: tuple[str, ...] = ("view", "race", "what_if")

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)


@cache
def joined() -> str:
    """All modules in one scope after view.json, without imports and exports; defines `mountView`."""
    texts = [(HERE / "js" / f"{name}.js").read_text(encoding="utf-8") for name in MODULES]
    view = f"const VIEW = {json.dumps(VIEW)};\n"
    return view + "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


@cache
def widget_module() -> str:
    """The script as the ES module that anywidget loads."""
    return (
        joined()
        + """
export default {
  render({ model, el }) {
    return mountView(el, JSON.parse(model.get("data")), model.get("options"));
  },
};
"""
    )


def _variables(theme: str) -> str:
    """The palette as custom properties; ground and ink are the page's where it has its own."""
    host = VIEW["palette"]["host"]
    colours = VIEW["palette"][theme].items()
    return "".join(
        f"--wid-{name}: {f'var({host[name]}, {colour})' if name in host else colour}; "
        for name, colour in colours
    )


@cache
def stylesheet() -> str:
    """The palette of view.json and the styles of the views."""
    rules = "\n".join((HERE / "css" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)
    light, dark = _variables("light"), _variables("dark")
    return f".wid-view {{ {light}}}\n.wid-view.wid-dark {{ {dark}}}\n{rules}"
