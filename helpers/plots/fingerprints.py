"""The figure of notebooks 22 and A2: in which passes and layers two runs of the same tokens differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import pluralize

if TYPE_CHECKING:  # it needs PyTorch
    from helpers.museum.exhibit import Fingerprint

CELL = 19.0  # px


def fingerprint_grids(fingerprints: Mapping[str, Fingerprint], title: str = "Fingerprint") -> Picture:
    """Draw one grid for each comparison of two runs, with one column per pass and one row per layer.

    The larger the relative difference of the contexts, the darker the cell; it is darkest from a difference
    of 100%. A ring marks the first difference that is larger than rounding.

    Args:
        fingerprints: maps the name of each comparison to its fingerprint.
        title: the heading, above the legend.
    """

    def draw(sheet: Sheet) -> None:
        sheet.heading(title)
        sheet.note(18, 38, "across: passes · down: layers")
        for n, share in enumerate((0.01, 0.1, 1.0)):
            x = 18.0 + 58 * n
            sheet.box(x, 50, 14, 14, fill="query", radius=0, opacity=share**0.5)
            sheet.note(x + 19, 57, f"{share:.0%} apart" if share == 1 else f"{share:.0%}")
        sheet.disc(25, 75, 6, "paper", "key", 2.2)
        sheet.note(37, 75, "the first difference")
        across = min(3, len(fingerprints))
        wide = (sheet.width - 18) / across
        n_layers, n_passes = (
            max(one.max_differences.shape[k] for one in fingerprints.values()) for k in (0, 1)
        )
        size = min(CELL, (wide - 12) / n_passes)
        for n, (name, one) in enumerate(fingerprints.items()):
            x, y = 18 + wide * (n % across), 103 + (n_layers * size + 64) * (n // across)
            sheet.text(x, y, name, bold=True)
            _grid(sheet, x, y + 16, size, one)
            place = (
                f"pass {one.first_difference[0] + 1}, layer {one.first_difference[1] + 1}"
                if one.first_difference
                else "no ring"
            )
            sheet.note(x, y + 30 + n_layers * size, place)

    return Picture(draw, " ".join(f"{name}: {_said(one)}." for name, one in fingerprints.items()))


def _grid(sheet: Sheet, x: float, y: float, size: float, one: Fingerprint) -> None:
    n_layers, passes = one.max_differences.shape
    sheet.box(x, y, size * passes - 1, size * n_layers - 1, fill="panel", radius=0)
    for (layer, number), off in np.ndenumerate(one.max_differences):
        left, top = x + size * number, y + size * layer
        if off > 1e-4:  # a square root, so that a hundredth can still be seen
            sheet.box(left, top, size - 1, size - 1, fill="query", radius=0, opacity=min(1.0, off**0.5))
    if one.first_difference:
        number, layer = one.first_difference[:2]
        middle = x + size * (number + 0.5) - 0.5, y + size * (layer + 0.5) - 0.5
        sheet.disc(*middle, 6, "paper", "key", 2.2)


def _said(one: Fingerprint) -> str:
    shape = (
        f"{pluralize(one.max_differences.shape[1], 'pass')}, {pluralize(len(one.max_differences), 'layer')}"
    )
    if not one.first_difference:
        return f"{shape}, no more than rounding"
    number, layer, head, token = (n + 1 for n in one.first_difference)
    spread = f"{np.mean(one.max_differences > 1e-3):.0%} of the cells differ"
    return f"{shape}, first in pass {number}, layer {layer}, head {head}, token {token}; {spread}"
