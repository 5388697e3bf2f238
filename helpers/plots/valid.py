"""Figures of constrained decoding: chosen words, automata, and probabilities of texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from helpers.constrained.grammar import NONE
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, pluralize, printable, require, shorten, text_width

COLOURS = ("generated", "query")  # of the first method and of the second


def chosen_words(words: Sequence[str], chosen: Collection[int]) -> Picture:
    """Draw a text that follows a grammar, and mark the words that the model chose.

    Args:
        words: the words of the text.
        chosen: the indices, from 0, of the words that the model chose. The grammar forced the others.
    """
    n = len(chosen)
    heads = f"{pluralize(n, 'word')} chosen", f"{len(words) - n} forced"

    def draw(sheet: Sheet) -> None:
        sheet.box(18, 11, 26, 18, fill="generated fill", edge="generated", radius=5)
        sheet.text(52, 20, heads[0], bold=True)
        sheet.text(52 + text_width(heads[0], bold=True) + 22, 20, heads[1], colour="soft")
        x, y = 18.0, 56.0
        for place, word in enumerate(words):
            shown = shorten(word, sheet.width - 52)
            width = text_width(shown) + (16 if place in chosen else 0)
            if x + width > sheet.width - 14:
                x, y = 18.0, y + 30
            if place in chosen:
                sheet.box(x, y - 12, width, 24, fill="generated fill", edge="generated", radius=6)
            sheet.text(x + width / 2, y, shown, at="center", colour="ink" if place in chosen else "soft")
            x += width + 7

    marked = (f"[{printable(word)}]" if i in chosen else printable(word) for i, word in enumerate(words))
    return Picture(draw, f"{heads[0]}, in brackets; {heads[1]}: {' '.join(marked)}")


LINE = 20  # px: height of a line of text in a state's box


def automaton(transitions: np.ndarray, vocabulary: Sequence[str]) -> Picture:
    """Draw a small automaton from top to bottom, with one box per state and one arrow per transition.

    A box lists the word sequences that complete a text from that state. An arrow is labelled with the words
    that cause its transition.

    Args:
        transitions: the next state for each state and word, of shape (states, V), with `NONE` for a word that
            is not allowed. There must be no loops, and at most two paths from state 0 to an end.
        vocabulary: the words, one per column of `transitions`.

    Raises:
        ValueError: there are more than two paths.
    """
    steps: list[dict[int, list[str]]] = [{} for _ in transitions]
    for state, column in np.argwhere(transitions != NONE).tolist():
        steps[state].setdefault(int(transitions[state, column]), []).append(vocabulary[column])

    def ways(state: int) -> list[list[int]]:
        return [[state, *way] for to in steps[state] for way in ways(to)] or [[state]]

    def endings(state: int) -> list[str]:
        behind = [(word, end) for to in steps[state] for word in steps[state][to] for end in endings(to)]
        return [f"{word} {end}".strip() for word, end in behind] or [""]

    through = ways(0)
    require(len(through) <= 2, f"{len(through)} ways lead through the states; expected at most 2 to draw")
    reached = sorted({state for way in through for state in way})
    left = {state: [end or "nothing is left" for end in endings(state)] for state in reached}
    lanes = {state: [n for n, way in enumerate(through) if state in way] for state in reached}
    depth = {state: max(way.index(state) for way in through if state in way) for state in reached}
    high = {state: LINE * len(lines) + 12 for state, lines in left.items()}
    tops = [18]
    for n in range(max(depth.values())):
        tops.append(tops[n] + max(high[state] for state in reached if depth[state] == n) + 32)

    def draw(sheet: Sheet) -> None:
        pitch = min(190, (sheet.width - 24) / len(through))
        for state, lines in left.items():  # a box is as wide as the paths through it
            x, y, wide = 18 + pitch * lanes[state][0], tops[depth[state]], pitch * len(lanes[state]) - 12
            sheet.box(x, y, wide, high[state], fill="panel", edge="line")
            sheet.note(x + wide - 10, y + 16, str(state), at="right", bold=True)
            for n, text in enumerate(lines):
                sheet.text(x + 10, y + 16 + LINE * n, shorten(text, wide - 40))
            for to, output in steps[state].items():
                x, below = 44 + pitch * min({*lanes[state]} & {*lanes[to]}), y + high[state]
                sheet.arrow(x, below, x, tops[depth[to]], "ink")
                text = shorten(" or ".join(output), pitch - 50, bold=True)
                sheet.text(x + 10, below + 14, text, bold=True)

    sentence = (
        f"State {n}, left: {' | '.join(map(printable, lines))}"
        + "".join(f"; {printable(' or '.join(output))} leads to {to}" for to, output in steps[n].items())
        for n, lines in left.items()
    )
    return Picture(draw, f"{'. '.join(sentence)}.")


def compare_probabilities(texts: Mapping[str, tuple[float, float]], methods: tuple[str, str]) -> Picture:
    """Draw two bars for each text: the probabilities with which two decoding methods generate the text.

    Args:
        texts: maps each text to a pair: (probability with the first method, probability with the second
            method), from 0 to 1.
        methods: the names of the two methods.
    """

    def draw(sheet: Sheet) -> None:
        y, longest = 20.0, (sheet.width - 36 - text_width("100.0%", SMALL, bold=True) - 12)
        for name, colour in zip(methods, COLOURS, strict=True):
            sheet.square(24, y, 12, colour)
            sheet.note(38, y, name, colour="ink")
            y += 22
        for text, both in texts.items():
            y += 14
            sheet.text(18, y, shorten(text, sheet.width - 36, bold=True), bold=True)
            for p, colour in zip(both, COLOURS, strict=True):
                y += 26
                sheet.box(18, y - 10, max(longest * p, 1), 20, fill=colour, radius=2)
                sheet.note(18 + longest * p + 8, y, f"{p:.1%}", colour="ink", bold=True)
            y += 22

    sentence = [f"{printable(text)}: {a:.1%} and {b:.1%}" for text, (a, b) in texts.items()]
    return Picture(draw, f"Probability of a text, {methods[0]} and {methods[1]}. {'; '.join(sentence)}.")
