"""Formulas for the cost of a reply: tokens processed, query-key pairs and KV entries."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from helpers.validate import check_whole


@dataclass(frozen=True)
class ReplyCounts:
    """The cost of a reply, in total over all passes that produce it.

    Attributes:
        tokens_processed: number of tokens that the model processed. A token that is processed in two passes
            counts twice.
        pairs: number of (query, key) pairs that the causal mask allows, in one head of one layer.
        entries_kept: number of KV entries in one layer's cache after the last pass.
    """

    tokens_processed: int
    pairs: int
    entries_kept: int


def reply_counts(prompt_tokens: int, reply_tokens: int, cached: bool = True) -> ReplyCounts:
    """Return the cost of a reply that takes a prefill and `reply_tokens` - 1 decode steps.

    With a cache that drops no entries, each token is processed once, except the reply's last token, which is
    never processed. Without a cache, pass k processes `prompt_tokens` + k tokens, for k from 0 to
    `reply_tokens` - 1. The number of query-key pairs in each of these passes is a triangular number, and the
    sum over all passes is a difference of two tetrahedral numbers.
    """
    check_whole("prompt_tokens", prompt_tokens)
    check_whole("reply_tokens", reply_tokens)
    n_processed = prompt_tokens + reply_tokens - 1  # number of different tokens, over all passes
    if cached:
        return ReplyCounts(
            n_processed, comb(n_processed + 1, 2), n_processed
        )  # pairs: 1 + 2 + … + n_processed
    tokens_processed = comb(n_processed + 1, 2) - comb(prompt_tokens, 2)
    return ReplyCounts(tokens_processed, comb(n_processed + 2, 3) - comb(prompt_tokens + 1, 3), 0)
