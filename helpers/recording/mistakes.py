"""A cache that is kept right, and four that are not: what a pass of three tokens makes of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from helpers import toy
from helpers.sampling import greedy

NEW = ["nice", "warm", "Today"]
SPOILED: dict[str, Callable[[toy.KVCache, int], np.ndarray]] = {
    "mask": lambda cache, T: np.ones((T, cache.length + T), dtype=bool),
    "positions": lambda cache, T: np.arange(1, T + 1),
}
MISTAKES: dict[str, tuple[str, str]] = {
    "kept right": ("Today weather is so", ""),
    "rule 1 broken: new tokens see later ones": ("Today weather is so", "mask"),
    "rule 2 broken: positions from 1 again": ("Today weather is so", "positions"),
    "rule 3 broken: rows of another text": ("Today warm is so", ""),
    "rule 4 broken: a row was not dropped": ("Today weather is so nice", ""),
}  # whose rows the cache holds, and what it answers wrongly


class Stored(NamedTuple):
    """A cache when a pass comes: its rows, the new tokens, and what the pass makes of the last of them.

    Attributes:
        words: whose rows are stored.
        new: the tokens that run.
        positions: where the cache says that they stand.
        ahead: whether the first of them may look at those after it.
        contexts: of the last of them.
        says: the next word.
    """

    words: Sequence[str]
    new: Sequence[str]
    positions: Sequence[int]
    ahead: bool
    contexts: Sequence[float]
    says: str

    def __str__(self) -> str:
        looks = "which also see those after them" if self.ahead else "which see those before them"
        at = f"{', '.join(map(str, self.positions))}, {looks}"
        return f"stored {' '.join(self.words)}; new {' '.join(self.new)} at {at}; says {self.says}"


def mistakes() -> dict[str, Stored]:
    """Return, for each of MISTAKES, what the cache holds and answers, and what comes of it in layer 2."""
    message = {}
    for name, (text, spoiled) in MISTAKES.items():
        cache = toy.KVCache(n_layers=2)
        toy.run_pass(toy.look_up(text.split()), cache, n_layers=2)
        vars(cache).update({spoiled: partial(SPOILED[spoiled], cache)} if spoiled else {})
        positions, allowed = cache.positions(len(NEW)).tolist(), cache.mask(len(NEW))
        contexts = toy.run_pass(toy.look_up(NEW), cache, n_layers=2)[-1]
        says = toy.VOCABULARY[greedy(toy.lm_head(contexts))]
        ahead = bool(allowed[0, -1])
        message[name] = Stored(text.split(), NEW, positions, ahead, contexts.tolist(), says)
    return message
