"""The front end as one script: the ES modules of js/ joined, so that no build step is needed."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
# Each module after those that it imports from, but for the drawing functions, which call each other late.
MODULES = ("format", "trace", "frame", "words", "geometry", "dom", "canvas", "board", "panels", "widget")

_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)


@cache
def joined() -> str:
    """All modules in one scope, without imports and exports; defines `mountStepper`."""
    texts = [(HERE / "js" / f"{name}.js").read_text(encoding="utf-8") for name in MODULES]
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


@cache
def widget_module() -> str:
    """The script as the ES module that anywidget loads."""
    return (
        joined()
        + """
export default {
  render({ model, el }) {
    return mountStepper(el, JSON.parse(model.get("trace")), model.get("options"));
  },
};
"""
    )


@cache
def stylesheet() -> str:
    """The style of the stepper."""
    return (HERE / "stepper.css").read_text(encoding="utf-8")
