"""Grammars that a text must follow. A grammar is compiled to a table of the words allowed next.

    rules = {"{sky}": [("sunny",), ("rainy",)], "{report}": [("Monday", "is", "{sky}", "<eos>")]}
    table = tabulate(rules, "{report}", ["<eos>", "Monday", "is", "rainy", "sunny"])

A rule has a name and several alternatives. Each alternative is a tuple of words and rule names. An ending is
a tuple, also of words and rule names, that can complete the text. A state is the set of all endings that are
possible at one point of the text, expanded until each begins with a word or is empty. Each word allowed in a
state leads to a next state.

Source: the stacks of llama.cpp's grammars, github.com/ggml-org/llama.cpp, src/llama-grammar.cpp.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase, digits, printable

import numpy as np

Ending = tuple[str, ...]
Rules = Mapping[str, Sequence[Ending]]
State = frozenset[Ending]

NONE = -1  # in a table: the word is not allowed
MAX_STATES = 2_000  # maximum number of states in a table
CHARACTERS = ["<eos>", *printable[:95]]  # the printable characters of ASCII, including the space
FOODS = ("soup", "bread", "cake", "rice", "pie")
PERSON: Rules = {  # JSON with a word per character: {"name":"Mia","age":31,"likes":["cake","rice"]}
    "{person}": [(*'{"name":"', "{name}", *'","age":', "{age}", *',"likes":[', "{foods}", "}", "<eos>")],
    "{name}": [("{capital}", *["{letter}"] * n) for n in range(1, 8)],
    "{age}": [("{digit}",), *[(tens, "{digit}") for tens in digits[1:]]],
    "{foods}": [("{food}", *[",", "{food}"] * n, "]") for n in range(3)],
    "{food}": [(*f'"{food}"',) for food in FOODS],
    "{capital}": [(letter,) for letter in ascii_uppercase],
    "{letter}": [(letter,) for letter in ascii_lowercase],
    "{digit}": [(digit,) for digit in digits],
}


def expand(ending: Ending, rules: Rules) -> State:
    """Expand the first rule of an ending until each resulting ending begins with a word; return all of them.

    No rule may begin with itself, directly or through other rules. An empty ending is returned unchanged.
    """
    if not ending or ending[0] not in rules:
        return frozenset([ending])
    return frozenset().union(*(expand((*choice, *ending[1:]), rules) for choice in rules[ending[0]]))


def endings_after(endings: Iterable[Ending], word: str) -> set[Ending]:
    """Return the endings that begin with a word, with that word removed."""
    return {ending[1:] for ending in endings if ending and ending[0] == word}


def next_state(state: State, word: str, rules: Rules) -> State:
    """Return the state that follows a state after a word. It is empty if no ending begins with that word."""
    return frozenset().union(*(expand(ending, rules) for ending in endings_after(state, word)))


def tabulate(rules: Rules, start: str, vocabulary: Sequence[str]) -> np.ndarray:
    """Return a grammar's table: for each state and word, the index of the next state, or `NONE`.

    The table has shape (states, V). `NONE` means that the word is not allowed. State 0 is the start. A text
    ends in a state where no word is allowed.

    Args:
        rules: the grammar. Each of its texts should end with a special word, such as `<eos>`.
        start: name of the rule for a whole text.
        vocabulary: all words, in the order of their token ids.

    Raises:
        ValueError: a word is not in the vocabulary; one text is the beginning of another; there are over
            `MAX_STATES` states, for example because a rule contains itself; or some text can never end.
    """
    ids = {word: i for i, word in enumerate(vocabulary)}
    states, rows = {expand((start,), rules): 0}, list[np.ndarray]()
    for state in (queue := list(states)):
        row = np.full(len(ids), NONE)
        words = {ending[0] for ending in state if ending}
        if words and () in state:
            message = f"a text may end where {min(words)!r} may also follow"
            raise ValueError(f"{message}; end each text with a special word, such as <eos>")
        if unknown := words - {*ids}:
            raise ValueError(
                f"{min(unknown)!r} is in the grammar, but not in the vocabulary of {len(ids)} words"
            )
        for word in sorted(words, key=ids.__getitem__):  # so that the numbers of states are reproducible
            following = next_state(state, word, rules)
            if following not in states:
                states[following] = len(states)
                queue.append(following)
            row[ids[word]] = states[following]
        rows.append(row)
        if len(states) > MAX_STATES:
            raise ValueError(
                f"the grammar has over {MAX_STATES} states; expected fewer: it nests, or counts too far"
            )
    table = np.array(rows)
    ends = (table == NONE).all(axis=1)
    for _ in table:  # add the states from which an end can be reached
        ends |= (ends[table] & (table != NONE)).any(axis=1)
    if not ends.all():
        raise ValueError("a text of this grammar may never end; expected a way to the end from every state")
    return table


def lift_to_tokens(table: np.ndarray, characters: Sequence[str], tokens: Sequence[str]) -> np.ndarray:
    """Convert a table over characters into a table over tokens, with the same states.

    A token is allowed if its characters are allowed one after another. An empty token is never allowed.

    Args:
        table: table over characters, of shape (states, characters).
        characters: the character, or special word, of each column.
        tokens: the text of each token.

    Returns:
        The table over tokens, of shape (states, tokens).

    Source: Willard and Louf 2023, arXiv:2307.09702.
    """
    column_of = {character: table[:, i] for i, character in enumerate(characters)}
    not_allowed = np.full(len(table), NONE)
    columns = []
    for token in tokens:
        states = np.arange(len(table)) if token else not_allowed
        for character in [token] if token in column_of else token:
            states = np.where(states == NONE, NONE, column_of.get(character, not_allowed)[states])
        columns.append(states)
    return np.stack(columns, axis=1)


def forced_words(table: np.ndarray, state: int) -> list[int]:
    """Return the ids of the words that must follow, until a state allows several words or no word.

    Args:
        table: table of the grammar, of shape (states, V).
        state: the state to begin with.

    Raises:
        ValueError: the forced words never end.
    """
    run = list[int]()
    while len(allowed := np.flatnonzero(table[state] != NONE)) == 1:
        if len(run) == len(table):  # some state was repeated
            words = reprlib.repr(run)
            raise ValueError(f"the forced words {words} never end; expected a table that `tabulate` made")
        run.append(int(allowed[0]))
        state = table[state, run[-1]]
    return run


def states_after(table: np.ndarray, state: int, words: Sequence[int]) -> list[int]:
    """Return the state after each word, starting from `state`.

    From the first word on that is not allowed, every state is `NONE`.
    """
    states = list[int]()
    for word in words:
        state = int(table[state, word]) if state != NONE else NONE
        states.append(state)
    return states


def final_state(table: np.ndarray, state: int, words: Sequence[int]) -> int:
    """Return the state after the last word, starting from `state`, or `NONE` if some word is not allowed."""
    return [state, *states_after(table, state, words)][-1]


def mask_logits(logits: np.ndarray, next_states: np.ndarray) -> np.ndarray:
    """Return logits in which those of words that are not allowed are set to -inf.

    Args:
        logits: logits of one position, of shape (V,), or of several positions, of shape (T, V).
        next_states: the table's row for the current state, of shape (V,), or one row per position, of shape
            (T, V).
    """
    return np.where(next_states != NONE, logits, -np.inf)
