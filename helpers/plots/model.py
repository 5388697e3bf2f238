"""The figure of who moves whom in a transformer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import plain, shorten


def who_moves(matrices: Mapping[str, np.ndarray]) -> Picture:
    """Draw, for each operation, which token's input changes which token's output.

    Args:
        matrices: (T, T) bool by name, True at [i, j] if a change of token j changes the output at token i;
            up to 8 tokens.

    Returns:
        A grid for each operation, cells off the diagonal in the colour of attention; the count below.
    """
    grids = {name: np.asarray(m, dtype=bool) for name, m in matrices.items()}
    T = len(next(iter(grids.values())))

    def draw(sheet: Sheet) -> None:
        a_line, left, cell = (2 if sheet.narrow else 4), 40.0, min(20.0, 104 / T)
        pitch, deep = (sheet.width - left) / a_line, cell * T + 92
        filled = ["Filled: a change of the column's token", "changes the line's token."]
        for n, line in enumerate(filled if sheet.narrow else [" ".join(filled)]):
            sheet.note(18, 18 + 19 * n, line)
            y = 42.0 + 19 * n
        for x, name, colour in ((24, "its own line", "soft"), (142, "another token's line", "query")):
            sheet.square(x, y, 12, colour)
            sheet.note(x + 12, y, name)
        for n, (name, moved) in enumerate(grids.items()):
            place = (left + pitch * (n % a_line), y + 50 + deep * (n // a_line), cell, pitch)
            _moved(sheet, name, moved, place, named=n % a_line == 0)

    sentence = "; ".join(f"{plain(name)} {_moves_in_words(m)}" for name, m in grids.items())
    title = f"Grids of {T} by {T} tokens, filled where a change of the column's token changes the line's"
    return Picture(draw, f"{title}: {sentence}.")


def _moves_in_words(moved: np.ndarray) -> str:
    """Count the filled cells and say where they lie."""
    T = len(moved)
    named = {"the diagonal only": np.eye(T), "the triangle up to the diagonal": np.tri(T)}
    where = [f" ({name})" for name, cells in named.items() if np.array_equal(moved, cells > 0)]
    return f"{moved.sum()}{where[0] if where else ''}"


def _moved(
    sheet: Sheet, name: str, moved: np.ndarray, place: tuple[float, float, float, float], *, named: bool
) -> None:
    """One operation's grid, its name above and its count below."""
    left, top, cell, pitch = place
    T, others = len(moved), int((moved & ~np.eye(len(moved), dtype=bool)).sum())
    middle, colour = left + cell * T / 2, "query" if others else "ink"
    width = min(pitch - 6, 2 * (middle - 14))
    shown = shorten(name, width, bold=others > 0)
    sheet.text(middle, top - 16, shown, at="center", bold=others > 0, colour=colour)
    for i, j in np.ndindex(T, T):
        fill = "panel" if not moved[i, j] else "soft" if i == j else "query"
        edge = "line" if not moved[i, j] else fill
        sheet.box(left + cell * j + 1, top + cell * i + 1, cell - 2, cell - 2, fill=fill, edge=edge, radius=2)
    for i in range(T if named else 0):
        sheet.note(left - 8, top + cell * (i + 0.5), str(i + 1), at="right")
    base = top + cell * T
    sheet.text(middle, base + 16, str(moved.sum()), at="center", bold=True, colour=colour)
    sentence = "other lines too" if others else "own line only" if moved.any() else "nothing"
    sheet.note(max(middle, left + 26), base + 36, sentence, at="center", colour=colour)
