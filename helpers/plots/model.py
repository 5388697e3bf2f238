"""Figures of a whole transformer: its streams, who moves whom in it, and the mask that decode needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Circle

from helpers.plots.canvas import (
    DPI,
    GENERATED,
    GENERATED_FILL,
    INK,
    KEY,
    KEY_FILL,
    LINE,
    PANEL,
    PAPER,
    QUERY,
    QUERY_FILL,
    SMALL,
    SOFT,
    VALUE,
    VALUE_FILL,
    Picture,
    Sheet,
    blend,
    counted,
    listed,
    shorten,
    told,
    with_settings,
)

WORDS, NEXT = ("Today", "weather", "is", "so"), "nice"
BAND = blend(PAPER, QUERY_FILL, 0.45)


def _disc(sheet: Sheet, x: float, y: float, radius: float, fill: str, edge: str = "none") -> None:
    """Draw a disc on top of the lines."""
    sheet.axes.add_patch(Circle((x, y), radius, fc=fill, ec=edge, lw=1.6 * 72 / DPI, zorder=2.5))


@with_settings
def residual_stream(n_layers: int = 4, hidden_size: int = 128) -> Picture:
    """Draw four tokens' residual streams through one block of a transformer, and what lies before and after.

    Args:
        n_layers: how many blocks there are; one is drawn.
        hidden_size: numbers in a stream.

    Returns:
        A stream for each token, from left to right. What is drawn in its own lane reads and adds to that
        stream only; keys and values alone go from lane to lane, down to later tokens.

    Raises:
        ValueError: a size is under 1.
    """
    if n_layers < 1 or hidden_size < 1:
        raise ValueError(f"n_layers={n_layers}, hidden_size={hidden_size}; expected at least 1 of both")
    lanes = [(132.0 + 108 * i, 132.0 + 108 * i + 50) for i in range(len(WORDS))]  # branch, stream
    bottom = lanes[-1][1] + 24
    sheet = Sheet(728, bottom + 72)
    _block_card(sheet, n_layers, bottom)
    _keys_and_values(sheet, [branch for branch, _ in lanes])
    for word, (branch, stream) in zip(WORDS, lanes, strict=True):
        _ends(sheet, word, branch, stream, last=word == WORDS[-1])
        _adding(sheet, 134, 414, branch, stream)
        _adding(sheet, 450, 596, branch, stream)
        _step(sheet, 146, branch, 52, "norm")
        _step(sheet, 316, branch, 80, "attention", fill=QUERY_FILL, edge=QUERY)
        _step(sheet, 464, branch, 52, "norm")
        _step(sheet, 530, branch, 50, "MLP")
    sheet.line((20, bottom + 24), (54, bottom + 24), colour=SOFT, width=5)
    _plus(sheet, 37, bottom + 48)
    _read(sheet, 276, bottom + 48)
    sized = f"a token's residual stream: a list of {counted(hidden_size, 'number')}"
    sheet.text(66, bottom + 24, sized, size=SMALL)
    sheet.text(66, bottom + 48, "adds to its own stream", size=SMALL)
    sheet.text(298, bottom + 48, "reads an earlier token's key and value", size=SMALL)
    again = "" if n_layers == 1 else f", and so do the other {counted(n_layers - 1, 'block')}"
    alt = (
        f"Residual streams of four tokens, {', '.join(WORDS)}, side by side. Each begins at its token's "
        f"embedding as {counted(hidden_size, 'number')}. A block adds to each stream twice{again}: norm, "
        "attention, plus; norm, MLP, plus. Attention is the only part that crosses between tokens: keys "
        f"and values go down to later tokens: {WORDS[1]} reads 1 earlier one, {WORDS[2]} 2, {WORDS[3]} 3. "
        "Norm and MLP stay in the token's own lane. At the end norm and readout; the last one's gives "
        f"{NEXT}."
    )
    return Picture(sheet.figure, alt, {"n_layers": n_layers, "hidden_size": hidden_size})


def _block_card(sheet: Sheet, n_layers: int, bottom: float) -> None:
    """The block's card with the others behind it, and in it the band where tokens meet."""
    for behind in range(min(n_layers, 4) - 1, -1, -1):
        shift, edge = 5.0 * behind, LINE if behind else SOFT
        sheet.box(118 + shift, 44 - shift, 500, bottom - 44, fill=PAPER, edge=edge)
    sheet.text(118, 17, "the block" if n_layers == 1 else f"the first of {n_layers} blocks", bold=True)
    sheet.box(208, 52, 196, bottom - 60, fill=BAND, edge=QUERY)
    sheet.text(306, 70, "attention alone", at="center", colour=QUERY, bold=True)
    sheet.text(306, 90, "reads other tokens", at="center", size=SMALL, colour=QUERY)
    sheet.text(523, 70, "everything else", at="center", bold=True)
    sheet.text(523, 90, "each token by itself", at="center", size=SMALL)


def _ends(sheet: Sheet, word: str, branch: float, stream: float, *, last: bool) -> None:
    """A token's stream, over keys and values that cross it, with its embedding and its readout."""
    sheet.line((210, stream), (402, stream), colour=BAND, width=11)
    sheet.line((102, stream), (640, stream), colour=SOFT, width=5)
    sheet.chip(57, branch, word, width=78, fill=PANEL, edge=LINE)
    sheet.arrow(57, branch + 13, 57, stream - 15, SOFT)
    sheet.box(12, stream - 15, 90, 30, fill=PANEL, edge=SOFT)
    sheet.text(57, stream, "embedding", at="center", size=SMALL)
    sheet.box(640, stream - 20, 74, 40, fill=PANEL, edge=SOFT)
    sheet.line((640, stream), (714, stream), colour=LINE, width=1)
    sheet.text(677, stream - 10, "norm", at="center", size=SMALL)
    sheet.text(677, stream + 10, "readout", at="center", size=SMALL)
    if last:
        sheet.arrow(677, stream - 20, 677, branch + 13, GENERATED)
        sheet.chip(677, branch, NEXT, width=66, fill=GENERATED_FILL, edge=GENERATED)


def _adding(sheet: Sheet, x: float, to: float, branch: float, stream: float) -> None:
    """What leaves a stream at x and is added to it again."""
    _disc(sheet, x, stream, 4, INK)
    sheet.line((x, stream), (x, branch), (to, branch), (to, stream - 18))
    sheet.arrow(to, stream - 20, to, stream - 10, INK, width=1.2)
    _plus(sheet, to, stream)


def _plus(sheet: Sheet, x: float, y: float) -> None:
    _disc(sheet, x, y, 10, PAPER, INK)
    for dx, dy in ((6, 0), (0, 6)):
        sheet.axes.plot((x - dx, x + dx), (y - dy, y + dy), color=INK, lw=1.6 * 72 / DPI, zorder=2.6)


def _step(
    sheet: Sheet, x: float, y: float, width: float, name: str, *, fill: str = PANEL, edge: str = SOFT
) -> None:
    """One operation, on top of the line that goes through it."""
    sheet.box(x, y - 15, width, 30, fill=fill, edge=edge)
    sheet.axes.patches[-1].set_zorder(2.4)
    sheet.text(x + width / 2, y, name, at="center", size=SMALL)


def _read(sheet: Sheet, x: float, y: float) -> None:
    """Where a later token's query meets a key and a value."""
    sheet.box(x - 9, y - 5, 18, 10, fill=QUERY, radius=5)
    sheet.axes.patches[-1].set_zorder(2.4)


def _keys_and_values(sheet: Sheet, branches: list[float]) -> None:
    """Each token's K and V, in its lane, and their way down to the later ones."""
    for i, branch in enumerate(branches):
        x, start = 224.0 + 25 * i, branch + 18
        for below in branches[i + 1 :]:
            for dx, colour in ((-5, KEY), (5, VALUE)):
                sheet.arrow(x + dx, start, x + dx, below - 5, colour, width=2.2)
            _read(sheet, x, below)
            start = below + 5
        for dy, letter, fill, edge in ((-18, "K", KEY_FILL, KEY), (0, "V", VALUE_FILL, VALUE)):
            sheet.box(x - 12, branch + dy, 24, 18, fill=fill, edge=edge, radius=3)
            sheet.axes.patches[-1].set_zorder(2.4)
            sheet.text(x, branch + dy + 9, letter, at="center", size=SMALL)


@with_settings
def who_moves(matrices: Mapping[str, np.ndarray]) -> Picture:
    """Draw, for each operation, which token's input changes which token's output.

    Args:
        matrices: (T, T) bool by name, True at [i, j] if a change of input token j changes output row i;
            up to 8 tokens.

    Returns:
        A grid for each operation, cells off the diagonal in the colour of attention; the count below.

    Raises:
        ValueError: there is no matrix, or one is not square or too large, or their sizes differ.
    """
    grids = {name: np.asarray(m, dtype=bool) for name, m in matrices.items()}
    shapes = sorted({m.shape for m in grids.values()})
    T = shapes[0][0] if shapes and shapes[0] else 0
    if shapes != [(T, T)] or not 1 <= T <= 8:
        raise ValueError(f"matrices of shapes {shapes}; expected one shape (T, T), T from 1 to 8")
    lines = -(-len(grids) // 5)
    columns = -(-len(grids) // lines)
    cell = min(20.0, 104 / T)
    top, deep, left = 96.0, cell * T + 92, 52.0
    pitch = (700 - left) / 5
    sheet = Sheet(max(left + pitch * columns, 520), 62 + deep * lines)
    sheet.note(18, 22, "Filled: a change of the column's token changes the row's token.")
    sheet.square(24, 44, 12, SOFT)
    sheet.note(36, 44, "its own row")
    sheet.square(142, 44, 12, QUERY)
    sheet.note(154, 44, "another token's row")
    numbers = {name: int(m.sum()) for name, m in grids.items()}
    for n, (name, moved) in enumerate(grids.items()):
        x, y = left + pitch * (n % columns), top + deep * (n // columns)
        _moved(sheet, name, moved, (x, y, cell, pitch), named=n % columns == 0)
    said = "; ".join(f"{name} {_moves_in_words(m)}" for name, m in ((told(k), m) for k, m in grids.items()))
    alt = (
        f"Grids of {T} by {T} tokens, filled where a change of the column's token changes the row's: {said}."
    )
    return Picture(sheet.figure, alt, numbers)


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
    middle = left + cell * T / 2
    width = min(pitch - 6, 2 * (middle - 14))
    colour = QUERY if others else INK
    shown = shorten(name, width / (1.16 if others else 1))  # bold is wider
    sheet.text(middle, top - 16, shown, at="center", bold=others > 0, colour=colour)
    for i, j in np.ndindex(T, T):
        fill = PANEL if not moved[i, j] else SOFT if i == j else QUERY
        edge = LINE if not moved[i, j] else fill
        sheet.box(left + cell * j + 1, top + cell * i + 1, cell - 2, cell - 2, fill=fill, edge=edge, radius=2)
    for i in range(T if named else 0):
        sheet.note(left - 10, top + cell * (i + 0.5), str(i + 1), at="right")
    base = top + cell * T
    sheet.text(middle, base + 16, str(moved.sum()), at="center", bold=True, colour=colour)
    said = "other rows too" if others else "own row only" if moved.any() else "nothing"
    sheet.note(middle, base + 36, said, at="center", colour=colour)


@with_settings
def mask_pair(applied: np.ndarray, right: np.ndarray, queries: Sequence[str], keys: Sequence[str]) -> Picture:
    """Draw the mask that `is_causal=True` applies beside the one that decode needs.

    Args:
        applied: (T, S) bool, True where a query may look at a key.
        right: (T, S) bool, the same for the right mask.
        queries: names of the T rows, at most 8.
        keys: names of the S columns, at most 8.

    Returns:
        Two grids; cells of the first that the second has otherwise are outlined.

    Raises:
        ValueError: the masks do not fit the names, or are too large to draw.
    """
    applied, right = np.asarray(applied, dtype=bool), np.asarray(right, dtype=bool)
    T, S = len(queries), len(keys)
    if not applied.shape == right.shape == (T, S) or not (1 <= T <= 8 and 1 <= S <= 8):
        raise ValueError(
            f"masks of {applied.shape} and {right.shape} came with {T} queries and {S} keys; "
            "expected one row for each query, one column for each key, at most 8 of both"
        )
    wrong, cell = applied != right, min(33.0, 198 / S)
    left, top, pitch = 78.0, 98.0, 348.0
    sheet = Sheet(700, top + cell * T + 52)
    pair = (
        ("is_causal=True", "aligned top-left", applied),
        ("what decode needs", "aligned bottom-right", right),
    )
    for n, (title, aligned, mask) in enumerate(pair):
        x = left + pitch * n
        _mask_heads(sheet, x, cell, title, aligned, keys)
        for i, query in enumerate(queries):
            y = top + cell * (i + 0.5)
            sheet.text(x - 8, y, shorten(f"query {query}", 64, SMALL), at="right", size=SMALL)
            _mask_row(sheet, (x, y, cell), mask[i], wrong[i] & (n == 0))
            sheet.note(x + cell * S + 8, y, f"sees {mask[i].sum()}")
    n_wrong, y = int(wrong.sum()), top + cell * T + 26
    sheet.box(left, y - 8, 16, 16, edge=INK, line=2.4, radius=3)
    sheet.text(left + 26, y, f"wrong: {counted(n_wrong, 'cell')}", size=SMALL)
    numbers = {"applied": applied.sum(1).tolist(), "right": right.sum(1).tolist(), "different": n_wrong}
    said = [
        f"query {told(q)} may look at {_those(keys, a)}, and needs {_those(keys, r)}"
        for q, a, r in zip(queries, applied, right, strict=True)
    ]
    alt = (
        f"Two masks of {counted(T, 'row')} and {counted(S, 'column')}. With is_causal=True, aligned "
        f"top-left, {'; '.join(said)}. {counted(n_wrong, 'cell')} differ."
    )
    return Picture(sheet.figure, alt, numbers)


def _mask_heads(sheet: Sheet, x: float, cell: float, title: str, aligned: str, keys: Sequence[str]) -> None:
    sheet.text(x, 24, title, bold=True)
    sheet.note(x, 45, aligned)
    sheet.note(x - 8, 80, "key", at="right")
    for j, key in enumerate(keys):
        sheet.note(x + cell * (j + 0.5), 80, shorten(key, cell - 2, SMALL), at="center")


def _those(keys: Sequence[str], seen: np.ndarray) -> str:
    names = [told(key) for key, yes in zip(keys, seen, strict=True) if yes]
    return f"{'key' if len(names) == 1 else 'keys'} {listed(names)}" if names else "no key"


def _mask_row(sheet: Sheet, place: tuple[float, float, float], seen: np.ndarray, wrong: np.ndarray) -> None:
    """One query's cells: filled where it may look, crossed where not, outlined where that is wrong."""
    left, y, cell = place
    for j, (yes, bad) in enumerate(zip(seen, wrong, strict=True)):
        x = left + cell * j
        fill, edge = (QUERY, QUERY) if yes else (PANEL, LINE)
        sheet.box(x + 2, y - cell / 2 + 2, cell - 4, cell - 4, fill=fill, edge=edge, radius=3)
        if not yes:
            sheet.text(x + cell / 2, y, "×", at="center", colour=INK if bad else SOFT, bold=bool(bad))
        if bad:
            sheet.box(x + 2, y - cell / 2 + 2, cell - 4, cell - 4, edge=INK, line=2.4, radius=3)
