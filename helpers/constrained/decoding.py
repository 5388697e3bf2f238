"""Constrained decoding: at each token the model's logits are masked by what the grammar allows there.

The mask comes behind the model and changes no row. Where only one word may come it is taken without a pass
of its own, and with drafts the state of the grammar is taken back as the rows are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.constrained.grammar import NONE, end_of, forced, masked, walk
from helpers.model.cache import Cache
from helpers.model.generate import check_empty, prefill
from helpers.model.speculate import Drafter, speculate_round
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Chooser, Draft, Sampler, Sampling


def write(
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
        table: the grammar's, (states, V), as of `tabulate`.
        choose: from logits (V,) to a token.
        cache: an empty one; afterwards it has the rows of all tokens before the last that was chosen.
        jump: words that must come run along with what comes before; without it, each has a pass of its own.

    Returns:
        The new ids, and where those stand that were chosen, from 0: a pass each.

    Raises:
        ValueError: a table over another vocabulary, or a text that does not fit into the cache.
    """
    check_words(table, model.config.vocab_size)
    check_empty(model, cache, len(prompt))
    text, state = [*prompt], 0
    chosen: list[int] = []
    while True:
        run = forced(table, state) if jump else []
        text += run
        state = end_of(table, state, run)
        if (table[state] == NONE).all():
            return text[len(prompt) :], chosen
        logits = prefill(model, text[cache.length :], cache)[0].numpy()
        chosen.append(len(text) - len(prompt))
        text.append(choose(masked(logits, table[state])))
        state = table[state, text[-1]]


def check_words(table: np.ndarray, vocab_size: int) -> None:
    """Raise ValueError unless a table has a column for each word of the model's vocabulary."""
    if table.shape[1] != vocab_size:
        raise ValueError(f"the table is over {table.shape[1]} words; expected the model's {vocab_size}")


class GrammarSampler(Sampler):
    """Verifies drafted tokens as `Sampler` does, by masked logits.

    Attributes:
        state: of the grammar, behind the last accepted token.
    """

    def __init__(self, table: np.ndarray, sampling: Sampling = GREEDY) -> None:
        super().__init__(sampling, table.shape[1])
        self.table, self.state = table, 0

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """See `Sampler.verify`; a draft token that the grammar does not allow is rejected."""
        states = [self.state, *walk(self.table, self.state, draft.tokens)]
        output_ids = super().verify(draft, self.mask(states, logits))
        states = [self.state, *walk(self.table, self.state, output_ids)]
        output_ids = output_ids[: sum(map(self.goes_on, states[:-1]))]  # nothing follows the grammar's end
        self.state = states[len(output_ids)]
        return output_ids

    def mask(self, states: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """Mask each place's logits, (d + 1, V); behind a word that may not come, or the end, none counts."""
        at = [self.table[state] if self.goes_on(state) else np.zeros(logits.shape[1]) for state in states]
        return masked(logits, np.array(at))

    def goes_on(self, state: int) -> bool:
        """Whether some word may come in this state."""
        return state != NONE and bool((self.table[state] != NONE).any())


def write_with_drafts(
    model: Transformer,
    prompt: list[int],
    sampler: GrammarSampler,
    drafter: Drafter,
    cache: Cache,
    k: int = 4,
) -> tuple[list[int], int]:
    """Generate a text of the sampler's grammar, k tokens drafted a pass; return the new ids and the passes.

    Errors as in `write` and `speculate_round`.
    """
    check_words(sampler.table, model.config.vocab_size)
    check_empty(model, cache, len(prompt))
    text, passes, sampler.state = [*prompt], 0, 0
    while sampler.goes_on(sampler.state):
        drafts = k if cache.length else 0
        text += speculate_round(model, text, drafts, drafter, cache, sampler)[1]
        passes += 1
    return text[len(prompt) :], passes
