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
