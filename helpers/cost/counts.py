"""What a reply costs in closed form: tokens processed, query-key pairs and KV entries."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from helpers.validate import check_whole


@dataclass(frozen=True)
class Counts:
    """The cost of a reply, over all of its passes.

    Attributes:
        tokens_processed: tokens that went through the model; a token that goes through twice counts twice.
        pairs: visible (query, key) pairs of one head in one layer.
        entries_kept: KV entries of one layer that are cached at the end.
    """

    tokens_processed: int
    pairs: int
    entries_kept: int


def whole_reply(prompt: int, reply: int, cached: bool = True) -> Counts:
    """Return the cost of a reply of `reply` tokens: prefill, then reply - 1 decode steps, all entries kept.

    With the cache, every token but the last one of the reply is processed once. Without it, pass k processes
    prompt + k tokens, for k from 0 to reply - 1; the sum of their triangular numbers is a difference of
    tetrahedral numbers.
    """
    check_whole("prompt", prompt)
    check_whole("reply", reply)
    n_processed = prompt + reply - 1  # different tokens, by the end of the reply
    if cached:
        return Counts(n_processed, comb(n_processed + 1, 2), n_processed)  # pairs: 1 + 2 + … + n_processed
    tokens_processed = comb(n_processed + 1, 2) - comb(prompt, 2)
    return Counts(tokens_processed, comb(n_processed + 2, 3) - comb(prompt + 1, 3), 0)
