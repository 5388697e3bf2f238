"""What if: the toy in the page; the reader changes its prompt and sees which rows of its cache go stale."""

from __future__ import annotations

import json
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from helpers import toy
from helpers.drawing.canvas import Sheet
from helpers.drawing.still import Still
from helpers.drawing.words import SMALL, shorten, text_width
from helpers.sampling import softmax
from helpers.stepper.format import VIEW, fill, key_text, number, percent
from helpers.stepper.view import View

WHAT: dict[str, Any] = VIEW["what_if"]
N_LAYERS = len(WHAT["layers"])
WORDS = (*toy.PROMPT, "nice")
BEFORE = {word: float(toy.NUMBERS[word]) for word in WORDS}  # what filled the cache
NOW = BEFORE | {"weather": 8.0}  # what a reader sees who has changed nothing yet

Row = tuple[str, str, str]  # of K or V: as text, what became of it, what stood there


class WhatIf(View):
    """Change the toy's prompt to see which cached KV entries become stale, and what the toy then predicts."""

    view = "what_if"

    @property
    def data(self) -> str:
        """The toy's constants, and the prompt that filled the cache."""
        constants = {
            "numbers": toy.NUMBERS,
            "vocabulary": toy.VOCABULARY,
            "queries": toy.QUERIES.tolist(),
            "sink": [score if np.isfinite(score) else None for score in toy.SINK.tolist()],
            "lm_head": toy.LM_HEAD.tolist(),
        }
        return json.dumps({"toy": constants, "before": _tokens(BEFORE)})

    @property
    def options(self) -> dict[str, Any]:
        """The initial prompt."""
        return {"now": _tokens(NOW)}

    def still(self) -> Still:
        """Return the rows of both layers, the stale ones with what they were, and what the toy says."""
        (old, said), (new, says) = _run(BEFORE), _run(NOW)
        kept = next(j for j, word in enumerate(WORDS) if NOW[word] != BEFORE[word])
        rows = {
            name: [_became(row, old[name][j], j < kept) for j, row in enumerate(line)]
            for name, line in new.items()
        }
        rerun = fill(WHAT["kept"]["some"], kept=kept, rerun=len(WORDS) - kept)
        sentence = f"{rerun} {WHAT['says']['before']}: {said}. {WHAT['says']['now']}: {says}."
        alt = []
        for name, line in rows.items():
            texts = [f"{text} ({fill(WHAT['was'], was=was)})" if was else text for text, _, was in line]
            alt.append(f"{name}: {', '.join(map(' '.join, zip(WORDS, texts, strict=True)))}.")
        return Still(partial(_draw, rows=rows), " ".join([*alt, sentence]), [sentence])

    def __repr__(self) -> str:
        return f"WhatIf({len(BEFORE)} tokens in the cache, {len(NOW)} in the prompt)"


def _tokens(prompt: dict[str, float]) -> list[dict[str, Any]]:
    return [{"word": word, "number": x} for word, x in prompt.items()]


def _run(prompt: dict[str, float]) -> tuple[dict[str, list[Any]], str]:
    """K and V of each layer by name, and what the toy says with what share."""
    cache = toy.KVCache(N_LAYERS)
    contexts = toy.run_pass([*prompt.values()], cache, n_layers=N_LAYERS)
    shares = softmax(toy.lm_head(contexts[-1]))
    both = {"K": cache.k, "V": cache.v}
    rows = {f"{kind}, layer {n + 1}": both[kind][n].tolist() for n in range(N_LAYERS) for kind in both}
    return rows, f"{toy.VOCABULARY[int(shares.argmax())]} {percent(shares.max())}"


def _written(row: Any) -> str:
    return number(row) if isinstance(row, float) else key_text(row)


def _became(row: Any, was: Any, kept: bool) -> Row:
    """A row as text, what became of it, and what stood there if that is stale."""
    if kept or np.allclose(row, was, rtol=1e-9, atol=1e-9):
        return _written(row), "kept" if kept else "same", ""
    return _written(row), "stale", _written(was)


def _draw(sheet: Sheet, rows: dict[str, list[Row]]) -> None:
    """A column a word: rows that may be kept are filled, stale ones framed heavily over what they were."""
    left, cells = 38, [text for line in rows.values() for row in line for text in row[::2]]
    widths = [text_width(text, SMALL, bold=True) + 12 for text in cells]
    wide = ceil(max(text_width(WHAT["runs"], SMALL) + 4, *widths))
    columns = [left + wide * j for j in range(len(WORDS))]
    runs = [state != "kept" for _, state, _ in next(iter(rows.values()))]
    y = 40.0
    for name, line in rows.items():
        kind, layer = name.split(", ")
        colour = {"K": "key", "V": "value"}[kind]
        if kind == "K":
            sheet.note(4, y + 8, layer)
            y += 22
        sheet.text(left - 8, y + 13, kind, at="right", colour=colour, bold=True)
        if any(was for *_, was in line):
            sheet.note(left - 4, y + 35, fill(WHAT["was"], was="").strip(), at="right")
        for x, (text, state, was) in zip(columns, line, strict=True):
            _frame(sheet, x + 2, y, wide - 4, 26, state, colour)
            sheet.text(x + wide / 2, y + 13, text, at="center", size=SMALL, bold=state == "stale")
            sheet.note(x + wide / 2, y + 35, was, at="center")
        y += 30 + 16 * any(was for *_, was in line) + 12 * (kind == "V")
    for x, word, again in zip(columns, WORDS, runs, strict=True):
        sheet.box(
            x + 2, 4, wide - 4, 26, fill="panel" if again else "none", edge="query" if again else "line"
        )
        sheet.text(x + wide / 2, 17, shorten(word, wide - 10, SMALL), at="center", size=SMALL)
        sentence = WHAT["runs"] if again else WHAT["rows"]["kept"]
        sheet.note(x + wide / 2, y + 4, shorten(sentence, wide - 2, SMALL), at="center")
    across, found = left + 2.0, {state for line in rows.values() for _, state, _ in line}
    for state, sentence in WHAT["rows"].items():
        if state in found:
            far = 26 + text_width(sentence, SMALL)
            across, y = (left + 2.0, y + 22) if across + far > sheet.width else (across, y)
            _frame(sheet, across, y + 28, 20, 14, state, "value")
            sheet.note(across + 26, y + 35, sentence)
            across += far + 22


def _frame(sheet: Sheet, x: float, y: float, wide: float, high: float, state: str, colour: str) -> None:
    """The box of a row: filled if it may be kept, framed if it is made again, heavily if it was stale."""
    edge = "line" if state == "same" else colour
    face, heavy = f"{colour} fill" if state == "kept" else "none", 2.2 if state == "stale" else 1.0
    sheet.box(x, y, wide, high, fill=face, edge=edge, line=heavy)
