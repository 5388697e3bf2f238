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
    with_settings,
)
from helpers.trace import Part, Token, Trace, spread

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
    right, bottom = left + cell * n + 22, top + row * len(heads) + 10
    sheet = Sheet(700, bottom + 60)
    query = sequence.tokens[token].text
    sheet.text(18, 27, "attention weights of", size=SMALL, colour=SOFT)
    sheet.text(170, 27, shorten(query, 200), colour=QUERY, bold=True)
    sheet.text(right + 44, 62, "context", at="right", size=SMALL, colour=SOFT)
    for j in range(n):
        x = left + cell * (j + 0.5)
        edge = QUERY if j == token else LINE
        sheet.chip(x, 62, sequence.tokens[j].text, width=cell - 6, fill=PANEL, edge=edge)
    numbers = {}
    for h, name in enumerate(heads):
        weights, y = trace.attention_weights(token, LAYER, h), top + row * (h + 0.5)
        made = context(trace, token, h)
        numbers[name] = {"weights": weights.round(4).tolist(), "context": made}
        sheet.text(left - 14, y, name, at="right")
        sheet.line((left, y + row / 2), (right - 22, y + row / 2), colour=FAINT)
        _strip(sheet, weights, left, cell, y)
        sheet.text(right + 44, y, number(made), at="right", bold=True)
        sheet.text(right + 54, y, _how(weights, v), size=SMALL, colour=SOFT)
    sheet.text(left - 14, bottom + 22, "V", at="right", colour=VALUE, bold=True)
    for j in range(n):
        sheet.box(left + cell * j + 3, bottom + 4, cell - 6, 36, fill=VALUE_FILL, edge=VALUE)
        sheet.text(left + cell * (j + 0.5), bottom + 22, number(v[j]), at="center")
    sheet.text(
        right + 44 - text_width("context", SMALL),
        bottom + 22,
        "the number each carries",
        size=SMALL,
        colour=SOFT,
    )
    said = [f"{name}: {_weights_in_words(sequence.tokens, x)}" for name, x in numbers.items()]
    alt = (
        f"Attention weights of {query} over {listed([number(x) for x in v[:n]])}, the numbers that "
        f"{listed([t.text for t in sequence.tokens[:n]])} carry. {'; '.join(said)}."
    )
    return Picture(sheet.figure, alt, numbers)


def _strip(sheet: Sheet, weights: np.ndarray, left: float, cell: float, y: float) -> None:
    """One head's weights as squares, with their digits."""
    for j, weight in enumerate(weights):
        x = left + cell * (j + 0.5)
        if weight < 0.0005:
            sheet.text(x, y, "·", at="center", colour=SOFT)
            continue
        sheet.square(x - 17, y, 26 * float(weight) ** 0.5, QUERY)
        sheet.text(x + 1, y, number(weight), size=SMALL)


def _how(weights: np.ndarray, v: list[float]) -> str:
    """= 0.5 × (20 + 5): where a context comes from, as a reader would write it."""
    picked = [(w, x) for w, x in zip(weights, v, strict=False) if w >= 0.0005]
    if not picked:
        return "nothing to pick"
    if any(abs(w - picked[0][0]) >= 0.0005 for w, _ in picked):
        return "weighted sum"
    if len(picked) > 4:
        return f"= average of {len(picked)}"
    terms = " + ".join(number(x) for _, x in picked)
    return f"= {number(picked[0][0])} × " + (terms if len(picked) == 1 else f"({terms})")


def _weights_in_words(tokens: list[Token], row: dict[str, Any]) -> str:
    picked = [(w, t.text) for w, t in zip(row["weights"], tokens, strict=False) if w >= 0.0005]
    looks = listed([f"{number(w)} on {text}" for w, text in picked]) if picked else "nothing to pick"
    return f"{looks}, context {number(row['context'])}"


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
    pitch, bottom = cell * P + 46, top + row * P
    sheet = Sheet(left + pitch * len(heads) + 196, bottom + 36)
    sheet.text(18, 24, "A row looks at the columns up to its own.", size=SMALL, colour=SOFT)
    sheet.text(
        18,
        46,
        "Square: its attention weight, by area. Number beside it: its context.",
        size=SMALL,
        colour=SOFT,
    )
    for i in range(P):
        last = i == P - 1
        sheet.text(
            left - 10,
            top + row * (i + 0.5),
            shorten(sequence.tokens[i].text, left - 20),
            at="right",
            bold=last,
        )
    numbers = {
        name: _grid(sheet, trace, h, name, (left + pitch * h, top, cell, row)) for h, name in enumerate(heads)
    }
    sheet.text(left - 10, bottom + 16, "V", at="right", colour=VALUE, bold=True)
    x = left + pitch * len(heads) + 46
    _word_column(sheet, x, top, row, "training", ["every row", "has a target"], targets, sequence.prompt)
    nothing = [""] * (P - 1)
    _word_column(sheet, x + 95, top, row, "prefill", ["only the last", "row is used"], [*nothing, chosen], 0)
    shown = {"contexts": numbers, "targets": targets, "prefill": chosen, "v": v[:P]}
    rows = [
        f"{t.text}: {', '.join(number(numbers[name][i]) for name in heads)}"
        for i, t in enumerate(sequence.tokens[:P])
    ]
    alt = (
        f"{len(heads)} grids of attention weights, one for each head ({', '.join(heads)}), "
        f"a row for each of the {P} tokens. Contexts at their right edges, {'; '.join(rows)}. "
        f"The same grids serve twice. Training: all {len(targets)} rows have a target ({listed(targets)}). "
        f"Prefill: only the last row is used, and gives {chosen}."
    )
    return Picture(sheet.figure, alt, shown)


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
            sheet.box(
                x - cell / 2 + 1,
                y - row / 2 + 1,
                cell - 2,
                row - 2,
                fill=PANEL,
                edge=LINE,
                radius=2,
                line=0.8,
            )
            sheet.square(x, y, (cell - 5) * float(weight) ** 0.5, QUERY)
        sheet.text(left + cell * P + 4, y, number(contexts[i]), size=SMALL, bold=i == P - 1)
    for j in range(P):
        sheet.text(
            left + cell * (j + 0.5), top + row * P + 16, number(v[j]), at="center", size=SMALL, colour=VALUE
        )
    return contexts


def _word_column(
    sheet: Sheet, x: float, top: float, row: float, name: str, lines: list[str], words: list[str], prompt: int
) -> None:
    """What follows from every row: a word, or nothing."""
    sheet.text(x, top - 58, name, at="center", bold=True)
    for n, line in enumerate(lines):
        sheet.text(x, top - 38 + 18 * n, line, at="center", size=SMALL, colour=SOFT)
    for i, word in enumerate(words):
        y = top + row * (i + 0.5)
        if not word:
            sheet.box(x - 39, y - 11, 78, 22, edge=LINE, radius=6, dashed=True)
            continue
        given = i + 1 < prompt
        fill, edge = (PANEL, LINE) if given else (GENERATED_FILL, GENERATED)
        sheet.box(x - 39, y - 11, 78, 22, fill=fill, edge=edge, radius=6)
        sheet.text(x, y, shorten(word, 72, SMALL), at="center", size=SMALL)
