"""What holds for every figure, in both of its layouts."""

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

from helpers.drawing.canvas import EDGE, NARROW, NARROW_BELOW, WIDE
from helpers.drawing.svg import PALETTE, Renderer
from helpers.plots import Picture


class _Listener(Renderer):
    """Notes the texts that are drawn; a figure holds others, such as names of ticks out of sight."""

    def draw_text(self, *args: Any, mtext: Any = None, **kwargs: Any) -> None:
        self.marks.append(mtext)

    def draw_path(self, *args: Any, **kwargs: Any) -> None: ...

    def draw_markers(self, *args: Any, **kwargs: Any) -> None: ...


@lru_cache(8)  # a figure is drawn to find them, and asked for them several times in a row
def texts(figure: Figure) -> list[Text]:
    """Return what is written in a figure."""
    listener = _Listener(*figure.get_size_inches() * 72)
    figure.draw(listener)
    return listener.marks  # type: ignore[return-value]


def words(figure: Figure) -> list[str]:
    """Return what is written in a figure, as strings."""
    return [text.get_text() for text in texts(figure)]


def boxes(figure: Figure, fill: str) -> list[FancyBboxPatch]:
    """Return the boxes of this colour of the palette."""
    found = [box for box in figure.findobj(FancyBboxPatch) if isinstance(box, FancyBboxPatch)]
    return [box for box in found if to_hex(box.get_facecolor(), keep_alpha=True) == PALETTE[fill][0] + "ff"]


def misplaced(figure: Figure) -> list[str]:
    """Name the words that leave the sheet, and those that lie on another."""
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
    """Raise unless a picture is legible, themed, small and a sentence; nbval says that runs draw it alike."""
    # The wide layout gives way under NARROW_BELOW px; the narrow one is shown on 280 px or more.
    drawn, phone = [], min(280 / NARROW, 360 / (NARROW + 2 * EDGE))
    for figure, shown in ((picture.figure, NARROW_BELOW / WIDE), (picture.narrow_figure, phone)):
        assert misplaced(figure) == []
        written = texts(figure)
        assert min(float(text.get_fontsize()) for text in written) * shown > 10.9
        drawn += [html.escape(text.get_text(), quote=False) for text in written]
    page = picture.html()
    assert sorted(re.findall(r"<text[^>]*>([^<]*)</text>", page)) == sorted(drawn)
    assert len(page) < 80_000
    svgs = page[page.index("<svg") : page.index("<details")]
    assert len(re.findall(r"<svg ", svgs)) == 2
    assert " id=" not in svgs  # two of them in a page would share it
    assert "url(" not in svgs
    paints = set(re.findall(r' (?:fill|stroke)="([^"]*)"', svgs)) - {"none"}
    assert paints <= {f"var(--wid-{name.replace(' ', '-')})" for name in PALETTE}
    assert picture.alt.endswith(".")
    assert "\n" not in picture.alt
    assert "0x" not in picture.alt
