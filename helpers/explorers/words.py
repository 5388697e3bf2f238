"""An explorer that shows how temperature, top-k and top-p change the next word's probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import Any

import numpy as np

from helpers.drawing.canvas import Sheet
from helpers.drawing.explorer import Explorer, labelled_widget
from helpers.drawing.words import SMALL, shorten, text_width
from helpers.sampling import check_logits, keep_top_k, keep_top_p, next_probabilities, softmax
from helpers.stepper.format import percent

N_DRAWS = 20  # number of words in the sample below the picture
SEED = 0
COLUMN_HEADINGS = "word", "frame: before, filled: after", "before → after"


@dataclass(frozen=True)
class WordRow:
    """A word, with its probabilities before and after the settings apply."""

    word: str
    probability_before: float
    probability_after: float
    excluded_because: str  # why the settings exclude the word; "" if they do not

    @property
    def change_text(self) -> str:
        """Both probabilities in percent, such as "12% → 30%", or "12% → out" for an excluded word."""
        after = "out" if self.excluded_because else percent(self.probability_after)
        return f"{percent(self.probability_before)} → {after}"


@dataclass(frozen=True)
class WordBars:
    """The explorer's picture. Each word has a row with two bars: its probabilities before and after.

    A note below the rows lists a sample of drawn words.
    """

    rows: list[WordRow]
    note: str

    def html(self) -> str:
        kinds = ("soft", "soft", "soft number")
        cells = [
            f'<span class="{kind}">{text}</span>' for kind, text in zip(kinds, COLUMN_HEADINGS, strict=True)
        ]
        for row in self.rows:
            bars = "".join(
                f'<div class="bar {kind}" style="width:{100 * share:.2f}%"></div>'
                for kind, share in (("before", row.probability_before), ("after", row.probability_after))
            )
            cells.append(
                f'<span class="word">{escape(row.word)}</span><span aria-hidden="true">{bars}</span>'
            )
            cells.append(f'<span class="number">{escape(row.change_text)}</span>')
            cells.append(
                f'<span class="note soft">{row.excluded_because}</span>' if row.excluded_because else ""
            )
        return f'<div class="grid">{"".join(cells)}</div><p class="soft">{self.note}</p>'

    def draw(self, sheet: Sheet) -> None:
        """Draw the rows on a sheet, without the note."""

        def widest(texts: Iterable[str]) -> int:
            return ceil(max(text_width(text, SMALL, bold=True) for text in texts)) + 16

        left = min(180, widest(row.word for row in self.rows))
        right = sheet.width - widest([COLUMN_HEADINGS[-1], *(row.change_text for row in self.rows)])
        places = (left - 10, "right"), (left, "left"), (sheet.width - 4, "right")
        for (x, at), text in zip(places, COLUMN_HEADINGS, strict=True):
            sheet.note(x, 10, text, at=at)
        y = 24.0
        for row in self.rows:
            sheet.text(left - 10, y + 9, shorten(row.word, left - 12, SMALL), at="right", size=SMALL)
            sheet.text(right + 12, y + 9, row.change_text, size=SMALL)
            before, after = (
                ceil((right - left) * share) for share in (row.probability_before, row.probability_after)
            )
            if before:
                sheet.box(left, y + 3, before, 12, edge="soft", radius=1)
            if after:
                sheet.box(left, y + 16, after, 12, fill="generated", radius=1)
            sheet.note(left, y + 37, row.excluded_because)
            y += 49 if row.excluded_because else 35

    def in_words(self) -> str:
        """Return a text alternative that lists each word with its two probabilities."""
        return "; ".join(f"{row.word}: {row.change_text}" for row in self.rows) + "."


class NextWordExplorer(Explorer):
    """An explorer of the next word's probabilities before and after temperature, top-k and top-p apply.

    Args:
        logits: logit of each word, of shape (V,).
        words: the V words, in the same order.
        n_shown: number of words that have a row of their own, the most probable first. All others share one
            row.
        temperature: initial temperature, from 0.1 to 3.

    Raises:
        ValueError: the logits are invalid (see `check_logits`), or there are not as many words as logits.
    """

    title = "Explorer: the next word, by temperature, top-k and top-p"

    def __init__(
        self,
        logits: Sequence[float] | np.ndarray,
        words: Sequence[str],
        n_shown: int = 10,
        temperature: float = 1.0,
    ) -> None:
        self.temperature = temperature
        self.logits = check_logits(np.asarray(logits, dtype=float))
        self.words = list(map(str, words))
        if len(self.words) != len(self.logits):
            raise ValueError(
                f"got {len(self.logits)} logits and {len(self.words)} words; expected one word per logit: "
                "pass words=[…]"
            )
        order = np.argsort(-self.logits, kind="stable")
        self.shown, self.others = order[:n_shown], order[n_shown:]

    def controls(self) -> dict[str, Any]:
        V = len(self.words)
        return {
            "temperature": labelled_widget(
                "FloatSlider", "temperature", value=self.temperature, min=0.1, max=3.0, step=0.1
            ),
            "top_k": labelled_widget("IntSlider", f"top-k of {V}", value=V, min=1, max=V),
            "top_p": labelled_widget("FloatSlider", "top-p", value=1.0, min=0.05, max=1.0, step=0.05),
        }

    def setting_excluding_each_word(self, temperature: float, top_k: int, top_p: float) -> list[str | None]:
        """Return one setting per word: the one that excludes the word, or None if the word remains.

        The settings are named "top-k", "top-p" and "temperature".
        """
        remaining = next_probabilities(self.logits, temperature, top_k, top_p) > 0
        by_k = keep_top_k((self.logits - self.logits.max()) / temperature, top_k)
        by_p = by_k if top_p >= 1 else keep_top_p(by_k, top_p)
        settings: list[str | None] = []
        for n, remains in enumerate(remaining):
            cut = "top-k" if np.isneginf(by_k[n]) else "top-p" if np.isneginf(by_p[n]) else "temperature"
            settings.append(None if remains else cut)
        return settings

    def picture(self, **settings: Any) -> WordBars:
        before, excluded = softmax(self.logits), self.setting_excluding_each_word(**settings)
        after = next_probabilities(self.logits, **settings)
        reasons = {
            "top-k": f"top-k keeps the {settings['top_k']} largest",
            "top-p": f"larger ones reach top-p {settings['top_p']:g}",
            "temperature": "rounds to 0 at this temperature",
            None: "",
        }
        rows = [WordRow(self.words[n], before[n], after[n], reasons[excluded[n]]) for n in self.shown]
        if len(self.others):
            p, q = (float(shares[self.others].sum()) for shares in (before, after))
            name = f"{len(self.others)} others"
            rows.append(WordRow(name, p, q, "" if q else reasons[excluded[self.others[0]]]))
        return WordBars(rows, self._draws(after))

    def sentence_html(self, **settings: Any) -> str:
        before, after = softmax(self.logits), next_probabilities(self.logits, **settings)
        top, n_in = int(after.argmax()), int((after > 0).sum())
        first = f"<b>{escape(self.words[top])}</b>"
        p, q = (escape(percent(shares[top])) for shares in (before, after))
        moved = f"{first} goes from {p} to {q}"
        if np.allclose(before, after):
            moved = f"the probabilities are the model's own, {first} first with {q}"
        return f"{n_in} of {len(after)} words can be drawn; {moved}."

    def _draws(self, after: np.ndarray) -> str:
        """Return, as HTML, how often each word is drawn in 20 draws.

        The seed is fixed, so the result depends only on the settings.

        Args:
            after: probability of each word after the settings apply, of shape (V,).
        """
        drawn = np.random.default_rng(SEED).choice(len(after), size=N_DRAWS, p=after)
        times = [(word, int((drawn == n).sum())) for n, word in enumerate(self.words)]
        seen = ", ".join(f"{escape(word)} {count}" for word, count in times if count)
        return f"{N_DRAWS} draws, seed {SEED}: {seen}"
