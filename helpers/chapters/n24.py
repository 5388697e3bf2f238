"""The predictions and the exercises of notebook 24, only valid words, and a sampler with a bug."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess, check_ratio_guess
from helpers.constrained import grammar
from helpers.constrained.decoding import GrammarSampler
from helpers.constrained.grammar import states_after
from helpers.sampling import GREEDY, Draft, Sampling

SEA_ENDINGS = {("the", "sea", "is", "calm"), ("the", "fox", "slept"), ("over", "the", "sea")}

endings_after = Exercise(
    name="endings_after",
    todo="let endings_after return what is left of the endings that begin with the word.",
    cases=[
        Case((endings, word), f"left after {word!r}", failure_hint=trap)
        for endings, word, trap in [
            (SEA_ENDINGS, "the", ""),
            (SEA_ENDINGS, "over", ""),
            (SEA_ENDINGS, "sea", ""),
            ({("the", "sea"), ("there", "is")}, "the", ""),
            ({("calm",), ("cold",)}, "calm", ""),
            ({(), ("calm",)}, "calm", "an empty ending has no first word."),
            ({("so", "so", "cold")}, "so", ""),
        ]
    ],
    right_answer=grammar.endings_after,
    run_case=lambda answer, endings, word: sorted(
        " ".join(ending) or "an empty ending" for ending in answer(endings, word)
    ),
    wrong_answers=[
        "the word is written: it is not left.",
        lambda endings, word: {ending for ending in endings if ending[:1] == (word,)},
        "endings that begin with another word are out, for good.",
        lambda endings, word: {ending[1:] if ending[:1] == (word,) else ending for ending in endings},
        "only an ending's first word can come next, not one in its middle.",
        lambda endings, word: {ending[ending.index(word) + 1 :] for ending in endings if word in ending},
        "one word goes from the front of an ending, not each that is alike.",
        lambda endings, word: {
            tuple(w for w in ending if w != word) for ending in endings if ending[:1] == (word,)
        },
    ],
    success="two endings are left after the, one after over, and after calm an empty one.",
)

NONE = grammar.NONE

only_valid = Exercise(
    name="only_valid",
    todo="let only_valid return the logits with -inf for each word that may not come.",
    cases=[
        (np.array([2.0, 1.0, 3.0]), np.array([3, NONE, 4])),
        (np.array([2.0, -1.0, 3.0, 0.5]), np.array([0, NONE, NONE, 2])),
        (np.array([-2.0, -1.0, -3.0]), np.array([5, NONE, 5])),
        (np.array([0.0, 7.0]), np.array([1, 1])),
    ],
    right_answer=grammar.mask_logits,
    wrong_answers=[
        "a logit of 0 is not impossible: e to the power of 0 is 1. Write -inf.",
        lambda logits, following: np.where(following != NONE, logits, 0.0),
        lambda logits, following: logits * (following != NONE),
        "state 0 is a state: its word may come. Only NONE, which is -1, forbids one.",
        lambda logits, following: np.where(following > 0, logits, -np.inf),
        "the wrong way round: the words that may come keep their logits.",
        lambda logits, following: np.where(following == NONE, logits, -np.inf),
        "the words that may come keep their logits as they are: the model chooses among them.",
        lambda logits, following: np.where(following != NONE, 0.0, -np.inf),
    ],
    success="the words that may come keep their logits, also where the next state is 0.",
)

# The table of a grammar with two texts. Their first word leads from state 0 to state 1, in which two words
# are allowed. After the first of these, two more words follow, and after the second, one. Both texts end in
# state 5.
FORK_TABLE = np.full((6, 4), NONE)
FORK_TABLE[[0, 1, 1, 2, 3, 4], [1, 0, 2, 3, 1, 2]] = [1, 2, 4, 3, 5, 5]
END_AT_ZERO_TABLE = np.array(
    [[NONE, NONE], [0, NONE], [NONE, 1]]
)  # two words lead from state 2 to the end, state 0


def forced_words_or_states(
    table: np.ndarray, state: int, max_words: int = 9, return_states: bool = False
) -> list[int]:
    """Return the forced words that follow a state, or the states after these words.

    Args:
        table: the table of the grammar.
        state: the state from which the words are forced.
        max_words: maximum number of words.
        return_states: whether to return the states, which is a typical wrong answer.
    """
    run = grammar.forced_words(table, state)[:max_words]
    return grammar.states_after(table, state, run) if return_states else run


def first_allowed_words(table: np.ndarray, state: int) -> list[int]:
    """Return the words from a state to the end of a text. In each state, the first allowed word is chosen."""
    run = list[int]()
    while len(may := np.flatnonzero(table[state] != NONE)):
        run.append(int(may[0]))
        state = table[state, run[-1]]
    return run


must_come = Exercise(
    name="must_come",
    todo="let must_come return the words that must come next.",
    cases=[
        Case((FORK_TABLE, 0), "must_come from state 0"),
        Case((FORK_TABLE, 2), "must_come from state 2"),
        Case((FORK_TABLE, 4), "must_come from state 4"),
        Case((END_AT_ZERO_TABLE, 2), "must_come from state 2 of another table, whose end is state 0"),
        Case((FORK_TABLE, 1), "must_come from state 1, a choice", failure_hint="no word is forced: give []."),
        Case(
            (FORK_TABLE, 5),
            "must_come from state 5, the end",
            failure_hint="at the end no word may come: give [].",
        ),
    ],
    right_answer=grammar.forced_words,
    wrong_answers=[
        "go on from the state after the word: several in a row may be forced.",
        lambda table, state: forced_words_or_states(table, state, max_words=1),
        "stop before a state where several words may come: there is a choice.",
        first_allowed_words,
        "return the words, the columns of the table, not the states after them.",
        lambda table, state: forced_words_or_states(table, state, return_states=True),
        "the model chooses only where several words may come.",
        lambda table, state: np.flatnonzero(table[state] != NONE).tolist(),
    ],
    success="one word before a choice, two to the end, and none where two may come or nothing follows.",
)


def check_warm_texts_guess(guess: Any) -> Guess:
    """Compare a guess of whether rejection sampling gives more texts "warm" than masking does.

    Rejection sampling generates texts again until they are valid. Masking prevents invalid words. The guess
    says whether 100 valid texts contain "more", "fewer" or "as many" texts "warm" with rejection sampling.
    """
    why = "A whole text counts. delicious after nice is so rare that nice delicious hardly ever comes."
    return Guess(guess, "more", why, options=["more", "fewer", "as many"])


def check_speedup_guess(guess: Any, seconds_one_by_one: float, seconds_jumping: float) -> Guess:
    """Compare a guess of the speedup from jumping over forced words with the measured speedup.

    The options are 2, 7 and 49, and the nearest to the measured speedup is right.

    Args:
        guess: the reader's guess.
        seconds_one_by_one: measured time if every word takes one pass.
        seconds_jumping: measured time if forced words are added without a pass each.
    """
    return check_ratio_guess(guess, (2, 7, 49), seconds_one_by_one / seconds_jumping, "49 passes against 7.")


class WrongPass(NamedTuple):
    """A pass with drafted tokens after which the sampler was in a wrong state."""

    draft_tokens: list[int]
    states: list[int]  # states before the draft and after each drafted token
    new_tokens: list[int]


class NoRollbackSampler(GrammarSampler):
    """A `GrammarSampler` with a deliberate bug: it does not roll its state back after a rejected token.

    Attributes:
        wrong_passes: the passes after which the state was wrong.
    """

    def __init__(self, table: np.ndarray, sampling: Sampling = GREEDY) -> None:
        super().__init__(table, sampling)
        self.wrong_passes = list[WrongPass]()

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        states = [self.state, *states_after(self.table, self.state, draft.tokens)]
        output = super().verify(draft, logits)
        right, ahead = self.state, [state for state in states if state != NONE][-1]
        following = int(self.table[ahead, output[-1]])
        self.state = ahead if following == NONE else following
        if self.state != right:
            self.wrong_passes.append(WrongPass(draft.tokens, states, output))
        return output
