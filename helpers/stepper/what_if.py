"""What if: the toy in the page; the reader changes its prompt and sees which rows of its cache go stale."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from helpers import toy
from helpers.sampling import softmax
from helpers.stepper.format import VIEW, clipped, fill, number, percent
from helpers.stepper.static import key_text
from helpers.stepper.view import View

WHAT: dict[str, Any] = VIEW["what_if"]
N_LAYERS = len(WHAT["layers"])
CHANGED = {"weather": 8.0}  # what a reader sees who has changed nothing yet

Tokens = list[dict[str, Any]]  # a word and the number that it carries


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
            "readout": toy.READOUT.tolist(),
        }
        return json.dumps({"toy": constants, "before": self.before})

    @property
    def options(self) -> dict[str, Any]:
        """The prompt that is shown first."""
        return {"now": self.now}

    def static_html(self) -> str:
        """Return the static form: one table of the rows, the stale ones in words, and what the toy says."""
        (old, said), (new, says) = _run(self.before), _run(self.now)
        same = [a == b for a, b in zip(self.before, self.now, strict=False)]
        kept = [all(same[: j + 1]) and j < len(same) for j in range(len(self.now))]
        origin = _origins(self.before, self.now)
        lines = [_line("", [html.escape(clipped(token["word"], 20)) for token in self.now], kept)]
        for name, rows in new.items():
            was = [None if i is None else old[name][i] for i in origin]
            lines.append(_line(name, list(map(_cell, rows, was)), kept))
        lines.append(_line("", [WHAT["rows"]["kept"] if it else WHAT["runs"] for it in kept], kept))
        rerun = fill(WHAT["kept"]["some"], kept=sum(kept), rerun=max(1, kept.count(False)))
        outcome = f"{WHAT['says']['before']}: {said}. {WHAT['says']['now']}: {says}."
        return f"<table>{''.join(lines)}</table><p>{rerun} {outcome}</p>"

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
    shares = softmax(toy.readout(contexts[-1]))
    both = {"K": cache.k, "V": cache.v}
    rows = {f"{kind}, layer {n + 1}": both[kind][n].tolist() for n in range(N_LAYERS) for kind in both}
    return rows, html.escape(f"{toy.VOCABULARY[int(shares.argmax())]} {percent(shares.max())}")


def _origins(before: Tokens, now: Tokens) -> list[int | None]:
    """Index of the cache's token that each token of the prompt is or was exchanged for; None: put in."""
    origin: list[int | None] = [None] * len(now)
    old, new = ([token["word"] for token in tokens] for tokens in (before, now))
    for _, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
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
    return number(row) if isinstance(row, float) else key_text(row, VIEW["keys"]["toy"])


def _line(name: str, cells: list[str], kept: list[bool]) -> str:
    """A line of the table; literal colours, ground and ink, read the same in a light and in a dark theme."""
    colours = VIEW["palette"]["light"]
    ground = f"background-color:{colours['vf']};color:{colours['ink']};"
    styles = [f"{ground if name and it else ''}text-align:center" for it in kept]
    shown = [f'<td style="{style}">{cell}</td>' for style, cell in zip(styles, cells, strict=True)]
    return f'<tr><th style="text-align:right">{name}</th>{"".join(shown)}</tr>'
