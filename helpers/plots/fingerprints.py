"""The figure of notebooks 22 and A2: in which passes and layers two runs of the same tokens differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import pluralize

if TYPE_CHECKING:  # it needs PyTorch
    from helpers.museum.exhibit import Fingerprint

CELL, LARGE_CELL = 19.0, 30.0  # px


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
        _legend(sheet, 50)
        across = min(3, len(fingerprints))
        wide = (sheet.width - 18) / across
        n_layers, n_passes = (
            max(one.max_differences.shape[k] for one in fingerprints.values()) for k in (0, 1)
        )
        size = min(CELL, (wide - 12) / n_passes)
        for n, (name, one) in enumerate(fingerprints.items()):
            x, y = 18 + wide * (n % across), 103 + (n_layers * size + 64) * (n // across)
            sheet.text(x, y, name, bold=True)
            ring = one.first_difference and (one.first_difference[1], one.first_difference[0])
            _grid(sheet, x, y + 16, size, one.max_differences, ring)
            place = (
                f"pass {one.first_difference[0] + 1}, layer {one.first_difference[1] + 1}"
                if one.first_difference
                else "no ring"
            )
            sheet.note(x, y + 30 + n_layers * size, place)

    return Picture(draw, " ".join(f"{name}: {_said(one)}." for name, one in fingerprints.items()))


def fingerprint_grid(differences: Any, n_prefill: int = 1, limit: float = 0.001) -> Picture:
    """Draw one large grid: how far two runs differ in each layer (row) and pass (column).

    The larger the difference, the darker the cell. A ring marks the first cell above the limit: in the first
    pass that has one, the first layer.

    Args:
        differences: of shape (L, passes), relative to the largest number in the cell. 1 is darkest.
        n_prefill: number of passes that process the prompt; the other passes are decode steps.
        limit: the largest difference that counts as rounding.
    """
    off = np.asarray(differences, float)
    n_layers, n_passes = off.shape
    differ = ~(off <= limit)  # also where it is NaN
    over = [(layer, n) for n in range(n_passes) for layer in range(n_layers) if differ[layer, n]]
    where = f"pass {over[0][1] + 1}, layer {over[0][0] + 1}" if over else "none above the limit"

    def draw(sheet: Sheet) -> None:
        _legend(sheet, 14)
        size, left, top = min(LARGE_CELL, (sheet.width - 100) / n_passes), 82.0, 76.0
        sheet.note(18, top - 10, "pass")
        for n in range(n_passes):
            sheet.note(left + size * (n + 0.5), top - 10, str(n + 1), at="center")
        for layer in range(n_layers):
            sheet.note(18, top + size * (layer + 0.5), f"layer {layer + 1}")
        _grid(sheet, left, top, size, off, over[0] if over else None)
        y = top + size * n_layers + 8
        end = left + size * n_prefill
        sheet.line((left + 2, y), (end - 3, y), colour="soft")
        sheet.note(end - 3, y + 14, "prefill", at="right")
        if n_passes > n_prefill:
            sheet.line((end + 2, y), (left + size * n_passes - 3, y), colour="soft")
            sheet.note(end + 6, y + 14, "decode steps")
        sheet.note(left, y + 34, f"first difference: {where}", colour="ink")

    passes = f"{pluralize(n_prefill, 'pass')} of the prompt, {pluralize(n_passes - n_prefill, 'decode step')}"
    share = f"{np.mean(differ):.0%} of the cells differ" if over else "no cell differs"
    return Picture(draw, f"{passes}, {n_layers} layers; first difference: {where}; {share}.")


def _legend(sheet: Sheet, y: float) -> None:
    for n, share in enumerate((0.01, 0.1, 1.0)):
        x = 18.0 + 58 * n
        sheet.box(x, y, 14, 14, fill="query", radius=0, opacity=share**0.5)
        sheet.note(x + 19, y + 7, f"{share:.0%} apart" if share == 1 else f"{share:.0%}")
    sheet.disc(25, y + 25, 6, "paper", "key", 2.2)
    sheet.note(37, y + 25, "the first difference")


def _grid(
    sheet: Sheet, x: float, y: float, size: float, differences: np.ndarray, ring: tuple[int, int] | None
) -> None:
    n_layers, passes = differences.shape
    sheet.box(x, y, size * passes - 1, size * n_layers - 1, fill="panel", radius=0)
    for across in x + size * np.arange(1, passes) - 0.5:
        sheet.line((across, y), (across, y + size * n_layers - 1), colour="paper", width=1)
    for down in y + size * np.arange(1, n_layers) - 0.5:
        sheet.line((x, down), (x + size * passes - 1, down), colour="paper", width=1)
    for (layer, number), off in np.ndenumerate(differences):
        left, top = x + size * number, y + size * layer
        if not off <= 1e-4:  # or NaN; a square root, so that a hundredth can still be seen
            sheet.box(left, top, size - 1, size - 1, fill="query", radius=0, opacity=min(1.0, off**0.5))
    if ring:
        layer, number = ring
        sheet.disc(x + size * (number + 0.5) - 0.5, y + size * (layer + 0.5) - 0.5, 6, "paper", "key", 2.2)


def _said(one: Fingerprint) -> str:
    shape = (
        f"{pluralize(one.max_differences.shape[1], 'pass')}, {pluralize(len(one.max_differences), 'layer')}"
    )
    if not one.first_difference:
        return f"{shape}, no more than rounding"
    number, layer, head, token = (n + 1 for n in one.first_difference)
    spread = f"{np.mean(one.max_differences > 1e-3):.0%} of the cells differ"
    return f"{shape}, first in pass {number}, layer {layer}, head {head}, token {token}; {spread}"
