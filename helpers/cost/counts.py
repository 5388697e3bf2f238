"""The cost of a reply, from formulas: tokens processed, query-key pairs and KV entries."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from helpers.validate import check_whole


@dataclass(frozen=True)
class Counts:
    """The cost of a reply, summed over all of its passes.

    Attributes:
        tokens_processed: tokens that went through the model; a token that goes through twice counts twice.
        pairs: (query, key) pairs that the causal mask allows, for one head of one layer.
        entries_kept: KV entries that one layer has in its cache at the end.
    """

    tokens_processed: int
    pairs: int
    entries_kept: int


def whole_reply(prompt: int, reply: int, cached: bool = True) -> Counts:
    """Return the cost of a reply of `reply` tokens: a prefill of `prompt` tokens and reply - 1 decode steps.

    With the cache, which drops no entries, every token except the last of the reply is processed once.
    Without it, pass k processes prompt + k tokens, for k from 0 to reply - 1. Their pairs are a sum of
    triangular numbers, which is a difference of two tetrahedral numbers.
    """
    check_whole("prompt", prompt)
    check_whole("reply", reply)
    n_processed = prompt + reply - 1  # different tokens, by the end of the reply
    if cached:
        return Counts(n_processed, comb(n_processed + 1, 2), n_processed)  # pairs: 1 + 2 + … + n_processed
    tokens_processed = comb(n_processed + 1, 2) - comb(prompt, 2)
    return Counts(tokens_processed, comb(n_processed + 2, 3) - comb(prompt + 1, 3), 0)
