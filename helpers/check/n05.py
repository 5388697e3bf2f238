"""Exercises of notebook 05, keep it right: `from helpers.check import n05 as check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.check.exercise import Case, Exercise
from helpers.check.n04 import NUMBERS
from helpers.check.result import Result, show

OSLO = [8.0, *NUMBERS]
even_at_so = Exercise(
    name="even_at_so",
    todo="write what `even` gives at `so` when Oslo (8) stands in front.",
    cases=[Case((), "even_at_so", wanted="the average of the numbers that now stand at positions 2 and 4")],
    run=lambda answer: answer,
    right=sum(OSLO[1::2]) / 2,
    wrong=[
        "the old rows were reused, but every position moved: only a prefix is reusable.",
        sum(NUMBERS[1::2]) / 2,
        "counted from 0 (Oslo stands at position 1, which is odd), or added up, not averaged.",
        sum(OSLO[::2]) / 3,
    ],
    success="5.5 at `so`.",
)


def common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many tokens two lists have in common at the start."""
    return [*(a == b for a, b in zip(old, new, strict=False)), False].index(False)


TEXT, SHORTER = "Today weather is so", "one list may be shorter than the other, or empty."
ONLY_A_PREFIX = "only a common prefix is reusable: after the first difference, rows carry another beginning."
reusable = Exercise(
    name="reusable",
    todo="even_at_so, 5.5, is right; now let reusable return how many rows can be kept.",
    cases=[
        Case((old.split(), new.split()), f"reusable for {old or 'no tokens'} → {new}", SHORTER)
        for old, new in [
            *[(TEXT, f"{TEXT} nice"), (TEXT, f"Oslo {TEXT}"), (TEXT, "Today weather was so")],
            *[(TEXT, "Today weather as so"), (TEXT, "so is weather Today"), ("so so nice", "so so so nice")],
            *[(TEXT, "Today weather island"), (TEXT, "Today weather"), (TEXT, TEXT), ("", TEXT)],
        ]
    ],
    right=common,
    wrong=[
        f"common words were counted wherever they stand; {ONLY_A_PREFIX}",
        lambda old, new: len(set(old) & set(new)),
        lambda old, new: sum(word in new for word in old),
        f"words after the first difference were counted; {ONLY_A_PREFIX}",
        lambda old, new: sum(a == b for a, b in zip(old, new, strict=False)),
        "all or nothing: a part of the beginning can be kept too.",
        lambda old, new: len(old) if new[: len(old)] == old else 0,
        "lengths were compared; a row can be kept if its token and all before it are the same.",
        lambda old, new: len(old),
        lambda old, new: min(len(old), len(new)),
    ],
    success="5.5 at `so`; 4 rows can be kept when `nice` follows, 0 behind Oslo.",
)


def reuse_rows(even: Any, function: Any) -> Result:
    """Check the number first, then `reusable(old, new)`."""
    first = even_at_so(even)
    return reusable(function) if first.solved else first


def causal(T: int, S: int, shift: int = 0) -> np.ndarray:
    """Return the mask of the T newest of S tokens, its edge moved to the right by `shift` keys."""
    return np.tri(T, S, S - T + shift, dtype=bool)


def mask_difference(got: np.ndarray, expected: np.ndarray, first: int = 1) -> str:
    """Tell the first query that sees other keys; both count from `first`."""
    query = int((got != expected).any(axis=1).argmax())
    seen, wanted = (show(np.flatnonzero(mask[query]) + first) for mask in (got, expected))
    return f"lets query {query + first} of {len(got)} see keys {seen}; expected {wanted}"


MASKS = [(2, 6), (1, 5), (4, 4), (3, 7), (1, 1)]  # T, S
mask = Exercise(
    name="mask",
    todo="let mask return (T, S), True where one of the T newest tokens may look at one of all S.",
    cases=MASKS,
    right=causal,
    wrong=[
        "aligned top-left: the T new tokens stand at the end of the S, so query 1 sees S - T + 1 keys.",
        lambda T, S: np.tri(T, S, dtype=bool),
        "no mask: a query sees tokens that come after it.",
        lambda T, S: np.ones((T, S), dtype=bool),
        "upside down: True is where the query may look.",
        lambda T, S: ~causal(T, S),
        "shifted by one: a query sees itself too.",
        lambda T, S: causal(T, S, -1),
    ],
    success="visible cells: 11 in mask(2, 6), 5 in mask(1, 5), 10 in mask(4, 4).",
    difference=mask_difference,
)
