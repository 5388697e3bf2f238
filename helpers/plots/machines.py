"""The figure of two ranks: who holds what, and what crosses between them."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.plots.canvas import Picture, Sheet
from helpers.plots.words import counted, listed, need

Heads = tuple[Sequence[int], Sequence[int]]  # query heads and KV heads of one rank


def two_ranks(held: Sequence[Heads], tokens: int, n_layers: int, sum_nbytes: int) -> Picture:
    """Draw which heads and rows each of two ranks holds, and what crosses between them for one token.

    Args:
        held: query heads and KV heads of each rank, counted from 0.
        tokens: rows of a KV head, drawn up to 24.
        n_layers: layers, of two sums each.
        sum_nbytes: bytes that a rank hands over for one token in one sum.

    Raises:
        ValueError: these are not two ranks, or a number is not over 0.
    """
    need(len(held) == 2, f"{counted(len(held), 'rank')}; expected 2")
    need(min(tokens, n_layers, sum_nbytes) > 0, "a size is not over 0; expected tokens, layers and bytes")
    n_heads, n_kv_heads = (1 + max(max(heads[kind]) for heads in held) for kind in (0, 1))

    def draw(sheet: Sheet) -> None:
        gap = 96.0 if sheet.narrow else 170.0
        width = (sheet.width - gap) / 2 - 8
        places = (4.0, 4.0 + width + gap)
        for rank, (x, (queries, kv_heads)) in enumerate(zip(places, held, strict=True)):
            sheet.text(x + width / 2, 14, f"rank {rank}", at="center", bold=True)
            _whole(sheet, x, 32, width, "embedding")
            _slots(sheet, x, 88, width, "query heads", n_heads, queries, "query")
            _slots(sheet, x, 158, width, "KV heads", n_kv_heads, kv_heads, "key")
            for n, _ in enumerate(kv_heads):
                _rows(sheet, x, 220 + 16 * n, width, min(tokens, 24))
            sheet.note(x, 234 + 16 * len(kv_heads), f"its part of {counted(tokens, 'row')}")
            _half(sheet, x, 330, width, rank)
            _whole(sheet, x, 418, width, "readout")
        middle = places[0] + width + gap / 2
        sheet.note(middle, 102, counted(n_layers, "layer"), at="center")
        sheet.note(middle, 122, "of this:", at="center")
        for y in (290, 390):
            _sum(sheet, places[0] + width, y, gap, sum_nbytes)

    said = [
        f"Rank {rank} holds query head{'s' * (len(q) > 1)} {listed([*map(str, q)])} of {n_heads}, KV "
        f"head{'s' * (len(kv) > 1)} {listed([*map(str, kv)])} of {n_kv_heads} with "
        f"its part of {counted(tokens, 'row')}, half of each MLP, and all of the rest"
        for rank, (q, kv) in enumerate(held)
    ]
    step = 2 * n_layers * sum_nbytes
    crossing = f"two sums a layer of {sum_nbytes:,} bytes, {step:,} bytes in {counted(n_layers, 'layer')}"
    numbers = {"sum": sum_nbytes, "token": step}
    return Picture(draw, f"{'. '.join(said)}. For each token cross {crossing}.", numbers)


def _whole(sheet: Sheet, x: float, y: float, width: float, name: str) -> None:
    """Draw what each rank holds whole."""
    sheet.box(x, y, width, 30, fill="panel", edge="line")
    sheet.note(x + width / 2, y + 15, name, at="center")


def _slots(
    sheet: Sheet, x: float, y: float, width: float, name: str, n: int, own: Sequence[int], kind: str
) -> None:
    """Draw all heads of a kind, filled where the rank has them."""
    sheet.note(x, y, name)
    pitch = width / n
    for head in range(n):
        left = x + pitch * head
        if head in own:
            sheet.box(left, y + 14, pitch - 4, 28, fill=f"{kind} fill", edge=kind)
            sheet.note(left + pitch / 2 - 2, y + 28, str(head), at="center", colour=kind)
        else:
            sheet.box(left, y + 14, pitch - 4, 28, edge="line", dashed=True)


def _rows(sheet: Sheet, x: float, y: float, width: float, n: int) -> None:
    """Draw the rows of a KV head side by side."""
    pitch = width / n
    for row in range(n):
        sheet.box(x + pitch * row, y, max(2.0, pitch - 2), 12, fill="value fill", edge="value", radius=1)


def _half(sheet: Sheet, x: float, y: float, width: float, rank: int) -> None:
    """Draw a rank's half of the MLP."""
    sheet.note(x, y, "MLP")
    sheet.box(x, y + 14, width, 28, edge="line", dashed=True)
    sheet.box(x + rank * width / 2, y + 14, width / 2, 28, fill="panel", edge="soft")


def _sum(sheet: Sheet, x: float, y: float, gap: float, nbytes: int) -> None:
    """Draw a sum of both ranks' parts: bytes go both ways."""
    sheet.note(x + gap / 2, y - 14, "sum" if sheet.narrow else "add up both parts", at="center", colour="ink")
    sheet.arrow(x + 8, y, x + gap - 8, y, "ink")
    sheet.arrow(x + gap - 8, y + 10, x + 8, y + 10, "ink")
    sheet.note(x + gap / 2, y + 26, f"{nbytes:,} bytes", at="center")
