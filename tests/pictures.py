"""Checks that every figure must pass, and functions that find texts and boxes in a figure."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from itertools import combinations
from typing import Any

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from helpers.drawing.canvas import WIDTH
from helpers.drawing.svg import PALETTE, Renderer
from helpers.plots import Picture


class _Listener(Renderer):
    """A renderer that lists the texts it draws.

    A figure also contains texts that are not drawn, such as the labels of ticks outside the axes.
    """

    def draw_text(self, *args: Any, mtext: Any = None, **kwargs: Any) -> None:
        self.marks.append(mtext)

    def draw_path(self, *args: Any, **kwargs: Any) -> None: ...

    def draw_markers(self, *args: Any, **kwargs: Any) -> None: ...


@lru_cache(8)  # a figure is drawn to find them, and asked for them several times in a row
def texts(figure: Figure) -> list[Text]:
    """Return the text objects that are drawn in a figure."""
    listener = _Listener(*figure.get_size_inches() * 72)
    figure.draw(listener)
    return listener.marks  # type: ignore[return-value]


def words(figure: Figure) -> list[str]:
    """Return the texts that are drawn in a figure, as strings."""
    return [text.get_text() for text in texts(figure)]


def boxes(figure: Figure, fill: str) -> list[FancyBboxPatch]:
    """Return the boxes in a figure that are filled with this colour of the palette."""
    found = [box for box in figure.findobj(FancyBboxPatch) if isinstance(box, FancyBboxPatch)]
    return [box for box in found if to_hex(box.get_facecolor(), keep_alpha=True) == PALETTE[fill][0] + "ff"]


def misplaced(figure: Figure) -> list[str]:
    """Return one message for each text that extends beyond the figure, and for each pair that overlaps."""
    width, height = figure.get_size_inches() * 72
    places = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    faults = [
        f"{text!r} leaves the sheet: {place.extents} of {width} × {height}"
        for text, place in places
        if not (place.x0 >= 1 and place.y0 >= 1 and place.x1 <= width - 1 and place.y1 <= height - 1)
    ]
    for (one, a), (other, b) in combinations(places, 2):
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 3:
            faults.append(f"{one!r} lies on {other!r}")
    return faults


def check_form(picture: Picture) -> None:
    """Assert that a picture is legible on a phone, is small, and has theme colours and alternative text.

    The alternative text must be sentences on one line. That a figure is the same in each run is not checked
    here, because nbval compares the outputs of notebooks.
    """
    assert misplaced(picture.figure) == []
    written = texts(picture.figure)
    assert min(float(text.get_fontsize()) for text in written) * 360 / WIDTH > 10.9, "on a phone"
    page = picture.html()
    assert re.findall(r"<text[^>]*>([^<]*)</text>", page) == [
        html.escape(text.get_text(), quote=False) for text in written
    ]
    assert len(page) < 45_000
    svg = page[page.index("<svg") : page.index("<details")]
    assert svg.count("<svg ") == 1
    assert " id=" not in svg  # two figures in a page would share it
    assert "url(" not in svg
    paints = set(re.findall(r' (?:fill|stroke)="([^"]*)"', svg)) - {"none"}
    assert paints <= {f"var(--wid-{name.replace(' ', '-')})" for name in PALETTE}
    assert picture.alt.endswith(".")
    assert "\n" not in picture.alt
    assert "0x" not in picture.alt
