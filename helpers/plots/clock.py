"""Figures of a model by the clock: its pause beside its step, and a whole reply."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import LARGE, SMALL, counted, digits, need, plain, text_width


class TimedReply(Protocol):
    """A reply by the clock: what each word took, and the rows kept in each layer once it had come."""

    @property
    def words(self) -> list[str]: ...
    @property
    def ms(self) -> list[float]: ...
    @property
    def rows(self) -> list[int]: ...


def pause_beside_step(lengths: Sequence[int], pause: Sequence[float], step: Sequence[float]) -> Picture:
    """Draw for each prompt how long its prefill takes, and a decode step behind it.

    Args:
        lengths: tokens of the prompts, at most 6.
        pause, step: milliseconds for each.

    Returns:
        Two bars a prompt, on one scale from 0.
    """
    need(0 < len(lengths) <= 6, f"{len(lengths)} prompts came in; expected 1 to 6")
    most = max(*pause, *step)

    def draw(sheet: Sheet) -> None:
        left = 70.0 if sheet.narrow else 146.0
        unit = (sheet.width - left - 84) / most
        if not sheet.narrow:
            sheet.note(18, 20, "prompt")
        sheet.square(left + 6, 20, 12, "query")
        sheet.note(left + 18, 20, "the pause")
        sheet.square(left + 116, 20, 12, "generated")
        sheet.note(left + 128, 20, "one word of the drip")
        for n, (length, *both) in enumerate(zip(lengths, pause, step, strict=True)):
            y = 44.0 + 58 * n
            sheet.text(18, y + 21, f"{length:,}" + (" tokens" if not sheet.narrow else ""))
            for dy, ms, colour in ((0, both[0], "query"), (23, both[1], "generated")):
                sheet.box(left, y + dy, max(2.0, unit * ms), 19, fill=colour, radius=2)
                sheet.text(left + unit * ms + 8, y + dy + 10, f"{digits(ms, 2)} ms", size=SMALL, bold=True)

    sentence = "; ".join(
        f"{length:,} tokens: {digits(a, 2)} and {digits(b, 2)}"
        for length, a, b in zip(lengths, pause, step, strict=True)
    )
    return Picture(draw, f"Milliseconds of the pause, and of one word of the drip, by prompt. {sentence}.")


def reply_by_the_clock(kept: TimedReply, again: TimedReply) -> Picture:
    """Draw a reply on one axis of milliseconds, with its rows kept and with all tokens processed again.

    Args:
        kept: with a cache; 2 to 8 words.
        again: the same words, and no rows kept.

    Returns:
        Two lanes, a block for each pass with its word at the end, and under the first the rows.
    """
    need(2 <= len(kept.words) <= 8, f"{len(kept.words)} words came in; expected 2 to 8")
    need(kept.words == again.words, f"{again.words} came in beside {kept.words}; expected the same words")
    lanes = [("rows kept", kept), ("nothing kept", again)]
    totals = [sum(reply.ms) for _, reply in lanes]
    most, P = max(totals), kept.rows[0]

    def draw(sheet: Sheet) -> None:
        left = 18.0 if sheet.narrow else 142.0
        unit = (sheet.width - left - (34 if sheet.narrow else 46)) / most
        y = 0.0
        for (name, reply), total in zip(lanes, totals, strict=True):
            ends = [left + unit * ms for ms in accumulate(reply.ms)]
            sheet.text(18, y + 24 if sheet.narrow else y + 112, name, bold=True)
            sheet.note(
                136 if sheet.narrow else 18, y + (24 if sheet.narrow else 134), f"{digits(total, 2)} ms"
            )
            _blocks(sheet, left, ends, y + 90, dripping=reply is kept)
            _words(sheet, left, ends, reply.words, y + 60)
            if reply is kept:
                _rows(sheet, ends, reply.rows, y + 146)
            else:
                _run_again(sheet, left, ends, P, y + 156)
            y = sheet.bottom + 24
        _ticks(sheet, left, unit, most, y)

    words = ", ".join(plain(word) for word in kept.words)
    alt = (
        f"One reply on one axis of milliseconds: {words}. With its rows kept: a pause of "
        f"{digits(kept.ms[0], 2)}, then {counted(len(kept.words) - 1, 'word')} that drip, the last at "
        f"{digits(totals[0], 2)}; {P:,} rows in each layer after the pause and {kept.rows[-1]:,} at the "
        f"end. With nothing kept: {counted(len(again.words), 'pause')}, the last word at "
        f"{digits(totals[1], 2)}."
    )
    return Picture(draw, alt)


def reply_to_scale(pause: float, step: float, n: int) -> Picture:
    """Draw what n words take, from two times alone: a pause and n - 1 steps, and below it n pauses.

    Args:
        pause, step: milliseconds of a prefill, and of a decode step behind it.
        n: words, at most 200.

    Returns:
        Two lanes on one scale from 0: the pause and the drip, and under them pause after pause.
    """
    need(1 < n <= 200, f"{n} words came in; expected 2 to 200")
    drip = (n - 1) * step
    kept, again = _in_words(pause + drip), _in_words(n * pause)

    def draw(sheet: Sheet) -> None:
        unit = (sheet.width - 36) / max(n * pause, pause + drip)
        for y, name, total in ((0.0, "rows kept", kept), (104.0, "nothing kept", again)):
            sheet.text(18, y + 20, name, bold=True)
            sheet.text(30 + text_width(name, bold=True), y + 20, total, bold=True, size=LARGE)
        sheet.box(18 + unit * pause, 40, unit * drip, 46, fill="generated", radius=0)
        sheet.box(18, 40, unit * pause, 46, fill="query", radius=0)
        sentence = f"one pause, then {counted(n - 1, 'word')} of the drip"
        if unit * (pause + drip) + text_width(sentence, SMALL) < sheet.width - 50:
            sheet.note(26 + unit * (pause + drip), 63, sentence)
        gap = min(1.0, unit * pause / 4)
        for i in range(n):
            sheet.box(18 + unit * pause * i, 144, unit * pause - gap, 46, fill="query", radius=0)
        sheet.note(18, 208, counted(n, "pause"))

    alt = f"{n} words to scale. Rows kept: one pause and the drip, {kept}. Nothing kept: {n} pauses, {again}."
    return Picture(draw, alt)


def _in_words(ms: float) -> str:
    return f"{digits(ms / 1000, 2)} s" if ms >= 100 else f"{digits(ms, 2)} ms"


def _blocks(sheet: Sheet, left: float, ends: list[float], y: float, *, dripping: bool) -> None:
    """The passes of a lane; behind the pause of the first comes the drip, in the other pause after pause."""
    for x, to in zip([left, *ends], ends, strict=False):
        sheet.box(x + 0.8, y, max(1.5, to - x - 1.6), 46, fill="query fill", edge="query", radius=3)
    for x, to in [*zip([left, *ends], ends, strict=False)][: 1 if dripping else None]:
        if to - x > 48:
            sheet.text((x + to) / 2, y + 23, "pause", at="center", size=SMALL, bold=True)
    if dripping and ends[-1] + 50 < sheet.width:
        sheet.text(ends[-1] + 10, y + 23, "drip", size=SMALL, bold=True)


def _words(sheet: Sheet, left: float, ends: list[float], words: list[str], y: float) -> None:
    """Each word over the end of its pass, or fanned out to the right where the passes are thin."""
    widths, room = [text_width(word[:100]) + 16 for word in words], sheet.width - 8 - left
    if sum(widths) + 5 * len(words) > room:
        widths = [min(width, room / len(words) - 5) for width in widths]
    starts: list[float] = []
    free: float = left
    for end, width in zip(ends, widths, strict=True):
        starts.append(max(end - width / 2, free))
        free = starts[-1] + width + 5
    to = sheet.width - 3.0
    for n in reversed(range(len(words))):
        starts[n] = min(starts[n], to - widths[n])
        to = starts[n] - 5
    for end, start, word, width in zip(ends, starts, words, widths, strict=True):
        x = start + width / 2
        sheet.line((end, y + 30), (x, y + 13), colour="generated", width=1.6)
        sheet.chip(x, y, word, width=width, fill="generated fill", edge="generated")


def _rows(sheet: Sheet, ends: list[float], rows: list[int], y: float) -> None:
    """The rows from when they are there, keys over values, and how many."""
    to = ends[-1]
    for dy, name in ((0, "key"), (13, "value")):
        sheet.box(ends[0] + 0.8, y + dy, to - ends[0] - 1.6, 13, fill=f"{name} fill", edge=name, radius=2)
    first = f"{rows[0]:,} rows"
    if ends[0] > text_width(first, SMALL) + 8:
        sheet.note(ends[0] - 6, y + 13, first, at="right", colour="ink")
    last = f"{rows[-1]:,} rows in each layer"
    if to + 6 + text_width(last, SMALL) < sheet.width:
        sheet.note(to + 6, y + 13, last, colour="ink")
    else:
        sheet.note(to, y + 39, last, at="right", colour="ink")


def _run_again(sheet: Sheet, left: float, ends: list[float], P: int, y: float) -> None:
    """How many tokens each pass runs."""
    for n, (x, to) in enumerate(zip([left, *ends], ends, strict=False)):
        name = f"{P + n:,}" + (" tokens" if to - x > 84 else "")
        if to - x > text_width(name, SMALL):
            sheet.note((x + to) / 2, y, name, at="center")


def _ticks(sheet: Sheet, left: float, unit: float, most: float, y: float) -> None:
    """The axis of time: 0 and a few round numbers."""
    sheet.arrow(left, y, left + unit * most + 26, y, "soft")
    wanted = 60 / unit  # ms between two numbers, at least
    size = next(s for s in (f * 10.0**e for e in range(-3, 7) for f in (1, 2, 5)) if s >= wanted)
    for n in range(int(most / size) + 1):
        x = left + unit * size * n
        sheet.line((x, y - 4), (x, y + 4), colour="soft")
        sheet.note(x, y + 18, f"{size * n:g}" + " ms" * (n == 0), at="center")
