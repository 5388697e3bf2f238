"""What a reply costs, in closed form: the counts of FACTS that a recorder finds by counting."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from helpers.validate import check_whole


@dataclass(frozen=True)
class Counts:
    """What a reply takes, all of its passes together.

    Attributes:
        tokens_processed: tokens put through the model, counted again if put through again.
        pairs: visible (query, key) pairs of one head and one layer.
        rows_kept: rows in the cache when it has ended, of one layer; a row is one token's K and V.
    """

    tokens_processed: int
    pairs: int
    rows_kept: int


def whole_reply(prompt: int, reply: int, cached: bool = True) -> Counts:
    """Return the work of a reply of so many tokens: prefill, then reply - 1 decode steps; no row is dropped.

    With the cache every token but the last emitted runs once. Without it pass k runs prompt + k tokens,
    for k from 0 to reply - 1, and their triangles add up to a difference of tetrahedral numbers.
    """
    check_whole("prompt", prompt)
    check_whole("reply", reply)
    last = prompt + reply - 1  # tokens that have run when the reply ends
    if cached:
        return Counts(last, comb(last + 1, 2), last)  # 1 + 2 + … + last, a triangle
    tokens_processed = comb(last + 1, 2) - comb(prompt, 2)
    return Counts(tokens_processed, comb(last + 2, 3) - comb(prompt + 1, 3), 0)
