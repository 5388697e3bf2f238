"""A figure of the words that a model might have written instead, with their probabilities."""

from __future__ import annotations

from typing import Any

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, listed, plain, shorten
from helpers.trace import Trace


def whole_percent(p: float) -> str:
    """Format a probability in whole percent, without a sign: "38", or "<1" for less than 0.5 percent."""
    return "<1" if p < 0.005 else f"{100 * p:.0f}"


def words_not_said(trace: Trace) -> Picture:
    """Draw each of the first 7 words of a reply among the most probable candidates at its position.

    Args:
        trace: a trace whose run "cached" has recorded candidates.
    """
    outs = [step.parts[0].out[0] for step in trace.run("cached").steps[:7]]
    output = [trace.sequences[0].tokens[out.chosen].text for out in outs]

    def draw(sheet: Sheet) -> None:
        a_line = 3 if sheet.narrow else 7
        pitch = (sheet.width - 36) / a_line
        for k, (out, word) in enumerate(zip(outs, output, strict=True)):
            x, y = 18 + pitch * (k % a_line), 18.0 + 190 * (k // a_line)
            sheet.note(x, y, f"word {k + 1}")
            for text, _, p in out.top:
                y += 32
                came, wide = text == word, pitch - 12
                colour = "generated" if came else "ink" if p >= 0.005 else "soft"
                style: dict[str, Any] = {"colour": colour, "bold": came}
                sheet.note(x, y, shorten(text, wide - 26, SMALL, bold=came), **style)
                sheet.note(x + wide, y, whole_percent(p), at="right", **style)
                sheet.box(x, y + 9, wide, 5, fill="faint", radius=1)
                sheet.box(x, y + 9, wide * p, 5, fill="generated" if came else "soft", radius=1)

    sentences = [
        f"word {k}, {plain(word)}: "
        + ", ".join(f"{plain(text)} {whole_percent(p)}" for text, _, p in out.top)
        for k, (out, word) in enumerate(zip(outs, output, strict=True), 1)
    ]
    alt = (
        f"The first 7 words of the reply, {listed([plain(word) for word in output])}, each among the "
        f"likeliest others, with their probabilities in percent. {'; '.join(sentences)}."
    )
    return Picture(draw, alt)
