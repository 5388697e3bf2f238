"""A prediction, committed before the answer is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WRITE_ONE = "write one in place of None, and run both cells again. The answer is folded below."


class Guess:
    """What the reader guessed beside what came out; without a guess it keeps the answer to itself.

    A notebook stores what it shows without one. So the answer stands folded in the text below, too.
    """

    def __init__(self, guess: Any, answer: Any, why: str = "") -> None:
        self.guess, self.answer, self.why = guess, answer, why

    @property
    def right(self) -> bool:
        """Whether the guess is the answer; lists, tuples, sets and arrays count as equal."""
        guess, answer = _plain(self.guess), _plain(self.answer)
        if isinstance(guess, set) and isinstance(answer, list):
            return len(guess) == len(answer) and all(part in [*guess] for part in answer)
        return bool(guess == answer)

    def __repr__(self) -> str:
        if self.guess is None or self.guess is ...:
            return f"No guess yet: {WRITE_ONE}"
        if self.right:
            first = f"You guessed {self.guess}. Right."
        elif isinstance(self.guess, str) and not isinstance(self.answer, str):
            first = f"You guessed {self.guess!r}, which is text. It is {self.answer}."
        else:
            first = f"You guessed {self.guess}. It is {self.answer}."
        return f"{first}\n{self.why}" if self.why else first


def nearest(guess: Any, options: Sequence[float], measured: float, why: str = "") -> Guess:
    """Compare a guess with that one of the options to which a measured ratio is nearest."""
    return Guess(guess, min(options, key=lambda option: abs(math.log(option / measured))), why)


def _plain(x: Any) -> Any:
    """Write an array or a tuple as a list, and True as no number, so that `==` compares all alike."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, list | tuple | range):
        return [_plain(part) for part in x]
    if isinstance(x, bool):
        return str(x)
    return x.strip().lower() if isinstance(x, str) else x
