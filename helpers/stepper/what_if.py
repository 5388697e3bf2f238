"""What if: the toy in the page; the reader changes its prompt and sees which rows of its cache go stale."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from helpers import toy
from helpers.drawing.canvas import Sheet
from helpers.drawing.still import Still
from helpers.drawing.words import SMALL, shorten, text_width
from helpers.sampling import softmax
from helpers.stepper.format import VIEW, fill, key_text, number, percent, visible
from helpers.stepper.view import View

WHAT: dict[str, Any] = VIEW["what_if"]
N_LAYERS = len(WHAT["layers"])
CHANGED = {"weather": 8.0}  # what a reader sees who has changed nothing yet

Tokens = list[dict[str, Any]]  # a word and the number that it carries
Row = tuple[str, str, str]  # of K or V: as text, what became of it, what stood there


class WhatIf(View):
    """Change the toy's prompt and see which rows of a filled cache go stale, and what it says then.

    Args:
        words: the prompt that filled the cache; None is *Today weather is so nice*.
        numbers: what they carry; None looks each word up in NUMBERS.
        changed: words and numbers of the prompt that is shown first; None shows the one that filled the
            cache or, without words, the same with 8 at *weather* instead of 20.

    Raises:
        ValueError: a wrong prompt (see `toy.check_prompt`), over 64 words, or a number over 1,000 either way.
    """

    view = "what_if"

    def __init__(
        self,
        words: Sequence[str] | None = None,
        numbers: Sequence[float] | None = None,
        changed: tuple[Sequence[str], Sequence[float] | None] | None = None,
    ) -> None:
        if changed is not None and (not isinstance(changed, tuple) or len(changed) != 2):
            raise ValueError(f"got changed={changed!r}, expected (words, numbers), such as (['Oslo'], [8])")
        self.before = _tokens([*toy.PROMPT, "nice"] if words is None else words, numbers)
        self.now = self.before if changed is None else _tokens(*changed)
        if words is None and changed is None:
            self.now = [
                {**token, "number": CHANGED.get(token["word"], token["number"])} for token in self.before
            ]

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
        return json.dumps({"toy": constants, "before": self.before})

    @property
    def options(self) -> dict[str, Any]:
        """The prompt that is shown first."""
        return {"now": self.now}

    def still(self) -> Still:
        """Return the rows of both layers, the stale ones with what they were, and what the toy says."""
        (old, sentence), (new, says) = _run(self.before), _run(self.now)
        same = [a == b for a, b in zip(self.before, self.now, strict=False)]
        n_kept = next((j for j, it in enumerate(same) if not it), len(same))
        origin = _origins(self.before, self.now)
        rows = {}
        for name, line in new.items():
            was = [None if i is None else old[name][i] for i in origin]
            rows[name] = [_became(row, was[j], j < n_kept) for j, row in enumerate(line)]
        rerun = fill(WHAT["kept"]["some"], kept=n_kept, rerun=max(1, len(self.now) - n_kept))
        sentence = f"{rerun} {WHAT['says']['before']}: {sentence}. {WHAT['says']['now']}: {says}."
        words = [visible(token["word"]) for token in self.now]
        alt = []
        for name, line in rows.items():
            message = [f"{text}{_beside(state, was)}" for text, state, was in line]
            alt.append(f"{name}: {', '.join(map(' '.join, zip(words, message, strict=True)))}.")
        return Still(partial(_draw, words=words, rows=rows), " ".join([*alt, sentence]), [sentence])

    def __repr__(self) -> str:
        return f"WhatIf({len(self.before)} tokens in the cache, {len(self.now)} in the prompt)"


def _tokens(words: Sequence[str], numbers: Sequence[float] | None) -> Tokens:
    checked, carried = toy.check_prompt(words, numbers, limit=WHAT["most"]["words"])
    for n, x in enumerate(carried, 1):
        if abs(x) > WHAT["most"]["number"]:
            raise ValueError(f"number {n} is {x:g}; expected at most {WHAT['most']['number']:,} either way")
    return [{"word": word, "number": float(x)} for word, x in zip(checked, carried, strict=True)]


def _run(tokens: Tokens) -> tuple[dict[str, list[Any]], str]:
    """K and V of each layer by name, and what the toy says with what share."""
    cache = toy.KVCache(N_LAYERS)
    contexts = toy.run_pass([token["number"] for token in tokens], cache, n_layers=N_LAYERS)
    shares = softmax(toy.lm_head(contexts[-1]))
    both = {"K": cache.k, "V": cache.v}
    rows = {f"{kind}, layer {n + 1}": both[kind][n].tolist() for n in range(N_LAYERS) for kind in both}
    return rows, f"{toy.VOCABULARY[int(shares.argmax())]} {percent(shares.max())}"


def _origins(before: Tokens, now: Tokens) -> list[int | None]:
    """Index of the cache's token that each token of the prompt is or was exchanged for; None: put in."""
    origin: list[int | None] = [None] * len(now)
    old, new = ([token["word"] for token in tokens] for tokens in (before, now))
    for _, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for k in range(min(i_end - i, j_end - j)):
            origin[j + k] = i + k
    return origin


def _written(row: Any) -> str:
    return number(row) if isinstance(row, float) else key_text(row)


def _became(row: Any, was: Any, kept: bool) -> Row:
    """A row as text, what became of it, and what stood there if that is stale."""
    if kept or was is None:
        return _written(row), "kept" if kept else "new", ""
    if np.allclose(row, was, rtol=1e-9, atol=1e-9):
        return _written(row), "same", ""
    return _written(row), "stale", _written(was)


def _beside(state: str, was: str) -> str:
    sentence = fill(WHAT["was"], was=was) if was else WHAT["rows"]["new"] if state == "new" else ""
    return f" ({sentence})" if sentence else ""


def _draw(sheet: Sheet, words: list[str], rows: dict[str, list[Row]]) -> None:
    """A column a word: rows that may be kept are filled, stale ones framed heavily over what they were."""
    left, cells = 38, [text for line in rows.values() for row in line for text in row[::2]]
    widths = [text_width(text, SMALL, bold=True) + 12 for text in cells]
    wide = ceil(max(text_width(WHAT["runs"], SMALL) + 4, *widths))
    columns = [left + wide * j for j in range(min(len(words), (sheet.width - left) // wide))]
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
        for x, (text, state, was) in zip(columns, line, strict=False):
            _frame(sheet, x + 2, y, wide - 4, 26, state, colour)
            sheet.text(x + wide / 2, y + 13, text, at="center", size=SMALL, bold=state == "stale")
            note = WHAT["rows"]["new"] if state == "new" else was
            sheet.note(x + wide / 2, y + 35, note, at="center")
        y += 30 + 16 * any(state in ("new", "stale") for _, state, _ in line) + 12 * (kind == "V")
    for x, word, again in zip(columns, words, runs, strict=False):
        sheet.box(
            x + 2, 4, wide - 4, 26, fill="panel" if again else "none", edge="query" if again else "line"
        )
        sheet.text(x + wide / 2, 17, shorten(word, wide - 10, SMALL), at="center", size=SMALL)
        sentence = WHAT["runs"] if again else WHAT["rows"]["kept"]
        sheet.note(x + wide / 2, y + 4, shorten(sentence, wide - 2, SMALL), at="center")
    if len(columns) < len(words):
        sheet.note(4, y + 26, f"… and {len(words) - len(columns)} more")
        y += 22
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
    edge = {"kept": colour, "stale": colour, "new": "generated"}.get(state, "line")
    face, heavy = f"{colour} fill" if state == "kept" else "none", 2.2 if state == "stale" else 1.0
    sheet.box(x, y, wide, high, fill=face, edge=edge, line=heavy, dashed=state == "new")
