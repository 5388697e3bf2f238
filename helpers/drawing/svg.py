"""Figures as inline SVG that follows the page's light or dark theme."""

from __future__ import annotations

import html
from typing import Any

from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from helpers.drawing import palette

# The colours of the palette that figures use, and one fainter line.
_USED = "ink", "soft", "line", "faint", "panel", "paper", "query", "key", "value", "generated"
_COLOURS = palette.PALETTE | {"faint": palette.LightAndDark("#eaeef2", "#262d36")}
PALETTE = {
    name: palette.LightAndDark(to_hex(_COLOURS[name].light), to_hex(_COLOURS[name].dark))
    for name in (*_USED, *(f"{kind} fill" for kind in _USED[6:]))
}
_VARIABLES = {light: f"var(--wid-{name.replace(' ', '-')})" for name, (light, _) in PALETTE.items()}
_COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
_ANCHORS = {"center": ' text-anchor="middle"', "right": ' text-anchor="end"'}


def figure_svg(figure: Figure) -> str:
    """Return a figure as one `<svg>` element without ids, so that a page may contain several figures.

    Args:
        figure: a figure with 72 dots per inch, so that a point is equal to a CSS pixel.

    Raises:
        KeyError: a colour of the figure is not in PALETTE.
    """
    width, height = figure.get_size_inches() * 72
    renderer = Renderer(width, height)
    figure.draw(renderer)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" role="img" '
        f'aria-label="A picture; below it, the same in words">{"".join(renderer.marks)}</svg>'
    )


def theme_style_html() -> str:
    """Return the `<style>` of a page's figures. It sets their colours, shows the SVG, and hides the PNG."""
    light, dark = (
        "".join(f"{_VARIABLES[both[0]][4:-1]}:{both[n]};" for both in PALETTE.values()) for n in (0, 1)
    )
    child = ".jp-OutputArea-child"  # JupyterLab's, and nbconvert's; elsewhere the PNG stands alone
    return f"""<style>
.wid-figure{{margin-right:-20px;{light}--wid-paper:var(--jp-layout-color0,#fff)}}
[data-jp-theme-light="false"] .wid-figure{{{dark}--wid-paper:var(--jp-layout-color0,#111)}}
{child} .wid-figure:has(> svg){{display:block!important}}
{child}:has(+ {child} .wid-figure > svg){{display:none}}
.wid-figure svg{{display:block;width:100%;fill:var(--wid-ink);
font-family:system-ui,"Segoe UI",Helvetica,Arial,sans-serif}}
</style>"""


def _short(x: float) -> str:
    """Format a coordinate or length in px with at most one decimal."""
    return f"{round(x, 1) + 0.0:g}"


def _colour(kind: str, rgba: Any, opacity: float) -> str:
    faded = "" if opacity == 1 else f' {kind}-opacity="{opacity:.2g}"'
    return f' {kind}="{_VARIABLES[to_hex(rgba[:3])]}"{faded}'


class Renderer(RendererBase):
    """A matplotlib renderer that turns each drawn mark into one SVG element; `marks` has them in order."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__()
        self.size, self.marks = (width, height), list[str]()

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.size

    def draw_path(self, gc: GraphicsContextBase, path: Path, transform: Any, rgbFace: Any = None) -> None:
        down = transform + Affine2D().scale(1, -1).translate(0, self.size[1])
        drawn = [
            _COMMANDS[code] + ("" if code == Path.CLOSEPOLY else " ".join(map(_short, points)))
            for points, code in path.iter_segments(down)
        ]
        self.marks.append(f'<path d="{"".join(drawn)}"{self._paint(gc, rgbFace)}/>')

    def draw_markers(  # all markers are discs
        self, gc: GraphicsContextBase, marker_path: Path, marker_trans: Any, path: Path, trans: Any,
        rgbFace: Any = None,
    ) -> None:  # fmt: skip
        radius = marker_path.get_extents(marker_trans).width / 2
        for points, _ in path.iter_segments(trans, simplify=False):
            x, y = _short(points[-2]), _short(self.size[1] - points[-1])
            paint = self._paint(gc, rgbFace)
            self.marks.append(f'<circle cx="{x}" cy="{y}" r="{_short(radius)}"{paint}/>')

    def draw_text(
        self, gc: GraphicsContextBase, x: float, y: float, s: str, prop: Any, angle: float,
        ismath: Any = False, mtext: Any = None,
    ) -> None:  # fmt: skip
        # x is the left end in matplotlib's font; a browser's font has other widths
        x = mtext.get_transform().transform(mtext.get_unitless_position())[0]
        paint = _colour("fill", gc.get_rgb(), 1).replace(' fill="var(--wid-ink)"', "")
        bold = ' font-weight="700"' if prop.get_weight() == "bold" else ""
        anchor, size = _ANCHORS.get(mtext.get_ha(), ""), _short(prop.get_size_in_points())
        place = f'x="{_short(x)}" y="{_short(y)}" font-size="{size}"'
        self.marks.append(f"<text {place}{anchor}{bold}{paint}>{html.escape(s, quote=False)}</text>")

    def _paint(self, gc: GraphicsContextBase, fill: Any) -> str:
        forced = gc.get_alpha() if gc.get_forced_alpha() else None
        paint = ' fill="none"'
        if fill is not None:
            paint = _colour("fill", fill, forced or (fill[3] if len(fill) == 4 else 1))
        width = gc.get_linewidth()
        dashes: Any = gc.get_dashes()[1]
        if width and gc.get_rgb()[3]:
            paint += _colour("stroke", gc.get_rgb(), forced or gc.get_rgb()[3])
            paint += f' stroke-width="{_short(width)}"' if width != 1 else ""
            paint += f' stroke-dasharray="{" ".join(map(_short, dashes))}"' if dashes else ""
        return paint
