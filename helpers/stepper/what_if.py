"""What if: the toy in the page; the reader changes its prompt and sees which rows of its cache go stale."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from os.path import commonprefix
from typing import Any

import numpy as np

from helpers import toy
from helpers.sampling import softmax
from helpers.stepper.format import VIEW, clipped, fill, number, percent
from helpers.stepper.view import View

WHAT: dict[str, Any] = VIEW["what_if"]
MOST: dict[str, int] = WHAT["most"]
COLOURS: dict[str, str] = VIEW["palette"]["light"]
N_LAYERS = len(WHAT["layers"])
CHANGED = {"weather": 8}  # what a reader sees who has changed nothing yet

Tokens = list[tuple[str, float]]  # words and the numbers that they carry


class WhatIf(View):
    """Change the toy's prompt and see which rows of a filled cache go stale, and what it says then.

    Args:
        words: the prompt that filled the cache; None is *Today weather is so nice*.
        numbers: what they carry; None looks each word up in NUMBERS.
        changed: the prompt shown first, a (word, number) for each token; None shows the prompt of the
            cache itself or, without words, *weather* with 8 instead of 20.

    Raises:
        ValueError: a wrong prompt (see `toy.check_prompt`), over 64 words, or a number over 1,000 either way.
    """

    view = "what_if"

    def __init__(
        self,
        words: Sequence[str] | None = None,
        numbers: Sequence[float] | None = None,
        changed: Sequence[tuple[str, float]] | None = None,
    ) -> None:
        self.before = _checked([*toy.PROMPT, "nice"] if words is None else words, numbers)
        if changed is not None:
            self.now = _pairs(changed)
        else:
            edits = CHANGED if words is None and numbers is None else {}
            self.now = [(word, edits.get(word, carried)) for word, carried in self.before]

    @property
    def data(self) -> str:
        """The toy's constants, and the prompt that filled the cache."""
        constants = {
            "numbers": toy.NUMBERS,
            "vocabulary": toy.VOCABULARY,
            "queries": toy.QUERIES.tolist(),
            "sink": [score if np.isfinite(score) else None for score in toy.SINK.tolist()],
            "readout": toy.READOUT.tolist(),
        }
        return json.dumps({"toy": constants, "before": _named(self.before)})

    @property
    def options(self) -> dict[str, Any]:
        """The prompt that is shown first."""
        return {"now": _named(self.now)}

    def static_html(self) -> str:
        """Return the static form: one table of the rows, the stale ones in words, and what the toy says."""
        (old, said), (new, says) = _run(self.before), _run(self.now)
        places, kept = range(len(self.now)), len(commonprefix([self.before, self.now]))
        lines = [["", *(html.escape(clipped(word, 20)) for word, _ in self.now)]]
        origin = _origins(self.before, self.now)
        for (name, rows), (_, were) in zip(new, old, strict=True):
            lines.append(
                [name, *(_cell(rows[j], None if (i := origin[j]) is None else were[i]) for j in places)]
            )
        lines.append(["", *(WHAT["rows"]["kept"] if j < kept else WHAT["runs"] for j in places)])
        rerun = fill(WHAT["kept"]["some"], kept=kept, rerun=max(1, len(self.now) - kept))
        outcome = f"{WHAT['says']['before']}: {said}. {WHAT['says']['now']}: {says}."
        return f"<table>{''.join(_line(cells, kept) for cells in lines)}</table><p>{rerun} {outcome}</p>"

    def __repr__(self) -> str:
        return f"WhatIf({len(self.before)} tokens in the cache, {len(self.now)} in the prompt)"


def _checked(words: Sequence[str], numbers: Sequence[float] | None) -> Tokens:
    tokens, carried = toy.check_prompt(words, numbers, limit=MOST["words"])
    for n, x in enumerate(carried, 1):
        if abs(x) > MOST["number"]:
            raise ValueError(f"number {n} is {x:g}; expected at most {MOST['number']:,} either way")
    return list(zip(tokens, map(float, carried), strict=True))


def _pairs(changed: Sequence[tuple[str, float]]) -> Tokens:
    try:
        pairs = [(word, carried) for word, carried in changed]
    except (TypeError, ValueError):
        raise ValueError(
            f"got changed={changed!r}, expected a (word, number) for each token, such as [('Today', 10)]"
        ) from None
    return _checked([word for word, _ in pairs], [carried for _, carried in pairs])


def _named(tokens: Tokens) -> list[dict[str, Any]]:
    return [{"word": word, "number": carried} for word, carried in tokens]


def _run(tokens: Tokens) -> tuple[list[tuple[str, list[Any]]], str]:
    """K and V of each layer with their names, and what the toy says with what share."""
    cache = toy.KVCache(N_LAYERS)
    contexts = toy.run_pass([carried for _, carried in tokens], cache, n_layers=N_LAYERS)
    shares = softmax(toy.readout(contexts[-1]))
    rows = [
        (f"{kind}, layer {n + 1}", kept[n].tolist())
        for n in range(N_LAYERS)
        for kind, kept in (("K", cache.k), ("V", cache.v))
    ]
    return rows, html.escape(f"{toy.VOCABULARY[int(shares.argmax())]} {percent(shares.max())}")


def _origins(before: Tokens, now: Tokens) -> list[int | None]:
    """Index of the cache's token that each token of the prompt is or was exchanged for; None: put in."""
    origin: list[int | None] = [None] * len(now)
    words = [[word for word, _ in tokens] for tokens in (before, now)]
    for _, i, i_end, j, j_end in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for k in range(min(i_end - i, j_end - j)):
            origin[j + k] = i + k
    return origin


def _cell(row: Any, was: Any) -> str:
    """A row of K or V, and what became of it in words."""
    if was is None:
        return f"{_written(row)}<br>{WHAT['rows']['new']}"
    if np.allclose(row, was, rtol=1e-9, atol=1e-9):
        return _written(row)
    return f"<b>{_written(row)}</b><br>{WHAT['rows']['stale']}, {fill(WHAT['was'], was=_written(was))}"


def _written(row: Any) -> str:
    return number(row) if isinstance(row, float) else f"{'yes' if row[0] else 'no'} · {number(row[1])}"


def _line(cells: list[str], kept: int) -> str:
    """A line of the table; literal colours, ground and ink, read the same in a light and in a dark theme."""
    ground = f"background-color:{COLOURS['vf']};color:{COLOURS['ink']};"
    styles = [ground if cells[0] and j < kept else "" for j in range(len(cells) - 1)]
    shown = [
        f'<td style="{style}text-align:center">{cell}</td>'
        for style, cell in zip(styles, cells[1:], strict=True)
    ]
    return f'<tr><th style="text-align:right">{cells[0]}</th>{"".join(shown)}</tr>'
