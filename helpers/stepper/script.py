"""The front end: its styles, and one script, bundle.js, which `npm run build` builds from js/."""

from __future__ import annotations

import re
from functools import cache

from helpers.drawing.palette import THEMES
from helpers.stepper.format import HERE

STYLES: tuple[str, ...] = ("view", "race", "what_if", "cost", "lab", "live", "pool")


@cache
def bundle() -> str:
    """Return the front end as a classic script that defines `mountView`.

    It is not a module, because pages opened from disk cannot load modules.
    """
    return (HERE / "bundle.js").read_text(encoding="utf-8")


@cache
def page_script() -> str:
    """Return the script that mounts the views of a page, which runs in the same scope after `bundle`."""
    return (HERE / "page.js").read_text(encoding="utf-8")


@cache
def widget_module() -> str:
    """Return the front end as an ES module for anywidget."""
    return (
        bundle()
        + """
export default {
  render({ model, el }) {
    const file = async () => {
      const { buffer, byteOffset, byteLength } = model.get("file");
      return buffer.slice(byteOffset, byteOffset + byteLength);
    };
    return mountView(el, JSON.parse(model.get("data")), model.get("options"), file);
  },
};
"""
    )


def _variables(theme: str) -> str:
    """Return the palette as CSS custom properties.

    The page's own background and text colour take precedence over the palette's.
    """
    host = THEMES["host"]
    colours = THEMES[theme].items()
    return "".join(
        f"--wid-{name}: {f'var({host[name]}, {colour})' if name in host else colour}; "
        for name, colour in colours
    )


@cache
def stylesheet(without: tuple[str, ...] = ()) -> str:
    """Return the palette and the styles of the views as minified CSS.

    Args:
        without: the names of the styles to leave out.
    """
    rules = "\n".join(
        (HERE / "css" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES if name not in without
    )
    light, dark = _variables("light"), _variables("dark")
    whole = f".wid-view {{ {light}}}\n.wid-view.wid-dark {{ {dark}}}\n{rules}"
    return re.sub(r"/\*.*?\*/|(?<=[{};,:]) +|;? +(?=})| +(?={)|\n+ *", "", whole, flags=re.DOTALL)
