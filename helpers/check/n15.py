"""Exercises of notebook 15, fewer heads: `from helpers.check import n15 as check`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from helpers.check.exercise import Case, Exercise


def most(
    n_heads: int,
    nbytes: float,
    room: float,
    may: Callable[[int, int], bool] = lambda n_heads, n: n_heads % n == 0,
    pick: Callable[..., int | None] = max,
) -> int | None:
    """Return the number of KV heads to give, of those that are allowed and fit."""
    fitting = [n for n in range(1, n_heads + 1) if may(n_heads, n) and n * nbytes <= room]
    return pick(fitting, default=None)


kv_heads = Exercise(
    name="kv_heads",
    todo="let kv_heads return a number of KV heads, or None.",
    cases=[
        *[(64, 40, 320), (64, 40, 400), (32, 10, 1000), (12, 5, 25), (24, 10, 70), (6, 7, 7)],
        Case((8, 10, 9), trap="where not even one fits, give None."),
    ],
    right=most,
    wrong=[
        "the query heads cannot share so many in equal groups: H has to be a multiple of them.",
        partial(most, may=lambda n_heads, n: True),
        "the fewest; the most that fit are asked for: fewer cost quality.",
        partial(most, pick=min),
        "more than there is room for.",
        lambda n_heads, nbytes, room: n_heads,
        lambda n_heads, nbytes, room: most(n_heads, nbytes, room + nbytes),
        "what takes the whole room fits too.",
        lambda n_heads, nbytes, room: most(n_heads, nbytes, room - 0.5),
        "powers of two only: any number may do of which H is a multiple.",
        partial(most, may=lambda n_heads, n: n_heads % n == 0 and n & (n - 1) == 0),
    ],
    said="8 of 64 where 8 fit, 8 where 10 fit, 4 of 12 where 5 fit, and None where not one fits.",
)


def multiplications(T: int, S: int, D: int, rank: int) -> tuple[int, int]:
    """Count those of T queries with S latents in one head: (expanded, absorbed)."""
    return S * rank * D + T * S * D, T * D * rank + T * S * rank


def order(T: int, S: int, D: int, rank: int, of: Callable[..., tuple[int, int]] = multiplications) -> str:
    """Name the order that takes fewer multiplications."""
    expanded, absorbed = of(T, S, D, rank)
    return "expanded" if expanded < absorbed else "absorbed"


cheaper = Exercise(
    name="cheaper",
    todo='let cheaper return "expanded" or "absorbed".',
    cases=[
        *[(1, 1000, 128, 512), (1000, 1000, 128, 512), (16, 1000, 128, 512), (4000, 8000, 128, 512)],
        *[(1000, 1000, 32, 24), (1, 1, 32, 24), (150, 1000, 128, 512), (300, 1000, 128, 512)],
    ],
    right=order,
    wrong=[
        "that is the dearer one.",
        lambda *sizes: {"expanded": "absorbed", "absorbed": "expanded"}[order(*sizes)],
        "always absorbed: with many queries at once the wide scores cost more than the keys.",
        lambda T, S, D, rank: "absorbed",
        "always expanded: for one query it makes every key anew.",
        lambda T, S, D, rank: "expanded",
        "decided by one query or several alone: count the multiplications of both orders.",
        lambda T, S, D, rank: "absorbed" if T == 1 else "expanded",
        "decided by the width alone: count what makes the keys, too.",
        lambda T, S, D, rank: "absorbed" if rank < D else "expanded",
    ],
    said="absorbed for one query, expanded for 1,000 at once, in DeepSeek-V3's sizes.",
)
