"""Figures of attention: who weighs what, and what comes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.plots.canvas import (
    FAINT,
    GENERATED,
    GENERATED_FILL,
    LINE,
    PANEL,
    QUERY,
    SMALL,
    SOFT,
    VALUE,
    VALUE_FILL,
    Picture,
    Sheet,
    listed,
    number,
    shorten,
    text_width,
    told,
    with_settings,
)
from helpers.trace import Part, Trace, spread

LAYER = 0


def numbers_carried(trace: Trace, layer: int = LAYER) -> list[float]:
    """V of a layer, one number for each token that ran.

    Raises:
        ValueError: the trace holds no contents of V, or more than one number a token.
    """
    for values in trace.values or []:
        if values.layer == layer and all(len(row) == 1 for row in values.v):
            return [row[0] for row in values.v]
    raise ValueError(
        f"the trace has no single number a token in layer {layer}; expected a trace of toy.record()"
    )


def head_names(trace: Trace) -> list[str]:
    """Names of the heads; their indices where they have none."""
    return trace.model.head_names or [str(head) for head in range(trace.model.n_heads)]


def context(trace: Trace, token: int, head: int, layer: int = LAYER) -> float:
    """The context of one token and head, as the run that first ran the token recorded it.

    Raises:
        ValueError: no pass ran this token, or contexts were not recorded.
    """
    for run in trace.runs:
        for event in run.passes:
            for part in event.parts:
                new, rows = spread(part.new), part.contexts.get(f"{layer}.{head}", [])
                if token in new and rows and event.phase != "training":
                    return rows[new.index(token)][0]
    raise ValueError(f"no context of token {token} in this trace; expected a token that ran, such as 0")


@with_settings
def row_strips(trace: Trace, token: int | None = None) -> Picture:
    """Draw one query's attention weights, a strip for each head, over the numbers they weigh.

    Args:
        trace: of the toy.
        token: index of the query's token, from 0; None takes the prompt's last.

    Returns:
        Squares whose area is the weight, above one strip of V; each head's context at the right.

    Raises:
        ValueError: the token did not run, or looks at more than 8 tokens.
    """
    sequence = trace.sequences[0]
    token = sequence.prompt - 1 if token is None else token
    heads, v = head_names(trace), numbers_carried(trace)
    if not 0 <= token < len(v):
        raise ValueError(f"token {token} did not run; expected an index from 0 to {len(v) - 1}")
    n = token + 1
    if n > 8:
        raise ValueError(f"token {token} looks at {n} tokens; expected at most 8 to draw")
    left, cell, row, top = 96.0, min(80.0, 372 / n), 44.0, 92.0
    made = [context(trace, token, h) for h in range(len(heads))]
    widest = max(44.0, *(text_width(number(x)) * 1.15 for x in made))  # 1.15: they are bold
    right, bottom = left + cell * n + 22 + widest, top + row * len(heads) + 10
    sheet = Sheet(700, bottom + 60)
    sheet.note(18, 27, "attention weights of")
    sheet.text(170, 27, shorten(sequence.tokens[token].text, 200), colour=QUERY, bold=True)
    sheet.note(right, 62, "context", at="right")
    numbers = {}
    for h, name in enumerate(heads):
        weights, y = trace.attention_weights(token, LAYER, h), top + row * (h + 0.5)
        numbers[name] = {"weights": weights.round(4).tolist(), "context": made[h]}
        sheet.text(left - 14, y, name, at="right")
        sheet.line((left, y + row / 2), (left + cell * n, y + row / 2), colour=FAINT)
        _strip(sheet, weights, left, cell, y)
        sheet.text(right, y, number(made[h]), at="right", bold=True)
        sheet.note(right + 10, y, _how(weights, v, 682 - right))
    _tokens_over_numbers(sheet, trace, token, left, cell, bottom)
    said = "the number each carries"
    x = min(right - text_width("context", SMALL), 686 - text_width(said, SMALL))
    sheet.note(x, bottom + 22, said)
    return Picture(sheet.figure, _strips_in_words(trace, token, numbers), numbers)


def _tokens_over_numbers(
    sheet: Sheet, trace: Trace, token: int, left: float, cell: float, bottom: float
) -> None:
    """The heads of the columns and, at their feet, the strip of V."""
    v = numbers_carried(trace)
    sheet.text(left - 14, bottom + 22, "V", at="right", colour=VALUE, bold=True)
    for j, head in enumerate(trace.sequences[0].tokens[: token + 1]):
        x, edge = left + cell * (j + 0.5), QUERY if j == token else LINE
        sheet.chip(x, 62, head.text, width=cell - 6, fill=PANEL, edge=edge)
        sheet.box(x - cell / 2 + 3, bottom + 4, cell - 6, 36, fill=VALUE_FILL, edge=VALUE)
        sheet.text(x, bottom + 22, shorten(number(v[j]), cell - 8), at="center")


def _strip(sheet: Sheet, weights: np.ndarray, left: float, cell: float, y: float) -> None:
    """One head's weights as squares, with their digits."""
    for j, weight in enumerate(weights):
        x = left + cell * (j + 0.5)
        if weight < 0.0005:
            sheet.text(x, y, "·", at="center", colour=SOFT)
            continue
        digits = cell >= 60
        sheet.square(x - 17 * digits, y, 26 * float(weight) ** 0.5, QUERY)
        if digits:
            sheet.text(x + 1, y, number(weight), size=SMALL)


def _how(weights: np.ndarray, v: list[float], room: float) -> str:
    """= 0.5 × (20 + 5): where a context comes from, as a reader would write it in `room` px."""
    picked = [(w, x) for w, x in zip(weights, v, strict=False) if w >= 0.0005]
    if not picked:
        return "nothing to pick"
    if any(abs(w - picked[0][0]) >= 0.0005 for w, _ in picked):
        return "weighted sum"
    terms = " + ".join(number(x) for _, x in picked)
    said = f"= {number(picked[0][0])} × " + (terms if len(picked) == 1 else f"({terms})")
    return said if text_width(said, SMALL) <= room else f"= average of {len(picked)}"


def _strips_in_words(trace: Trace, token: int, numbers: dict[str, dict[str, Any]]) -> str:
    tokens, v = trace.sequences[0].tokens[: token + 1], numbers_carried(trace)
    carried = listed([f"{told(t.text)} ({number(x)})" for t, x in zip(tokens, v, strict=False)])
    said = []
    for name, row in numbers.items():
        picked = [(w, told(t.text)) for w, t in zip(row["weights"], tokens, strict=True) if w >= 0.0005]
        looks = listed([f"{number(w)} on {text}" for w, text in picked]) if picked else "nothing to pick"
        said.append(f"{name}: {looks}, context {number(row['context'])}")
    return (
        f"Attention weights of {told(tokens[-1].text)} over the numbers that tokens carry: {carried}. "
        f"{'; '.join(said)}."
    )


@with_settings
def four_grids(trace: Trace) -> Picture:
    """Draw the prompt's attention weights as one grid for each head, with what follows from every row.

    Args:
        trace: of the toy, recorded with training; a prompt of at most 8 tokens.

    Returns:
        Grids (rows are queries, columns keys; a square's area is the weight) with contexts at their right
        edges; then two columns of words: training's targets, one in each row, and prefill's, in the last.

    Raises:
        ValueError: the prompt is too long, or the trace has no training pass.
    """
    sequence, heads, v = trace.sequences[0], head_names(trace), numbers_carried(trace)
    P = sequence.prompt
    if P > 8:
        raise ValueError(f"the prompt has {P} tokens; expected at most 8 to draw")
    training, prefill = _first_part(trace, "training"), _first_part(trace, "prefill")
    targets = [sequence.tokens[t].text for t in training.target or []]
    chosen = sequence.tokens[prefill.out[0].chosen].text
    cell, row, top, left = 22.0, 26.0, 100.0, 90.0
    made = [number(context(trace, i, h)) for i in range(P) for h in range(len(heads))]
    widest = max(38.0, *(text_width(one, SMALL) for one in made))
    pitch, bottom = max(cell * P + 8 + widest, 134), top + row * P
    sheet = Sheet(left + pitch * len(heads) + 190, bottom + 36)
    sheet.note(18, 24, "A row looks at the columns up to its own.")
    sheet.note(18, 46, "Square: its attention weight, by area. Number beside it: its context.")
    for i, token in enumerate(sequence.tokens[:P]):
        y, text = top + row * (i + 0.5), shorten(token.text, left - 20)
        sheet.text(left - 10, y, text, at="right", bold=i == P - 1)
    contexts = {
        name: _grid(sheet, trace, h, name, (left + pitch * h, top, cell, row)) for h, name in enumerate(heads)
    }
    sheet.text(left - 10, bottom + 16, "V", at="right", colour=VALUE, bold=True)
    x, only_last = left + pitch * len(heads) + 44, [""] * (P - 1) + [chosen]
    _word_column(sheet, x, top, row, "training", ["every row", "has a target"], targets, sequence.prompt)
    _word_column(sheet, x + 95, top, row, "prefill", ["only the last", "row is used"], only_last, 0)
    numbers = {"contexts": contexts, "targets": targets, "prefill": chosen, "v": v[:P]}
    return Picture(sheet.figure, _grids_in_words(trace, numbers), numbers)


def _grids_in_words(trace: Trace, numbers: dict[str, Any]) -> str:
    tokens, contexts = trace.sequences[0].tokens, numbers["contexts"]
    rows = [
        f"{told(tokens[i].text)}: {', '.join(map(number, row))}"
        for i, row in enumerate(zip(*contexts.values(), strict=True))
    ]
    targets = [told(word) for word in numbers["targets"]]
    return (
        f"{len(contexts)} grids of attention weights, one for each head ({', '.join(contexts)}), "
        f"a row for each of the {len(rows)} tokens. Contexts at their right edges, {'; '.join(rows)}. "
        f"The same grids serve twice. Training: all {len(targets)} rows have a target "
        f"({listed(targets)}). Prefill: only the last row is used, and gives {told(numbers['prefill'])}."
    )


def _first_part(trace: Trace, phase: str) -> Part:
    for event in trace.runs[0].passes:
        if event.phase == phase:
            return event.parts[0]
    raise ValueError(f"the trace has no {phase} pass; expected one: record it with training=True")


def _grid(
    sheet: Sheet, trace: Trace, head: int, name: str, place: tuple[float, float, float, float]
) -> list[float]:
    """One head's grid, its contexts at the right, V below; returns the contexts."""
    left, top, cell, row = place
    P, v = trace.sequences[0].prompt, numbers_carried(trace)
    contexts = [context(trace, i, head) for i in range(P)]
    sheet.text(left + cell * P / 2, top - 16, name, at="center", bold=True)
    for i in range(P):
        y = top + row * (i + 0.5)
        for j, weight in enumerate(trace.attention_weights(i, LAYER, head)):
            x = left + cell * (j + 0.5)
            sheet.box(x - cell / 2 + 1, y - row / 2 + 1, cell - 2, row - 2, fill=PANEL, edge=LINE, radius=2)
            sheet.square(x, y, (cell - 5) * float(weight) ** 0.5, QUERY)
        sheet.text(left + cell * P + 4, y, number(contexts[i]), size=SMALL, bold=i == P - 1)
    for j in range(P):
        x = left + cell * (j + 0.5)
        sheet.note(x, top + row * P + 16, shorten(number(v[j]), cell, SMALL), at="center", colour=VALUE)
    return contexts


def _word_column(
    sheet: Sheet, x: float, top: float, row: float, name: str, lines: list[str], words: list[str], prompt: int
) -> None:
    """What follows from every row: a word, or nothing."""
    sheet.text(x, top - 58, name, at="center", bold=True)
    for n, line in enumerate(lines):
        sheet.note(x, top - 38 + 18 * n, line, at="center")
    for i, word in enumerate(words):
        y = top + row * (i + 0.5)
        if not word:
            sheet.box(x - 39, y - 11, 78, 22, edge=LINE, radius=6, dashed=True)
            continue
        given = i + 1 < prompt
        fill, edge = (PANEL, LINE) if given else (GENERATED_FILL, GENERATED)
        sheet.box(x - 39, y - 11, 78, 22, fill=fill, edge=edge, radius=6)
        sheet.text(x, y, shorten(word, 72, SMALL), at="center", size=SMALL)
