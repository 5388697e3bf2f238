"""Figures of real words: how likely each was, whom a head looks at, and what else might have come."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, listed, need, plain, shorten, text_width
from helpers.trace import Trace


def whole_percent(p: float) -> str:
    """Write a probability in whole percent; one that is nearly 0 as <1."""
    return "<1" if p < 0.005 else f"{100 * p:.0f}"


def probabilities(words: Sequence[str], given: Sequence[float]) -> Picture:
    """Draw a text with a bar under each word but the first: how likely the model held it to be.

    Args:
        words: the text, up to 80 words.
        given: the probability of each word but the first, seen from the word before.
    """
    need(len(words) == len(given) + 1, f"{len(given)} probabilities came with {len(words)} words")

    def draw(sheet: Sheet) -> None:
        x, y = 18.0, 20.0
        for word, p in zip(words, [None, *given], strict=True):
            shown = shorten(word, sheet.width - 40)
            width = max(34.0, text_width(shown))
            if x + width > sheet.width - 14:
                x, y = 18.0, y + 58
            sheet.text(x, y, shown)
            if p is not None:
                sheet.box(x, y + 12, width, 7, fill="faint", radius=1)
                sheet.box(x, y + 12, width * p, 7, fill="generated", radius=1)
                sheet.note(x, y + 30, whole_percent(p), colour="ink" if p < 0.9 else "soft")
            x += width + 9

    each = [f"{plain(word)} {whole_percent(p)}" for word, p in zip(words[1:], given, strict=True)]
    alt = (
        f"{counted(len(given), 'word')} behind {plain(words[0])}, each with the probability that it was "
        f"given before it came, in percent: {', '.join(each)}."
    )
    return Picture(draw, alt)


def targets_and_weights(
    trace: Trace, given: Sequence[float], n: int = 11, layer: int = 0, head: int = 0
) -> Picture:
    """Draw the weights of one head over the first tokens of a prompt, with what follows from every line.

    Args:
        trace: of a model, with the weights of this layer and head, from 0.
        given: of each line the probability of its target, the token that comes next.
        n: lines; the prompt has a token more at least.

    Returns:
        A triangle (rows look, columns are looked at; a square's area is the weight) and two columns of words:
        training's targets in every row with their probabilities, and prefill's word in the last.
    """
    words = [token.text for token in trace.sequences[0].tokens[: n + 1]]
    need(trace.sequences[0].prompt > n, f"the prompt has no more than {n} tokens; expected more")
    weights = [trace.attention_weights(i, layer, head) for i in range(n)]

    def draw(sheet: Sheet) -> None:
        left, top, row = (66.0, 112.0, 22.0) if sheet.narrow else (80.0, 92.0, 24.0)
        cell = (sheet.width - left - (121 if sheet.narrow else 280)) / n
        after = left + cell * n + (21 if sheet.narrow else 12)
        sheet.note(18, 18, "Square: how much a line looks at a column.")
        for j, word in enumerate(words[:n]):
            sheet.upright(left + cell * (j + 0.5), top - 6, shorten(word, top - 36, SMALL))
        for i, line in enumerate(weights):
            y = top + row * (i + 0.5)
            sheet.note(left - 8, y, shorten(words[i], left - 12, SMALL), at="right", colour="ink")
            for j, weight in enumerate(line):
                x = left + cell * (j + 0.5)
                sheet.box(
                    x - cell / 2 + 1, y - row / 2 + 1, cell - 2, row - 2, fill="panel", edge="line", radius=2
                )
                sheet.square(x, y, (min(cell, row) - 4) * float(weight) ** 0.5, "query")
            _target(sheet, after, y, words[i + 1], given[i], prefill=i == n - 1)
        _heads(sheet, after, top)
        if sheet.narrow:
            sheet.note(after + 92, top + row * n + 12, "purple: all that prefill uses", at="right")

    most = [int(line.argmax()) for line in weights]
    output = [
        f"{plain(words[i])} looks most at {plain(words[most[i]])} ({weights[i][most[i]]:.2f}), "
        f"target {plain(words[i + 1])}, {whole_percent(given[i])}%"
        for i in range(n)
    ]
    alt = (
        f"Attention weights of head {head + 1} in layer {layer + 1} over the first {n} words. "
        f"{'; '.join(output)}. Training: all {n} lines have a target. Prefill: only the last line is used."
    )
    return Picture(draw, alt)


def _heads(sheet: Sheet, x: float, top: float) -> None:
    sheet.text(x, top - 46, "training", bold=True)
    sheet.note(x, top - 28, "target, and its")
    sheet.note(x, top - 12, "probability, %")
    if not sheet.narrow:
        sheet.text(x + 124, top - 46, "prefill", bold=True)
        sheet.note(x + 124, top - 28, "of the last")
        sheet.note(x + 124, top - 12, "line alone")


def _target(sheet: Sheet, x: float, y: float, word: str, p: float, *, prefill: bool) -> None:
    """A line's target with its probability; behind it what prefill uses."""
    used, unused = ("generated fill", "generated"), ("panel", "line")
    fill, edge = used if prefill and sheet.narrow else unused
    width = 62 if sheet.narrow else 72
    sheet.box(x, y - 10, width, 20, fill=fill, edge=edge, radius=6)
    sheet.text(x + width / 2, y, shorten(word, width - 6, SMALL), at="center", size=SMALL)
    sheet.note(x + (92 if sheet.narrow else 110), y, whole_percent(p), at="right", colour="ink")
    if not sheet.narrow:
        fill, edge = used if prefill else ("none", "line")
        sheet.box(x + 124, y - 10, 72, 20, fill=fill, edge=edge, radius=6, dashed=not prefill)
        sheet.text(x + 160, y, shorten(word, 66, SMALL) if prefill else "", at="center", size=SMALL)


def words_not_said(trace: Trace, n: int = 7) -> Picture:
    """Draw the first words of a reply, each among the likeliest others that might have stood in its place.

    Args:
        trace: with a run "cached", its candidates recorded.
        n: words.

    Returns:
        A column for each word: it, filled, and the likeliest others, with their probabilities as bars.
    """
    outs = [step.parts[0].out[0] for step in trace.run("cached").steps[:n]]
    output = [trace.sequences[0].tokens[out.chosen].text for out in outs]

    def draw(sheet: Sheet) -> None:
        a_line = 3 if sheet.narrow else n
        pitch = (sheet.width - 36) / a_line
        for k, (out, word) in enumerate(zip(outs, output, strict=True)):
            x, y = 18 + pitch * (k % a_line), 18.0 + 190 * (k // a_line)
            sheet.note(x, y, f"word {k + 1}")
            for text, _, p in out.top:
                y += 32
                _candidate(sheet, x, y, pitch - 12, text, p, came=text == word)

    sentences = [
        f"word {k}, {plain(word)}: "
        + ", ".join(f"{plain(text)} {whole_percent(p)}" for text, _, p in out.top)
        for k, (out, word) in enumerate(zip(outs, output, strict=True), 1)
    ]
    alt = (
        f"The first {n} words of the reply, {listed([plain(word) for word in output])}, each among the "
        f"likeliest others, with their probabilities in percent. {'; '.join(sentences)}."
    )
    return Picture(draw, alt)


def _candidate(sheet: Sheet, x: float, y: float, width: float, text: str, p: float, *, came: bool) -> None:
    number = whole_percent(p)
    colour = "generated" if came else "ink" if p >= 0.005 else "soft"
    sheet.text(x, y, shorten(text, width - 26, SMALL, bold=came), size=SMALL, bold=came, colour=colour)
    sheet.text(x + width, y, number, at="right", size=SMALL, colour=colour, bold=came)
    sheet.box(x, y + 9, width, 5, fill="faint", radius=1)
    sheet.box(x, y + 9, width * p, 5, fill="generated" if came else "soft", radius=1)
