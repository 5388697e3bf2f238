"""Exercises of notebook 16, serving many: `from helpers.check import n16 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise

Answer = Callable[..., Any]


def stood(lengths: Sequence[int], padding: bool = False, left: bool = False, first: int = 0) -> Tensor:
    """Return positions (B, T): the same for all (padding counts), from column 0 on, or from `first` on."""
    T = max(lengths)
    before = [0 if padding or left else T - n for n in lengths]
    return torch.stack([(torch.arange(T) - n).clamp(min=0) + first for n in before])


def seen(lengths: Sequence[int], padding: bool = False, left: bool = False, ahead: int = 0) -> Tensor:
    """Return a mask (B, T, T) that may show padding, take it for right, or show `ahead` later columns."""
    columns = torch.arange(T := max(lengths))
    causal = columns <= columns[:, None] + ahead
    real = [columns < n if left else columns >= T - n for n in lengths]
    return torch.stack([causal if padding else causal & one for one in real])


def real_parts(answer: Answer, lengths: list[int]) -> dict[str, Any]:
    """Run a `ragged`, and look at the columns that hold tokens: what stands for padding does not matter."""
    positions, mask = answer(lengths)
    T = max(lengths)
    positions, mask = torch.as_tensor(positions), torch.as_tensor(mask)
    found: dict[str, Any] = {"gives shapes": f"{tuple(positions.shape)} and {tuple(mask.shape)}"}
    for b, n in enumerate(lengths) if mask.ndim == 3 and len(mask) == len(lengths) == len(positions) else ():
        found[f"gives, for sequence {b}, positions"] = positions[b, T - n :]
        found[f"gives, for sequence {b}, a mask"] = mask[b, T - n :]
    return found


def ragged_of(positions: Answer = stood, mask: Answer = seen) -> Answer:
    """Return a `ragged` of its two parts."""
    return lambda lengths: (positions(lengths), mask(lengths))


ragged = Exercise(
    name="ragged",
    todo="let ragged return two tensors: positions (B, T) and a mask (B, T, T).",
    cases=[([3, 1],), ([4],), ([2, 5, 3],)],
    right=ragged_of(),
    run=real_parts,
    wrong=[
        "one position for all: a sequence's first token stands at 0, whatever column it is in.",
        ragged_of(partial(stood, padding=True)),
        "padding is visible: no token may look at a column of padding.",
        ragged_of(mask=partial(seen, padding=True)),
        "both: padding counts as position and is visible. It is no token.",
        ragged_of(partial(stood, padding=True), partial(seen, padding=True)),
        "the padding stands at the left: the last column is the newest token of each sequence.",
        ragged_of(partial(stood, left=True), partial(seen, left=True)),
        "positions count from 0.",
        ragged_of(partial(stood, first=1)),
        "a token sees itself and what is before it.",
        ragged_of(mask=partial(seen, ahead=-1)),
        ragged_of(mask=partial(seen, ahead=99)),
    ],
    said="each sequence has its own positions, and nobody looks at padding.",
)


def dealt(waiting: list[int], running: int, budget: int, whole: bool = False, by: bool = False) -> list[int]:
    """Deal out a budget; where prompts go `whole` or not at all, those that fit may pass others `by`."""
    left, given = budget - running, []
    for tokens in waiting:
        fits = tokens <= left
        given.append(tokens if fits else 0 if whole else left)
        left -= given[-1] if fits or by or not whole else left
    return given


next_step = Exercise(
    name="next_step",
    todo="let next_step return a list: how many tokens each waiting prompt gets.",
    cases=[
        *[([5, 12, 4], 3, 10), ([20], 2, 8), ([3, 3], 4, 16)],
        *[([4, 2], 6, 6), ([7, 2], 1, 6), ([], 2, 4)],
    ],
    right=dealt,
    wrong=[
        "the running come first: each takes one token of the budget.",
        lambda waiting, running, budget: dealt(waiting, 0, budget),
        "a prompt that does not fit runs in chunks: it gets what is left.",
        partial(dealt, whole=True),
        partial(dealt, whole=True, by=True),
        "the whole of each: what one gets, the next cannot get too.",
        lambda waiting, running, budget: [min(n, budget - running) for n in waiting],
        lambda waiting, running, budget: [*waiting],
        "shared out evenly: the one who came first gets all it can use.",
        lambda waiting, running, budget: [min(n, (budget - running) // len(waiting)) for n in waiting],
        "those who get nothing stand in the list too, with 0.",
        lambda *args: [n for n in dealt(*args) if n],
    ],
    said="3 who run and a budget of 10 leave 7: 5 for the first prompt, 2 for the second.",
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


def idling(replies: Sequence[int], slots: int, *, empty: bool = True) -> int:
    """Count idle places of static batches; with or without slots that nobody has."""
    batches = [replies[n : n + slots] for n in range(0, len(replies), slots)]
    return sum(max(batch) * (slots if empty else len(batch)) - sum(batch) for batch in batches)


idle = Exercise(
    name="idle",
    todo="let idle return how many places are idle.",
    cases=[([2, 8, 3, 7, 5, 1], 4), ([3, 3], 2), ([4, 1, 6], 1), ([5], 8), ([1, 9, 9, 1], 2)],
    right=idling,
    wrong=[
        "slots that nobody has are idle as well: the last batch may be short.",
        partial(idling, empty=False),
        "all in one batch: only so many run as there are slots, the others wait for the next batch.",
        lambda replies, slots: max(replies) * len(replies) - sum(replies),
        lambda replies, slots: max(replies) * slots - sum(replies),
        "a batch lasts as long as its longest reply, not the longest of all.",
        lambda replies, slots: max(replies) * -(-len(replies) // slots) * slots - sum(replies),
        "the places in use, not the idle ones.",
        lambda replies, slots: sum(replies),
        "all places: take those away in which somebody runs.",
        lambda replies, slots: idling(replies, slots) + sum(replies),
    ],
    said="26 of 52 places for the six replies: half of the work that could have been done.",
)
