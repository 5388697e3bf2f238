"""Draw the pictures that are the same whatever runs: a notebook shows the files.

python .ci/draw_pictures.py                  # helpers/plots/drawn/
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from helpers.plots.canvas import DRAWN, Picture, Sheet  # noqa: E402
from helpers.plots.words import counted  # noqa: E402

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
    return Picture(draw, alt, {"n_layers": n_layers, "hidden_size": hidden_size})


def _block_frame(sheet: Sheet, n_layers: int, left: float, right: float) -> None:
    """The block's frame with the others behind it, and in it the band where tokens meet."""
    for behind in range(n_layers - 1, -1, -1):
        edge, shift = ("line" if behind else "soft"), 3.0 * behind
        sheet.box(left + shift, 88 + shift, right - left, 460, fill="paper", edge=edge)
    sheet.box(left + 4, 164, right - left - 8, 180, fill="query fill")


def _keys_and_values(sheet: Sheet, branches: list[float]) -> None:
    """Each token's K and V at its own height, and their way to the later ones."""
    for i, branch in enumerate(branches):
        y, start = 184.0 + 27 * i, branch + 22
        for later in branches[i + 1 :]:
            for dy, colour in ((-4, "key"), (4, "value")):
                sheet.arrow(start, y + dy, later - 5, y + dy, colour, width=2)
            start = later + 5


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
    for level in range(n):
        _read(sheet, branch, 184.0 + 27 * level)
    for dx, letter in ((-22, "K"), (0, "V")):
        name = "key" if letter == "K" else "value"
        sheet.box(branch + dx, 175 + 27 * n, 22, 18, fill=f"{name} fill", edge=name, radius=3)
        sheet.note(branch + dx + 11, 184 + 27 * n, letter, at="center", colour="ink")
    for y, width, name in ((138, 52, "norm"), (318, 68, "attention"), (434, 52, "norm"), (480, 50, "MLP")):
        _step(sheet, branch, y, width, name)
    for y, name in ((572.0, "norm"), (604.0, "readout")):
        _step(sheet, stream - 20, y, 62, name)


def _plus(sheet: Sheet, x: float, y: float) -> None:
    sheet.disc(x, y, 9, "paper", "ink")
    for dx, dy in ((5, 0), (0, 5)):
        sheet.line((x - dx, y - dy), (x + dx, y + dy), width=1.6)


def _step(sheet: Sheet, x: float, y: float, width: float, name: str) -> None:
    """One operation, on top of the line that goes through it."""
    edge = "query" if name == "attention" else "soft"
    sheet.box(x - width / 2, y - 14, width, 28, fill="panel", edge=edge)
    sheet.note(x, y, name, at="center", colour="ink")


def _read(sheet: Sheet, x: float, y: float) -> None:
    """Where a later token's query meets a key and a value."""
    sheet.box(x - 5, y - 9, 10, 18, fill="query", radius=5)


def _stream_legend(sheet: Sheet, n_layers: int, hidden_size: int) -> None:
    lines = [
        f"a residual stream: {counted(hidden_size, 'number')}",
        "adds to its own stream",
        "reads an earlier token's key and value",
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


PICTURES = {"residual_stream": residual_stream}

if __name__ == "__main__":
    DRAWN.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        picture = draw()
        (DRAWN / f"{name}.png").write_bytes(picture.png())
        (DRAWN / f"{name}.html").write_text(picture.html() + "\n", encoding="utf-8")
