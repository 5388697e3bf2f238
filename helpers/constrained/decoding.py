"""Constrained decoding: the logits of words that the grammar does not allow next are masked.

The mask is applied to the model's output, so it changes no KV entries. If only one word is allowed, it is
appended without a separate pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from helpers.constrained.grammar import NONE, final_state, forced_words, mask_logits
from helpers.model.cache import Cache
from helpers.model.generate import check_empty, prefill
from helpers.model.transformer import Transformer
from helpers.sampling import Chooser


class ConstrainedReply(NamedTuple):
    """A reply that follows a grammar."""

    output_ids: list[int]  # ids of the reply
    chosen_indices: list[int]  # indices in it, from 0, of the ids chosen from logits, one for each pass


def generate_constrained(
    model: Transformer,
    prompt: list[int],
    table: np.ndarray,
    choose: Chooser,
    cache: Cache,
    jump_forward: bool = True,
) -> ConstrainedReply:
    """Generate a reply that follows a grammar.

    Args:
        model: the model.
        prompt: ids of the prompt, which the grammar does not cover.
        table: the grammar's table, from `tabulate`, of shape (states, V).
        choose: function that maps masked logits, of shape (V,), to the id of the chosen token.
        cache: an empty cache. After the call, it has the entries of all tokens before the last token that was
            chosen.
        jump_forward: whether to append forced words without calling the model, and process them in the next
            pass. A word is forced if it is the only one allowed. If false, each forced word takes a separate
            pass.

    Raises:
        ValueError: the table does not match the model's vocabulary, or prompt and reply do not fit into the
            cache.
    """
    check_table(table, model.config.vocab_size)
    check_empty(model, cache, len(prompt))
    text, state = [*prompt], 0
    chosen: list[int] = []
    while True:
        forced = forced_words(table, state) if jump_forward else []
        text += forced
        state = final_state(table, state, forced)
        if (table[state] == NONE).all():
            return ConstrainedReply(text[len(prompt) :], chosen)
        logits = prefill(model, text[cache.length :], cache)[0].numpy()
        chosen.append(len(text) - len(prompt))
        text.append(choose(mask_logits(logits, table[state])))
        state = table[state, text[-1]]


def check_table(table: np.ndarray, vocab_size: int) -> None:
    """Raise ValueError unless a table has `vocab_size` columns, one per token of the vocabulary."""
    if table.shape[1] != vocab_size:
        raise ValueError(f"the table has {table.shape[1]} words; expected the model's {vocab_size}")
