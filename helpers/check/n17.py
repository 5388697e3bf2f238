"""Exercises of notebook 17, pages: `from helpers.check import n17 as check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from helpers.check.exercise import Case, Exercise


def blanks(lengths: Sequence[int], size: int, down: bool = False, one_more: bool = False) -> tuple[int, int]:
    """Count pages and blank rows; where a part of a page counts as none, or each text takes one page more."""
    pages = sum(n // size + one_more if down or one_more else -(-n // size) for n in lengths)
    return pages, pages * size - sum(lengths)


pages_and_blanks = Exercise(
    name="pages_and_blanks",
    todo="let pages_and_blanks return two numbers: pages, and blank rows.",
    cases=[([17, 32, 5], 16), ([16], 16), ([1, 1, 1], 4), ([], 8), ([30, 7], 1)],
    right=blanks,
    wrong=[
        "a page belongs to one text: the rest of its last page is nobody else's.",
        lambda lengths, size: blanks([sum(lengths)], size),
        "a part of a page is a page: the text's last rows need a place.",
        partial(blanks, down=True),
        "a text that fills its pages needs no other: 32 rows are 2 pages of 16.",
        partial(blanks, one_more=True),
        "the blank rows, not those in use.",
        lambda lengths, size: (blanks(lengths, size)[0], sum(lengths)),
    ],
    said="5 pages and 26 blank rows for 17, 32 and 5 tokens; none is blank where a page is one row.",
)


def shared(old: Sequence[int], new: Sequence[int], size: int, chained: bool = True) -> int:
    """Count the pages of a new text that an old one has written; if chained, up to the first that differs."""
    starts = range(0, min(len(old), len(new) - 1) - size + 1, size)
    alike = [old[at : at + size] == new[at : at + size] for at in starts]
    return [*alike, False].index(False) if chained else sum(alike)


def sums(text: Sequence[int], size: int) -> list[int]:
    """Add up each full page of a text."""
    return [sum(text[end - size : end]) for end in range(size, len(text) + 1, size)]


shared_pages = Exercise(
    name="shared_pages",
    todo="let shared_pages return how many pages can be shared.",
    cases=[
        Case(([*map(ord, a)], [*map(ord, b)], size), f"shared_pages({a!r}, {b!r}, {size}), a letter a token")
        for a, b, size in [
            *[("abcdefgh", "abcdefxy", 2), ("abcdefg", "abcdefg", 3), ("abcdef", "abcdef", 3)],
            *[("abcdef", "abcxef", 2), ("abcdefgh", "abxdefghi", 2), ("abcde", "abcdefghi", 4)],
            *[("abcd", "bacdx", 2), ("xbcd", "abcd", 2)],
        ]
    ],
    right=shared,
    wrong=[
        "a full hit leaves nothing to run: the last token must, for its logits.",
        lambda old, new, size: shared(old, [*new, -1], size),
        "a page is shared in which the texts differ: compare every token of it.",
        lambda old, new, size: shared(old[::size], [*new[:-1:size], -1], 1),
        lambda old, new, size: -(-shared(old, new, 1) // size),
        "the tokens agree and those before them do not, so the rows differ: stop at the first that does.",
        partial(shared, chained=False),
        "a hash alone, or a sum: 'ab' and 'ba' may have the same. Compare the tokens.",
        lambda old, new, size: shared(sums(old, size), [*sums(new[:-1], size), -1], 1),
        "tokens, not pages.",
        lambda old, new, size: shared(old, new, 1),
        lambda old, new, size: size * shared(old, new, size),
        "the old text has to be as long: a page that it has not filled is not written.",
        lambda old, new, size: shared([*old, *new[len(old) :]], new, size),
    ],
    said="3 pages of 2 for abcdefgh and abcdefxy; of two equal texts the last page runs again if it is full.",
)
