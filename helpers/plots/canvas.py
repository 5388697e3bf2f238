"""A sheet to draw figures on: pixels from the top left, one palette, one font, and a text alternative."""

from __future__ import annotations

import html
import io
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle
from matplotlib.textpath import TextToPath
from PIL import Image

# The stepper's palette, light form: one meaning each through the whole series.
INK, SOFT, LINE, FAINT, PANEL, PAPER = "#1b1f24", "#57606a", "#d0d7de", "#eaeef2", "#f6f8fa", "#ffffff"
QUERY, KEY, VALUE, GENERATED = "#0072b2", "#b35c00", "#00755a", "#8a3a8f"
QUERY_FILL, KEY_FILL, VALUE_FILL, GENERATED_FILL = "#cfe6f5", "#fbe3c0", "#c9ebe0", "#f0d9f1"

TEXT, SMALL, LARGE = 15.5, 14.2, 22.0  # heights of letters, px
DPI = 100  # so that one unit of the sheet is one CSS pixel
SHARPNESS = 2  # image pixels to a CSS pixel

# What a reader's own settings (a dark style, say) must not change.
GROUPS = ("axes.", "figure.", "font.", "hatch.", "lines.", "patch.", "path.", "savefig.", "text.")
SETTINGS = {
    **{name: value for name, value in mpl.rcParamsDefault.items() if name.startswith(GROUPS)},
    "font.family": "DejaVu Sans",
    "text.parse_math": False,
    "hatch.linewidth": 0.9,
}

P = ParamSpec("P")
R = TypeVar("R")


def with_settings(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a function under matplotlib's defaults and SETTINGS; the reader's are back after it."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(SETTINGS):
            return draw(*args, **kwargs)

    return drawn


class Picture:
    """A figure and the same in words; a notebook shows both, the words folded.

    Attributes:
        figure: the `matplotlib.figure.Figure`.
        alt: what the picture says, for readers who do not see it, with the number that carries its point.
        numbers: the numbers that the picture shows, by name; the tests hold them against the trace.
    """

    def __init__(self, figure: Figure, alt: str, numbers: dict[str, Any]) -> None:
        self.figure = figure
        self.alt = alt
        self.numbers = numbers

    @with_settings
    def png(self) -> bytes:
        """Return the picture as PNG, two image pixels to a CSS pixel."""
        drawn = io.BytesIO()
        self.figure.savefig(drawn, format="rgba", dpi=DPI * SHARPNESS)
        width, height = (self.figure.get_size_inches() * DPI * SHARPNESS).round().astype(int)
        pixels = np.frombuffer(drawn.getvalue(), np.uint8).reshape(height, width, 4)
        return _small_png(pixels)

    def save(self, path: str | Path) -> None:
        """Write the PNG to a file. OSError if its folder is not there."""
        Path(path).write_bytes(self.png())

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        width = round(self.figure.get_figwidth() * DPI)
        return {"image/png": self.png(), "text/plain": self.alt}, {"image/png": {"width": width}}

    def _ipython_display_(self) -> None:
        """Show the picture, then its words in a fold: a PNG's output has no place for them."""
        from IPython.display import display

        bundle, metadata = self._repr_mimebundle_()
        display(bundle, metadata=metadata, raw=True)
        words = f"<summary>The picture in words</summary>{html.escape(self.alt)}"
        fold = f'<details style="font-size:90%">{words}</details>'
        display({"text/html": fold, "text/plain": " "}, raw=True)


def _small_png(pixels: np.ndarray) -> bytes:
    """Write pixels (height, width, 4) as a PNG with a palette: a quarter of the size.

    The 255 commonest colours stay exact (all fills are among them); those of letters' edges go to the
    nearest of them.
    """
    packed = np.ascontiguousarray(pixels).view(np.uint32).reshape(-1)
    colours, index, count = np.unique(packed, return_inverse=True, return_counts=True)
    rgba = colours.view(np.uint8).reshape(-1, 4).astype(int)
    common = np.argsort(-count, kind="stable")[:255]
    nearest = np.abs(rgba[:, None] - rgba[common]).sum(axis=2).argmin(axis=1).astype(np.uint8)
    image = Image.fromarray(nearest[index.reshape(pixels.shape[:2])])
    image.putpalette(rgba[common].astype(np.uint8).tobytes(), "RGBA")
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


class Sheet:
    """A white card of `width` × `height` CSS pixels; x goes right, y goes down.

    The corners around the card are transparent, so that it reads on a dark page too.
    """

    def __init__(self, width: float, height: float) -> None:
        width, height = float(round(width)), float(round(height))
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="none")
        FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
        self.axes.set_axis_off()
        self.box(0.75, 0.75, width - 1.5, height - 1.5, fill=PAPER, edge=LINE, radius=8)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        at: str = "left",
        size: float = TEXT,
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """Write one line, its middle at height y; `at` says which end of it (or its center) is at x."""
        self.axes.text(
            x,
            y,
            text,
            ha=at,
            va="center_baseline",
            fontsize=size * 72 / DPI,
            color=colour,
            fontweight="bold" if bold else "normal",
            parse_math=False,
        )

    def note(self, x: float, y: float, text: str, *, at: str = "left", colour: str = SOFT) -> None:
        """Write one line that explains, small and soft."""
        self.text(x, y, text, at=at, size=SMALL, colour=colour)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        edge: str = "none",
        line: float = 1.0,
        radius: float = 4.0,
        dashed: bool = False,
        hatched: bool = False,
    ) -> None:
        """Draw a rectangle with rounded corners; (x, y) is its top left corner."""
        radius = min(radius, width / 2, height / 2)
        shape = f"round,pad=0,rounding_size={radius}"
        style: dict[str, Any] = {"lw": line * 72 / DPI, "ls": (0, (3, 2.5)) if dashed else "-"}
        if hatched:
            style["hatch"] = "/////"
        patch = FancyBboxPatch((x, y), width, height, boxstyle=shape, fc=fill, ec=edge, **style)
        self.axes.add_patch(patch)

    def square(self, x: float, y: float, side: float, fill: str) -> None:
        """Draw a filled square around (x, y)."""
        self.axes.add_patch(Rectangle((x - side / 2, y - side / 2), side, side, fc=fill, ec="none", lw=0))

    def line(self, *points: tuple[float, float], colour: str = INK, width: float = 1.2) -> None:
        """Draw a line through the points."""
        xs, ys = zip(*points, strict=True)
        self.axes.plot(xs, ys, color=colour, lw=width * 72 / DPI, solid_capstyle="butt")

    def arrow(self, x: float, y: float, to_x: float, to_y: float, colour: str, width: float = 1.6) -> None:
        """Draw an arrow, across or down; its head is 8 px long."""
        dx, dy = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        neck = (to_x - 8 * dx, to_y - 8 * dy)
        self.line((x, y), neck, colour=colour, width=width)
        sides = [(neck[0] + 4 * dy, neck[1] + 4 * dx), (neck[0] - 4 * dy, neck[1] - 4 * dx)]
        self.axes.add_patch(Polygon([(to_x, to_y), *sides], closed=True, fc=colour, ec="none", lw=0))

    def chip(
        self, x: float, y: float, text: str, *, width: float, fill: str, edge: str, colour: str = INK
    ) -> None:
        """Write a word in a rounded box, 26 px high, around (x, y)."""
        self.box(x - width / 2, y - 13, width, 26, fill=fill, edge=edge, radius=6)
        size = TEXT if text_width(drawable(text[:100]), TEXT) <= width - 8 else SMALL
        self.text(x, y, shorten(text, width - 8, size), at="center", size=size, colour=colour)


@cache
def _font() -> FT2Font:
    return get_font(findfont("DejaVu Sans"))


def told(text: str) -> str:
    """Return a token's text for a sentence: escapes for what cannot be printed, at most 40 characters."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:41])
    return shown if len(shown) <= 40 else shown[:39] + "…"


def drawable(text: str) -> str:
    """Return text with what cannot be drawn as one line of glyphs as escapes or boxes."""
    glyphs = _font().get_charmap()
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(c if ord(c) in glyphs else "□" for c in shown)


def text_width(text: str, size: float = TEXT) -> float:
    """Return how wide a text comes out, px."""
    font = FontProperties(family="DejaVu Sans", size=size)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def shorten(text: str, width: float, size: float = TEXT) -> str:
    """Cut a token's text to fit `width` px, with an ellipsis where something was cut."""
    shown = drawable(text[:100])
    if len(text) <= 100 and text_width(shown, size) <= width:
        return shown
    kept = len(shown)
    while kept > 1 and text_width(shown[:kept] + "…", size) > width:
        kept -= 1
    return shown[:kept] + "…"


def number(x: float) -> str:
    """Write a number with at most two decimals: 12.5, 10.33, 5."""
    return f"{round(float(x), 2) + 0.0:g}" if abs(x) < 1e5 else f"{x:.3g}"


def listed(items: list[str]) -> str:
    """Join items as a sentence does: a, b and c."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def counted(n: int, noun: str) -> str:
    """Write a count with its noun: 1 pass, 2 passes."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{'es' if noun.endswith('s') else 's'}"


def blend(one: str, other: str, share: float) -> str:
    """Mix two colours: share 0 is the first, 1 the second."""
    pairs = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def luminance(colour: str) -> float:
    """Relative luminance of a colour, 0 to 1 (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, 1 to 21 (WCAG 2); text needs 4.5."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
