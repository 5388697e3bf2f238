"""A figure of the most probable candidates for each word of a reply, with their probabilities."""

from __future__ import annotations

from typing import Any

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, join_words, printable, shorten
from helpers.trace import Trace


def whole_percent(p: float) -> str:
    """Format a probability as a whole number of percent, such as "38". Less than 0.5 percent is "<1"."""
    return "<1" if p < 0.005 else f"{100 * p:.0f}"


def top_candidates(trace: Trace) -> Picture:
    """Draw the most probable candidates for each of the first 7 words of a reply. Mark the chosen words.

    Args:
        trace: a trace that has a run called "cached", with candidates recorded in each step.
    """
    outs = [step.parts[0].out[0] for step in trace.run("cached").steps[:7]]
    output = [trace.sequences[0].tokens[out.chosen].text for out in outs]

    def draw(sheet: Sheet) -> None:
        a_line, pitch = 4, (sheet.width - 36) / 4
        for k, (out, word) in enumerate(zip(outs, output, strict=True)):
            x, y = 18 + pitch * (k % a_line), 18.0 + 208 * (k // a_line)
            sheet.note(x, y, f"word {k + 1}")
            y -= 6
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
        f"word {k}, {printable(word)}: "
        + ", ".join(f"{printable(text)} {whole_percent(p)}" for text, _, p in out.top)
        for k, (out, word) in enumerate(zip(outs, output, strict=True), 1)
    ]
    alt = (
        f"The first 7 words of the reply, {join_words([printable(word) for word in output])}, each among "
        f"the most probable others, with their probabilities in percent. {'; '.join(sentences)}."
    )
    return Picture(draw, alt)
