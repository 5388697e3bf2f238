"""A grammar that a text must keep: rules, and the table of what may come next.

    rules = {"{sky}": [("sunny",), ("rainy",)], "{report}": [("Monday", "is", "{sky}", "<eos>")]}
    table = tabulate(rules, "{report}", ["<eos>", "Monday", "is", "rainy", "sunny"])

A rule has a name and the ways to write it, each a tuple of words and names of rules. What may still be
written is a set of such tuples, the endings, each with a word first. This set is the state; a word leads to
the next.

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

NONE = -1  # in a table: this word may not come
MOST = 2_000  # states of a table
CHARACTERS = ["<eos>", *printable[:95]]  # of ASCII, those with a shape, and the blank
FOODS = ("soup", "bread", "cake", "rice", "pie")
PERSON: Rules = {  # JSON, a character a word: {"name":"Mia","age":31,"likes":["cake","rice"]}
    "{person}": [(*'{"name":"', "{name}", *'","age":', "{age}", *',"likes":[', "{foods}", "}", "<eos>")],
    "{name}": [("{capital}", *["{letter}"] * n) for n in range(1, 8)],
    "{age}": [("{digit}",), *[(tens, "{digit}") for tens in digits[1:]]],
    "{foods}": [("{food}", *[",", "{food}"] * n, "]") for n in range(3)],
    "{food}": [(*f'"{food}"',) for food in FOODS],
    "{capital}": [(letter,) for letter in ascii_uppercase],
    "{letter}": [(letter,) for letter in ascii_lowercase],
    "{digit}": [(digit,) for digit in digits],
}


def opened(ending: Ending, rules: Rules) -> State:
    """Return the endings that one stands for, each with a word first; no rule may begin with itself."""
    if not ending or ending[0] not in rules:
        return frozenset([ending])
    return frozenset().union(*(opened((*way, *ending[1:]), rules) for way in rules[ending[0]]))


def left(endings: Iterable[Ending], word: str) -> set[Ending]:
    """Return what is left of the endings that begin with a word, behind it."""
    return {ending[1:] for ending in endings if ending and ending[0] == word}


def after(state: State, word: str, rules: Rules) -> State:
    """Return the state behind a word; empty if no ending begins with it."""
    return frozenset().union(*(opened(ending, rules) for ending in left(state, word)))


def tabulate(rules: Rules, start: str, vocabulary: Sequence[str]) -> np.ndarray:
    """Return the table of a grammar, (states, V): each word's next state, or `NONE`; state 0 is the start.

    Args:
        rules: the grammar; its texts end with a word of their own, such as `<eos>`.
        start: the rule that a whole text fits.
        vocabulary: all words, in the order of the logits.

    Raises:
        ValueError: a word is not in the vocabulary; one text begins another; there are over `MOST` states,
            as where a rule nests; or some text can never come to its end.
    """
    ids = {word: i for i, word in enumerate(vocabulary)}
    states, lines = {opened((start,), rules): 0}, list[np.ndarray]()
    for state in (queue := list(states)):
        line = np.full(len(ids), NONE)
        words = {ending[0] for ending in state if ending}
        if words and () in state:
            message = f"a text may end where {min(words)!r} may also follow"
            raise ValueError(f"{message}; end each with a word of its own, such as <eos>")
        if unknown := words - {*ids}:
            raise ValueError(
                f"{min(unknown)!r} is in the grammar, but not in the vocabulary of {len(ids)} words"
            )
        for word in sorted(words, key=ids.__getitem__):  # states are numbered alike each time
            behind = after(state, word, rules)
            if behind not in states:
                states[behind] = len(states)
                queue.append(behind)
            line[ids[word]] = states[behind]
        lines.append(line)
        if len(states) > MOST:
            raise ValueError(
                f"the grammar has over {MOST} states; expected fewer: it nests, or counts too far"
            )
    table = np.array(lines)
    ends = (table == NONE).all(axis=1)
    for _ in table:  # from which states an end can be reached
        ends |= (ends[table] & (table != NONE)).any(axis=1)
    if not ends.all():
        raise ValueError("a text of this grammar may never end; expected a way to the end from every state")
    return table


def lifted(table: np.ndarray, characters: Sequence[str], pieces: Sequence[str]) -> np.ndarray:
    """Return the table over pieces of text, (states, pieces), of one over their characters.

    A piece may come if each of its characters may, one after the other.

    Source: Willard and Louf 2023, arXiv:2307.09702.
    """
    to = {character: table[:, i] for i, character in enumerate(characters)}
    nowhere = np.full(len(table), NONE)
    columns = []
    for piece in pieces:
        states = np.arange(len(table)) if piece else nowhere
        for character in [piece] if piece in to else piece:
            states = np.where(states == NONE, NONE, to.get(character, nowhere)[states])
        columns.append(states)
    return np.stack(columns, axis=1)


def forced(table: np.ndarray, state: int) -> list[int]:
    """Return the words that must come next: while only one may, that one is taken. ValueError if for ever."""
    run = list[int]()
    while len(may := np.flatnonzero(table[state] != NONE)) == 1:
        if len(run) == len(table):  # some state has come twice
            words = reprlib.repr(run)
            raise ValueError(f"words {words} must come, and never end; expected a table that `tabulate` made")
        run.append(int(may[0]))
        state = table[state, run[-1]]
    return run


def walk(table: np.ndarray, state: int, words: Sequence[int]) -> list[int]:
    """Return the state behind each word, from the first; behind a word that may not come, `NONE`."""
    states = list[int]()
    for word in words:
        state = int(table[state, word]) if state != NONE else NONE
        states.append(state)
    return states


def end_of(table: np.ndarray, state: int, words: Sequence[int]) -> int:
    """Return the state after some words; `NONE` if one of them may not come."""
    return [state, *walk(table, state, words)][-1]


def masked(logits: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Set the logits (V,) of words that may not come to -inf; `following` is a state's line of the table."""
    return np.where(following != NONE, logits, -np.inf)
