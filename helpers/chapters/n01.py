"""The figures, the prediction and the exercise of notebook 01, four heads by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.check.result import NotRightError, describe_with_type
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_number
from helpers.drawing.words import SMALL, join_words, require, shorten
from helpers.sampling import softmax

PROMPT_NUMBERS = [toy.NUMBERS[word] for word in toy.PROMPT]
T = len(PROMPT_NUMBERS)
EMPTY_CONTEXT = "none"  # the result of a head that has no number to pick
COLUMNS = [
    (head, "left") for head in ("word", "key")
]  # headings of `query_key_comparison`, and their alignment
COLUMNS += [(head, "right") for head in ("score", "e^score", "weight")] + [("value", "left")]


def query_key_comparison(
    query_word: str, query: Sequence[float], words: Sequence[str], keys: np.ndarray, values: np.ndarray
) -> Picture:
    """Draw how one query is compared with the keys of a few words, and how their values are averaged.

    Args:
        query_word: the word that has the query.
        query: two numbers.
        words: the S words that the query sees, one row each.
        keys: two numbers for each word, (S, 2).
        values: two numbers for each word, (S, 2).

    Raises:
        ValueError: the query is not two finite numbers.
    """
    q, k, v = (np.asarray(part, dtype=float) for part in (query, keys, values))
    finite = q.shape == (2,) and bool(np.isfinite(q).all())
    require(finite, f"the query is {query!r}; expected a list of two numbers, such as [2, -1]")
    scores = k @ q
    weights = softmax(scores)
    sums = [f"{_product(q[0], a)} {_product(q[1], b, 'then')} = " for a, b in k]
    powers = np.exp(np.minimum(scores, 700))
    exps, total = [format_number(e) for e in powers], f"{powers.sum():.4g}"
    written = [format_number(one).replace("-", "−") for one in scores]
    output = _pair(weights @ v)

    def draw(sheet: Sheet) -> None:
        places = (10, 74, 266, 330, 390, 404)
        name, key, score, exp, weight, value = places
        sheet.text(18, 20, query_word, colour="query", bold=True)
        sheet.text(28 + 10 * len(query_word), 20, f"has the query {_pair(q)}", colour="query")
        for x, (head, at) in zip(places, COLUMNS, strict=True):
            sheet.note(x, 54, head, at=at)
        for n, word in enumerate(words):
            y = 84 + 34 * n
            sheet.line((name, y - 17), (sheet.width - 10, y - 17), colour="faint")
            sheet.note(name, y, word, colour="ink", bold=bool(np.isclose(weights[n], weights.max())))
            sheet.note(key, y, _pair(k[n]), colour="key")
            sheet.note(score, y, written[n], at="right", colour="ink", bold=True)
            sheet.note(exp, y, exps[n], at="right")
            sheet.note(score - 34, y, sums[n], at="right")
            sheet.box(name, y + 10, max(1.0, (sheet.width - 20) * weights[n]), 4, fill="query", radius=0)
            sheet.note(weight, y, f"{weights[n]:.3f}", at="right", colour="ink")
            sheet.note(value, y, _pair(v[n]), colour="value")
        y = 84 + 34 * len(words)
        sheet.line((name, y - 17), (sheet.width - 10, y - 17), colour="line")
        sheet.note(exp, y, f"sum {total}", at="right")
        sheet.note(name, y + 30, "the average of the values", colour="ink")
        sheet.text(sheet.width - 10, y + 30, output, at="right", colour="value", bold=True)

    lines = [
        f"{word}, key {_pair(k[n])}: {sums[n]}{written[n]}, e^score {exps[n]}, "
        f"weight {weights[n]:.3f}, value {_pair(v[n])}"
        for n, word in enumerate(words)
    ]
    alt = f"{query_word} has the query {_pair(q)}. {'; '.join(lines)}. The sum of e^score is {total}, "
    return Picture(draw, f"{alt}the average of the values {output}.")


def _pair(two: Any) -> str:
    """Format two numbers as a pair: (2, −1)."""
    return f"({', '.join(format_number(x) for x in two)})".replace("-", "−")


def _product(a: float, b: float, place: str = "first") -> str:
    """Format a product as the first term of a sum, such as 2·3, or as a later term, such as − 1·0."""
    sign = ("−" if a < 0 else "") if place == "first" else "− " if a < 0 else "+ "
    second = format_number(b) if b >= 0 else f"(−{format_number(-b)})"
    return f"{sign}{format_number(abs(a))}·{second}"


def attention_weights_at(position: int) -> Picture:
    """Draw the attention weights and the context of each of the toy's heads at one position of the prompt.

    The area of a square is proportional to the weight.

    Args:
        position: the query's position, from 1.
    """
    words, v = toy.PROMPT[:position], PROMPT_NUMBERS[:position]
    keys = np.array([toy.key(n) for n in range(1, position + 1)])
    heads = [toy.head(toy.QUERIES[name], keys, v, toy.SINK[name]) for name in toy.HEADS]
    weights = [row.round(9) for row, _ in heads]
    contexts = [format_number(context) for _, context in heads]

    def draw(sheet: Sheet) -> None:
        left, row, top = 66.0, 62.0, 92.0
        cell = 300 / position
        end, right = left + cell * position, sheet.width - 8
        sheet.note(18, 22, "attention weights of")
        sheet.text(166, 22, words[-1], colour="query", bold=True)
        sheet.note(right, 60, "context", at="right")
        for h, name in enumerate(toy.HEADS):
            y = top + row * (h + 0.35)
            sheet.note(left - 8, y, name, at="right", colour="ink")
            sheet.line((left, top + row * (h + 1)), (end, top + row * (h + 1)), colour="faint")
            for j, weight in enumerate(weights[h]):
                x = left + cell * (j + 0.5)
                if not weight:
                    sheet.text(x, y, "·", at="center", colour="soft")
                    continue
                sheet.square(x - 17, y, 26 * float(weight) ** 0.5, "query")
                sheet.note(x + 1, y, format_number(weight), colour="ink")
            sheet.text(right, y, contexts[h], at="right", bold=True)
            picked = [format_number(x) for w, x in zip(weights[h], v, strict=True) if w]
            if len(picked) > 1:
                average = f"= ({' + '.join(picked)}) / {len(picked)}"
                sheet.note(right, y + 25, average, at="right")
        foot = top + row * len(toy.HEADS) + 10
        sheet.text(left - 8, foot + 20, "value", at="right", colour="value", bold=True)
        for j, word in enumerate(words):
            x = left + cell * (j + 0.5)
            colour = "query" if j == position - 1 else "ink"
            sheet.note(x, 60, shorten(word, cell, SMALL), at="center", colour=colour)
            sheet.box(x - cell / 2 + 3, foot + 4, cell - 6, 32, fill="value fill", edge="value")
            sheet.text(x, foot + 20, format_number(v[j]), at="center")

    carried = join_words([f"{word} ({x})" for word, x in zip(words, v, strict=True)])
    output = [
        f"{name}: "
        + join_words([f"{format_number(w)} on {word}" for w, word in zip(row, words, strict=True) if w])
        + f", context {context}"
        for name, row, context in zip(toy.HEADS, weights, contexts, strict=True)
    ]
    alt = f"Attention weights of {words[-1]} over the values of {carried}. {'; '.join(output)}."
    return Picture(draw, alt)


def check_newest_context_guess(guess: Any) -> Guess:
    """Compare a guess with the context of the head `newest` at the word `weather`."""
    return Guess(guess, PROMPT_NUMBERS[1])


def mean_or_empty(numbers: Sequence[float]) -> float | str:
    """Return the mean, or `EMPTY_CONTEXT` if there are no numbers."""
    return sum(numbers) / len(numbers) if len(numbers) else EMPTY_CONTEXT


HEAD_RULES: dict[str, Callable[[Sequence[float]], Any]] = {
    "even": lambda numbers: mean_or_empty(numbers[1::2]),
    "newest": lambda numbers: numbers[-1],
    "first": lambda numbers: numbers[0],
}


def context_table(**replaced_heads: Callable[[Sequence[float]], Any]) -> dict[str, list[Any]]:
    """Return the right table, a row of four contexts for each word of the prompt, with some heads replaced.

    Args:
        replaced_heads: maps the names of the replaced heads to functions that take the visible numbers and
            return the context.
    """
    heads = HEAD_RULES | {"all": mean_or_empty} | replaced_heads
    return {
        word: [heads[name](PROMPT_NUMBERS[:t]) for name in toy.HEADS] for t, word in enumerate(toy.PROMPT, 1)
    }


def read_cell(table: dict[str, list[Any]], word: str, head: int) -> Any:
    """Return one cell of a reader's table.

    Args:
        table: maps each word to its row.
        word: the row.
        head: the column, from 0.

    Returns:
        The cell, or `...` if the row has not been filled in.

    Raises:
        NotRightError: the word has no row, or its row does not have four numbers.
    """
    if not isinstance(table, dict) or word not in table:
        raise NotRightError(f"there is no row `{word}`; expected a dict with {', '.join(toy.PROMPT)}.")
    row = table[word]
    if row is not ... and (not isinstance(row, list | tuple) or len(row) != len(toy.HEADS)):
        names = ", ".join(toy.HEADS)
        raise NotRightError(f"row `{word}` is {describe_with_type(row)}; expected four numbers: {names}.")
    return row if row is ... else row[head]


def cell_case(word: str, head: int) -> Case:
    """Return the case that checks one cell of the table, with the expected value described in words.

    Args:
        word: the row.
        head: the column, from 0.
    """
    name, visible = toy.HEADS[head], PROMPT_NUMBERS[: toy.PROMPT.index(word) + 1]
    picked = [visible[1::2], visible[-1:], visible[:1], visible][head]
    numbers = " and ".join([", ".join(map(str, picked[:-1])), *map(str, picked[-1:])])
    wanted = f"the average of {numbers}" if picked[1:] else f"{sum(picked)}, the only value that it takes"
    return Case(
        (word, head),
        f"`{word}` under `{name}`",
        expected_in_words=wanted if picked else f"{EMPTY_CONTEXT!r}, as it was given",
    )


table = Exercise(
    name="table",
    todo="fill in the table, a row of four numbers for each word.",
    cases=[
        cell_case(word, head) for word in ("weather", "is", "so", "Today") for head in range(len(toy.HEADS))
    ],
    run_case=read_cell,
    right_answer=context_table(),
    wrong_answers=[
        f"divided by the prompt's length, {T}; divide by how many tokens are visible from here.",
        context_table(all=lambda visible: sum(visible) / T),
        "it sees the future: a token may see itself and the tokens before it.",
        dict.fromkeys(toy.PROMPT, context_table()["so"]),
        "positions count from 1: `Today` is at an odd one, `weather` at an even one.",
        context_table(even=lambda visible: mean_or_empty(visible[::2])),
        "added up, not averaged.",
        context_table(even=lambda visible: sum(visible[1::2]) or EMPTY_CONTEXT, all=sum),
    ],
    success="all 16 cells, with 12.5, 5, 10, 9 in the row of `so`.",
)
