"""Checkers of notebook 01, four heads by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers import toy
from helpers.check.cases import (
    Case,
    Mistakes,
    call,
    compare,
    is_number,
    likely_reason,
    read_number,
    read_row,
    with_reason,
)
from helpers.check.part1 import shared
from helpers.check.part1.shared import CARRIED, T, mean
from helpers.check.result import NotRightError, NotSolvedError, describe, exercise, same, show
from helpers.sampling import softmax

PICK_EVEN_TODO = "let pick_even return the average of the numbers at positions 2, 4, 6, …"
PICK_EVEN_TRAP = "no visible token stands at an even position, so there is nothing to divide by: give 0."
PICK_EVEN_MISTAKES: Mistakes = {
    "counted from 0. Positions count from 1, so position 2 is visible[1].": [
        lambda visible: mean(visible[::2]),
        lambda visible: mean(visible[2::2]),
    ],
    "the sum is divided by all visible tokens; divide by those that were picked.": [
        lambda visible: sum(visible[1::2]) / len(visible),
    ],
    "divide by how many were picked; that is not always 2, nor half of what is visible.": [
        lambda visible: sum(visible[1::2]) / 2,
        lambda visible: sum(visible[1::2]) / (len(visible) / 2),
        lambda visible: sum(visible[1::2]) / len(visible[::2]),
    ],
    "even numbers were picked; the head picks even positions, whatever number stands there.": [
        lambda visible: mean([number for number in visible if number % 2 == 0]),
    ],
    "the numbers are added up; divide by how many were picked.": [lambda visible: sum(visible[1::2])],
    "every visible number was averaged; that is the head `all`.": [mean],
    "that is one of those that were picked; give their average.": [
        lambda visible: visible[1] if len(visible) > 1 else 0,
        lambda visible: visible[1::2][-1] if len(visible) > 1 else 0,
        lambda visible: max(visible[1::2], default=0),
    ],
    "places were averaged; average the numbers that stand there.": [
        lambda visible: mean(range(1, len(visible), 2)),
        lambda visible: mean(range(2, len(visible) + 1, 2)),
    ],
    "the last number is left out; a token sees itself too.": [lambda visible: mean(visible[1:-1:2])],
    "the fraction is cut off: divide with / and keep it.": [lambda visible: mean(visible[1::2]) // 1],
    "that is the median, the one in the middle; give the average.": [
        lambda visible: np.median(visible[1::2]) if len(visible) > 1 else 0
    ],
    "the list is oldest first, and positions count from the oldest.": [
        lambda visible: mean(visible[::-1][1::2])
    ],
    "a number that is there twice has two places; `index` finds the first: count with a range.": [
        lambda visible: mean([number for number in visible if visible.index(number) % 2])
    ],
    PICK_EVEN_TRAP: [lambda visible: mean(visible[1::2] or visible)],
}


def _pick_even_cases() -> list[Case]:
    lists = [CARRIED, CARRIED[:2], CARRIED[:3], CARRIED[:1], [3, 5, 2, 8, 5, 4]]
    return [
        Case(f"pick_even({numbers})", (numbers,), PICK_EVEN_TRAP * (len(numbers) == 1)) for numbers in lists
    ]


@exercise
def pick_even(answer: Any) -> str:
    """01: `pick_even(visible)` averages the numbers at even positions, from 1; 0 if there are none."""
    expected = compare(
        answer,
        _pick_even_cases(),
        attempt=lambda function, case: read_number(call(function, case, PICK_EVEN_TODO), case),
        right=shared.pick_even,
        mistakes=PICK_EVEN_MISTAKES,
    )
    so, _, _, today, other = map(show, expected)
    return f"{so} at `so`, {today} at `Today`, and {other} on a list of six."


TABLE_ROWS = ("weather", "is", "so", "Today")  # the order in which the reader fills them
FUTURE = "it sees the future: a token may look at itself and at what stands before it."
ADDED = "added up, not averaged."
SEES_ITSELF = "a token sees itself too."
ONE_ALONE = "that is one of them; `even` averages all that it picks."
POSITION = "that is a position; the head gives the number that stands there."
TABLE_MISTAKES: dict[str, Mistakes] = {
    "even": {
        FUTURE: [lambda visible: mean(CARRIED[1::2])],
        "counted from 0. Positions count from 1, so `Today` is at an odd one and `weather` at an even one.": [
            lambda visible: mean(visible[::2]) if len(visible) > 1 else np.nan
        ],
        "`even` does not pick `Today` itself, which stands at position 1.": [
            lambda visible: visible[0] if len(visible) == 1 else np.nan
        ],
        ADDED: [lambda visible: sum(visible[1::2])],
        "divided by all visible tokens; divide by those that were picked.": [
            lambda visible: sum(visible[1::2]) / len(visible)
        ],
        ONE_ALONE: [lambda visible: [*visible[1::2], 0][0], lambda visible: [0, *visible[1::2]][-1]],
        "even numbers were picked; `even` picks even positions, whatever number stands there.": [
            lambda visible: mean([number for number in visible if number % 2 == 0])
        ],
    },
    "newest": {
        FUTURE: [lambda visible: CARRIED[-1]],
        SEES_ITSELF: [lambda visible: [0, *visible][-2]],
        "newest means the latest position, not the largest number.": [max],
        POSITION: [len],
    },
    "first": {
        "first means position 1, which every row sees.": [lambda visible: visible[-1]],
        POSITION: [lambda visible: 1],
    },
    "all": {
        f"divided by the prompt's length, {T}; divide by how many tokens are visible from here.": [
            lambda visible: sum(visible) / T
        ],
        FUTURE: [lambda visible: mean(CARRIED)],
        ADDED: [sum],
        SEES_ITSELF: [lambda visible: mean(visible[:-1])],
    },
}


def _table_expected(visible: list[int], head: str) -> str:
    """Say in words what belongs in a cell."""
    picked = visible[1::2] if head == "even" else visible
    if not picked:
        return "0, as there is nothing to pick"
    if len(picked) == 1:
        return f"{picked[0]}, all there is to pick"
    numbers = f"{', '.join(map(str, picked[:-1]))} and {picked[-1]}"
    return f"the {head} of {numbers}" if head in ("newest", "first") else f"the average of {numbers}"


def _table_reason(visible: list[int], head: str, value: float, wanted: float) -> str:
    if abs(value - wanted) < (1 if value % 1 == 0 else 0.05):
        return "rounded too far: keep two digits after the point."
    return "" if np.isnan(value) else likely_reason(TABLE_MISTAKES[head], [Case("", (visible,))], [value])


def _table_row(answer: dict[str, Any], word: str) -> list[Any]:
    if word not in answer:
        raise NotRightError(f"the row `{word}` is missing; expected {', '.join(TABLE_ROWS)}.")
    row = answer[word]
    if not isinstance(row, list | tuple | np.ndarray) or len(row) != len(toy.HEADS):
        raise NotRightError(
            f"row `{word}` is {describe(row)}; expected four numbers: {', '.join(toy.HEADS)}."
        )
    return list(row)


def _check_order(word: str, row: list[Any], contexts: dict[str, np.ndarray]) -> None:
    """Raise if a full row has the right numbers in the wrong columns, or belongs to another word."""
    if not all(map(is_number, row)) or same(row, contexts[word]):
        return
    if same(sorted(row), sorted(contexts[word])):
        message = f"row `{word}` is {show(row)}; expected these numbers in another order."
        raise NotRightError(message, f"columns mixed up: they are {', '.join(toy.HEADS)}.")
    for other in contexts:
        if same(row, contexts[other]):
            message = f"row `{word}` is {show(row)}; expected what the heads make of `{word}`."
            raise NotRightError(message, f"rows mixed up: that is the row of `{other}`.")


def _check_cell(word: str, head: str, cell: Any, visible: list[int], wanted: float, n_right: int) -> None:
    """Raise if a filled cell is wrong."""
    so_far = f"({n_right} of {T * len(toy.HEADS)} cells are right)"
    expected = f"expected {_table_expected(visible, head)} {so_far}."
    if not is_number(cell):
        raise NotRightError(f"`{word}` under `{head}` is {describe(cell)}, which is no number; {expected}")
    if not same(cell, wanted):
        reason = _table_reason(visible, head, float(cell), wanted)
        raise NotRightError(f"`{word}` under `{head}` is {show(float(cell))}; {expected}", reason)


@exercise
def table(answer: Any) -> str:
    """01: the contexts of the prompt, a row of four numbers for each word; `...` is a cell still to fill."""
    if answer is None or answer is ...:
        raise NotSolvedError("fill in the table, a row for each word.")
    if not isinstance(answer, dict):
        raise NotRightError(f"got {describe(answer)}; expected a dict with the rows {', '.join(TABLE_ROWS)}.")
    contexts = dict(zip(toy.PROMPT, toy.prefill_loop(CARRIED), strict=True))
    rows = {word: _table_row(answer, word) for word in TABLE_ROWS}
    cells = [(word, h, head) for word in TABLE_ROWS for h, head in enumerate(toy.HEADS)]
    blank = [(word, head) for word, h, head in cells if rows[word][h] is ...]
    right = [(word, head) for word, h, head in cells if _is_right(rows[word][h], contexts[word][h])]
    for word in TABLE_ROWS:
        _check_order(word, rows[word], contexts)
    for word, h, head in cells:
        if (word, head) not in blank:
            visible = CARRIED[: toy.PROMPT.index(word) + 1]
            _check_cell(word, head, rows[word][h], visible, contexts[word][h], len(right))
    if blank:
        word, head = blank[0]
        raise NotSolvedError(f"{len(right)} of {len(cells)} cells are right; next: `{word}` under `{head}`.")
    return (
        f"all {len(cells)} cells, {show(contexts['so'])} in the row of `so`, and 0 where nothing is picked."
    )


def _is_right(cell: Any, wanted: float) -> bool:
    return is_number(cell) and same(cell, wanted)


ATTEND_TODO = "let attend mask the scores, take the softmax, and average the values."
ATTEND_TRAP = (
    "nothing to pick in row 1: its scores are all -inf, and a plain softmax divides 0 by 0. Give 0 there."
)


ATTEND_ERRORS = {
    "scalar index": "causal_mask takes how many tokens there are: len(values).",
    "broadcast": "the mask has another size than the scores: causal_mask(len(values)).",
    "zero-size": "row 1 sees nothing there; a token may look at itself, so row t sees t tokens.",
}


def _masked(scores: np.ndarray, hidden: Any = -np.inf) -> np.ndarray:
    return np.where(toy.causal_mask(len(scores)), scores, hidden)


def _hidden(values: np.ndarray) -> np.ndarray:
    """Return (T, T), 1 where the query may not look, else 0."""
    return 1.0 - toy.causal_mask(len(values))


def _exps(scores: np.ndarray) -> np.ndarray:
    return np.exp(_masked(scores))


ATTEND_MISTAKES: Mistakes = {
    "weights multiplied by the mask after the softmax: rows sum to less than 1, only the last is right.": [
        lambda scores, values: softmax(scores) * toy.causal_mask(len(values)) @ values
    ],
    "no mask: every row sees the whole prompt.": [lambda scores, values: softmax(scores) @ values],
    "masked scores set to 0. A score of 0 still gets weight, as e^0 is 1; -inf gets none.": [
        lambda scores, values: softmax(_masked(scores, 0.0)) @ values,
        lambda scores, values: softmax(scores * toy.causal_mask(len(values))) @ values,
    ],
    "a large negative number, not -inf: a row with nothing else left averages what is masked.": [
        lambda scores, values: softmax(_masked(scores, -1e9)) @ values,
        lambda scores, values: softmax(scores - 1e9 * _hidden(values)) @ values,
    ],
    "masked scores set to -1, or the mask added to them: they still get weight; -inf gets none.": [
        lambda scores, values: softmax(_masked(scores, -1.0)) @ values,
        lambda scores, values: softmax(scores - _hidden(values)) @ values,
    ],
    "masked scores set to +inf or NaN; the score that gets no weight is -inf.": [
        lambda scores, values: softmax(_masked(scores, np.inf)) @ values
    ],
    "infinity times 0 is NaN: put -inf in with np.where; do not multiply.": [
        lambda scores, values: softmax(scores - np.inf * _hidden(values)) @ values,
        lambda scores, values: softmax(scores * _masked(np.ones_like(scores))) @ values,
    ],
    "-inf belongs on the scores, before the softmax; a weight that is masked is 0.": [
        lambda scores, values: _masked(softmax(scores)) @ values
    ],
    "no softmax: scores are no weights yet.": [lambda scores, values: _masked(scores) @ values],
    "the scores are left out: every visible token got the same weight.": [
        lambda scores, values: softmax(_masked(0 * values)) @ values
    ],
    "not divided by the row's sum: the weights of a row have to sum to 1.": [
        lambda scores, values: _exps(scores) @ values
    ],
    "divided by the sums of other rows: sum with axis=-1 and keepdims=True.": [
        lambda scores, values: _exps(scores) / _exps(scores).sum(axis=-1) @ values
    ],
    "divided by the sum of the whole table: a row, one query, has to sum to 1.": [
        lambda scores, values: _exps(scores) / _exps(scores).sum() @ values
    ],
    "divided by T as well: the weights of a row sum to 1 already.": [
        lambda scores, values: softmax(_masked(scores)) @ values / len(values)
    ],
    "the softmax ran down the columns; a row, one query, has to sum to 1.": [
        lambda scores, values: softmax(_masked(scores).T).T @ values,
        lambda scores, values: _exps(scores) / _exps(scores).sum(axis=0) @ values,
    ],
    "values @ weights goes down the columns; a row is a query: weights @ values.": [
        lambda scores, values: values @ softmax(_masked(scores))
    ],
    "the mask hides the token itself; a token may look at itself.": [
        lambda scores, values: softmax(np.where(np.tri(len(values), k=-1) > 0, scores, -np.inf)) @ values
    ],
    "the mask is shifted by one: each row sees the token after it.": [
        lambda scores, values: softmax(np.where(np.tri(len(values), k=1) > 0, scores, -np.inf)) @ values
    ],
    "the mask is upside down: each row sees itself and what comes after.": [
        lambda scores, values: softmax(np.where(np.tri(len(values)).T > 0, scores, -np.inf)) @ values
    ],
    "the mask is upside down: it is True where the query may look, and those scores are hidden.": [
        lambda scores, values: softmax(np.where(_hidden(values), scores, -np.inf)) @ values
    ],
}


def _attend_cases() -> list[Case]:
    prompt, graded = np.array(CARRIED, dtype=float), np.array([[0.0, 1, 2], [2, 0, 1], [1, 1, 0]])
    rules = dict(zip(toy.HEADS, toy.rule_scores(T), strict=True))
    longer = np.array([3.0, 8, 2, 6, 4, 7])
    return [
        Case("attend under `all`", (rules["all"], prompt)),
        Case(
            "attend with the scores [0 1 2], [2 0 1], [1 1 0] on 3, 6, 12", (graded, np.array([3.0, 6, 12]))
        ),
        Case("attend under `even`", (rules["even"], prompt), ATTEND_TRAP),
        Case("attend under `newest`", (rules["newest"], prompt)),
        Case("attend under `first`", (rules["first"], prompt)),
        Case("attend under `all` on 3, 8, 2, 6, 4, 7", (toy.rule_scores(6)[3], longer)),
    ]


def _attend_once(function: Any, case: Case) -> np.ndarray:
    length = len(case.args[1])
    hints = {
        (length, length): "these are still T rows of T: average each with `weights @ values`.",
        (): "this is one number; each of the T rows gives one.",
    }
    try:
        value = call(function, case, ATTEND_TODO)
    except NotRightError as stop:
        raise with_reason(stop, ATTEND_ERRORS) from None
    return read_row(value, case, length, hints)


@exercise
def attend(answer: Any) -> str:
    """01: `attend(scores, values)`: mask, softmax, average, for one head, scores (T, T), values (T,)."""
    expected = compare(
        answer, _attend_cases(), attempt=_attend_once, right=toy.attend, mistakes=ATTEND_MISTAKES
    )
    return (
        f"{show(expected[0])} under `all`, and {show(expected[2])} under `even`, 0 where nothing is picked."
    )
