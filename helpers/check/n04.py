"""Exercises of notebook 04, the KV cache: `from helpers.check import n04 as check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.result import Result, show

NUMBERS = [float(toy.NUMBERS[word]) for word in toy.PROMPT]


def run_steps(
    decode_step: Any, stored: Sequence[float], new: Sequence[float], dropped: int = 0, swapped: bool = False
) -> dict[str, Any]:
    """Run decode steps on one cache; return the last one's contexts and what the cache holds then.

    So many rows as are dropped still lie behind the others; swapped keys call even positions odd.
    """
    cache, n_appended = toy.KVCache(), 0
    toy.run_pass(stored, cache)
    cache.truncate(len(stored) - dropped)
    cache.k[0][:, 0] = cache.k[0][:, 0] != swapped

    def append(layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal n_appended
        rows = toy.KVCache.append(cache, layer, k, v)
        n_appended += len(v)
        return rows

    vars(cache)["append"] = append
    for number in new:
        contexts = decode_step(cache, number)
    return {
        "gives": contexts,
        "leaves cache.length at": cache.length,
        "leaves V with": cache.v[0],
        "leaves K with the last row": cache.k[0][-1],
        "appends so many rows:": n_appended,
    }


def decode(cache: toy.KVCache, number: Any, at: Any = None, advance: int = 1, but: str = "") -> np.ndarray:
    """Decode as the toy does, with one thing otherwise: the position `at(cache)`, the advance, or `but`."""
    positions, mask = np.array([at(cache)]) if at else cache.positions(1), cache.mask(1)
    q, k, v = toy.make_qkv(positions, number if but == "bare number" else np.array([number]))
    keys, values = cache.append(0, k, v)
    cache.advance(advance)
    if but == "attends first":
        keys, values, mask = keys[:-1], values[:-1], mask[:, :-1]
    if but == "own row alone":
        keys, values = k, v
    return toy.attention(q, keys, values, cache.mask(1) if but == "late mask" else mask)[0]


decode_step = Exercise(
    name="decode_step",
    todo="let decode_step append the new row to the cache and return the four contexts.",
    cases=[
        Case((NUMBERS, [14.0]), "decode_step, 14 after 10, 20, 1, 5,"),
        Case(([3.0, 8, 4], [6.0]), "decode_step, 6 after 3, 8, 4,"),
        Case((NUMBERS, [14.0, 12.0]), "decode_step, 14 and then 12 on one cache,"),
        Case(([*NUMBERS, 7.0, 9.0], [14.0], 2), "decode_step after cache.truncate(4)"),
        Case((NUMBERS, [14.0], 0, True), "decode_step on keys that call even positions odd"),
    ],
    run=run_steps,
    right=toy.decode_step,
    wrong=[
        "attended before appending: a token sees its own row too.",
        partial(decode, but="attends first"),
        "not the next position: ask the cache where the new token stands, before you advance it.",
        partial(decode, at=lambda cache: 1),
        partial(decode, at=lambda cache: cache.length),
        partial(decode, at=lambda cache: len(cache.v[0]) + 1),
        "no cache.advance(1): the next token would overwrite this row.",
        partial(decode, advance=0),
        "ask for positions and mask before you advance the cache.",
        partial(decode, but="late mask"),
        "attend to the keys and values that append returns, all rows, not to k and v of the new one.",
        partial(decode, but="own row alone"),
        "make_qkv takes arrays, np.array([number]).",
        partial(decode, but="bare number"),
    ],
    said="12.5, 14, 10, 10, and 5 rows in the cache; the next step is right too.",
)


def stale_rows(layer: int, j: int, n: int) -> set[int]:
    """Return the rows of V that change in this layer with token j of n, all counted from 1."""
    return {j} if layer == 1 else {*range(j, n + 1)}


stale = Exercise(
    name="stale",
    todo="let stale return the list of the rows of V that change.",
    cases=[(1, 2, 5), (2, 2, 5), (2, 4, 6), (3, 2, 4), (1, 6, 6), (2, 3, 3)],
    right=stale_rows,
    wrong=[
        "K and V depend on their own token only in layer 1; deeper, row i carries all tokens up to i.",
        lambda layer, j, n: [j],
        lambda layer, j, n: [*range(j, n + 1)] if layer == 2 else [j],
        "in layer 1 a row is made from its own token alone (and layers count from 1).",
        lambda layer, j, n: [*range(j, n + 1)],
        lambda layer, j, n: [*range(j, n + 1)] if layer == 1 else [j],
        "rows before the change are listed; they cannot see a later token.",
        lambda layer, j, n: [j] if layer == 1 else [*range(1, n + 1)],
        lambda layer, j, n: [*range(1, n + 1)],
        "counted from 0; rows count from 1.",
        lambda layer, j, n: [row - 1 for row in sorted(stale_rows(layer, j, n))],
    ],
    said="row 2 in layer 1, rows 2, 3, 4, 5 in layer 2, and four other cases.",
)

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
    said="5.5 at `so`.",
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
            *[(TEXT, "Today weather"), (TEXT, TEXT), ("", TEXT)],
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
        lambda old, new: common(["x" * len(word) for word in old], ["x" * len(word) for word in new]),
        "one too few: the last common token's row is right too.",
        lambda old, new: max(common(old, new) - 1, 0),
        lambda old, new: min(common(old, new), len(new) - 1),
    ],
    said="5.5 at `so`; 4 rows can be kept when `nice` follows, 0 behind Oslo.",
)


def reuse_rows(even: Any, function: Any) -> Result:
    """Check the number first, then `reusable(old, new)`."""
    first = even_at_so(even)
    return reusable(function) if first.solved else first


def causal(T: int, S: int, shift: int = 0) -> np.ndarray:
    """Return the mask of the T newest of S tokens, its edge moved to the right by `shift` keys."""
    return np.tri(T, S, S - T + shift, dtype=bool)


def tell_mask(got: np.ndarray, expected: np.ndarray, first: int = 1) -> str:
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
        "shifted by one: a query does not see the token after it.",
        lambda T, S: causal(T, S, 1),
        "the stored tokens are left out; a new token sees all of them, so there are S columns.",
        lambda T, S: np.tri(T, dtype=bool),
        lambda T, S: causal(T, S) & (np.arange(S) >= S - T),
    ],
    said="visible cells: 11 in mask(2, 6), 5 in mask(1, 5), 10 in mask(4, 4).",
    tell=tell_mask,
)
