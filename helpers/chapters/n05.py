"""Marked replies, two pictures and the exercises of notebook 05."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from helpers.check.exercise import Case, Exercise
from helpers.check.result import format_value
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.numbers import format_digits
from helpers.drawing.words import SMALL, join_words, printable, shorten

EOS = "<eos>"


def first_difference_position(words: Sequence[str], expected: Sequence[str]) -> int | None:
    """Return the position, from 1, of the first word that differs from `expected`.

    If one list is longer than the other, its additional words count as different. If the lists are equal,
    return None.
    """
    pairs = zip_longest(words, expected)
    return next((n for n, (one, other) in enumerate(pairs, 1) if one != other), None)


class MarkedReply(NamedTuple):
    """The text of a reply, split into parts, and the part that first differs from the expected reply."""

    parts: list[
        str
    ]  # words with their full stops, up to `<eos>`; "…" is the last part if there is no `<eos>`
    wrong_part: int | None  # index, from 0, of the part with the first wrong word; None if all are right


def split_at_difference(words: Sequence[str], expected: Sequence[str]) -> MarkedReply:
    """Join each full stop to the word before it, and find the part with the reply's first wrong word."""
    shown, wrong, wrong_part = list[str](), first_difference_position(words, expected), None
    for n, word in enumerate(words, 1):
        if word == EOS:
            return MarkedReply(shown, wrong_part)
        if word == "." and shown:
            shown[-1] += word
        else:
            shown.append(word)
        if n == wrong:
            wrong_part = len(shown) - 1
    return MarkedReply([*shown, "…"], wrong_part)


class MarkedReplies:
    """Replies under their names. In each reply, the first word that differs from the right reply is marked.

    Args:
        by_name: maps each name to the words of a reply. The first reply is the right one.
    """

    def __init__(self, by_name: dict[str, list[str]]) -> None:
        right = next(iter(by_name.values()))
        self.parts_by_name = {name: split_at_difference(words, right) for name, words in by_name.items()}

    def format_all(self, reply_format: str, mark_format: str) -> str:
        """Return all replies as one string.

        Args:
            reply_format: format string for a reply, with one field for its name and one for its text.
            mark_format: format string for the marked word, with one field.
        """
        return "".join(
            reply_format.format(
                name,
                " ".join(mark_format.format(word) if n == wrong else word for n, word in enumerate(words)),
            )
            for name, (words, wrong) in self.parts_by_name.items()
        )

    def __repr__(self) -> str:
        return self.format_all("{}: {}\n", "[{}]").rstrip()

    def _repr_html_(self) -> str:
        block = '<div style="margin: 0.7em 0; max-width: 60em"><small>{}</small><br>{}</div>'
        return self.format_all(block, "<mark><b>{}</b></mark>")


def chunk_mask(cached_words: Sequence[str], new_words: Sequence[str]) -> Picture:
    """Draw which tokens each new token of a pass attends to: a row per new token, a column per token.

    Args:
        cached_words: the words whose KV entries are in the cache.
        new_words: the words that the next pass processes.
    """
    words, T = [*cached_words, *new_words], len(new_words)
    allowed = causal_mask(T, len(words))

    def draw(sheet: Sheet) -> None:
        left, row, top = 70.0, 34.0, 76.0
        cell = min(64.0, (sheet.width - left - 10) / len(words))
        middle = left + cell * len(cached_words) / 2, left + cell * (len(cached_words) + T / 2)
        for x, name in zip(middle, ("tokens with an entry", "new tokens"), strict=True):
            sheet.note(x, 16, name, at="center")
        for j, word in enumerate(words):
            sheet.note(left + cell * (j + 0.5), 42, shorten(word, cell, SMALL), at="center", colour="ink")
            sheet.note(left + cell * (j + 0.5), top - 14, str(j + 1), at="center")
        for i, word in enumerate(new_words):
            sheet.text(left - 10, top + row * (i + 0.5), word, at="right", colour="query", bold=True)
        for (i, j), yes in np.ndenumerate(allowed):
            fill, edge = ("query fill", "query") if yes else ("panel", "line")
            x, y = left + cell * j + 1, top + row * i + 1
            sheet.box(x, y, cell - 2, row - 2, fill=fill, edge=edge, radius=3)
            sheet.note(x + cell / 2 - 1, y + row / 2 - 1, "yes" if yes else "·", at="center", colour="ink")

    seen = (f"{word} attends to {join_words([w for w, yes in zip(words, line, strict=True) if yes])}"
            for word, line in zip(new_words, allowed, strict=True))  # fmt: skip
    return Picture(draw, f"{join_words(new_words)} come after {join_words(cached_words)}: {'; '.join(seen)}.")


LIMIT, COLOURS = 0.001, ("ink", "query", "key")
DECADES = {0: "0", 1e-6: "0.000001", 1e-4: "0.0001", 1e-2: "0.01", 1: "1", 100: "100"}


def differences_by_step(found: Mapping[str, Sequence[float]]) -> Picture:
    """Draw how far the logits of up to three caches are off, in prefill (step 0) and in each decode step.

    The y axis is logarithmic from 0.000001 on, and linear below, so that it has a 0.

    Args:
        found: maps the name of each cache to its differences. Each name is written above or below its line.
    """

    def draw(sheet: Sheet) -> None:
        left, right, top, base = 78.0, sheet.width - 18, 40.0, 350.0
        last = max(map(len, found.values())) - 1
        sheet.heading("how far a logit is off")
        axes = sheet.add_axes(left, top, right, base, "decode step; 0 is prefill")
        axes.set_yscale("symlog", linthresh=1e-6, linscale=0.6)
        axes.set(xlim=(-0.4, last + 0.4), ylim=(-2e-7, 200), yticks=list(DECADES))
        axes.minorticks_off()
        axes.set_yticklabels(list(DECADES.values()))
        y = sheet.data_to_sheet(axes, 0, LIMIT)[1]
        sheet.line((left, y), (right, y), colour="soft", dashes=(0, (5, 4)))
        sheet.note(right, y - 10, f"limit {LIMIT}", at="right")
        for (name, steps), colour in zip(found.items(), COLOURS, strict=False):
            axes.plot(
                range(len(steps)), steps, color=colour, lw=1.8, marker="o", mfc=colour, mec=colour, ms=4
            )
            near = slice(len(steps) // 2 - 4, len(steps) // 2 + 5)
            low, high = min(steps[near]), max(steps[near])
            higher = [x for other in found.values() for x in other[near] if x > high]
            above = not higher or min(higher) > 30 * high  # the name has room over its line
            x, y = sheet.data_to_sheet(axes, len(steps) // 2, high if above else low)
            sheet.note(x, y - 14 if above else y + 16, name, at="center", colour=colour, bold=True)
        x, y = sheet.data_to_sheet(axes, 0, max(steps[0] for steps in found.values()))
        if not any(steps[0] for steps in found.values()):
            sheet.note(x + 14, y - 9, "exactly 0", colour="ink")

    lines = "; ".join(
        f"{printable(name)}: {', '.join(f'{format_digits(x, 2)} at {n}' for n, x in enumerate(steps))}"
        for name, steps in found.items()
    )
    return Picture(draw, f"How far a logit is off, by decode step; 0 is prefill. {lines}.")


def common_prefix_length(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of tokens in the longest common prefix of two texts."""
    return [*(a == b for a, b in zip(old, new, strict=False)), False].index(False)


def reusable_prefix_length(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many KV entries of the old text can be reused for the new text.

    The last token of the new text is always processed, because its logits are needed for the next token.
    """
    return common_prefix_length(old, new[:-1])


SENTENCE, SHORTER_LIST_HINT = "Today weather is so", "one list may be shorter than the other, or empty."
ONLY_A_PREFIX = (
    "only a common prefix is reusable: entries after the first difference were computed from another text."
)
TEXT_PAIRS = [
    *[(SENTENCE, f"{SENTENCE} nice"), (SENTENCE, f"Oslo {SENTENCE}"), (SENTENCE, "Today weather was so")],
    *[(SENTENCE, "Today weather as so"), (SENTENCE, "so is weather Today"), ("so so nice", "so so so nice")],
    *[(SENTENCE, "Today weather island"), (SENTENCE, "Today weather"), (SENTENCE, SENTENCE), ("", SENTENCE)],
]
reusable = Exercise(
    name="reusable",
    todo="let reusable return how many tokens of the old text can keep their entries for the new one.",
    cases=[
        Case((old.split(), new.split()), f"reusable for {old or 'no tokens'} → {new}", SHORTER_LIST_HINT)
        for old, new in TEXT_PAIRS
    ],
    right_answer=reusable_prefix_length,
    wrong_answers=[
        "nothing is left to run: the last token of the new text has to run, for the logits of the next one.",
        common_prefix_length,
        f"common words were counted wherever they stand; {ONLY_A_PREFIX}",
        lambda old, new: len(set(old) & set(new)),
        lambda old, new: sum(word in new for word in old),
        f"words after the first difference were counted; {ONLY_A_PREFIX}",
        lambda old, new: sum(a == b for a, b in zip(old, new, strict=False)),
        "lengths were compared; an entry can be kept if its token and all tokens before it are the same.",
        lambda old, new: len(old),
        lambda old, new: min(len(old), len(new)),
    ],
    success="4 tokens keep their entries if `nice` follows, 3 if the text stays, 0 if Oslo comes first.",
)


def causal_mask(T: int, S: int, n_extra_keys: int = 0) -> np.ndarray:
    """Return the attention mask for the T newest of S tokens, of shape (T, S).

    It is True where a query (row) may attend to a key (column).

    Args:
        T: number of new tokens.
        S: number of all tokens.
        n_extra_keys: number of keys that each query sees in addition to the right ones. 0 is right.
    """
    return np.tri(T, S, S - T + n_extra_keys, dtype=bool)


def describe_mask_difference(got: np.ndarray, expected: np.ndarray) -> str:
    """Describe the first query for which a mask differs from the expected mask.

    Args:
        got, expected: the two masks, each of shape (T, S).
    """
    query = int((got != expected).any(axis=1).argmax())
    seen, wanted = (format_value(np.flatnonzero(mask[query]) + 1) for mask in (got, expected))
    return f"lets query {query + 1} of {len(got)} see keys {seen}; expected {wanted}"


MASK_SHAPES = [(2, 6), (1, 5), (4, 4), (3, 7), (1, 1)]  # T, S
mask = Exercise(
    name="mask",
    todo="let mask return (T, S), True where one of the T newest tokens may attend to one of all S.",
    cases=MASK_SHAPES,
    right_answer=causal_mask,
    wrong_answers=[
        "aligned top-left: the T new tokens stand at the end of the S, so query 1 sees S - T + 1 keys.",
        lambda T, S: np.tri(T, S, dtype=bool),
        "no mask: a query sees tokens that come after it.",
        lambda T, S: np.ones((T, S), dtype=bool),
        "upside down: True is where the query may attend.",
        lambda T, S: ~causal_mask(T, S),
        "shifted by one: a query sees itself too.",
        lambda T, S: causal_mask(T, S, -1),
    ],
    success="visible cells: 11 in mask(2, 6), 5 in mask(1, 5), 10 in mask(4, 4).",
    describe_difference=describe_mask_difference,
)
