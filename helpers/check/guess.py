"""Predictions that a reader makes before the answer is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from helpers.check.result import clip, marked

NAN = "not a number"
WRITE_ONE = "write one in place of None, and run both cells again. The answer is folded below."


class Guess:
    """A comparison of the reader's guess with the answer, which is not shown until there is a guess.

    Notebooks are stored with the output for no guess, so each also gives the answer in folded text below.

    Args:
        guess: the reader's guess. None, NaN, and a value of a type other than the answer's count as no guess.
        answer: the right answer.
        why: a sentence that explains the answer.
        like: an example of the type that is asked for, if `answer` is a text that describes the answer.
        options: the values that the reader may choose from; if empty, any value of the right type is allowed.

    Raises:
        ValueError: the answer is NaN.
    """

    def __init__(
        self, guess: Any, answer: Any, why: str = "", *, like: Any = None, options: Sequence[Any] = ()
    ) -> None:
        self.guess, self.answer, self.why = guess, answer, why
        self.wanted, self.options = type_name(answer if like is None else like), options
        if self.wanted == NAN:
            raise ValueError(f"the answer is {answer}; expected a number: look at what computes it")

    @property
    def right(self) -> bool:
        """Whether the guess equals the answer. Lists, tuples, sets and arrays with equal items are equal."""
        guess, answer = _plain(self.guess), _plain(self.answer)
        if isinstance(guess, set) and isinstance(answer, list):
            return len(guess) == len(answer) and all(part in [*guess] for part in answer)
        return bool(guess == answer)

    @property
    def missing(self) -> str:
        """Why the guess does not count as one, and what to write instead; "" if it counts."""
        if self.guess is None or self.guess is ...:
            return WRITE_ONE
        if self.options and _plain(self.guess) not in map(_plain, self.options):
            problem, wanted = f"none of {', '.join(map(repr, self.options))}", "one of them"
        elif (name := type_name(self.guess)) != self.wanted:
            problem, wanted = name, self.wanted
        else:
            return ""
        return f"{clip(repr(self.guess))} is {problem}. Write {wanted}, and run again."

    def __repr__(self) -> str:
        if self.missing:
            return f"No guess yet: {self.missing}"
        result = f"You guessed {self.guess}. {'Right' if self.right else f'It is {self.answer}'}."
        return f"{result}\n{self.why}" if self.why else result

    def _repr_html_(self) -> str | None:
        return None if self.missing else marked(self.right, repr(self))


def type_name(x: Any) -> str:
    """Return the type of a value in words for the reader, such as "a number" for 3."""
    x = x.tolist() if hasattr(x, "tolist") else x
    if isinstance(x, bool):
        return "True or False"
    if isinstance(x, str):
        return "text in quotes"
    if isinstance(x, list | tuple | range | set):
        return "a list"
    if isinstance(x, Real):
        return NAN if math.isnan(x) else "a number"
    return f"a {type(x).__name__}"


def nearest(guess: Any, options: Sequence[float], measured: float, why: str = "") -> Guess:
    """Compare a guess with the option that is nearest to a measured ratio on a logarithmic scale.

    Raises:
        ValueError: the measured ratio is not a finite number above 0.
    """
    if not 0 < measured < math.inf:
        raise ValueError(f"the measured ratio is {measured}; expected a number above 0: measure again")
    return Guess(guess, min(options, key=lambda n: abs(math.log(n / measured))), why, options=options)


def _plain(x: Any) -> Any:
    """Return a value that `==` can compare: sequences and arrays as lists, text stripped and lowercased."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, list | tuple | range):
        return [_plain(part) for part in x]
    return x.strip().lower() if isinstance(x, str) else x
