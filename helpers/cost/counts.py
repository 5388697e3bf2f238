"""What a reply costs, in closed form: the counts of FACTS that a recorder finds by counting."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.arguments import check_whole


@dataclass(frozen=True)
class Counts:
    """What a reply takes, all of its passes together.

    Attributes:
        tokens_processed: tokens put through the model, counted again if put through again.
        pairs: visible (query, key) pairs of one head and one layer.
        rows_read: rows read from the cache, of one layer; a row is one token's K and V.
        rows_kept: rows in the cache when it has ended, of one layer.
    """

    tokens_processed: int
    pairs: int
    rows_read: int
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
        rows_read = _triangular(last - 1) - _triangular(prompt - 1)
        return Counts(last, _triangular(last), rows_read, last)
    tokens_processed = _triangular(last) - _triangular(prompt - 1)
    return Counts(tokens_processed, _tetrahedral(last) - _tetrahedral(prompt - 1), 0, 0)


def _triangular(n: int) -> int:
    """1 + 2 + … + n"""
    return n * (n + 1) // 2


def _tetrahedral(n: int) -> int:
    """1 + 3 + 6 + …, n triangles"""
    return n * (n + 1) * (n + 2) // 6
