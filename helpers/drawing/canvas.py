"""The sheet on which all figures are drawn, in one palette and one font.

Coordinates are in CSS pixels from the top left corner.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import get_named_colors_mapping
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from PIL import Image, ImageDraw, ImageOps

from helpers.drawing.svg import PALETTE, figure_svg, theme_style_html
from helpers.drawing.words import FONT, SMALL, TEXT, drawable, shorten, text_width

# Colours are named after their meaning: "query", "key fill", "soft".
get_named_colors_mapping().update({name: light for name, (light, _) in PALETTE.items()})

WIDTH = 460  # CSS px of every figure; on a phone 360 px wide, the smallest letters are 11 px high
HIDDEN = 'hidden="hidden" style="display:none"'  # pages that strip SVG tags keep their text and `hidden`
SHARPNESS = 2  # pixels of the PNG per CSS pixel
EDGE = 10  # CSS px of margin around a figure in its PNG

# matplotlib's defaults, whatever the reader has set (such as a dark style), with these changes. At 72 dots
# per inch, a unit of a sheet, a point of a font or a line, and a CSS pixel are the same.
_OURS: dict[str, Any] = {
    "font.family": FONT,
    "figure.dpi": 72,
    "text.parse_math": False,
    "text.hinting": "none",  # so that `text_width` is right
    "axes.facecolor": "none",
    "axes.edgecolor": "soft",
    "axes.linewidth": 1,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "faint",
    "grid.linewidth": 1,
    "lines.solid_capstyle": "butt",
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    **{f"{axis}tick.{which}.size": 0 for axis in "xy" for which in ("major", "minor")},
    **{f"{axis}tick.major.pad": 7 for axis in "xy"},
    **{f"{axis}tick.labelsize": SMALL for axis in "xy"},
    **{f"{axis}tick.labelcolor": "soft" for axis in "xy"},
}
_GROUPS = ("axes", "figure", "font", "grid", "lines", "patch", "path", "savefig", "text", "xtick", "ytick")
SETTINGS: Any = {k: v for k, v in mpl.rcParamsDefault.items() if k.startswith(_GROUPS)} | _OURS


def draw_figure(draw: Callable[[Sheet], None], antialiased: bool = True) -> Figure:
    """Draw on a new sheet and return the sheet's matplotlib figure.

    Args:
        draw: a function that gets the sheet and draws on it.
        antialiased: whether edges are smoothed. Without smoothing, the PNG file is smaller.
    """
    edges = {f"{name}.antialiased": antialiased for name in ("text", "patch", "lines")}
    with mpl.rc_context(SETTINGS | edges):
        sheet = Sheet()
        draw(sheet)
        sheet.crop_height()
    return sheet.figure


def figure_png(figure: Figure) -> bytes:
    """Return a figure as a PNG: a card with round corners, which suits light and dark pages.

    The card has a margin of `EDGE` CSS pixels around the figure. Its colours are stored in a palette, so that
    the PNG file is small.
    """
    dpi, face, packed = figure.dpi, figure.get_facecolor(), io.BytesIO()
    with mpl.rc_context(SETTINGS):
        figure.set(dpi=72 * SHARPNESS, facecolor="paper")
        agg = FigureCanvasAgg(figure)
        agg.draw()
        image = Image.frombytes("RGBA", agg.get_width_height(), agg.buffer_rgba()).convert("RGB")
        figure.set(dpi=dpi, facecolor=face)
    sheet = ImageOps.expand(image, EDGE * SHARPNESS, PALETTE["paper"][0])
    corners, within = Image.new("1", sheet.size, 1), (0, 0, sheet.width - 1, sheet.height - 1)
    ImageDraw.Draw(corners).rounded_rectangle(within, EDGE * SHARPNESS, fill=0)
    ImageDraw.Draw(sheet).rounded_rectangle(
        within, EDGE * SHARPNESS, outline=PALETTE["line"][0], width=SHARPNESS
    )
    colours = len(sheet.getcolors(128) or range(128))
    card = sheet.quantize(colours, dither=Image.Dither.NONE)
    card.putpalette([*(card.getpalette() or []), 255, 255, 255])
    card.paste(colours, mask=corners)  # in a colour of their own, which is transparent
    card.save(packed, "PNG", optimize=True, transparency=colours)
    return packed.getvalue()


class Picture:
    """A figure and its text alternative. A notebook shows the figure, and folds the text alternative.

    A cell has two outputs. The first is a PNG, for places that strip SVG and styles: GitHub, a notebook that
    JupyterLab does not trust yet, and other editors. The second is HTML with the same figure as inline SVG,
    which shrinks to the width of the page. The SVG is hidden unless its style takes effect. The style shows
    the SVG and hides the PNG. Words in the SVG are stored as text, so nbval compares the words and their
    positions with what the code draws. This reveals an outdated figure, although nbval does not compare PNGs.

    Attributes:
        figure: the `matplotlib.figure.Figure`, `WIDTH` CSS pixels wide.
        alt: the text alternative, with the values that the figure shows.
    """

    def __init__(self, draw: Callable[[Sheet], None], alt: str) -> None:
        self.alt, self.figure = alt, draw_figure(draw)

    def png(self) -> bytes:
        """Return the figure as a PNG."""
        return figure_png(self.figure)

    def html(self) -> str:
        """Return HTML: the figure as inline SVG, the style that shows it, and the folded text alternative."""
        with mpl.rc_context(SETTINGS):
            svg = figure_svg(self.figure)
        fold = f"<summary>The picture in words</summary>{html.escape(self.alt)}"
        return (
            f'{theme_style_html()}<div class="wid-figure" {HIDDEN}>{svg}</div>'
            f'<details style="font-size:90%">{fold}</details>'
        )

    def _ipython_display_(self) -> None:
        from IPython.display import display

        image = {"image/png": self.png(), "text/plain": self.alt}
        display(image, metadata={"image/png": {"width": WIDTH + 2 * EDGE}}, raw=True)
        display({"text/html": self.html(), "text/plain": " "}, raw=True)


class Sheet:
    """A sheet `WIDTH` CSS pixels wide and as high as its content requires.

    x increases to the right and y downwards. Later marks cover earlier ones.
    """

    def __init__(self) -> None:
        self.width, self.height = WIDTH, 10_000.0
        self.figure = Figure(figsize=(WIDTH / 72, self.height / 72))
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(self.height, 0))
        self.axes.set_axis_off()
        self._drawn, self.bottom = 0, 0.0  # number of marks; y of their lowest end

    def crop_height(self) -> None:
        """Set the height of the sheet, so that the sheet ends just below its lowest mark."""
        self.height = round(self.bottom) + 8
        self.figure.set_size_inches(self.width / 72, self.height / 72)
        self.axes.set_ylim(self.height, 0)

    def _add(self, artist: Artist, bottom: float) -> None:
        self._drawn += 1
        artist.set_zorder(self._drawn)
        self.axes.add_artist(artist)
        self.bottom = max(self.bottom, bottom)

    def text(
        self, x: float, y: float, text: str, *, at: str = "left", size: float = TEXT, colour: str = "ink",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """Write one line of text, centred vertically at y.

        `at` says whether the "left" end, the "center" or the "right" end of the line is at x.
        """
        style: dict[str, Any] = {"ha": at, "va": "center_baseline", "weight": "bold" if bold else "normal"}
        self._add(Text(x, y, text, fontsize=size, color=colour, **style), y + size * 0.6)

    def note(
        self, x: float, y: float, text: str, *, at: str = "left", colour: str = "soft", bold: bool = False
    ) -> None:
        """Write one line of small text, by default in the soft colour. The arguments are as in `text`."""
        self.text(x, y, text, at=at, size=SMALL, colour=colour, bold=bold)

    def heading(self, text: str) -> None:
        """Write the title at the top of the figure, shortened to fit."""
        self.text(18, 20, shorten(text, self.width - 36, bold=True), bold=True)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = "none", edge: str = "none",
        line: float = 1.0, radius: float = 4.0, dashed: bool = False, opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw a rectangle with its top left corner at (x, y). `opacity`, 0 to 1, affects only the fill."""
        radius = min(radius, width / 2, height / 2)
        style: dict[str, Any] = {"lw": line if edge != "none" else 0, "ls": (0, (3, 2.5)) if dashed else "-"}
        shape = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
        face = (fill, opacity) if opacity < 1 else fill
        patch = FancyBboxPatch((x, y), width, height, boxstyle=shape, fc=face, ec=edge, **style)
        self._add(patch, y + height)

    def square(self, x: float, y: float, side: float, fill: str) -> None:
        """Draw a filled square with its centre at (x, y)."""
        self.box(x - side / 2, y - side / 2, side, side, fill=fill, radius=0)

    def disc(
        self, x: float, y: float, radius: float, fill: str, edge: str = "none", line: float = 1.6
    ) -> None:
        """Draw a disc with its centre at (x, y)."""
        lw = line if edge != "none" else 0
        self._add(Circle((x, y), radius, fc=fill, ec=edge, lw=lw), y + radius)

    def line(
        self, *points: tuple[float, float], colour: str = "ink", width: float = 1.2, dashes: Any = "-"
    ) -> None:
        """Draw a line through the given points (x, y). `dashes` is a matplotlib line style."""
        xs, ys = zip(*points, strict=True)
        self._add(Line2D(xs, ys, color=colour, lw=width, ls=dashes), max(ys))

    def arrow(self, x: float, y: float, to_x: float, to_y: float, colour: str, width: float = 1.6) -> None:
        """Draw a horizontal or vertical arrow from (x, y) to (to_x, to_y), with a head 8 px long."""
        dx, dy = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        neck = (to_x - 8 * dx, to_y - 8 * dy)
        self.line((x, y), neck, colour=colour, width=width)
        sides = [(neck[0] + 4 * dy, neck[1] + 4 * dx), (neck[0] - 4 * dy, neck[1] - 4 * dx)]
        self._add(Polygon([(to_x, to_y), *sides], closed=True, fc=colour, ec="none", lw=0), to_y)

    def chip(self, x: float, y: float, text: str, *, width: float, fill: str, edge: str) -> None:
        """Draw a rounded box, 26 px high and centred at (x, y), with a word in it, shortened to fit."""
        self.box(x - width / 2, y - 13, width, 26, fill=fill, edge=edge, radius=6)
        size = TEXT if text_width(drawable(text[:100]), TEXT) <= width - 8 else SMALL
        self.text(x, y, shorten(text, width - 8, size), at="center", size=size)

    def add_axes(self, left: float, top: float, right: float, bottom: float, x_label: str) -> Axes:
        """Add linear axes and return them. Tick labels, a few round numbers, are on the left and below.

        Args:
            left, top, right, bottom: the edges of the plot area, px.
            x_label: label of the x axis.
        """
        place, up = (left, -bottom, right - left, bottom - top), Affine2D().scale(1, -1)
        axes = self.axes.inset_axes(place, transform=up + self.axes.transData, zorder=0.5)
        for axis, room in ((axes.xaxis, (right - left) / 60), (axes.yaxis, (bottom - top) / 40)):
            axis.set_major_locator(MaxNLocator(max(2, int(room)), steps=[1, 2, 5, 10]))
            axis.set_major_formatter("{x:,.12g}")
        self.bottom = max(self.bottom, bottom + 22)
        self.note(right, bottom + 42, x_label, at="right")
        return axes

    def data_to_sheet(self, axes: Axes, x: float, y: float) -> tuple[float, float]:
        """Return the sheet coordinates, in px, of the data point (x, y) in the axes.

        The limits of the axes must not change afterwards.
        """
        px, py = self.axes.transData.inverted().transform(axes.transData.transform((x, y)))
        return float(px), float(py)


def spread_apart(ys: Sequence[float], min_distance: float, low: float, high: float) -> list[float]:
    """Return y coordinates, moved so that any two of them are at least `min_distance` px apart.

    Args:
        ys: the y coordinates, px, in any order. The results are in the same order.
        min_distance: the minimum distance, px.
        low, high: the limits of the results, px, if there is enough space between them.
    """
    order = sorted(range(len(ys)), key=lambda i: (ys[i], i))
    moved = list(ys)
    free = low
    for i in order:
        moved[i] = max(moved[i], free)
        free = moved[i] + min_distance
    free = high
    for i in reversed(order):
        moved[i] = min(moved[i], free)
        free = moved[i] - min_distance
    return moved
