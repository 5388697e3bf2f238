"""Figures of speculation: drafts verified, rows and rounds, what a pass waits for, two distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, counted, need, plain, shorten, text_width
from helpers.sampling import accept

BAR, WIDEST = 24, 120  # px: height of a bar, width of a word's place at most


def verified(text: Sequence[str], drafted: Sequence[str], chosen: Sequence[str]) -> Picture:
    """Draw what one pass makes of drafted words: accepted, struck out, or dropped behind that.

    Args:
        text: the last words so far.
        drafted: k words, up to 4.
        chosen: what the model chooses in the place of each, and after the last: k + 1 words.
    """
    need(len(drafted) <= 4, f"{len(drafted)} words were drafted; expected at most 4 to draw")
    output = accept(drafted, chosen)  # type: ignore[arg-type]
    a = len(output) - 1
    new = f"1 pass, {counted(len(output), 'new word')}"

    def draw(sheet: Sheet) -> None:
        step = min(WIDEST, (sheet.width - 36) / (len(drafted) + 1))
        sheet.note(18, 18, shorten(f"… {' '.join(text)}", sheet.width - 36, SMALL), colour="ink")
        for y, name, words in ((48, "guessed", drafted), (118, "the model, in one pass", chosen)):
            sheet.note(18, y, name)
            for n, word in enumerate(words):
                own, rejected = (n == a and words is mine for mine in (chosen, drafted))
                kind = "key" if n < a else "generated" if own else ""
                word_box(sheet, 18 + step * n, y + 14, step - 6, word, kind, struck=rejected, soft=n > a)
        sheet.text(18, 190, new, bold=True)

    struck = (
        f"{plain(drafted[a])} is struck out and {plain(chosen[a])} put in"
        if a < len(drafted)
        else "all accepted"
    )
    alt = (
        f"Behind {' '.join(map(plain, text))}. Guessed: {' '.join(map(plain, drafted))}. "
        f"The model, in one pass: {' '.join(map(plain, chosen))}. {a} accepted; {struck}. {new}."
    )
    return Picture(draw, alt)


def word_box(
    sheet: Sheet, x: float, y: float, wide: float, word: str, kind: str, struck: bool = False,
    soft: bool = False,
) -> None:  # fmt: skip
    """Write a word in a box: filled where it has a kind, stronger where the model generated it."""
    own, middle = kind == "generated", x + wide / 2
    fill, edge = (f"{kind} fill", kind) if kind else ("none", "line")
    sheet.box(x, y, wide, 30, fill=fill, edge=edge, line=2 if own else 1)
    shown = shorten(word, wide - 6, SMALL, bold=own)
    sheet.note(middle, y + 15, shown, at="center", colour="soft" if soft else "ink", bold=own)
    if struck:
        reach = text_width(shown, SMALL) / 2 + 5
        sheet.line((middle - reach, y + 15), (middle + reach, y + 15), width=1.6)


def read_once(passes: Mapping[str, tuple[float, float]]) -> Picture:
    """Draw how long a pass reads weights, and below it, at the same time, how long it computes.

    Args:
        passes: by name, milliseconds of both.
    """
    kinds = {"reading the weights, once a pass": "key", "arithmetic, for each word": "query"}
    takes = {name: f"{max(both):.1f} ms" for name, both in passes.items()}

    def draw(sheet: Sheet) -> None:
        y = key_lines(sheet, kinds)
        scale = (sheet.width - 110) / max(map(max, passes.values()))
        for name, both in passes.items():
            y += 22
            sheet.text(18, y, name, bold=True)
            for ms, colour in zip(both, kinds.values(), strict=True):
                y += BAR
                part(sheet, 18, y - 10, max(1, scale * ms), BAR - 4, colour)
            sheet.text(28 + scale * max(both), y - BAR / 2, takes[name], bold=True)
            y += 12

    sentence = "; ".join(
        f"{plain(name)}: reads for {reads:.1f} ms, computes for {computes:.2f}, takes {takes[name]}"
        for name, (reads, computes) in passes.items()
    )
    return Picture(draw, f"{sentence}.")


def rounds(ways: Mapping[str, tuple[Sequence[float], float, float]]) -> Picture:
    """Draw a round of each way to scale, and below it the words that it gives, one by one.

    Args:
        ways: by name, the times of the drafts and, last, of the verification, where 1 is a pass of one
            word; how many words a round gives; and how many times as fast a reply was.
    """
    kinds = {
        "a round: its drafts,": "key",
        "then the verification": "query",
        "its words, a pass each": "generated",
    }
    lanes = {}
    for name, (parts, words, measured) in ways.items():
        colours = ["key"] * (len(parts) - 1) + ["query"]
        ones = [1.0] * int(words) + [words % 1]
        gain = f"{words / sum(parts):.2f} times as fast, measured {measured:.2f}"
        takes, gives = f"takes {sum(parts):.2f}", f"gives {words:.2f} words"
        spent, given = zip(parts, colours, strict=True), ((one, "generated") for one in ones)
        lanes[name] = gain, {takes: [*spent], gives: [*given]}

    def draw(sheet: Sheet) -> None:
        y = key_lines(sheet, kinds)
        scale = min(
            (sheet.width - 44 - text_width(output, SMALL)) / sum(size for size, _ in lane)
            for _, both in lanes.values()
            for output, lane in both.items()
        )
        for name, (gain, both) in lanes.items():
            y += 22
            sheet.text(18, y, name, bold=True)
            for output, lane in both.items():
                x, y = 18.0, y + BAR
                for size, colour in lane:
                    if size:
                        part(sheet, x, y - 10, scale * size, BAR - 4, colour)
                    x += scale * size
                sheet.note(x + 8, y, output)
            y += BAR
            sheet.note(18, y, f"so {gain}", colour="ink")
            y += 10

    each = "; ".join(f"{plain(name)}: {', '.join(both)}: {gain}" for name, (gain, both) in lanes.items())
    return Picture(draw, f"Rounds to scale, 1 is the time of a pass of one word. {each}.")


def laid_over(words: Sequence[str], p: Sequence[Fraction], q: Sequence[Fraction]) -> Picture:
    """Draw the probabilities of model and draft over each other: what both give, and what is left over.

    Args:
        words: one for each probability.
        p: the model's probabilities.
        q: the draft's.
    """
    lines = [(word, a, b, min(a, b)) for word, a, b in zip(words, p, q, strict=True)]
    kinds = {"both give: accepted": "key", "q over p: rejected": "", "p over q: left over": "generated"}

    def draw(sheet: Sheet) -> None:
        y = key_lines(sheet, kinds)
        scale = (sheet.width - 36) / float(max(*p, *q)) * 0.94
        for word, mine, drafted, both in lines:
            y += 22
            sheet.text(18, y, word, bold=True)
            sheet.note(sheet.width - 18, y, f"p = {mine}, q = {drafted}", at="right")
            wide, rest = scale * float(both), scale * float(abs(mine - drafted))
            part(sheet, 18, y + 14, wide, BAR, "key")
            if rest:
                part(sheet, 18 + wide, y + 14, rest, BAR, "generated" if mine > drafted else "")
            y += BAR + 20

    each = "; ".join(
        f"{plain(word)}: p {mine}, q {drafted}, both give {both}"
        + (f", left over {mine - drafted}" if mine > drafted else "")
        + (f", rejected {drafted - mine}" if mine < drafted else "")
        for word, mine, drafted, both in lines
    )
    return Picture(draw, f"{each}. Both together give {sum((x[3] for x in lines), Fraction(0))}.")


def key_lines(sheet: Sheet, kinds: Mapping[str, str]) -> float:
    """Say above a figure what each colour means; return where that ends."""
    for n, (name, fill) in enumerate(kinds.items()):
        part(sheet, 18, 14 + 22 * n, 12, 12, fill)
        sheet.note(38, 20 + 22 * n, name, colour="ink")
    return 20.0 + 22 * len(kinds)


def part(sheet: Sheet, x: float, y: float, wide: float, high: float, colour: str) -> None:
    """Draw a part of a bar in a colour's fill, or dashed where there is none."""
    fill, edge = (f"{colour} fill", colour) if colour else ("none", "ink")
    sheet.box(x, y, wide, high, fill=fill, edge=edge, line=1.4, radius=0, dashed=not colour)
