"""Figures of real words: what else might have come, and how likely it was."""

from __future__ import annotations

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, listed, plain, shorten
from helpers.trace import Trace


def whole_percent(p: float) -> str:
    """Write a probability in whole percent; one that is nearly 0 as <1."""
    return "<1" if p < 0.005 else f"{100 * p:.0f}"


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
