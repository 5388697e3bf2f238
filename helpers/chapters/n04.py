"""The figures, the exercise and the prediction of notebook 04, the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_number
from helpers.drawing.words import SMALL, number_repeated, printable, shorten
from helpers.plots.passes import score_counts
from helpers.trace import Trace

NUMBERS = [float(toy.NUMBERS[word]) for word in toy.PROMPT]
LayerCaches = list[tuple[list[Any], list[Any]]]  # (keys, values) of each layer


def decode_token(cache: LayerCaches, number: float, position_of: Any = len, mistake: str = "") -> np.ndarray:
    """Decode one token, optionally with a mistake, and return its contexts in the last layer, (H,).

    Args:
        cache: the keys and values of each layer; the token's own are appended.
        number: the number that the token carries.
        position_of: takes the keys of a layer and returns the token's position, counted from 0.
        mistake: the mistake, if any: "not stored", "looks first" (before storing), or "own number" (into the
            next layer).
    """
    for keys, values in cache:
        position, seen = position_of(keys) + 1, ([*keys], [*values])
        if mistake == "not stored":
            keys, values = seen
        keys.append([position % 2 == 0, position])
        values.append(number)
        contexts = toy.four_heads(*(seen if mistake == "looks first" else (keys, values)))
        number = number if mistake == "own number" else contexts.mean()
    return contexts


def run_decode_steps(
    decode_step: Any,
    cached_numbers: Sequence[float],
    new_numbers: Sequence[float],
    n_layers: int,
    position_shift: int = 0,
) -> dict[str, Any]:
    """Run decode steps after stored tokens; return the last contexts and what is then in the cache.

    Args:
        decode_step: the function to check.
        cached_numbers: the numbers of the tokens that are in the cache at first.
        new_numbers: the numbers of the tokens to decode, one step each.
        n_layers: the number of layers.
        position_shift: how much to add to the positions in the stored keys.

    Returns:
        The contexts of the last step, and the values and the last key of each layer.
    """
    cache: LayerCaches = [([], []) for _ in range(n_layers)]
    for number in cached_numbers:
        decode_token(cache, number)
    for keys, _ in cache:
        keys[:] = [
            np.array([(position + position_shift) % 2 == 0, position + position_shift], float)
            for _, position in keys
        ]
    for number in new_numbers:
        contexts = decode_step(cache, number)
    found = {"gives": contexts}
    for n, (keys, values) in enumerate(cache, 1):
        found[f"leaves V of layer {n} with"] = np.array(values)
        found[f"leaves K of layer {n} with the last key"] = np.array(keys[-1])
    return found


decode_step = Exercise(
    name="decode_step",
    todo="let decode_step write an entry into every layer and return the last layer's four contexts.",
    cases=[
        Case((NUMBERS, [14.0], 1), "decode_step in one layer, 14 after 10, 20, 1, 5,"),
        Case((NUMBERS, [14.0], 2), "decode_step in two layers, 14 after 10, 20, 1, 5,"),
        Case(([3.0, 8, 4], [6.0], 3), "decode_step in three layers, 6 after 3, 8, 4,"),
        Case((NUMBERS, [14.0, 12.0], 2), "decode_step in two layers, 14 and then 12,"),
        Case((NUMBERS, [14.0], 1, 1), "decode_step after keys that were changed"),
    ],
    run_case=run_decode_steps,
    right_answer=decode_token,
    wrong_answers=[
        "it computed the contexts before it stored the entry: a token sees its own entry too.",
        partial(decode_token, mistake="looks first"),
        "not the next position: the new token comes after those whose keys are in the cache.",
        partial(decode_token, position_of=lambda keys: 0),
        partial(decode_token, position_of=lambda keys: len(keys) - 1),
        "the entry was not stored: append to the lists of the cache.",
        partial(decode_token, mistake="not stored"),
        "into the next layer a token carries the mean of its contexts, not its own number.",
        partial(decode_token, mistake="own number"),
    ],
    success="12.5, 14, 10, 10 in one layer, 12.69, 11.63, 7.5, 10.97 in two; the entries are right, too.",
)


def check_stale_values_guess(guess: Any) -> Guess:
    """Compare a guess with the positions whose value in layer 2 changes if *weather* carries 8, not 20."""
    changed = [10, 8, 1, 5, 14], [10, 20, 1, 5, 14]
    before, after = (toy.run_pass(numbers).mean(axis=1) for numbers in changed)
    return Guess(guess, (np.flatnonzero(before != after) + 1).tolist())


def two_triangles(trace: Trace) -> Picture:
    """Draw how often each query-key pair of a reply was scored, without the cache and with it.

    Args:
        trace: a recorded reply with both runs and one sequence.
    """
    runs = {"without the cache": trace.run("uncached"), "with the cache": trace.run("cached")}
    n = 1 + max(token for step in runs["with the cache"].steps for token in step.parts[0].queries)
    words = number_repeated([token.text for token in trace.sequences[0].tokens[:n]])
    counts = {name: score_counts(run, n) for name, run in runs.items()}

    def draw(sheet: Sheet) -> None:
        top, words_end, gap = 62.0, 84.0, 26.0
        cell = (sheet.width - words_end - gap - 10) / (2 * n)
        for i, word in enumerate(words):
            text = shorten(word, 76, SMALL)
            sheet.note(words_end - 8, top + cell * (i + 0.5), text, at="right", colour="ink")
        for k, (name, rows) in enumerate(counts.items()):
            left = words_end + k * (cell * n + gap)
            sheet.text(left, 18, name, bold=True)
            sheet.note(left, 40, f"{sum(map(sum, rows))} pairs scored")
            for i, row in enumerate(rows):
                for j, count in enumerate(row):
                    x, y = left + cell * j, top + cell * i
                    opacity = 0.15 + 0.35 * (count - 1) / 7
                    sheet.box(x + 0.5, y + 0.5, cell - 1, cell - 1, fill="query", opacity=opacity, radius=2)
                    sheet.note(x + cell / 2, y + cell / 2, str(count), at="center", colour="ink")

    sentences = []
    for name, rows in counts.items():
        each = "; ".join(f"{printable(word)} {row[0]}" for word, row in zip(words, rows, strict=True))
        total, squares = sum(map(sum, rows)), sum(map(len, rows))
        sentences.append(f"{name}: {total} pairs scored in {squares} squares; each square of a row: {each}.")
    return Picture(draw, " ".join(sentences))


def one_step(words: Sequence[str], stored: Sequence[float], new: float) -> Picture:
    """Draw a decode step through two layers: the entries that it reads and writes, and what it passes on.

    Args:
        words: the text; the last word is the new token.
        stored: the numbers that the earlier tokens carry.
        new: the number that the new token carries into layer 1.
    """
    cache = toy.KVCache(2)
    toy.run_pass(stored, cache, n_layers=2)
    contexts = [toy.run_pass([*stored, new], n_layers=n)[-1] for n in (1, 2)]
    carried = [new, float(contexts[0].mean())]
    reply = toy.VOCABULARY[int(toy.lm_head(toy.run_pass([new], cache, n_layers=2)[-1]).argmax())]
    listed = [", ".join(format_number(float(x)) for x in four) for four in contexts]
    keys = [[f"[{even:.0f}, {position:.0f}]" for even, position in k] for k in cache.k]
    values = [[format_number(float(value)) for value in v] for v in cache.v]
    passed_on = [
        [f"{words[-1]} carries {format_number(new)} into layer 1"],
        [f"four contexts: {listed[0]}", f"their mean, {format_number(carried[1])}, goes into layer 2"],
        [f"four contexts: {listed[1]}", "the LM head makes the next word from them"],
    ]

    def draw(sheet: Sheet) -> None:
        left = 58.0
        pitch, y = (sheet.width - left - 6) / len(words), 6.0
        middle = left + pitch * (len(words) - 0.5)
        draw_row(sheet, left, pitch, y, words, "none", "line")
        y += 26
        for layer, lines in enumerate(passed_on):
            height = 14 + 22 * len(lines)
            sheet.arrow(middle, y, middle, y + height, "query")
            for n, text in enumerate(lines):
                colour = "ink" if n == len(lines) - 1 else "soft"
                sheet.note(middle - 12, y + 18 + 22 * n, text, at="right", colour=colour)
            y += height + 3
            if layer == 2:
                sheet.chip(middle, y + 13, reply, width=pitch - 2, fill="generated fill", edge="generated")
                break
            sheet.note(4, y + 18, "layer", colour="ink")
            sheet.note(4, y + 36, f"{layer + 1}", colour="ink", bold=True)
            for name, colour, texts in (("K", "key", keys[layer]), ("V", "value", values[layer])):
                sheet.text(left - 4, y + 13, name, at="right", colour=colour, bold=True, size=SMALL)
                draw_row(sheet, left, pitch, y, texts, f"{colour} fill", colour)
                y += 30
        for x, text, line in ((4.0, "entry read", 1.0), (134.0, "entry written", 2.4)):
            for dy, colour in ((-3, "key"), (12, "value")):
                sheet.box(x, y + dy, 22, 12, fill=f"{colour} fill", edge=colour, line=line, radius=2)
            sheet.note(x + 30, y + 10, text)

    layers = [
        f"Layer {n + 1}: {words[-1]} has {format_number(carried[n])}; keys {', '.join(keys[n])}; values "
        f"{', '.join(values[n])}, the last written in this step; its four contexts {listed[n]}."
        for n in range(2)
    ]
    title = f"A decode step of {words[-1]} through two layers."
    return Picture(draw, f"{title} {' '.join(layers)} The next word: {printable(reply)}.")


def draw_row(
    sheet: Sheet, left: float, pitch: float, top: float, texts: Sequence[str], fill: str, edge: str
) -> None:
    """Draw a row of boxes with a text in each; the last box, of the new token, is heavy and bold."""
    for j, text in enumerate(texts):
        x, is_new = left + pitch * (j + 0.5), j == len(texts) - 1
        sheet.box(x - pitch / 2 + 2, top, pitch - 4, 26, fill=fill, edge=edge, line=2.4 if is_new else 1.0)
        shown = shorten(text, pitch - 8, SMALL)
        sheet.text(x, top + 13, shown, at="center", size=SMALL, bold=is_new)
