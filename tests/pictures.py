"""What holds for every figure: its words are whole and legible, and it is drawn the same each time."""

from __future__ import annotations

from itertools import combinations

from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from helpers.plots import Picture, canvas


def texts(picture: Picture) -> list[Text]:
    """Return what is written in the figure."""
    return [text for text in picture.figure.findobj(Text) if text.get_text().strip()]


def words(picture: Picture) -> list[str]:
    """Return what is written in the figure, as strings."""
    return [text.get_text() for text in texts(picture)]


def boxes(picture: Picture, fill: str) -> list[FancyBboxPatch]:
    """Return the boxes of this colour."""
    found = picture.figure.findobj(FancyBboxPatch)
    return [box for box in found if to_hex(box.get_facecolor(), keep_alpha=True) == fill + "ff"]


def cut_off_or_overlapping(picture: Picture) -> list[str]:
    """Name the texts that leave the card, and those that lie on another.

    Args:
        picture: one made afresh: writing a PNG leaves its letters at another scale.
    """
    width, height = picture.figure.get_size_inches() * canvas.DPI
    places = [(text.get_text(), text.get_window_extent()) for text in texts(picture)]
    faults = []
    for text, place in places:
        inside = place.x0 >= 3 and place.y0 >= 1 and place.x1 <= width - 3 and place.y1 <= height - 1
        if not inside:
            faults.append(f"{text!r} leaves the card: {place.extents} of {width} × {height}")
    for (one, a), (other, b) in combinations(places, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > 1 and down > 3:
            faults.append(f"{one!r} lies on {other!r}")
    return faults


def smallest_letters(picture: Picture) -> float:
    """Return the height of the smallest letters in pixels, where the figure is 700 px wide or less."""
    width = picture.figure.get_figwidth() * canvas.DPI
    return min(float(text.get_fontsize()) * canvas.DPI / 72 * min(1, 700 / width) for text in texts(picture))


def check_twins(first: Picture, second: Picture) -> None:
    """Raise unless two drawings of one figure are the same, in their pixels and in their words."""
    assert first.png() == second.png(), "the two PNGs differ"
    assert first.alt == second.alt == repr(first), f"{first.alt!r}, {second.alt!r}, {first!r}"
    assert first.alt.endswith("."), f"no sentence: {first.alt!r}"
    assert "\n" not in first.alt, f"more than one line: {first.alt!r}"
    assert "0x" not in first.alt, f"an address in {first.alt!r}"
