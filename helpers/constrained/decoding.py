"""Constrained decoding: at each token the model's logits are masked by what the grammar allows.

The mask is applied after the model and changes no KV entry. A word that is the only one allowed is appended
without a pass of its own. With drafts, the state of the grammar is rolled back like the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.constrained.grammar import NONE, final_state, forced_words, mask_logits, states_after
from helpers.model.cache import Cache
from helpers.model.generate import check_empty, prefill
from helpers.model.speculate import Drafter, speculate_round
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Chooser, Draft, Sampler, Sampling


def generate_constrained(
    model: Transformer,
    prompt: list[int],
    table: np.ndarray,
    choose: Chooser,
    cache: Cache,
    jump: bool = True,
) -> tuple[list[int], list[int]]:
    """Generate a text that follows a grammar.

    Args:
        prompt: ids, before the grammar begins.
        table: of the grammar, (states, V), as `tabulate` returns it.
        choose: from logits (V,) to a token.
        cache: an empty cache; afterwards it has the entries of all tokens before the last chosen one.
        jump: run forced words together with the tokens before them; otherwise each has a pass of its own.

    Returns:
        The new ids, and the indices, from 0, of those that were chosen, one for each pass.

    Raises:
        ValueError: a table of another vocabulary, or a text that does not fit into the cache.
    """
    check_table(table, model.config.vocab_size)
    check_empty(model, cache, len(prompt))
    text, state = [*prompt], 0
    chosen: list[int] = []
    while True:
        run = forced_words(table, state) if jump else []
        text += run
        state = final_state(table, state, run)
        if (table[state] == NONE).all():
            return text[len(prompt) :], chosen
        logits = prefill(model, text[cache.length :], cache)[0].numpy()
        chosen.append(len(text) - len(prompt))
        text.append(choose(mask_logits(logits, table[state])))
        state = table[state, text[-1]]


def check_table(table: np.ndarray, vocab_size: int) -> None:
    """Raise ValueError unless a table has a column for each word of the model's vocabulary."""
    if table.shape[1] != vocab_size:
        raise ValueError(f"the table has {table.shape[1]} words; expected the model's {vocab_size}")


class GrammarSampler(Sampler):
    """Verifies draft tokens as `Sampler` does, with masked logits.

    Attributes:
        state: of the grammar, after the last accepted token.
    """

    def __init__(self, table: np.ndarray, sampling: Sampling = GREEDY) -> None:
        super().__init__(sampling, table.shape[1])
        self.table, self.state = table, 0

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """See `Sampler.verify`; a draft token that the grammar does not allow is rejected."""
        states = [self.state, *states_after(self.table, self.state, draft.tokens)]
        output_ids = super().verify(draft, self.mask(states, logits))
        states = [self.state, *states_after(self.table, self.state, output_ids)]
        output_ids = output_ids[: sum(map(self.can_continue, states[:-1]))]  # nothing follows the end
        self.state = states[len(output_ids)]
        return output_ids

    def mask(self, states: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """Mask the logits of each position, (d + 1, V); after a rejected word or the end, none is."""
        unmasked = np.zeros(logits.shape[1])
        next_states = [self.table[state] if self.can_continue(state) else unmasked for state in states]
        return mask_logits(logits, np.array(next_states))

    def can_continue(self, state: int) -> bool:
        """Whether any word is allowed in this state."""
        return state != NONE and bool((self.table[state] != NONE).any())


def speculate_constrained(
    model: Transformer,
    prompt: list[int],
    sampler: GrammarSampler,
    drafter: Drafter,
    cache: Cache,
    k: int = 4,
) -> tuple[list[int], int]:
    """Generate a text of the sampler's grammar with k draft tokens a pass; return the new ids and the passes.

    Errors as in `generate_constrained` and `speculate_round`.
    """
    check_table(sampler.table, model.config.vocab_size)
    check_empty(model, cache, len(prompt))
    text, passes, sampler.state = [*prompt], 0, 0
    while sampler.can_continue(sampler.state):
        drafts = k if cache.length else 0
        text += speculate_round(model, text, drafts, drafter, cache, sampler)[1]
        passes += 1
    return text[len(prompt) :], passes
