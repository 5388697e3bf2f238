"""What a reply costs, in closed form: the counts of FACTS that a recorder finds by counting.

`prompt` and `reply` are numbers of tokens, of the prompt and of what is emitted; no row is ever dropped.
Pairs are visible (query, key) pairs of one head and one layer; a row is one token's K and V, in every layer.
Without a cache a decode step is prefill again with the new token added.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.arguments import check_whole


@dataclass(frozen=True)
class Counts:
    """What one pass or a whole reply takes.

    Attributes:
        tokens_run: tokens put through the model, counted again if put through again.
        pairs: visible (query, key) pairs of one head and one layer.
        rows_read: K/V rows read from the cache, of one layer.
        rows_kept: K/V rows in the cache afterwards, of one layer.
    """

    tokens_run: int
    pairs: int
    rows_read: int
    rows_kept: int


def prefill(prompt: int, cached: bool = True) -> Counts:
    """Return the work of the pass over the whole prompt; ValueError for a count that is not over 0."""
    check_whole("prompt", prompt)
    return Counts(prompt, _triangular(prompt), 0, prompt if cached else 0)


def decode_step(visible: int, cached: bool = True) -> Counts:
    """Return the work of one decode step.

    Args:
        visible: tokens that the newest one sees, itself among them.
        cached: whether earlier rows lie in a cache.

    Raises:
        ValueError: visible is no whole number over 0.
    """
    check_whole("visible", visible)
    if cached:
        return Counts(1, visible, visible - 1, visible)
    return Counts(visible, _triangular(visible), 0, 0)


def passes(prompt: int, reply: int, cached: bool = True) -> list[Counts]:
    """Return the work of each pass of a reply: prefill, then reply - 1 decode steps.

    Raises:
        ValueError: a count is no whole number over 0.
    """
    check_whole("reply", reply)
    steps = [decode_step(visible, cached) for visible in range(prompt + 1, prompt + reply)]
    return [prefill(prompt, cached), *steps]


def whole_reply(prompt: int, reply: int, cached: bool = True) -> Counts:
    """Return the work of all passes of a reply together; `rows_kept` as after the last.

    With the cache every token but the last emitted runs once. Without it pass k runs prompt + k tokens,
    for k from 0 to reply - 1, and their triangles add up to a difference of tetrahedral numbers.

    Raises:
        ValueError: a count is no whole number over 0.
    """
    check_whole("prompt", prompt)
    check_whole("reply", reply)
    last = prompt + reply - 1  # tokens that have run when the reply ends
    if cached:
        rows_read = _triangular(last - 1) - _triangular(prompt - 1)
        return Counts(last, _triangular(last), rows_read, last)
    tokens_run = _triangular(last) - _triangular(prompt - 1)
    return Counts(tokens_run, _tetrahedral(last) - _tetrahedral(prompt - 1), 0, 0)


def _triangular(n: int) -> int:
    """1 + 2 + … + n"""
    return n * (n + 1) // 2


def _tetrahedral(n: int) -> int:
    """1 + 3 + 6 + …, n triangles"""
    return n * (n + 1) * (n + 2) // 6
