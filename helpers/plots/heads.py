"""The figures of notebook 15: which query head reads which row, and a product in two orders."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.cost.bytes import Full, Latent
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import listed, told

FULL = (("K", "key fill", "key"), ("V", "value fill", "value"))  # what is read as one: letter, fill, edge
LATENT = (("c", "panel", "ink"), ("K", "key fill", "key"))
Shape = tuple[str, int, int, str]  # a matrix: its name, rows, columns, colour
LARGEST = 45.0  # px of the longer of a query and a latent
EACH = 0.5  # px a number of a row
HEAD, STEP = 24, 34  # px: a query head, and from one to the next


def who_reads(kinds: Mapping[str, Full | Latent], n_heads: int) -> Picture:
    """Draw one token's row in one layer of each kind, as wide as it has numbers, and which heads read what.

    Args:
        kinds: the layers, by name.
        n_heads: query heads of each.
    """

    def draw(sheet: Sheet) -> None:
        columns = 2 if sheet.narrow else len(kinds)
        wide = (sheet.width - 16) / columns
        for n, (name, kind) in enumerate(kinds.items()):
            _reads(sheet, 8 + wide * (n % columns), 18 + 226 * (n // columns), wide, name, kind, n_heads)

    said = []
    for name, kind in kinds.items():
        parts = len(_parts(kind))
        serves = [listed([str(h + 1) for h in _group(g, parts, n_heads)]) for g in range(parts)]
        what = "; ".join(f"KV head {g + 1} serves {heads}" for g, heads in enumerate(serves))
        if isinstance(kind, Latent):
            what = f"all {n_heads} heads read one list, each through matrices of its own"
        said.append(f"{told(name)}: {what}; a row has {_numbers(kind)}")
    return Picture(draw, ". ".join(said) + ".")


def _parts(kind: Full | Latent) -> list[tuple[int, int]]:
    """The numbers of a row, in pairs of which each is read as one: a key and a value, or what is turned."""
    if isinstance(kind, Latent):
        return [(kind.rank, kind.rope_dim)]
    return [(kind.k_dim, kind.v_dim)] * kind.n_kv_heads


def _numbers(kind: Full | Latent) -> str:
    """How many numbers a row has; of a latent one, c and what is turned."""
    parts = f"{kind.rank} + {kind.rope_dim} = " if isinstance(kind, Latent) else ""
    return f"{parts}{kind.row} numbers"


def _group(g: int, parts: int, n_heads: int) -> range:
    """The query heads that read part g."""
    return range(g * n_heads // parts, (g + 1) * n_heads // parts)


def _reads(
    sheet: Sheet, left: float, top: float, wide: float, name: str, kind: Full | Latent, n_heads: int
) -> None:
    """One kind: its query heads, the lines, and the row below."""
    middle, latent, parts = left + wide / 2, isinstance(kind, Latent), _parts(kind)
    sheet.text(middle, top, name, at="center", bold=True)
    heads = [middle + STEP * (h - (n_heads - 1) / 2) for h in range(n_heads)]
    pitch = STEP * n_heads / len(parts)
    for g, (first, second) in enumerate(parts):
        x = middle + pitch * (g - (len(parts) - 1) / 2)
        start = x - EACH * (first + second) / 2
        for head in (heads[h] for h in _group(g, len(parts), n_heads)):
            sheet.line((head, top + 60), (x, top + 134), colour="query")
            if latent:
                sheet.box(head + (x - head) * 0.4 - 6, top + 84, 12, 12, fill="panel", edge="ink", radius=2)
        pieces = LATENT if latent else FULL
        for numbers, (letter, fill, edge) in zip((first, second), pieces, strict=True):
            sheet.box(start, top + 134, EACH * numbers, 26, fill=fill, edge=edge, radius=2)
            sheet.note(start + EACH * numbers / 2, top + 147, letter, at="center", colour="ink")
            start += EACH * numbers
    for h, head in enumerate(heads):
        sheet.chip(head, top + 46, str(h + 1), width=HEAD, fill="query fill", edge="query")
    sheet.note(middle, top + 182, _numbers(kind), at="center", colour="ink")


def two_parts(D: int, rank: int, rope_dim: int) -> Picture:
    """Draw latent attention's query and row, each in two parts: the one without position, the turned one.

    Args:
        D, rope_dim: numbers of a head's query that are not turned, and turned.
        rank: numbers of a latent.
    """
    query, key = ("query fill", "query"), LATENT[1][1:]
    sides = [
        ((D, *query), (rank, *LATENT[0][1:]), "c", "not turned", "no position"),
        ((rope_dim, *query), (rope_dim, *key), "K", "turned", "with position"),
    ]

    def draw(sheet: Sheet) -> None:
        sheet.text(8, 18, "the query of one head", bold=True)
        for n, (above, below, letter, kind, says) in enumerate(sides):
            x = 8 + n * (sheet.width - 16) / 2
            sheet.line((x + 36, 62), (x + 36, 130), colour="query")
            for y, name, (numbers, fill, edge) in ((36, "", above), (130, f"{letter}: ", below)):
                sheet.box(x, y, 2.5 * numbers, 26, fill=fill, edge=edge, radius=2)
                sheet.note(x + 1.25 * numbers, y + 13, f"{name}{numbers}", at="center", colour="ink")
                sheet.note(x + 2.5 * numbers + 6, y + 13, kind)
            sheet.note(x, 208, f"product: {says}", colour="ink")
        sheet.chip(44, 96, "M", width=26, fill="panel", edge="ink")
        sheet.note(64, 96, "each head its own")
        sheet.text(8, 176, "the row, for all heads", bold=True)
        sheet.text(8, 240, "score: the sum of both products", bold=True)

    return Picture(
        draw,
        f"A query of one head has {D} numbers that are not turned, for the latent c of {rank} through the "
        f"head's M, and {rope_dim} turned ones, for the turned key K of {rope_dim}. c and K are the row, for "
        "all heads. The score is the sum of both products.",
    )


def two_orders(S: int, D: int, rank: int) -> Picture:
    """Draw one query's scores as a product of three, in two orders, and count the multiplications of each.

    Args:
        S: latents in the cache.
        D: numbers in a query of one head.
        rank: numbers in a latent.
    """
    query, matrix, latents = ("query", 1, D, "query"), ("M", D, rank, "panel"), ("latents", rank, S, "panel")
    keys, wide = ("keys", D, S, "key"), ("query · M", 1, rank, "query")
    orders: dict[str, tuple[list[Shape], list[Shape]]] = {
        "expanded: M and the latents first": ([matrix, latents], [query, keys]),
        "absorbed: the query and M first": ([query, matrix], [wide, latents]),
    }

    def draw(sheet: Sheet) -> None:
        y = 18.0
        for name, (first, then) in orders.items():
            sheet.text(8, y, name, bold=True)
            for shapes, marked in (([query, matrix, latents], first), (then, [])):
                _shapes(sheet, y + 34, LARGEST / max(D, rank), shapes, marked)
                y += LARGEST + 76
            sheet.note(8, y, f"{_count(first) + _count(then):,} multiplications", colour="ink", bold=True)
            y += 48

    said = [
        f"{name}: {_times(first)}, then {_times(then)}: {_count(first) + _count(then):,} multiplications"
        for name, (first, then) in orders.items()
    ]
    return Picture(draw, f"The scores of one query with {S:,} latents. {'. '.join(said)}.")


def _shapes(sheet: Sheet, y: float, unit: float, shapes: list[Shape], marked: list[Shape]) -> None:
    """Matrices side by side, each with its name above and its size below; a line under the marked ones."""
    x, ends = 8.0, []
    for shape in shapes:
        name, high, wide, kind = shape
        across, down = min(unit * wide, sheet.width - 16 - x), max(6.0, unit * high)
        fill, edge = ("panel", "ink") if kind == "panel" else (f"{kind} fill", kind)
        sheet.box(x, y + (LARGEST - down) / 2, across, down, fill=fill, edge=edge, radius=2)
        sheet.note(x, y - 12, name, colour="ink")
        sheet.note(x, y + LARGEST + 14, f"{high:,} × {wide:,}")
        ends += [x, x + across] if shape in marked else []
        x += max(across, 74) + 10
    if ends:
        sheet.line((ends[0], y + LARGEST + 27), (ends[-1], y + LARGEST + 27), width=3)


def _count(product: list[Shape]) -> int:
    (_, high, through, _), (_, _, wide, _) = product
    return high * through * wide


def _times(product: list[Shape]) -> str:
    return " times ".join(f"{name} ({high:,} by {wide:,})" for name, high, wide, _ in product)
