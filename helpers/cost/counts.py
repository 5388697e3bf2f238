"""The cost of a reply, from formulas: tokens processed, query-key pairs and KV entries."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

from helpers.validate import check_whole


@dataclass(frozen=True)
class ReplyCounts:
    """The cost of a reply, summed over all of its passes.

    Attributes:
        tokens_processed: tokens that went through the model; a token that goes through twice counts twice.
        pairs: (query, key) pairs that the causal mask allows, for one head of one layer.
        entries_kept: KV entries that one layer has in its cache at the end.
    """

    tokens_processed: int
    pairs: int
    entries_kept: int


def reply_counts(prompt_tokens: int, reply_tokens: int, cached: bool = True) -> ReplyCounts:
    """Return the cost of a reply, whose passes are a prefill and `reply_tokens` - 1 decode steps.

    With the cache, which drops no entries, every token except the last of the reply is processed once.
    Without it, pass k processes `prompt_tokens` + k tokens, for k from 0 to `reply_tokens` - 1. The numbers
    of their pairs are triangular numbers, and the sum of these is a difference of two tetrahedral numbers.
    """
    check_whole("prompt_tokens", prompt_tokens)
    check_whole("reply_tokens", reply_tokens)
    n_processed = prompt_tokens + reply_tokens - 1  # different tokens, by the end of the reply
    if cached:
        return ReplyCounts(
            n_processed, comb(n_processed + 1, 2), n_processed
        )  # pairs: 1 + 2 + … + n_processed
    tokens_processed = comb(n_processed + 1, 2) - comb(prompt_tokens, 2)
    return ReplyCounts(tokens_processed, comb(n_processed + 2, 3) - comb(prompt_tokens + 1, 3), 0)
