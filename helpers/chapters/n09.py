"""The measurements, the figures, the prediction and the exercise of notebook 09, the pause and the drip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import LARGE, SMALL, pluralize, printable, text_width
from helpers.model.cache import GrowingCache, StaticCache
from helpers.model.generate import generate, prefill
from helpers.model.transformer import Transformer
from helpers.timing.steps import PARTS, decode_step_task, fastest_ms, fastest_part_ms
from helpers.tokenizer import Tokenizer


class StepTimeLedger(NamedTuple):
    """The milliseconds of a decode step and of its parts, with few and with many KV entries in the cache."""

    step_ms: dict[int, float]  # the measured time, by number of rows
    part_ms: dict[int, dict[str, float]]  # the time of each of `PARTS`, by number of rows
    copy_ms: float  # extra time of the longer step if the cache copies all rows to append one

    def part_growth_ms(self, part: str) -> float:
        """Return how many ms longer `part`, one of `PARTS`, takes with many KV entries than with few."""
        few, many = (parts[part] for parts in self.part_ms.values())
        return many - few

    def waterfall_bars(self) -> dict[str, tuple[dict[str, tuple[float, float]], float]]:
        """Return the steps in the form that `plots.waterfall` takes; the part "rest" is all other time."""
        bars = {}
        for n, ms in self.step_ms.items():
            ends = [*accumulate(self.part_ms[n][kind] for kind in PARTS)]
            parts = dict(zip(PARTS, zip([0.0, *ends], ends, strict=False), strict=True))
            bars[f"behind {n:,} rows"] = parts | {"rest": (ends[-1], max(ends[-1], ms))}, ms
        growing = ms + max(0, self.copy_ms)
        bars["with a growing cache"] = bars[f"behind {n:,} rows"][0] | {"copies": (ms, growing)}, growing
        return bars


def measure_step_times(
    model: Transformer, prompt_lengths: Sequence[int], step_ms: Sequence[float], turns: int = 15
) -> StepTimeLedger:
    """Measure the parts of a decode step after the shortest and after the longest prompt.

    Args:
        prompt_lengths: the number of tokens of each prompt, ascending.
        step_ms: the measured time of a decode step after each prompt, in milliseconds.
        turns: how often to measure; the fastest call counts.
    """
    short, *_, long = prompt_lengths
    parts = fastest_part_ms(model, {n: decode_step_task(model, n) for n in (short, long)}, turns)
    kinds = {kind: decode_step_task(model, long, cache_class=kind) for kind in (StaticCache, GrowingCache)}
    static, growing = fastest_ms(kinds, turns).values()
    return StepTimeLedger({short: step_ms[0], long: step_ms[-1]}, parts, growing - static)


class TimedReply(NamedTuple):
    """A reply, with the time and the number of KV entries at each word."""

    words: list[str]
    pass_ms: list[float]  # the time of each word's pass, the fastest of several
    n_entries: list[int]  # number kept in each layer after each word's pass


def time_reply_with_and_without_cache(
    model: Transformer, tokenizer: Tokenizer, prompt: str, max_new_tokens: int = 8, turns: int = 7
) -> dict[str, TimedReply]:
    """Time each word of a greedy reply, once with a KV cache and once without.

    Args:
        prompt: the text to continue.
        max_new_tokens: the maximum number of words.
        turns: how often to measure; the fastest call counts.

    Returns:
        "with": the reply with rows kept; "without": the reply with all tokens processed again for each word.
    """
    ids = tokenizer.encode(prompt)
    tokens = [*ids, *generate(model, ids, max_new_tokens)]
    cache = StaticCache(model.config)

    def passing(kept: int, end: int) -> Tensor:
        cache.truncate(kept)
        return prefill(model, tokens[kept:end], cache)

    ends = range(len(ids), len(tokens))
    # The order matters: each pass uses the rows that the pass before it left in the cache.
    tasks = {("with", end): partial(passing, end - 1 if end > len(ids) else 0, end) for end in ends}
    tasks |= {("without", end): partial(passing, 0, end) for end in ends}
    output = {name: int(task()[0].argmax()) for name, task in tasks.items()}
    ms = fastest_ms(tasks, turns)
    return {
        name: TimedReply(
            tokenizer.words([output[name, end] for end in ends]),
            [ms[name, end] for end in ends],
            [end * (name == "with") for end in ends],
        )
        for name in ("with", "without")
    }


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


def reply_timeline(with_cache: TimedReply, without_cache: TimedReply) -> Picture:
    """Draw a reply of 2 to 8 words on one axis of milliseconds, with its rows kept and with nothing kept.

    Args:
        with_cache: the reply with its rows kept.
        without_cache: the same reply with all tokens processed again for each word.
    """
    lanes = [("rows kept", with_cache), ("nothing kept", without_cache)]
    totals = [sum(reply.pass_ms) for _, reply in lanes]
    most, P = max(totals), with_cache.n_entries[0]

    def draw(sheet: Sheet) -> None:
        left, y = 20.0, 0.0
        unit = (sheet.width - left - 34) / most
        for (name, reply), total in zip(lanes, totals, strict=True):
            ends = [left + unit * ms for ms in accumulate(reply.pass_ms)]
            sheet.text(18, y + 24, name, bold=True)
            sheet.note(136, y + 24, f"{format_digits(total)} ms")
            passes = [*pairwise([left, *ends])]
            for x, to in passes:
                sheet.box(
                    x + 0.8, y + 90, max(1.5, to - x - 1.6), 46, fill="query fill", edge="query", radius=3
                )
            for x, to in passes[: 1 if reply is with_cache else None]:
                if to - x > 48:
                    sheet.note((x + to) / 2, y + 113, "pause", at="center", colour="ink", bold=True)
            if reply is with_cache and ends[-1] + 50 < sheet.width:
                sheet.note(ends[-1] + 10, y + 113, "drip", colour="ink", bold=True)
            _words(sheet, left, ends, reply.words, y + 60)
            if reply is with_cache:
                _rows(sheet, ends, reply.n_entries, y + 146)
            for n, (x, to) in enumerate(passes if reply is without_cache else []):
                tokens = f"{P + n:,}" + (" tokens" if to - x > 84 else "")
                if to - x > text_width(tokens, SMALL):
                    sheet.note((x + to) / 2, y + 156, tokens, at="center")
            y = sheet.bottom + 24
        _ticks(sheet, left, unit, most, y)

    words = ", ".join(printable(word) for word in with_cache.words)
    alt = (
        f"One reply on one axis of milliseconds: {words}. With its rows kept: a pause of "
        f"{format_digits(with_cache.pass_ms[0])}, then {pluralize(len(with_cache.words) - 1, 'word')} that "
        f"drip, the last at {format_digits(totals[0])}; {P:,} rows in each layer after the pause and "
        f"{with_cache.n_entries[-1]:,} at the end. With nothing kept: "
        f"{pluralize(len(without_cache.words), 'pause')}, the last word at {format_digits(totals[1])}."
    )
    return Picture(draw, alt)


def reply_times_to_scale(prefill_ms: float, step_ms: float, n_words: int) -> Picture:
    """Draw to scale the time of n words with the rows kept (a pause and n - 1 steps), and below it n pauses.

    Args:
        prefill_ms: the milliseconds of the prefill.
        step_ms: the milliseconds of a decode step.
        n_words: the number of words, 2 to 200.
    """
    drip = (n_words - 1) * step_ms
    kept, again = _in_words(prefill_ms + drip), _in_words(n_words * prefill_ms)

    def draw(sheet: Sheet) -> None:
        unit = (sheet.width - 36) / max(n_words * prefill_ms, prefill_ms + drip)
        for y, name, total in ((0.0, "rows kept", kept), (104.0, "nothing kept", again)):
            sheet.text(18, y + 20, name, bold=True)
            sheet.text(30 + text_width(name, bold=True), y + 20, total, bold=True, size=LARGE)
        sheet.box(18 + unit * prefill_ms, 40, unit * drip, 46, fill="generated", radius=0)
        sheet.box(18, 40, unit * prefill_ms, 46, fill="query", radius=0)
        sentence = f"one pause, then {pluralize(n_words - 1, 'word')} of the drip"
        if unit * (prefill_ms + drip) + text_width(sentence, SMALL) < sheet.width - 50:
            sheet.note(26 + unit * (prefill_ms + drip), 63, sentence)
        gap = min(1.0, unit * prefill_ms / 4)
        for i in range(n_words):
            sheet.box(18 + unit * prefill_ms * i, 144, unit * prefill_ms - gap, 46, fill="query", radius=0)
        sheet.note(18, 208, pluralize(n_words, "pause"))

    alt = f"{n_words} words to scale. Rows kept: one pause and the drip, {kept}. "
    alt += f"Nothing kept: {n_words} pauses, {again}."
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


def _rows(sheet: Sheet, ends: list[float], rows: list[int], y: float) -> None:
    """Draw the cache's rows as two bars, keys above values, with their number at the start and at the end.

    Args:
        ends: the x of each pass's end, in px; the bars begin at the first.
        rows: the number of rows after each pass.
        y: the top of the bars, in px.
    """
    to = ends[-1]
    for dy, name in ((0, "key"), (13, "value")):
        sheet.box(ends[0] + 0.8, y + dy, to - ends[0] - 1.6, 13, fill=f"{name} fill", edge=name, radius=2)
    first = f"{rows[0]:,} rows"
    if ends[0] > text_width(first, SMALL) + 8:
        sheet.note(ends[0] - 6, y + 13, first, at="right", colour="ink")
    sheet.note(to + 6, y + 13, f"{rows[-1]:,} rows in each layer", colour="ink")


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
        behind = [P if constant_step else P + i for i in range(n + extra_steps)]
        lengths = [P if constant_pause else P + i for i in range(n)]
        return pause(P) + sum(map(step, behind)), sum(map(pause, lengths))

    return reply_ms


reply_ms = Exercise(
    name="reply_ms",
    todo="let reply_ms return two times, with the rows kept and with nothing kept.",
    cases=[
        Case((lambda T: 1 + T * T / 10, step, P, n), f"reply_ms for P = {P}, n = {n}")
        for P, n, step in [
            *[(4, 8, lambda t: 1 + t / 8), (10, 3, lambda t: 1 + t * t / 40)],
            *[(7, 1, lambda t: 1 + t / 8), (2, 2, lambda t: 1 + t / 8)],
        ]
    ],
    right_answer=make_reply_ms(),
    wrong_answers=[
        "the first word comes out of the pause, so n words take n - 1 steps.",
        make_reply_ms(extra_steps=0),
        make_reply_ms(extra_steps=0, constant_pause=True),
        "the pause is not a step: with the rows kept there is one pause, and then n - 1 steps.",
        lambda pause, step, P, n: (sum(step(P + i) for i in range(n)), make_reply_ms()(pause, step, P, n)[1]),
        "with nothing kept, the words that have come run again too: each pause is a token longer.",
        make_reply_ms(constant_pause=True),
        make_reply_ms(constant_pause=True, constant_step=True),
        "each step leaves a row: the next one stands behind one more.",
        make_reply_ms(constant_step=True),
    ],
    success="15.7 and 57.2 ms for 8 words behind 4 tokens; a single word is one pause either way.",
)


def check_times_as_long_guess(guess: Any, ratio: float) -> Guess:
    """Compare a guess with how many times as long something takes; within 20 percent it is right."""
    near = isinstance(guess, int | float) and abs(guess - ratio) <= ratio / 5
    why = f"{format_digits(ratio, 2)} times as long, here."
    return Guess(guess, guess if near else format_digits(ratio, 2), why, example_answer=ratio)


def shipped_model_overview() -> Picture:
    """Draw the shipped model for readers who know the toy: its four layers, and the rows kept in each."""
    kept = ("Today", "weather", "is", "so")

    def draw(sheet: Sheet) -> None:
        x, width = 18.0, 250.0
        rows, middle = x + width + 34, x + width / 2
        sheet.chip(middle, 24, "so", width=62, fill="generated fill", edge="generated")
        sheet.note(middle + 42, 24, "128 numbers", colour="ink")
        sheet.note(rows, 24, "rows kept", colour="ink")
        for n in range(4):
            y = 64.0 + 94 * n
            sheet.arrow(middle, 37 if n == 0 else y - 22, middle, y - 2, "soft")
            sheet.box(x, y, width, 70, fill="panel", edge="soft", radius=6)
            sheet.text(x + 12, y + 17, f"layer {n + 1}", bold=True)
            for i, name in enumerate(["4 heads of attention", "then an MLP"]):
                sheet.note(x + 12, y + 38 + 19 * i, name, colour="ink")
            for i, word in enumerate(kept):
                new, down, line = i == 3, y + 18 * i, 2.0 if i == 3 else 0.8
                for left, colour in ((rows, "key"), (rows + 26, "value")):
                    sheet.box(left, down, 24, 15, fill=f"{colour} fill", edge=colour, radius=2, line=line)
                sheet.text(rows + 58, down + 8, word, size=SMALL, bold=new)
            sheet.arrow(x + width, y + 61, rows - 3, y + 61, "key")
            sheet.arrow(rows - 3, y + 14, x + width, y + 14, "query")
        sheet.arrow(middle, 416, middle, 438, "soft")
        sheet.note(middle + 14, 426, "a number for each of 185 words", colour="ink")
        sheet.chip(middle, 453, "nice", width=62, fill="generated fill", edge="generated")
        sheet.note(18, 490, "The token writes its row into each layer,")
        sheet.note(18, 509, "and its heads read the rows that are there.")

    return Picture(
        draw,
        "One token, so, as 128 numbers goes through four layers, each of 4 heads of attention and an MLP. "
        "Beside each layer lie its rows, of Today, weather, is and so, two keys and two values each. The "
        "token writes its own row and reads all of them. At the end stands a number for each of 185 words, "
        "and the largest names nice.",
    )
