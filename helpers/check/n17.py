"""Exercises of notebook 17, pages: `from helpers.check import n17 as check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from helpers.check.exercise import Case, Exercise
from helpers.check.result import NotRightError, clip
from helpers.serve.pages import PageManager


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
            *[("abcd", "bacdx", 2), ("xbcd", "abcd", 2), ("abcdef", "axcdefg", 3)],
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
    ],
    success="3 pages of 2 for abcdefgh and abcdefxy; of two equal texts a last page that is full runs again.",
)


PARTS = ("instructions", "who the user is", "the chat so far", "the new question", "the clock")


def prompt_in(order: Sequence[str], user: int, turn: int) -> list[int]:
    """Write a prompt in this order: 16 tokens of instructions, 8 of the user, 12 a turn so far, 3, 1."""
    parts = {
        "instructions": [*range(100, 116)],
        "who the user is": [200 + user] * 8,
        "the chat so far": [*range(300 + 100 * user, 300 + 100 * user + 12 * turn)],
        "the new question": [400 + 10 * user + turn] * 3,
        "the clock": [500 + 10 * turn + user],
    }
    return [token for part in order for token in parts[part]]


def used_again(order: Sequence[str]) -> int:
    """Count the tokens that two users find in three turns each, in pages of four."""
    if sorted(order) != sorted(PARTS):
        raise NotRightError(f"order holds {clip(repr([*order]))}; expected each of the five parts once.")
    pages, found = PageManager(200, 4), 0
    for turn in range(3):
        for user in range(2):
            text = prompt_in(order, user, turn)
            table = pages.match_prefix(text)
            start = 4 * len(table)
            found += start
            table += [pages.take() for _ in range(pages.needed(len(text)) - len(table))]
            pages.publish(table, text, start, len(text))
    return found


order = Exercise(
    name="order",
    todo="write the five parts in the order in which the prompt should hold them.",
    cases=[Case((), "the order")],
    right=[*PARTS],
    run=lambda order: {"uses again": used_again(order)},
    wrong=[
        "the clock and the question are new each time: nothing behind them is found.",
        ["the clock", *PARTS[:-1]],
        ["instructions", "the clock", *PARTS[1:-1]],
        "everybody has the same instructions: behind what is one user's they are found by that user alone.",
        ["who the user is", "instructions", *PARTS[2:]],
        "the chat grows, and what stands behind it moves: who the user is comes before it.",
        ["instructions", "the chat so far", "who the user is", *PARTS[3:]],
    ],
    success="what never changes stands first, what changes each time last, the rest between by how seldom.",
)
