"""The figures, the exercise and the prediction of notebook 02, prefill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, join_words, pluralize, printable, require, shorten, text_width
from helpers.plots.probabilities import whole_percent

NUMBERS = [float(toy.NUMBERS[word]) for word in toy.PROMPT]
T = len(NUMBERS)


def word_probabilities(words: Sequence[str], probabilities: Sequence[float]) -> Picture:
    """Draw a text with a bar under each word but the first: its probability, given the words before it.

    Args:
        words: the text.
        probabilities: the probability of each word but the first, 0 to 1.
    """

    def draw(sheet: Sheet) -> None:
        x, y = 18.0, 20.0
        for word, p in zip(words, [None, *probabilities], strict=True):
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

    each = [f"{printable(word)} {whole_percent(p)}" for word, p in zip(words[1:], probabilities, strict=True)]
    alt = (
        f"{pluralize(len(probabilities), 'word')} after {printable(words[0])}, each with the probability "
        f"that it was given before it came, in percent: {', '.join(each)}."
    )
    return Picture(draw, alt)


def two_layer_dependencies(word: str) -> Picture:
    """Draw which tokens and which results of layer 1 are needed for one token's result in layer 2.

    Links lead down to each result from the tokens or results that it is computed from. The boxes and links
    that the word needs are filled and dark.

    Args:
        word: one of the toy's prompt.

    Raises:
        ValueError: the word is not in the prompt.
    """
    words, sees = toy.PROMPT, toy.causal_mask(T)
    require(word in words, f"the word is {word!r}; expected one of {join_words(words)}")
    made = np.arange(T) == words.index(word)
    needed = [sees[sees[made].any(axis=0)].any(axis=0), sees[made].any(axis=0), made]

    def draw(sheet: Sheet) -> None:
        left, pitch, chip, drop = 68.0, 98.0, 80.0, 92.0
        at = [left + pitch * (i + 0.5) for i in range(T)]
        for level in (1, 2):
            for dark in (False, True):
                for i, j in np.argwhere(sees):
                    if dark == (needed[level][i] and needed[level - 1][j]):
                        ends = (at[j], 26 + drop * (level - 1) + 13), (at[i], 26 + drop * level - 13)
                        sheet.line(*ends, colour="query" if dark else "line", width=2 if dark else 1)
        for level, name in enumerate(("tokens", "layer 1", "layer 2")):
            sheet.note(8, 26 + drop * level, name)
            for x, text, dark in zip(at, words, needed[level], strict=True):
                fill, edge = ("query fill", "query") if dark else ("panel", "line")
                corner, asks = (x - chip / 2, 13 + drop * level), level == 2 and bool(dark)
                sheet.box(*corner, chip, 26, fill=fill, edge=edge, radius=6, line=2.4 if asks else 1)
                sheet.text(x, 26 + drop * level, text, at="center", size=SMALL, bold=asks)

    tokens, results = (
        join_words([text for text, dark in zip(words, level, strict=True) if dark]) for level in needed[:2]
    )
    alt = (
        f"Two layers over {join_words(words)}; links lead down from what is read to what is made of it, "
        f"and none leads to the left. {word} in layer 2 is made from the results of {results} in layer 1, "
        f"and these from the tokens {tokens}."
    )
    return Picture(draw, alt)


Prefill = Callable[[Sequence[float]], np.ndarray]


def prefill_seeing(n_visible: Callable[[int, int, str], int]) -> Prefill:
    """Return a prefill whose tokens see a given number of tokens, which may be too many.

    Args:
        n_visible: takes the query's position, from 1, the number of tokens, and the name of a head; returns
            how many tokens, from the first, the query sees in that head.
    """

    def row(t: int, x: Sequence[float]) -> list[float]:
        rows = (toy.run_pass(x[: n_visible(t, len(x), name)])[-1] for name in toy.HEADS)
        return [contexts[h] for h, contexts in enumerate(rows)]

    return lambda numbers: np.array([row(t, numbers) for t in range(1, len(numbers) + 1)])


PREFILLS: dict[str, Prefill] = {  # all but the first two look ahead
    "the right prefill": toy.run_pass,
    "a masked prefill of other heads": lambda numbers: -toy.run_pass(numbers),
    "a prefill that has no causal mask": prefill_seeing(lambda t, n, head: n),
    "a prefill whose tokens see one too many": prefill_seeing(lambda t, n, head: min(t + 1, n)),
    "a prefill whose first token sees all": prefill_seeing(lambda t, n, head: n if t == 1 else t),
    "a prefill whose middle token sees all": prefill_seeing(lambda t, n, head: n if t == (n + 1) // 2 else t),
    "a prefill whose `newest` sees all": prefill_seeing(lambda t, n, head: n if head == "newest" else t),
    "a prefill whose `all` sees all": prefill_seeing(lambda t, n, head: n if head == "all" else t),
    "a prefill whose first two rows move, but no column's sum": lambda x: (
        toy.run_pass(x) + x[-1] * np.array([1, -1, *[0] * (len(x) - 2)])[:, None]
    ),
}


def make_future_test(
    compared_cells: Callable[..., Any], changed_number: float = 500.0
) -> Callable[[Prefill], bool]:
    """Return a `test_future`: it changes the last number, and is True if the compared cells stay the same.

    Args:
        compared_cells: takes a prefill's table, (T, H), and returns the cells to compare.
        changed_number: the changed last number.
    """
    changed = [*NUMBERS[:-1], changed_number]
    return lambda prefill: bool(
        np.allclose(compared_cells(prefill(NUMBERS)), compared_cells(prefill(changed)))
    )


change_future = Exercise(
    name="test_future",
    todo="let test_future return True or False.",
    cases=[Case((prefill,), f"test_future with {name}") for name, prefill in PREFILLS.items()],
    right_answer=make_future_test(lambda table: table[:-1]),
    wrong_answers=[
        "the row of the changed number, or one after it, is compared too; these rows may change.",
        make_future_test(lambda table: table),
        make_future_test(lambda table: table[-1]),
        "True each time: are the two lists of numbers different (`b = a` is no copy)? Is all compared?",
        make_future_test(lambda table: table, changed_number=NUMBERS[-1]),
        "not every earlier row is compared.",
        *[make_future_test(lambda table, rows=rows: table[rows]) for rows in (0, slice(2), -2)],
        "not all four columns are compared.",
        *[make_future_test(lambda table, head=head: table[:-1, head]) for head in (0, 1, 3)],
    ],
    success="your test passes two prefills with a mask, and catches all seven that look ahead.",
)


CHANGED_NUMBERS = [*NUMBERS[:2], 100.0, *NUMBERS[3:]]  # *is* carries 100


def check_changed_positions_guess(guess: Any) -> Guess:
    """Compare a guess with the positions, from 1, whose result in layer 2 changes when *is* carries 100."""
    changed, before = (toy.run_pass(numbers, n_layers=2) for numbers in (CHANGED_NUMBERS, NUMBERS))
    return Guess(guess, [int(t) for t in np.flatnonzero((changed != before).any(axis=1)) + 1])
