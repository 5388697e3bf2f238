"""Draw the pictures that are the same whatever runs: a notebook shows the files.

python .ci/draw_pictures.py                  # helpers/drawing/drawn/
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.drawing.canvas import DRAWN, Picture, Sheet  # noqa: E402
from helpers.drawing.words import SMALL, counted, digits, listed, shorten, text_width, told  # noqa: E402

WORDS, NEXT = ("Today", "weather", "is", "so"), "nice"


def residual_stream(n_layers: int = 4, hidden_size: int = 128) -> Picture:
    """Draw four tokens' residual streams through one block of a transformer, and what lies before and after.

    Args:
        n_layers: how many blocks there are; one is drawn.
        hidden_size: numbers in a stream.

    Returns:
        A stream for each token, from top to bottom. What is drawn in its own lane reads and adds to that
        stream only; keys and values alone go from lane to lane, to the right, to later tokens.
    """

    def draw(sheet: Sheet) -> None:
        pitch, left = (78.0, 13.0) if sheet.narrow else (160.0, 60.0)
        lanes = [(left + pitch * i + 32, left + pitch * i + 70) for i in range(len(WORDS))]  # branch, stream
        _block_frame(sheet, n_layers, left - 8, lanes[-1][1] + 10)
        _keys_and_values(sheet, [branch for branch, _ in lanes])
        for word, (branch, stream) in zip(WORDS, lanes, strict=True):
            _lane(sheet, word, branch, stream)
        sheet.note((lanes[0][0] + lanes[-1][1]) / 2, 57, "the embedding of each", at="center", colour="ink")
        sheet.arrow(lanes[-1][1] - 20, 618, lanes[-1][1] - 20, 640, "generated")
        sheet.chip(lanes[-1][1] - 20, 653, NEXT, width=62, fill="generated fill", edge="generated")
        _stream_legend(sheet, n_layers, hidden_size)

    alt = (
        f"Residual streams of four tokens, {', '.join(WORDS)}, side by side. Each begins at its token's "
        f"embedding as {counted(hidden_size, 'number')}. A block adds to each stream twice, and so do the "
        f"other {counted(n_layers - 1, 'block')}: norm, "
        "attention, plus; norm, MLP, plus. Attention is the only part that crosses between tokens: keys "
        f"and values go to later tokens: {WORDS[1]} reads 1 earlier one, {WORDS[2]} 2, {WORDS[3]} 3. "
        "Norm and MLP stay in the token's own lane. At the end norm and readout; the last one's gives "
        f"{NEXT}."
    )
    return Picture(draw, alt)


def _block_frame(sheet: Sheet, n_layers: int, left: float, right: float) -> None:
    """The block's frame with the others behind it, and in it the band where tokens meet."""
    for behind in range(n_layers - 1, -1, -1):
        edge, shift = ("line" if behind else "soft"), 3.0 * behind
        sheet.box(left + shift, 88 + shift, right - left, 460, fill="paper", edge=edge)
    sheet.box(left + 4, 164, right - left - 8, 180, fill="query fill")


def _keys_and_values(sheet: Sheet, branches: list[float]) -> None:
    """Each token's K and V at its own height, and their way to the later ones."""
    for i, branch in enumerate(branches):
        y, start = _level(i), branch + 29
        for later in branches[i + 1 :]:
            for dy, colour in ((-4, "key"), (4, "value")):
                sheet.arrow(start, y + dy, later - 9, y + dy, colour, width=2)
            start = later + 9


def _level(i: int) -> float:
    """The height of a token's key and value: later tokens higher, so that each reads below its own."""
    return 184.0 + 27 * (len(WORDS) - 1 - i)


def _lane(sheet: Sheet, word: str, branch: float, stream: float) -> None:
    """A token's stream over keys and values that cross it, and all that reads and adds to it."""
    n = WORDS.index(word)
    sheet.chip(stream - 34, 16, word, width=70, fill="panel", edge="line")
    sheet.arrow(stream - 34, 29, stream - 34, 47, "soft")
    sheet.line((stream, 166), (stream, 342), colour="query fill", width=9)
    sheet.line((stream, 67), (stream, 562), colour="soft", width=5)
    for y, to in ((112.0, 382.0), (406.0, 526.0)):
        sheet.disc(stream, y, 4, "ink")
        sheet.line((stream, y), (branch, y), (branch, to), (stream - 18, to))
        sheet.arrow(stream - 20, to, stream - 10, to, "ink", width=1.2)
        _plus(sheet, stream, to)
    _read(sheet, branch, _level(n), _level(0))
    for dx, letter in ((-29, "K"), (9, "V")):
        name = "key" if letter == "K" else "value"
        sheet.box(branch + dx, _level(n) - 9, 20, 18, fill=f"{name} fill", edge=name, radius=3)
        sheet.note(branch + dx + 10, _level(n), letter, at="center", colour="ink")
    for y, width, name in ((138, 52, "norm"), (318, 68, "attention"), (434, 52, "norm"), (480, 50, "MLP")):
        _step(sheet, branch, y, width, name)
    for y, name in ((572.0, "norm"), (604.0, "readout")):
        _step(sheet, stream - 20, y, 62, name)


def one_stream(hidden_size: int = 128) -> Picture:
    """Draw one token's residual stream through a block: what reads it, and what adds to it."""
    notes = [
        (58, f"one list of {hidden_size} numbers"),
        (158, "attention reads the list"),
        (204, "and adds to it"),
        (290, "the MLP reads the list"),
        (336, "and adds to it"),
        (372, "then 3 more blocks"),
        (432, "a number for each word"),
    ]

    def draw(sheet: Sheet) -> None:
        branch, stream = (62.0, 122.0) if sheet.narrow else (112.0, 192.0)
        sheet.box(12, 76, stream + 12, 282, fill="paper", edge="soft")
        sheet.chip(stream, 18, WORDS[-1], width=62, fill="panel", edge="line")
        sheet.arrow(stream, 31, stream, 46, "soft")
        sheet.line((stream, 50), (stream, 400), colour="soft", width=5)
        for y, to in ((96.0, 204.0), (228.0, 336.0)):
            sheet.disc(stream, y, 4, "ink")
            sheet.line((stream, y), (branch, y), (branch, to), (stream - 18, to))
            sheet.arrow(stream - 20, to, stream - 10, to, "ink", width=1.2)
            _plus(sheet, stream, to)
        for y, width, name in (
            (120, 52, "norm"),
            (160, 78, "attention"),
            (252, 52, "norm"),
            (292, 50, "MLP"),
        ):
            sheet.box(branch - width / 2, y - 14, width, 28, fill="panel", edge="soft")
            sheet.note(branch, y, name, at="center", colour="ink")
        for y, name in ((402.0, "norm"), (434.0, "readout")):
            _step(sheet, stream, y, 66, name)
        sheet.arrow(stream, 448, stream, 468, "generated")
        sheet.chip(stream, 482, NEXT, width=62, fill="generated fill", edge="generated")
        for y, line in notes:
            sheet.note(stream + 44, y, line, colour="ink")

    alt = (
        f"One token's residual stream, a list of {hidden_size} numbers, from top to bottom through a block. "
        "Twice something reads it and adds to it: norm and attention, then norm and MLP. Three more blocks "
        f"follow, then norm and readout, a number for each word; here the largest names {NEXT}."
    )
    return Picture(draw, alt)


def silu_curve() -> Picture:
    """Draw the smooth switch of the MLP: nearly 0 for numbers well under 0, nearly x for those well over."""
    xs = np.linspace(-6, 6, 121)
    ys = xs / (1 + np.exp(-xs))

    def draw(sheet: Sheet) -> None:
        sheet.heading("silu(x)")
        axes = sheet.plot(46, 40, min(sheet.width - 16.0, 430.0), 220, "x")
        axes.set(xlim=(-6, 6), ylim=(-1, 6))
        axes.plot(xs, ys, color="ink", lw=2.2)
        for x, y, text in ((-4, 0.6, "off"), (3, 4.4, "on")):
            sheet.note(*sheet.at(axes, x, y), text, at="center")

    alt = (
        "A curve: silu of x is x / (1 + e to the minus x). At -4 it is "
        f"{digits(-4 / (1 + math.exp(4)), 1)}, at 0 it is 0, at 4 it is {digits(4 / (1 + math.exp(-4)), 2)}."
    )
    return Picture(draw, alt)


def _plus(sheet: Sheet, x: float, y: float) -> None:
    sheet.disc(x, y, 9, "paper", "ink")
    for dx, dy in ((5, 0), (0, 5)):
        sheet.line((x - dx, y - dy), (x + dx, y + dy), width=1.6)


def _step(sheet: Sheet, x: float, y: float, width: float, name: str) -> None:
    """One operation, on top of the line that goes through it."""
    edge = "query" if name == "attention" else "soft"
    sheet.box(x - width / 2, y - 14, width, 28, fill="panel", edge=edge)
    sheet.note(x, y, name, at="center", colour="ink")


def _read(sheet: Sheet, x: float, y: float, to: float | None = None) -> None:
    """A token's query, from the height of its own key and value down to that of the first token's."""
    sheet.box(x - 9, y - 9, 18, 18 + (to or y) - y, fill="query fill", edge="query", radius=3)
    sheet.note(x, y, "Q", at="center", colour="ink")


def _stream_legend(sheet: Sheet, n_layers: int, hidden_size: int) -> None:
    lines = [
        f"a residual stream: {counted(hidden_size, 'number')}",
        "adds to its own stream",
        "a query reads keys and values",
        "attention: alone reads other tokens",
        f"the first of {n_layers} blocks",
    ]
    for n, line in enumerate(lines):
        x, y = (18.0, 694.0 + 24 * n) if sheet.narrow else (50.0 + 330 * (n % 2), 694.0 + 26 * (n // 2))
        if n == 0:
            sheet.line((x, y), (x + 22, y), colour="soft", width=5)
        elif n == 1:
            _plus(sheet, x + 11, y)
        elif n == 2:
            _read(sheet, x + 11, y)
        else:
            fill, edge = ("query fill", "none") if n == 3 else ("paper", "soft")
            sheet.box(x, y - 8, 22, 16, fill=fill, edge=edge)
        sheet.note(x + 34, y, line, colour="ink")


Heads = tuple[Sequence[int], Sequence[int]]  # query heads and KV heads of one rank
HALVES: list[Heads] = [([0, 1], [0]), ([2, 3], [1])]  # of the shipped model


def two_ranks(
    held: Sequence[Heads] = HALVES, tokens: int = 17, n_layers: int = 4, sum_nbytes: int = 512
) -> Picture:
    """Draw which heads and rows each of two ranks holds, and what crosses between them for one token.

    Args:
        held: query heads and KV heads of each rank, counted from 0.
        tokens: rows of a KV head, drawn up to 24.
        n_layers: layers, of two sums each.
        sum_nbytes: bytes that a rank hands over for one token in one sum.
    """
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
            _rows(sheet, x, 216, width, min(tokens, 24), n_kv_heads, kv_heads)
            sheet.note(x, 228 + 12 * n_kv_heads, "half of each row")
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
        f"half of each of {counted(tokens, 'row')}, half of each MLP, and all of the rest"
        for rank, (q, kv) in enumerate(held)
    ]
    step = 2 * n_layers * sum_nbytes
    brought = f"two parts a layer of {sum_nbytes:,} bytes, {step:,} bytes in {counted(n_layers, 'layer')}"
    return Picture(draw, f"{'. '.join(said)}. For each token each rank brings to the sums {brought}.")


def two_ranks_rows(tokens: int = 17, n_heads: int = 4, n_layers: int = 4) -> Picture:
    """Draw which rows each of two ranks holds where every second token's are one's; all else both hold.

    Args:
        tokens: rows, drawn up to 24.
        n_heads: query heads.
        n_layers: layers, each with a merge.
    """
    shown = min(tokens, 24)

    def draw(sheet: Sheet) -> None:
        gap = 96.0 if sheet.narrow else 170.0
        width = (sheet.width - gap) / 2 - 8
        for rank, x in enumerate((4.0, 4.0 + width + gap)):
            sheet.text(x + width / 2, 14, f"rank {rank}", at="center", bold=True)
            _whole(sheet, x, 32, width, "embedding")
            _slots(sheet, x, 88, width, "query heads", n_heads, range(n_heads), "query")
            sheet.note(x, 158, "rows")
            for token in range(shown):
                own = token % 2 == rank
                fill, edge = ("value fill", "value") if own else ("none", "line")
                place = (x + width / shown * token, 172, max(2.0, width / shown - 2), 24)
                sheet.box(*place, fill=fill, edge=edge, radius=1)
            sheet.note(x, 210, "every second")
            _whole(sheet, x, 300, width, "MLP")
            _whole(sheet, x, 346, width, "readout")
        middle = 4 + width + gap / 2
        sheet.note(middle, 102, counted(n_layers, "layer"), at="center")
        sheet.note(middle, 122, "of this:", at="center")
        sheet.note(
            middle, 244, "merge" if sheet.narrow else "merge what both found", at="center", colour="ink"
        )
        sheet.arrow(12 + width, 260, width + gap - 4, 260, "ink")
        sheet.arrow(width + gap - 4, 270, 12 + width, 270, "ink")

    return Picture(
        draw,
        f"Two ranks hold embedding, {counted(n_heads, 'query head')}, MLP and readout whole. Of "
        f"{counted(tokens, 'row')} rank 0 holds those of tokens 0, 2, 4 and so on, rank 1 those of "
        f"tokens 1, 3, 5 and so on. In each of {counted(n_layers, 'layer')} they merge what both found.",
    )


def handed_over(
    tokens: int = 17,
    n_layers: int = 4,
    row_nbytes: int = 512,
    words: Sequence[str] = ("Mia", "from", "Oslo", "."),
) -> Picture:
    """Draw what a rank that runs a prompt hands to the one that goes on.

    Args:
        tokens: of the prompt.
        n_layers: layers, each with a row for each token.
        row_nbytes: bytes of one row.
        words: the reply; the first rank says the first of them.
    """
    nbytes = tokens * n_layers * row_nbytes
    cargo = [f"the word {words[0]}: 8 bytes", f"{tokens} rows in {n_layers} layers:", f"{nbytes:,} bytes"]

    def draw(sheet: Sheet) -> None:
        width = sheet.width - 20 if sheet.narrow else 240.0
        other = (10.0, 262.0) if sheet.narrow else (sheet.width - width - 10, 10.0)
        for (x, y), rank, ran, said in (((10.0, 10.0), 0, tokens, words[:1]), (other, 1, 0, words[1:])):
            sheet.box(x, y, width, 160, fill="paper", edge="soft")
            sheet.text(x + 14, y + 20, f"rank {rank}", bold=True)
            sheet.note(x + width - 14, y + 20, f"ran {ran} tokens", at="right")
            for layer in range(n_layers):
                _rows(sheet, x + 14, y + 40 + 15 * layer, width - 28, tokens)
            sheet.note(x + 14, y + 134, "says")
            for n, word in enumerate(said):
                sheet.chip(x + 82 + 58 * n, y + 134, word, width=52, fill="generated fill", edge="generated")
        if sheet.narrow:
            sheet.arrow(34, 182, 34, 252, "ink", width=2)
        else:
            sheet.arrow(width + 22, 92, other[0] - 12, 92, "ink", width=2)
        for n, line in enumerate(cargo):
            x, y = (52.0, 196.0 + 21 * n) if sheet.narrow else (width + 24, (34.0, 55.0, 76.0)[n])
            sheet.note(x, y, line, colour="ink", bold=n == 2)

    alt = (
        f"Rank 0 ran {tokens} tokens of the prompt, holds their rows in {n_layers} layers and says "
        f"{words[0]}. It hands over that word, 8 bytes, and the rows, {nbytes:,} bytes. Rank 1 ran no token "
        f"of the prompt, holds the same rows and says {' '.join(words[1:])}"
    )
    return Picture(draw, alt)


def cut_matrices(hidden_size: int = 128) -> Picture:
    """Draw how two ranks share a matrix that makes heads, and one that takes them."""
    half = hidden_size // 2

    def draw(sheet: Sheet) -> None:
        x, y = 24.0 if sheet.narrow else 40.0, 0.0
        u, v = (24.0, 270.0) if sheet.narrow else (350.0, 0.0)
        sheet.text(x, y + 18, "q_proj makes heads", bold=True)
        sheet.text(u, v + 18, "o_proj takes heads", bold=True)
        _strip(sheet, x, y + 40, 144, 30, f"{hidden_size} in, to both", "panel", "soft")
        sheet.arrow(x + 72, y + 72, x + 72, y + 92, "ink")
        for rank, colour in enumerate(("query", "value")):
            inks, down, right = (f"{colour} fill", colour), y + 96 + 72 * rank, u + 73 * rank
            _strip(sheet, x, down, 144, 70, f"rank {rank}", *inks)
            sheet.arrow(x + 148, down + 35, x + 164, down + 35, "ink")
            _strip(sheet, x + 168, down, 62, 70, f"{half} out", *inks)
            _strip(sheet, right, v + 40, 71, 30, f"{half} in", *inks)
            sheet.arrow(right + 35, v + 72, right + 35, v + 92, "ink")
            _strip(sheet, right, v + 96, 71, 142, f"rank {rank}", *inks)
            _strip(sheet, u + 168 + 80 * rank, v + 96, 62, 142, f"{hidden_size} out", *inks)
        sheet.arrow(u + 148, v + 167, u + 164, v + 167, "ink")
        sheet.text(u + 239, v + 167, "+", bold=True, at="center")

    return Picture(
        draw,
        f"q_proj is cut into an upper and a lower half. All {hidden_size} numbers go into both, {half} come "
        f"out of each. o_proj is cut into a left and a right half. {half} numbers go into each, "
        f"{hidden_size} come out of each: rank 0's {hidden_size} + rank 1's {hidden_size}.",
    )


def _strip(
    sheet: Sheet, x: float, y: float, width: float, height: float, name: str, fill: str, edge: str
) -> None:
    """A matrix, or numbers beside it, with its name in the middle."""
    sheet.box(x, y, width, height, fill=fill, edge=edge)
    sheet.note(x + width / 2, y + height / 2, name, at="center", colour="ink")


def merged_votes(found: Sequence[tuple[int, int]] = ((2, 1), (6, 3))) -> Picture:
    """Draw a merge: what each rank found, once for each 1 in its sum of exponentials.

    Args:
        found: the context, one number, and the sum of exponentials, a whole one, of each rank.
    """
    votes = sum(sum_ for _, sum_ in found)
    total = sum(context * sum_ for context, sum_ in found)
    plain = sum(context for context, _ in found) / len(found)
    lines = [f"rank {rank}: average {o}, sum {s}" for rank, (o, s) in enumerate(found)]
    end = f"together {total} ÷ {votes} = {total / votes:g}, and not {plain:g}"

    def draw(sheet: Sheet) -> None:
        x = 18.0
        for rank, (context, sum_) in enumerate(found):
            colour = ("query", "value")[rank % 2]
            y = 20.0 + 66 * rank
            sheet.note(18, y, lines[rank], colour="ink")
            for n in range(sum_):
                _vote(sheet, 18 + 46 * n, y + 14, str(context), colour)
                _vote(sheet, x, 20.0 + 66 * len(found) + 14, str(context), colour)
                x += 46
        sheet.text(18, 20 + 66 * len(found), end, bold=True, size=SMALL)

    return Picture(draw, f"{'; '.join(lines)}; {end}.")


def _vote(sheet: Sheet, x: float, y: float, text: str, colour: str) -> None:
    """What a rank found, counted once."""
    sheet.box(x, y, 40, 30, fill=f"{colour} fill", edge=colour)
    sheet.text(x + 20, y + 15, text, at="center")


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


def _rows(
    sheet: Sheet, x: float, y: float, width: float, n: int, n_kv_heads: int = 1, own: Sequence[int] = (0,)
) -> None:
    """Draw rows side by side, a band for each KV head, filled where the rank has it."""
    pitch = width / n
    for row in range(n):
        for head in range(n_kv_heads):
            fill, edge = ("value fill", "value") if head in own else ("none", "line")
            place = (x + pitch * row, y + 12 * head, max(2.0, pitch - 2), 12)
            sheet.box(*place, fill=fill, edge=edge, radius=1)


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


TOP_LEFT, BOTTOM_RIGHT = np.tri(2, 6) > 0, np.tri(2, 6, 4) > 0  # two queries, six keys
SPEEDS = (1.0, 0.1, 0.01)  # radians a position: pairs 0, 4 and 8 of the shipped model


def mask_pair(
    applied: np.ndarray = TOP_LEFT,
    right: np.ndarray = BOTTOM_RIGHT,
    queries: Sequence[str] = "56",
    keys: Sequence[str] = "123456",
) -> Picture:
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

    said = [
        f"query {told(q)} may look at {_those(keys, a)}, and needs {_those(keys, r)}"
        for q, a, r in zip(queries, applied, right, strict=True)
    ]
    alt = (
        f"Two masks of {counted(T, 'row')} and {counted(S, 'column')}. With is_causal=True, aligned "
        f"top-left, {'; '.join(said)}. {counted(n_wrong, 'cell')} differ."
    )
    return Picture(draw, alt)


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


def clock_hands(
    radians_per_position: Sequence[float] = SPEEDS, positions: Sequence[int] = (3, 7), query: int = 9
) -> Picture:
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

    return Picture(draw, alt)


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


def shared_heads(n_heads: int = 4, n_kv_heads: int = 2) -> Picture:
    """Draw which query heads read which KV head's key and value."""
    serves = n_heads // n_kv_heads

    def draw(sheet: Sheet) -> None:
        pitch, left = (78.0, 14.0) if sheet.narrow else (116.0, 118.0)
        xs = [left + pitch * (h + 0.5) for h in range(n_heads)]
        sheet.note(left + 6, 16, "one token, in one layer", bold=True, colour="ink")
        for g in range(n_kv_heads):
            group = xs[g * serves : (g + 1) * serves]
            middle = sum(group) / serves
            for dx, letter, name in ((-25, "K", "key"), (1, "V", "value")):
                for x in group:
                    sheet.line((x, 76), (middle, 124), colour="query")
                sheet.box(middle + dx, 124, 24, 24, fill=f"{name} fill", edge=name)
                sheet.note(middle + dx + 12, 136, letter, at="center", colour="ink")
            sheet.note(middle, 166, f"KV head {g + 1}", at="center")
        for h, x in enumerate(xs):
            sheet.note(x, 46, f"head {h + 1}", at="center", colour="ink")
            _read(sheet, x, 68)
        sheet.note(
            left + 6, 196, f"{n_heads} queries ask; {n_kv_heads} keys and {n_kv_heads} values are kept"
        )

    said = "; ".join(
        f"heads {listed([str(g * serves + h + 1) for h in range(serves)])} read the key and the value of KV "
        f"head {g + 1}"
        for g in range(n_kv_heads)
    )
    alt = f"One token has {n_heads} queries in a layer, {n_kv_heads} keys and {n_kv_heads} values: {said}."
    return Picture(draw, alt)


def turned_pairs(key: Sequence[int] = (3, 2, 0, 1)) -> Picture:
    """Draw the pairs of a key's numbers as hands of clocks, before and after a quarter of a round.

    Args:
        key: the hands' heights, then how far right they reach; each from -3 to 3.
    """
    half = len(key) // 2
    after = [*(-right for right in key[half:]), *key[:half]]
    rows = (16.0, "a key's numbers", list(key)), (306.0, "each hand turned by a quarter", after)

    def draw(sheet: Sheet) -> None:
        pitch, left = (76.0, 18.0) if sheet.narrow else (110.0, 130.0)
        xs = [left + pitch * (n + 0.5) for n in range(len(key))]
        for y, title, numbers in rows:
            sheet.note(left, y, title, colour="ink", bold=True)
            for n, (x, number) in enumerate(zip(xs, numbers, strict=True)):
                colour = PAIR[n % half]
                said = f"{number}".replace("-", "−")
                sheet.chip(x, y + 30, said, width=54, fill=f"{colour} fill", edge=colour)
                sheet.note(x, y + 55, "up" if n < half else "right", at="center")
        for n in range(half):
            bottom, colour = 84.0 + 10 * n, PAIR[n]
            sheet.line(
                (xs[n], 80),
                (xs[n], bottom),
                (xs[n + half], bottom),
                (xs[n + half], 80),
                colour=colour,
                width=2,
            )
            _turned(
                sheet, (xs[n] + xs[n + half]) / 2 + 46 * (2 * n - 1), key[n::half], after[n::half], colour
            )

    pairs = "; ".join(
        f"({a}, {b}) becomes ({c}, {d})"
        for a, b, c, d in zip(key, key[half:], after, after[half:], strict=False)
    )
    alt = (
        f"A key's numbers, {listed(list(map(str, key)))}. Two of them that stand {half} places apart are one "
        "hand of a clock: how far up its tip is, and how far to the right. After a quarter of a round: "
        f"{pairs}."
    )
    return Picture(draw, alt)


def _turned(sheet: Sheet, x: float, before: Sequence[int], after: Sequence[int], colour: str) -> None:
    """A clock with a pair's hand before (thin) and after."""
    y = 196.0
    sheet.disc(x, y, 68, "panel", "line", 1)
    for (up, right), width in ((before, 1.4), (after, 4.0)):
        sheet.line((x, y), (x + 16 * right, y - 16 * up), colour=colour, width=width)
        far = 16 + 26 / math.hypot(up, right)
        name = f"({up}, {right})".replace("-", "−")
        sheet.note(x + far * right, y - (far - 4) * up, name, at="center", colour="ink")
    sheet.disc(x, y, 4, "ink")


def model_in_short() -> Picture:
    """Draw the model of notebook 09 for somebody who knows the toy: four layers, and the rows in each."""
    kept = ("Today", "weather", "is", "so")

    def draw(sheet: Sheet) -> None:
        x, width = (18.0, 170.0) if sheet.narrow else (40.0, 290.0)
        rows, middle = x + width + 34, x + width / 2
        sheet.chip(middle, 24, "so", width=62, fill="generated fill", edge="generated")
        sheet.note(middle + 42, 24, "128 numbers", colour="ink")
        sheet.note(rows, 44 if sheet.narrow else 24, "rows kept", colour="ink")
        for n in range(4):
            y = 64.0 + 94 * n
            sheet.arrow(middle, 37 if n == 0 else y - 22, middle, y - 2, "soft")
            sheet.box(x, y, width, 70, fill="panel", edge="soft", radius=6)
            sheet.text(x + 12, y + 17, f"layer {n + 1}", bold=True)
            for i, name in enumerate(["4 heads of attention", "then an MLP"]):
                sheet.note(x + 12, y + 38 + 19 * i, name, colour="ink")
            for i, word in enumerate(kept):
                _short_row(sheet, rows, y + 18 * i, word, new=i == 3)
            sheet.arrow(x + width, y + 61, rows - 3, y + 61, "key")
            sheet.arrow(rows - 3, y + 14, x + width, y + 14, "query")
        sheet.arrow(middle, 416, middle, 438, "soft")
        sheet.note(middle + 14, 426, "a number for each of 185 words", colour="ink")
        sheet.chip(middle, 453, NEXT, width=62, fill="generated fill", edge="generated")
        sheet.note(18, 490, "The token writes its row into each layer,")
        sheet.note(18, 509, "and its heads read the rows that are there.")

    alt = (
        "One token, so, as 128 numbers goes through four layers, each of 4 heads of attention and an MLP. "
        f"Beside each layer lie its rows, of {listed(kept)}, two keys and two values each. The token writes "
        "its own row and reads all of them. At the end stands a number for each of 185 words, and the "
        f"largest names {NEXT}."
    )
    return Picture(draw, alt)


PAIR = ("query", "generated")
COLOURS = ("query", "key", "value", "generated")


def rope_pairs(head_dim: int = 8) -> Picture:
    """Draw which numbers of a head turn together: in a GGUF file, put back, and not put back.

    Args:
        head_dim: numbers in the head, even and at most 8.

    Returns:
        Three lines of numbers, a colour for each pair, and a bracket between two that turn together.
    """
    half = head_dim // 2
    stored = [i + half * j for i in range(half) for j in (0, 1)]
    neighbours = [(place, place + 1) for place in range(0, head_dim, 2)]
    far = [(place, place + half) for place in range(half)]
    rows = {
        "a Llama's GGUF file: neighbours turn": (stored, neighbours),
        f"here: two turn that are {half} apart": (list(range(head_dim)), far),
        "not put back: the wrong ones turn": (stored, far),
    }

    def draw(sheet: Sheet) -> None:
        pitch, left = (38.0, 18.0) if sheet.narrow else (64.0, 90.0)
        y = 16.0
        for title, (numbers, pairs) in rows.items():
            sheet.note(left, y, title, colour="ink", bold=True)
            xs = [left + pitch * (place + 0.5) for place in range(head_dim)]
            for x, number in zip(xs, numbers, strict=True):
                colour = COLOURS[number % half]
                sheet.chip(x, y + 29, str(number), width=pitch - 8, fill=f"{colour} fill", edge=colour)
            for n, (i, j) in enumerate(pairs):
                right, bottom = numbers[i] % half == numbers[j] % half, y + 52 + 9 * n * (pairs is far)
                colour, dashes = (COLOURS[numbers[i] % half], "-") if right else ("ink", (0, (3, 2)))
                ends = (xs[i], y + 43), (xs[i], bottom), (xs[j], bottom), (xs[j], y + 43)
                sheet.line(*ends, colour=colour, width=2, dashes=dashes)
            y = bottom + 30

    told_of = [
        listed([f"{numbers[i]} with {numbers[j]}" for i, j in pairs]) for numbers, pairs in rows.values()
    ]
    alt = (
        f"A head's numbers 0 to {head_dim - 1}, a colour for each pair, a bracket between two that turn "
        f"together. In a Llama's GGUF file they stand as {', '.join(map(str, stored))}, and neighbours turn: "
        f"{told_of[0]}. Here they stand in order, and turn {half} places apart: {told_of[1]}. Not put back, "
        f"and turned {half} places apart, the wrong ones turn together: {told_of[2]}."
    )
    return Picture(draw, alt)


def workshop() -> Picture:
    """Draw a machine as a workshop: a store, a road and a bench, for one user and for many.

    Under each stands one layer in time, from left to right: the road, and when the bench works.

    Source of the idea: Horace He 2022, Making deep learning go brrrr from first principles.
    """
    panels = {"one user": (1, 0.03, 0.12), "many users at once": (32, 0.27, 1.0)}

    def draw(sheet: Sheet) -> None:
        wide = 78.0 if sheet.narrow else 150.0
        bench = sheet.width - 18 - wide
        for n, (name, (users, rows, busy)) in enumerate(panels.items()):
            y = 22.0 + 250 * n
            sheet.text(18, y, name, bold=True)
            for x, what in ((18.0, "store"), (bench, "bench")):
                sheet.box(x, y + 34, wide, 116, fill="panel", edge="soft", radius=6)
                sheet.note(x + wide / 2, y + 50, what, at="center", colour="ink", bold=True)
            middle = 18 + wide / 2
            for i in range(6):
                x, down = middle - 33 + 23 * (i % 3), 66.0 + 26 * (i // 3)
                sheet.box(x, y + down, 20, 20, fill="key fill", edge="key", radius=2)
            for i in range(min(users, 9)):
                x, down = middle - 33 + 23 * (i % 3), 119.0 + 9 * (i // 3)
                sheet.box(x, y + down, 20, 5, fill="value fill", edge="value", radius=1)
            _road(sheet, 18 + wide + 6, bench - 6, y + 92)
            sheet.chip(bench + wide / 2, y + 12, "start!", width=62, fill="generated fill", edge="generated")
            sheet.arrow(bench + wide / 2, y + 26, bench + wide / 2, y + 36, "generated")
            for i in range(users):
                side = 18.0 if users == 1 else 6.0
                across, down = (i % 8 - 3.5, i // 8 - 1.5) if users > 1 else (0.0, 0.0)
                sheet.square(bench + wide / 2 + 8.5 * across, y + 104 + 9 * down, side, "query")
            _layer_in_time(sheet, y + 172, rows, busy)

    alt = (
        "A workshop. On the left the store, with matrices and rows of the cache. On the right the bench, "
        "where a matrix meets the tokens. Between them a road with one cart behind the other. Above the "
        "bench somebody starts each job, with the word start. Bars show one layer in time: over the road "
        "come weights, then rows, then weights. For one user the rows take hardly any time, and the bench "
        "works for a small part of it. For many users the weights take as long as before and the rows "
        "longer. The bench is busy all the time while weights come, and hardly while rows come."
    )
    return Picture(draw, alt)


def _road(sheet: Sheet, left: float, right: float, y: float) -> None:
    """A road from left to right, and carts on it with a matrix each."""
    sheet.note((left + right) / 2, y - 30, "road", at="center", colour="ink", bold=True)
    for dy in (-16, 16):
        sheet.line((left, y + dy), (right, y + dy), colour="soft")
    carts = int((right - left) / 46)
    for n in range(carts):
        x = left + (right - left) / carts * (n + 0.5)
        sheet.box(x - 13, y - 12, 20, 20, fill="key fill", edge="key", radius=2)
        sheet.disc(x - 8, y + 11, 3, "soft")
        sheet.disc(x + 2, y + 11, 3, "soft")
    sheet.arrow(right - 12, y, right, y, "ink")


def _layer_in_time(sheet: Sheet, y: float, rows: float, busy: float) -> None:
    """One layer from left to right: what comes over the road, and below it when the bench works."""
    left, room, x = 72.0, sheet.width - 90.0, 72.0
    for n, name in enumerate(["road", "bench"]):
        sheet.note(left - 12, y + 26 * n + 11, name, at="right", colour="ink")
        sheet.box(left, y + 26 * n, room * (0.73 + rows), 22, fill="faint", radius=2)
    for what, share, colour in (("weights", 0.28, "key"), ("rows", rows, "value"), ("weights", 0.45, "key")):
        sheet.box(x, y, room * share, 22, fill=f"{colour} fill", edge=colour, radius=2)
        if text_width(what, SMALL) < room * share:
            sheet.note(x + room * share / 2, y + 11, what, at="center", colour="ink")
        late, works = (0.0, busy) if what == "weights" else (0.3, 0.2)
        sheet.box(x + late * room * share, y + 26, works * room * share, 22, fill="query", radius=2)
        x += room * share


def layer_kinds(tokens: int = 8, window: int = 3) -> Picture:
    """Draw what a layer of each of four kinds keeps of so many tokens."""
    kinds = {
        "full": "a row of each token",
        "window": f"the newest {window}",
        "latent": "a short row of each",
        "state": "one block, rewritten",
    }

    def draw(sheet: Sheet) -> None:
        columns = 2 if sheet.narrow else 4
        for n, (name, kept) in enumerate(kinds.items()):
            x, top = 18 + (sheet.width - 18) / columns * (n % columns), 20 + 168.0 * (n // columns)
            sheet.text(x, top, name, bold=True)
            for token in range(tokens if name != "state" else 0):
                gone = name == "window" and token < tokens - window
                sheet.box(
                    x, top + 18 + 13 * token, 24 if name == "latent" else 100, 9, radius=2, dashed=gone,
                    fill="none" if gone else "key fill", edge="line" if gone else "key",
                )  # fmt: skip
            if name == "state":
                sheet.box(x, top + 18, 100, 48, fill="generated fill", edge="generated")
            sheet.note(x, top + 32 + 13 * tokens, kept)

    alt = (
        f"What a layer keeps of {tokens} tokens. Full: {tokens} long rows. Window: {window} long rows, the "
        f"newest; the {tokens - window} before them are gone. Latent: {tokens} short rows. State: one block, "
        "which each token rewrites."
    )
    return Picture(draw, alt)


def _short_row(sheet: Sheet, x: float, y: float, word: str, *, new: bool) -> None:
    """A row of one token in one layer: its key, its value, its word."""
    line = 2.0 if new else 0.8
    for dx, name in ((0, "key"), (26, "value")):
        sheet.box(x + dx, y, 24, 15, fill=f"{name} fill", edge=name, radius=2, line=line)
    sheet.text(x + 58, y + 8, word, size=SMALL, bold=new)


PICTURES: dict[str, Callable[[], Picture]] = {
    "model_in_short": model_in_short,
    "one_stream": one_stream,
    "silu": silu_curve,
    "residual_stream": residual_stream,
    "two_ranks": two_ranks,
    "two_ranks_rows": two_ranks_rows,
    "handed_over": handed_over,
    "cut_matrices": cut_matrices,
    "merged_votes": merged_votes,
    "mask_pair": mask_pair,
    "clock_hands": clock_hands,
    "shared_heads": shared_heads,
    "turned_pairs": turned_pairs,
    "rope_pairs": rope_pairs,
    "workshop": workshop,
    "layer_kinds": layer_kinds,
}

if __name__ == "__main__":
    DRAWN.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        picture = draw()
        (DRAWN / f"{name}.png").write_bytes(picture.png())
        (DRAWN / f"{name}.html").write_text(picture.html() + "\n", encoding="utf-8")
