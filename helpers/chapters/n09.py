"""The figures, the predictions and the exercise of notebook 09, the pause and the drip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import LARGE, SMALL, pluralize, printable, text_width


def prefill_and_step_times(
    prompt_lengths: Sequence[int], prefill_ms: Sequence[float], step_ms: Sequence[float]
) -> Picture:
    """Draw the time of a prefill, and of a decode step after it, for prompts of several lengths.

    Args:
        prompt_lengths: the number of tokens of each prompt.
        prefill_ms: the milliseconds of each prefill.
        step_ms: the milliseconds of a decode step after each prompt.
    """
    most = max(*prefill_ms, *step_ms)

    def draw(sheet: Sheet) -> None:
        left = 122.0
        unit = (sheet.width - left - 84) / most
        sheet.note(18, 20, "prompt")
        sheet.square(left + 6, 20, 12, "query")
        sheet.note(left + 18, 20, "prefill: the pause")
        sheet.square(left + 166, 20, 12, "generated")
        sheet.note(left + 178, 20, "a decode step")
        for n, (length, *both) in enumerate(zip(prompt_lengths, prefill_ms, step_ms, strict=True)):
            y = 44.0 + 58 * n
            sheet.text(18, y + 21, f"{length:,} tokens")
            for dy, ms, colour in ((0, both[0], "query"), (23, both[1], "generated")):
                sheet.box(left, y + dy, max(2.0, unit * ms), 19, fill=colour, radius=2)
                sheet.text(
                    left + unit * ms + 8, y + dy + 10, f"{format_digits(ms)} ms", size=SMALL, bold=True
                )

    sentence = "; ".join(
        f"{length:,} tokens: {format_digits(a)} and {format_digits(b)}"
        for length, a, b in zip(prompt_lengths, prefill_ms, step_ms, strict=True)
    )
    return Picture(draw, f"Milliseconds of prefill, the pause, and of a decode step, by prompt. {sentence}.")


def reply_timeline(words: Sequence[str], kept: Sequence[float], again: Sequence[float], P: int) -> Picture:
    """Draw a reply of 2 to 8 tokens on one axis of milliseconds, with the cache and with nothing kept.

    Args:
        words: the tokens of the reply.
        kept: the milliseconds of each pass with the cache.
        again: the milliseconds of each pass without it, over all tokens so far.
        P: the number of tokens of the prompt.
    """
    kept, again = [*map(float, kept)], [*map(float, again)]
    lanes = [("entries kept", kept), ("nothing kept", again)]
    totals = [sum(ms) for _, ms in lanes]
    most, entries = max(totals), [P + n for n in range(len(words))]

    def draw(sheet: Sheet) -> None:
        left, y = 20.0, 0.0
        unit = (sheet.width - left - 34) / most
        for (name, passing), total in zip(lanes, totals, strict=True):
            ends = [left + unit * ms for ms in accumulate(passing)]
            sheet.text(18, y + 24, name, bold=True)
            sheet.note(136, y + 24, f"{format_digits(total)} ms")
            passes = [*pairwise([left, *ends])]
            for x, to in passes:
                sheet.box(
                    x + 0.8, y + 90, max(1.5, to - x - 1.6), 46, fill="query fill", edge="query", radius=3
                )
            for x, to in passes[: 1 if passing is kept else None]:
                if to - x > 48:
                    sheet.note((x + to) / 2, y + 113, "pause", at="center", colour="ink", bold=True)
            if passing is kept and ends[-1] + 50 < sheet.width:
                sheet.note(ends[-1] + 10, y + 113, "drip", colour="ink", bold=True)
            _words(sheet, left, ends, [*words], y + 60)
            if passing is kept:
                _entries(sheet, ends, entries, y + 146)
            for n, (x, to) in enumerate(passes if passing is again else []):
                tokens = f"{P + n:,}" + (" tokens" if to - x > 84 else "")
                if to - x > text_width(tokens, SMALL):
                    sheet.note((x + to) / 2, y + 156, tokens, at="center")
            y = sheet.bottom + 24
        _ticks(sheet, left, unit, most, y)

    pause, *ends = map(format_digits, (kept[0], *totals))
    alt = (
        f"One reply on one axis of milliseconds: {', '.join(map(printable, words))}. With its entries kept: "
        f"a pause of {pause}, then {pluralize(len(words) - 1, 'token')} that drip, the last at {ends[0]}; "
        f"{P:,} entries in each layer after the pause and {entries[-1]:,} at the end. With nothing kept: "
        f"{pluralize(len(words), 'pause')}, the last token at {ends[1]}."
    )
    return Picture(draw, alt)


def reply_times_to_scale(pause: float, step: float, n: int) -> Picture:
    """Draw to scale the time of n tokens with the cache (a pause and n - 1 steps), and below it n pauses.

    Args:
        pause: the milliseconds of the prefill.
        step: the milliseconds of a decode step.
        n: the number of tokens, 2 to 200.
    """
    drip = (n - 1) * step
    kept, again = _in_words(pause + drip), _in_words(n * pause)

    def draw(sheet: Sheet) -> None:
        unit = (sheet.width - 36) / max(n * pause, pause + drip)
        for y, name, total in ((0.0, "entries kept", kept), (104.0, "nothing kept", again)):
            sheet.text(18, y + 20, name, bold=True)
            sheet.text(30 + text_width(name, bold=True), y + 20, total, bold=True, size=LARGE)
        sheet.box(18 + unit * pause, 40, unit * drip, 46, fill="generated", radius=0)
        sheet.box(18, 40, unit * pause, 46, fill="query", radius=0)
        sentence = f"one pause, then {pluralize(n - 1, 'token')} of the drip"
        if unit * (pause + drip) + text_width(sentence, SMALL) < sheet.width - 50:
            sheet.note(26 + unit * (pause + drip), 63, sentence)
        gap = min(1.0, unit * pause / 4)
        for i in range(n):
            sheet.box(18 + unit * pause * i, 144, unit * pause - gap, 46, fill="query", radius=0)
        sheet.note(18, 208, pluralize(n, "pause"))

    alt = (
        f"{n} tokens to scale. Entries kept: a pause and the drip, {kept}. Nothing kept: {n} pauses, {again}."
    )
    return Picture(draw, alt)


def _in_words(ms: float) -> str:
    return f"{format_digits(ms / 1000)} s" if ms >= 1000 else f"{format_digits(ms)} ms"


def _words(sheet: Sheet, left: float, ends: list[float], words: list[str], y: float) -> None:
    """Draw each word above the end of its pass, or further to the side if passes are narrower than words.

    Args:
        left: the x of the first pass's start, in px.
        ends: the x of each pass's end, in px.
        words: the word that each pass gives.
        y: the height of the words, in px.
    """
    widths = [text_width(word) + 16 for word in words]
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


def _entries(sheet: Sheet, ends: list[float], entries: list[int], y: float) -> None:
    """Draw the cache as two bars, keys above values, with its number of entries at the start and at the end.

    Args:
        ends: the x of each pass's end, in px; the bars begin at the first.
        entries: the number of entries in each layer after each pass.
        y: the top of the bars, in px.
    """
    to = ends[-1]
    for dy, name in ((0, "key"), (13, "value")):
        sheet.box(ends[0] + 0.8, y + dy, to - ends[0] - 1.6, 13, fill=f"{name} fill", edge=name, radius=2)
    first = f"{entries[0]:,} entries"
    if ends[0] > text_width(first, SMALL) + 8:
        sheet.note(ends[0] - 6, y + 13, first, at="right", colour="ink")
    sheet.note(to + 6, y + 13, f"{entries[-1]:,} entries in each layer", colour="ink")


def _ticks(sheet: Sheet, left: float, unit: float, most: float, y: float) -> None:
    """Draw the axis of time, with 0 and a few round numbers.

    Args:
        left: the x of 0 ms, in px.
        unit: px per millisecond.
        most: the last time, in milliseconds.
        y: the height of the axis, in px.
    """
    sheet.arrow(left, y, left + unit * most + 26, y, "soft")
    wanted = 60 / unit  # the minimum distance between two numbers, in ms
    size = next(s for s in (f * 10.0**e for e in range(-3, 7) for f in (1, 2, 5)) if s >= wanted)
    for n in range(int(most / size) + 1):
        x = left + unit * size * n
        sheet.line((x, y - 4), (x, y + 4), colour="soft")
        sheet.note(x, y + 18, f"{size * n:g}" + " ms" * (n == 0), at="center")


MillisecondsForTokens = Callable[[int], float]  # from tokens to milliseconds


def make_reply_ms(
    extra_steps: int = -1, constant_pause: bool = False, constant_step: bool = False
) -> Callable[..., tuple[float, float]]:
    """Return a `reply_ms`; with the default arguments it is the right answer.

    Args:
        extra_steps: the number of decode steps minus n.
        constant_pause: whether every pause takes as long as the first.
        constant_step: whether every step takes as long as the first.
    """

    def reply_ms(
        pause: MillisecondsForTokens, step: MillisecondsForTokens, P: int, n: int
    ) -> tuple[float, float]:
        lengths_before = [P if constant_step else P + i for i in range(n + extra_steps)]
        lengths = [P if constant_pause else P + i for i in range(n)]
        return pause(P) + sum(map(step, lengths_before)), sum(map(pause, lengths))

    return reply_ms


reply_ms = Exercise(
    name="reply_ms",
    todo="let reply_ms return two times, with the cache and with nothing kept.",
    cases=[
        Case((lambda T: 1 + T * T / 10, step, P, n), f"reply_ms for P = {P}, n = {n}")
        for P, n, step in [
            *[(4, 8, lambda t: 1 + t / 8), (10, 3, lambda t: 1 + t * t / 40)],
            *[(7, 1, lambda t: 1 + t / 8), (2, 2, lambda t: 1 + t / 8)],
        ]
    ],
    right_answer=make_reply_ms(),
    wrong_answers=[
        "the first token comes out of the pause, so n tokens take n - 1 steps.",
        make_reply_ms(extra_steps=0),
        make_reply_ms(extra_steps=0, constant_pause=True),
        "the pause is not a step: with the cache there is one pause, and then n - 1 steps.",
        lambda pause, step, P, n: (sum(step(P + i) for i in range(n)), make_reply_ms()(pause, step, P, n)[1]),
        "with nothing kept, the reply's tokens are processed again, too: each pause is one token longer.",
        make_reply_ms(constant_pause=True),
        make_reply_ms(constant_pause=True, constant_step=True),
        "each step adds an entry to the cache, so the next step comes after one token more.",
        make_reply_ms(constant_step=True),
    ],
    success="15.7 and 57.2 ms for 8 tokens after a prompt of 4; a single token is one pause either way.",
)


def check_times_as_long_guess(guess: Any, ratio: float) -> Guess:
    """Compare a guess with how many times as long something takes; within 20 percent it is right."""
    near = isinstance(guess, int | float) and abs(guess - ratio) <= ratio / 5
    why = "That is from the times of this machine; a guess within 20 percent is right."
    return Guess(guess, guess if near else format_digits(ratio, 2), why, example_answer=ratio)
