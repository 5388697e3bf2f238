"""The prediction, the switches and the figures of notebook 06, learned heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor, nn

from helpers import corpus
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, join_words, text_width


def check_top_50_names_guess(guess: Any, best_words: Sequence[str]) -> Guess:
    """Compare a guess with the number of names among the first 50 words of `best_words`.

    Args:
        guess: the reader's guess.
        best_words: the words of the vocabulary, sorted by how well their keys fit a query, best first.
    """
    names = sum(word in corpus.NAMES for word in best_words[:50])
    return Guess(guess, names, "Every name comes before every other word.")


@contextmanager
def changed(module: nn.Module, change: Callable[[Tensor], Any]) -> Iterator[None]:
    """Inside a with block, change what a module returns before the model goes on with it."""

    def hook(module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        out = out.clone()
        change(out)
        return out

    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def silence(at_by: Tensor, mean: bool) -> None:
    """Change what a part returns for the last token of each text to 0, or to the mean over the texts."""
    at_by[:] = at_by.mean(dim=0) if mean else 0


def head_off(model: Any, layer: int, head: int, mean: bool = False) -> AbstractContextManager[None]:
    """Switch a head off, counted from 1, for the last token of each text."""
    core = model.layers[layer - 1].self_attn.core
    return changed(core, lambda contexts: silence(contexts[:, head - 1, -1], mean))


def mlp_off(model: Any, layer: int, mean: bool = False) -> AbstractContextManager[None]:
    """Switch an MLP off, counted from 1, for the last token of each text."""
    mlp = model.layers[layer - 1].mlp
    return changed(mlp, lambda lists: silence(lists[:, -1], mean))


def grouped_query_attention() -> Picture:
    """Draw a layer's four query heads, and for each the KV head that it reads."""

    def draw(sheet: Sheet) -> None:
        pitch, left = 106.0, 18.0
        xs = [left + pitch * (h + 0.5) for h in range(4)]
        sheet.note(left + 6, 16, "one token, in one layer", bold=True, colour="ink")
        for g, group in enumerate((xs[:2], xs[2:])):
            middle = sum(group) / 2
            for dx, letter, name in ((-25, "K", "key"), (1, "V", "value")):
                for x in group:
                    sheet.line((x, 76), (middle, 124), colour="query")
                sheet.box(middle + dx, 124, 24, 24, fill=f"{name} fill", edge=name)
                sheet.note(middle + dx + 12, 136, letter, at="center", colour="ink")
            sheet.note(middle, 166, f"KV head {g + 1}", at="center")
        for h, x in enumerate(xs):
            sheet.note(x, 46, f"head {h + 1}", at="center", colour="ink")
            sheet.box(x - 9, 59, 18, 18, fill="query fill", edge="query", radius=3)
            sheet.note(x, 68, "Q", at="center", colour="ink")
        sheet.note(left + 6, 196, "4 queries ask; 2 keys and 2 values are kept")

    return Picture(
        draw,
        "One token has 4 queries in a layer, 2 keys and 2 values: heads 1 and 2 read the key and the value "
        "of KV head 1; heads 3 and 4 read the key and the value of KV head 2.",
    )


def rope_clock_hands(
    radians_per_position: Sequence[float], key_positions: Sequence[int] = (3, 7), query_position: int = 9
) -> Picture:
    """Draw how RoPE rotates three pairs of a key's channels, with one clock per pair.

    A clock has a hand for the key at each of two positions, and a hand for a query.

    Args:
        radians_per_position: for each of the three pairs, the angle by which it is rotated from one position
            to the next, in radians.
        key_positions: the two positions of the key, from 0.
        query_position: the position, from 0, of a query that equals the key before rotation.
    """

    def draw(sheet: Sheet) -> None:
        sheet.note(
            18, 20, f"the same key at {key_positions[0]} and {key_positions[1]}", colour="key", bold=True
        )
        sheet.note(240, 20, f"a query at {query_position}", colour="query", bold=True)
        for n, speed in enumerate(radians_per_position):
            x, y = 78 + 152.0 * n, 128.0
            _hands(sheet, x, y, {p: speed * p for p in key_positions}, query_position * speed)
            around = format_digits(2 * math.pi / speed, 2)
            lines = [f"{speed:.3g} rad a position", f"round: {around} positions"]
            lines += [f"cos to {p}: {math.cos(speed * (query_position - p)):.2f}" for p in key_positions]
            for k, line in enumerate(lines):
                sheet.note(x, y + 100 + 20 * k, line, at="center", colour="soft" if k else "ink")

    angles = "; ".join(
        f"at {speed:.3g} radians a position, {join_words([f'{speed * p:.2f} at {p}' for p in key_positions])}"
        for speed in radians_per_position
    )
    cosines = "; ".join(
        ", ".join(f"{math.cos(r * (query_position - p)):.2f}" for p in key_positions)
        for r in radians_per_position
    )
    return Picture(
        draw,
        f"Clocks, one for each pair of a key's numbers. Its hand in radians by the key's position: {angles}. "
        f"Cosines to the query at {query_position}, clock by clock: {cosines}.",
    )


def _hands(sheet: Sheet, x: float, y: float, hands: dict[int, float], query: float) -> None:
    """Draw the clock of one pair of channels.

    If the key's two hands are close together, they share a label, such as 3–7.

    Args:
        sheet: the sheet to draw on.
        x, y: the centre of the clock, in px.
        hands: maps each position of the key to the angle of its hand, in radians, clockwise from the top.
        query: the angle of the query's hand, in radians, clockwise from the top.
    """
    sheet.disc(x, y, 64, "panel", "line", 1)
    sheet.line((x, y - 64), (x, y - 57), colour="soft")
    for angle in hands.values():
        sheet.line((x, y), (x + 60 * math.sin(angle), y - 60 * math.cos(angle)), colour="key", width=2.2)
    sheet.line((x, y), (x + 52 * math.sin(query), y - 52 * math.cos(query)), colour="query", width=4)
    sheet.disc(x, y, 4, "ink")
    names, angles = [*map(str, hands)], [*hands.values()]
    if math.cos(angles[1] - angles[0]) > math.cos(20 / 64):
        names, angles = ["–".join(names)], [sum(angles) / 2]
    for name, angle in zip(names, angles, strict=True):
        far = 72 + 0.5 * text_width(name, SMALL, bold=True) * abs(math.sin(angle))
        place = (x + far * math.sin(angle), y - (far + 2) * math.cos(angle))
        sheet.note(*place, name, at="center", colour="key", bold=True)
