"""Figures of a whole transformer: who moves whom in it, its clocks, and masks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from helpers.plots.canvas import Picture, Sheet
from helpers.plots.words import SMALL, counted, digits, listed, need, shorten, text_width, told


def who_moves(matrices: Mapping[str, np.ndarray]) -> Picture:
    """Draw, for each operation, which token's input changes which token's output.

    Args:
        matrices: (T, T) bool by name, True at [i, j] if a change of token j changes the output at token i;
            up to 8 tokens.

    Returns:
        A grid for each operation, cells off the diagonal in the colour of attention; the count below.

    Raises:
        ValueError: there is no matrix, or one is not square or too large, or their sizes differ.
    """
    grids = {name: np.asarray(m, dtype=bool) for name, m in matrices.items()}
    shapes = sorted({m.shape for m in grids.values()})
    T = shapes[0][0] if shapes and shapes[0] else 0
    right = shapes == [(T, T)] and 1 <= T <= 8
    need(right, f"matrices of shapes {shapes}; expected one shape (T, T), T from 1 to 8")

    def draw(sheet: Sheet) -> None:
        a_line, left, cell = (2 if sheet.narrow else 5), 40.0, min(20.0, 104 / T)
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

    said = "; ".join(f"{told(name)} {_moves_in_words(m)}" for name, m in grids.items())
    alt = (
        f"Grids of {T} by {T} tokens, filled where a change of the column's token changes the line's: {said}."
    )
    return Picture(draw, alt, {name: int(m.sum()) for name, m in grids.items()})


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
    said = "other lines too" if others else "own line only" if moved.any() else "nothing"
    sheet.note(max(middle, left + 26), base + 36, said, at="center", colour=colour)


def mask_pair(applied: np.ndarray, right: np.ndarray, queries: Sequence[str], keys: Sequence[str]) -> Picture:
    """Draw the mask that `is_causal=True` applies beside the one that decode needs.

    Args:
        applied: (T, S) bool, True where a query may look at a key.
        right: (T, S) bool, the same for the right mask.
        queries: names of the T queries, at most 8.
        keys: names of the S keys, at most 8.

    Returns:
        Two grids; cells of the first that the second has otherwise are outlined.
    """
    T, S = len(queries), len(keys)
    wrong, cell = applied != right, min(30.0, 180 / S)
    n_wrong = int(wrong.sum())
    pair = (
        ("is_causal=True", "aligned top-left", applied),
        ("what decode needs", "aligned bottom-right", right),
    )

    def draw(sheet: Sheet) -> None:
        for n, (title, aligned, mask) in enumerate(pair):
            x, y = (78.0, (cell * T + 110) * n) if sheet.narrow else (78.0 + 340 * n, 0.0)
            _mask_heads(sheet, x, y, cell, title, aligned, keys)
            for i, query in enumerate(queries):
                place = (x, y + 90 + cell * (i + 0.5), cell)
                _mask_row(sheet, place, query, mask[i], wrong[i] & (n == 0))
        below = sheet.bottom + 20
        sheet.box(78, below - 8, 16, 16, edge="ink", line=2.4, radius=3)
        sheet.note(104, below, f"wrong: {counted(n_wrong, 'cell')}", colour="ink")

    numbers = {"applied": applied.sum(1).tolist(), "right": right.sum(1).tolist(), "different": n_wrong}
    said = [
        f"query {told(q)} may look at {_those(keys, a)}, and needs {_those(keys, r)}"
        for q, a, r in zip(queries, applied, right, strict=True)
    ]
    alt = (
        f"Two masks of {counted(T, 'row')} and {counted(S, 'column')}. With is_causal=True, aligned "
        f"top-left, {'; '.join(said)}. {counted(n_wrong, 'cell')} differ."
    )
    return Picture(draw, alt, numbers)


def _mask_heads(
    sheet: Sheet, x: float, y: float, cell: float, title: str, aligned: str, keys: Sequence[str]
) -> None:
    sheet.text(x, y + 20, title, bold=True)
    sheet.note(x, y + 41, aligned)
    sheet.note(x - 8, y + 74, "key", at="right")
    for j, key in enumerate(keys):
        sheet.note(x + cell * (j + 0.5), y + 74, shorten(key, cell - 2, SMALL), at="center")


def _those(keys: Sequence[str], seen: np.ndarray) -> str:
    names = [told(key) for key, yes in zip(keys, seen, strict=True) if yes]
    return f"{'key' if len(names) == 1 else 'keys'} {listed(names)}" if names else "no key"


def _mask_row(
    sheet: Sheet, place: tuple[float, float, float], query: str, seen: np.ndarray, wrong: np.ndarray
) -> None:
    """One query's cells: filled where it may look, crossed where not, outlined where that is wrong."""
    left, y, cell = place
    sheet.note(left - 8, y, shorten(f"query {query}", 66, SMALL), at="right", colour="ink")
    sheet.note(left + cell * len(seen) + 8, y, f"sees {seen.sum()}")
    for j, (yes, bad) in enumerate(zip(seen, wrong, strict=True)):
        x = left + cell * j
        fill, edge = ("query", "query") if yes else ("panel", "line")
        sheet.box(x + 2, y - cell / 2 + 2, cell - 4, cell - 4, fill=fill, edge=edge, radius=3)
        if not yes:
            sheet.text(x + cell / 2, y, "×", at="center", colour="ink" if bad else "soft", bold=bool(bad))
        if bad:
            sheet.box(x + 2, y - cell / 2 + 2, cell - 4, cell - 4, edge="ink", line=2.4, radius=3)


def clock_hands(radians_per_position: Sequence[float], positions: Sequence[int], query: int) -> Picture:
    """Draw how the rotation by position turns pairs of a key's numbers, each pair a clock with its own speed.

    Args:
        radians_per_position: how far each pair turns from one position to the next; up to 6.
        positions: where the same key is stored, from 0; up to 12. Their hands are drawn.
        query: the position of a query of the same numbers, whose hand is drawn too.

    Returns:
        A clock a pair, 0 at the top, a hand for each position; under it how many positions a round takes,
        and the cosines between the query's hand and the key's, which the score adds up.
    """
    speeds, places = list(radians_per_position), list(positions)
    angles = [[r * p for p in places] for r in speeds]
    cosines = [[round(math.cos(r * query - r * p), 2) + 0.0 for p in places] for r in speeds]
    said = "; ".join(
        f"at {r:.3g} radians a position, "
        + listed([f"{a:.2f} at {p}" for p, a in zip(places, row, strict=True)])
        for r, row in zip(speeds, angles, strict=True)
    )
    told_of = "; ".join(", ".join(f"{c:.2f}" for c in row) for row in cosines)
    alt = (
        f"Clocks, one for each pair of a key's numbers. Its hand in radians by the key's position: {said}. "
        f"Cosines to the query at {query}, clock by clock: {told_of}."
    )

    def draw(sheet: Sheet) -> None:
        stored = f"{places[0]} to {places[-1]}" if len(places) > 2 else listed(list(map(str, places)))
        sheet.note(18, 20, f"the same key at {stored}", colour="key", bold=True)
        x, y = (18, 40) if sheet.narrow else (240, 20)
        sheet.note(x, y, f"a query at {query}", colour="query", bold=True)
        for n, speed in enumerate(speeds):
            _clock(sheet, n, speed, places, query, cosines[n][:4])

    rounded = [[round(a, 4) for a in row] for row in angles]
    return Picture(draw, alt, {"angles": rounded, "cosines": cosines})


def _clock(sheet: Sheet, n: int, speed: float, places: list[int], query: int, cosines: list[float]) -> None:
    """One pair's clock, and what it says: under it, or beside it where the sheet is narrow."""
    x, y = (86.0, 138 + 170.0 * n) if sheet.narrow else (120 + 230.0 * (n % 3), 140 + 290.0 * (n // 3))
    _hands(sheet, x, y, {p: speed * p for p in places}, query * speed)
    lines = [f"a round: {digits(2 * math.pi / abs(speed), 2)} positions" if speed else "never turns"]
    lines += [f"cos to {p}: {c:.2f}" for p, c in zip(places, cosines, strict=False)]
    x, y, at = (x + 84, y - 34, "left") if sheet.narrow else (x, y + 104, "center")
    sheet.note(x, y, f"{speed:.3g} rad a position", at=at, colour="ink", bold=True)
    for k, line in enumerate(lines):
        sheet.note(x, y + 21 + 20 * k, line, at=at)


def _hands(sheet: Sheet, x: float, y: float, hands: dict[int, float], query: float) -> None:
    """One pair's clock; hands that lie together share a name, such as 0–7."""
    radius, groups = 64.0, list[dict[int, float]]()
    sheet.disc(x, y, radius, "panel", "line", 1)
    sheet.line((x, y - radius), (x, y - radius + 7), colour="soft")
    for position, angle in hands.items():
        if groups and math.cos(angle - [*groups[-1].values()][-1]) > math.cos(20 / radius):
            groups[-1][position] = angle
        else:
            groups.append({position: angle})
        sheet.line((x, y), (x + 60 * math.sin(angle), y - 60 * math.cos(angle)), colour="key", width=2.2)
    sheet.line((x, y), (x + 52 * math.sin(query), y - 52 * math.cos(query)), colour="query", width=4)
    sheet.disc(x, y, 4, "ink")
    for group in groups:
        names, angle = list(group), sum(group.values()) / len(group)
        name = str(names[0]) if len(names) == 1 else f"{names[0]}–{names[-1]}"
        far = radius + 8 + 0.5 * text_width(name, SMALL, bold=True) * abs(math.sin(angle))
        place = (x + far * math.sin(angle), y - (far + 2) * math.cos(angle))
        sheet.note(*place, name, at="center", colour="key", bold=True)
