"""Exercises of notebook 12, serving many: `from helpers.check import n12 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise, Wrong


def stood(lengths: Sequence[int], *, padding: bool = False, left: bool = False, first: int = 0) -> Tensor:
    """Return positions (B, T): the same for all (padding counts), from column 0 on, or from `first` on."""
    T = max(lengths)
    before = [0 if padding or left else T - n for n in lengths]
    return torch.stack([(torch.arange(T) - n).clamp(min=0) + first for n in before])


def seen(lengths: Sequence[int], *, padding: bool = False, left: bool = False, ahead: int = 0) -> Tensor:
    """Return a mask (B, T, T) that may show padding, take it for right, or show `ahead` later columns."""
    columns = torch.arange(T := max(lengths))
    causal = columns <= columns[:, None] + ahead
    real = [columns < n if left else columns >= T - n for n in lengths]
    return torch.stack([causal if padding else causal & one for one in real])


def real_parts(answer: Callable[..., Any], lengths: list[int]) -> dict[str, Any]:
    """Run a `ragged`, and look at the columns that hold tokens: what stands for padding does not matter."""
    positions, mask = answer(lengths)
    T = max(lengths)
    positions, mask = torch.as_tensor(positions), torch.as_tensor(mask)
    found: dict[str, Any] = {"gives shapes": f"{tuple(positions.shape)} and {tuple(mask.shape)}"}
    for b, n in enumerate(lengths) if mask.ndim == 3 and len(mask) == len(lengths) == len(positions) else ():
        found[f"gives, for sequence {b}, positions"] = positions[b, T - n :]
        found[f"gives, for sequence {b}, a mask"] = mask[b, T - n :]
    return found


def ragged_of(positions: dict[str, Any], mask: dict[str, Any]) -> Callable[[Sequence[int]], Any]:
    """Return a `ragged`."""
    return lambda lengths: (stood(lengths, **positions), seen(lengths, **mask))


ragged = Exercise(
    name="ragged",
    todo="let ragged return two tensors: positions (B, T) and a mask (B, T, T).",
    cases=[Case((lengths,)) for lengths in ([3, 1], [4], [2, 5, 3])],
    right=ragged_of({}, {}),
    run=real_parts,
    wrong=[
        Wrong(
            "one position for all: a sequence's first token stands at 0, whatever column it is in.",
            ragged_of({"padding": True}, {}),
        ),
        Wrong(
            "padding is visible: no token may look at a column of padding.", ragged_of({}, {"padding": True})
        ),
        Wrong(
            "both: padding counts as position and is visible. It is no token.",
            ragged_of({"padding": True}, {"padding": True}),
        ),
        Wrong(
            "the padding stands at the left: the last column is the newest token of each sequence.",
            ragged_of({"left": True}, {"left": True}),
        ),
        Wrong("positions count from 0.", ragged_of({"first": 1}, {})),
        Wrong(
            "a token sees itself and what is before it.",
            ragged_of({}, {"ahead": -1}),
            ragged_of({}, {"ahead": 99}),
        ),
    ],
    said="each sequence has its own positions, and nobody looks at padding.",
)


def dealt(
    waiting: Sequence[int],
    running: int,
    budget: int,
    *,
    taken: int = 1,
    whole: bool = False,
    pass_by: bool = False,
) -> list[int]:
    """Deal out a budget.

    Args:
        waiting, running, budget: as in the notebook.
        taken: tokens that each of the running takes.
        whole: give a prompt all or nothing.
        pass_by: let a prompt that fits go before one that does not.
    """
    left, given = budget - taken * running, []
    for tokens in waiting:
        fits = tokens <= left
        given.append(tokens if fits else 0 if whole else left)
        left -= given[-1]
        if whole and not fits and not pass_by:
            left = 0
    return given


next_step = Exercise(
    name="next_step",
    todo="let next_step return a list: how many tokens each waiting prompt gets.",
    cases=[
        Case(args)
        for args in [
            ([5, 12, 4], 3, 10),
            ([20], 2, 8),
            ([3, 3], 4, 16),
            ([4, 2], 6, 6),
            ([7, 2], 1, 6),
            ([], 2, 4),
        ]
    ],
    right=dealt,
    wrong=[
        Wrong("the running come first: each takes one token of the budget.", partial(dealt, taken=0)),
        Wrong(
            "a prompt that does not fit runs in chunks: it gets what is left.",
            partial(dealt, whole=True),
            partial(dealt, whole=True, pass_by=True),
        ),
        Wrong(
            "the whole of each: what one gets, the next cannot get too.",
            lambda waiting, running, budget: [min(n, budget - running) for n in waiting],
            lambda waiting, running, budget: [*waiting],
        ),
        Wrong(
            "shared out evenly: the one who came first gets all it can use.",
            lambda waiting, running, budget: [min(n, (budget - running) // len(waiting)) for n in waiting],
        ),
        Wrong(
            "those who get nothing stand in the list too, with 0.",
            lambda *args: [n for n in dealt(*args) if n],
        ),
    ],
    said="3 who run and a budget of 10 leave 7: 5 for the first prompt, 2 for the second.",
)


def shared(
    old: Sequence[int],
    new: Sequence[int],
    size: int,
    *,
    least: int = 1,
    chained: bool = True,
    part: bool = False,
) -> int:
    """Count the pages of a new text that an old one has written.

    Args:
        old, new, size: as in the notebook.
        least: tokens that are left to run.
        chained: whether the text before a page has to agree as well.
        part: take a page that agrees in its first token only.
    """
    n, usable = 0, min(len(old), len(new) - least)
    for start in range(0, usable if part else usable - size + 1, size):
        end = start + 1 if part else start + size
        if old[start:end] == new[start:end]:
            n += 1
        elif chained:
            break
    return n


def paged(text: Sequence[int], size: int) -> list[Sequence[int]]:
    """Cut a text into full pages."""
    return [text[end - size : end] for end in range(size, len(text) + 1, size)]


def shared_case(old: str, new: str, size: int) -> Case:
    """Return two texts, a letter a token."""
    return Case(
        ([*map(ord, old)], [*map(ord, new)], size),
        f"shared_pages({old!r}, {new!r}, {size}), a letter a token",
    )


shared_pages = Exercise(
    name="shared_pages",
    todo="let shared_pages return how many pages can be shared.",
    cases=[
        shared_case("abcdefgh", "abcdefxy", 2),
        shared_case("abcdefg", "abcdefg", 3),
        shared_case("abcdef", "abcdef", 3),
        shared_case("abcdef", "abcxef", 2),
        shared_case("abcdefgh", "abxdefghi", 2),
        shared_case("abcde", "abcdefghi", 4),
        shared_case("abcd", "bacdx", 2),
        shared_case("xbcd", "abcd", 2),
    ],
    right=shared,
    wrong=[
        Wrong(
            "a full hit leaves nothing to run: the last token must, for its logits.", partial(shared, least=0)
        ),
        Wrong(
            "a page is shared in which the texts differ: compare every token of it.",
            partial(shared, part=True),
            lambda old, new, size: -(-shared(old, new, 1) // size),
        ),
        Wrong(
            "the tokens agree and those before them do not, so the rows differ: stop at the first that does.",
            partial(shared, chained=False),
        ),
        Wrong(
            "a hash alone, or a sum: 'ab' and 'ba' may have the same. Compare the tokens.",
            lambda old, new, size: shared(
                [*map(sum, paged(old, size))], [*map(sum, paged(new[:-1], size))], 1, least=0
            ),
        ),
        Wrong(
            "tokens, not pages.",
            lambda old, new, size: shared(old, new, 1),
            lambda old, new, size: size * shared(old, new, size),
        ),
        Wrong(
            "the old text has to be as long: a page that it has not filled is not written.",
            lambda old, new, size: shared([*old, *new[len(old) :]], new, size),
        ),
    ],
    said="3 pages of 2 for abcdefgh and abcdefxy; of two equal texts the last page runs again if it is full.",
)


def idling(replies: Sequence[int], slots: int, *, empty: bool = True) -> int:
    """Count idle places of static batches; with or without slots that nobody has."""
    batches = [replies[n : n + slots] for n in range(0, len(replies), slots)]
    return sum(max(batch) * (slots if empty else len(batch)) - sum(batch) for batch in batches)


idle = Exercise(
    name="idle",
    todo="let idle return how many places are idle.",
    cases=[
        Case(args)
        for args in [([2, 8, 3, 7, 5, 1], 4), ([3, 3], 2), ([4, 1, 6], 1), ([5], 8), ([1, 9, 9, 1], 2)]
    ],
    right=idling,
    wrong=[
        Wrong(
            "slots that nobody has are idle as well: the last batch may be short.",
            partial(idling, empty=False),
        ),
        Wrong(
            "all in one batch: only so many run as there are slots, the others wait for the next batch.",
            lambda replies, slots: max(replies) * len(replies) - sum(replies),
            lambda replies, slots: max(replies) * slots - sum(replies),
        ),
        Wrong(
            "a batch lasts as long as its longest reply, not the longest of all.",
            lambda replies, slots: max(replies) * -(-len(replies) // slots) * slots - sum(replies),
        ),
        Wrong(
            "the places in use, not the idle ones.",
            lambda replies, slots: sum(replies),
        ),
        Wrong(
            "all places: take those away in which somebody runs.",
            lambda replies, slots: idling(replies, slots) + sum(replies),
        ),
    ],
    said="26 of 52 places for the six replies: half of the work that could have been done.",
)
