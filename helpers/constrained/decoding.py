"""Constrained decoding: the logits of words that the grammar does not allow next are masked.

The mask is applied to the model's output, so it changes no KV entries. If only one word is allowed, it is
appended without a separate pass. When draft tokens are rejected, the grammar's state is rolled back, and so
is the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from helpers.constrained.grammar import NONE, final_state, forced_words, mask_logits, states_after
from helpers.model.cache import Cache
from helpers.model.generate import check_empty, prefill
from helpers.model.speculate import Drafter, speculate_round
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Chooser, Draft, Sampler, Sampling


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
        run = forced_words(table, state) if jump_forward else []
        text += run
        state = final_state(table, state, run)
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


class GrammarSampler(Sampler):
    """A `Sampler` that verifies draft tokens with logits masked by a grammar.

    Args:
        table: the grammar's table, from `tabulate`, of shape (states, V).
        sampling: settings for choosing tokens.

    Attributes:
        state: the grammar's state after the last token that `verify` returned.
    """

    def __init__(self, table: np.ndarray, sampling: Sampling = GREEDY) -> None:
        super().__init__(sampling, table.shape[1])
        self.table, self.state = table, 0

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return the new tokens, as `Sampler.verify` does, and update the grammar's state.

        Draft tokens that the grammar does not allow are rejected. So are all tokens after the end of a text.
        """
        states = [self.state, *states_after(self.table, self.state, draft.tokens)]
        output_ids = super().verify(draft, self.mask(states, logits))
        states = [self.state, *states_after(self.table, self.state, output_ids)]
        output_ids = output_ids[: sum(map(self.can_continue, states[:-1]))]  # nothing follows the end
        self.state = states[len(output_ids)]
        return output_ids

    def mask(self, states: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """Return logits in which the words that the grammar does not allow are set to -inf.

        Args:
            states: d + 1 states, one before each position. Where the state is `NONE` or an end state, the
                logits are left unmasked.
            logits: logits of the d + 1 positions, of shape (d + 1, V).
        """
        unmasked = np.zeros(logits.shape[1])
        next_states = [self.table[state] if self.can_continue(state) else unmasked for state in states]
        return mask_logits(logits, np.array(next_states))

    def can_continue(self, state: int) -> bool:
        """Return whether a state allows any word. The state `NONE` does not."""
        return state != NONE and bool((self.table[state] != NONE).any())


class SpeculatedReply(NamedTuple):
    """A reply that follows a grammar, generated by speculative decoding."""

    output_ids: list[int]
    n_passes: int


def speculate_constrained(
    model: Transformer,
    prompt: list[int],
    sampler: GrammarSampler,
    drafter: Drafter,
    cache: Cache,
    k: int = 4,
) -> SpeculatedReply:
    """Generate a reply that follows the sampler's grammar, by speculative decoding.

    Args:
        model: the model.
        prompt: ids of the prompt, which the grammar does not cover.
        sampler: chooses the tokens. Its state is first reset to the grammar's start state.
        drafter: proposes the draft tokens.
        cache: an empty cache.
        k: number of draft tokens per pass; the first pass, which processes the prompt, has none.

    Raises:
        ValueError: as in `generate_constrained` and `speculate_round`.
    """
    check_table(sampler.table, model.config.vocab_size)
    check_empty(model, cache, len(prompt))
    text, passes, sampler.state = [*prompt], 0, 0
    while sampler.can_continue(sampler.state):
        drafts = k if cache.length else 0
        text += speculate_round(model, text, drafts, drafter, cache, sampler).new_tokens
        passes += 1
    return SpeculatedReply(text[len(prompt) :], passes)
