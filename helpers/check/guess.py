"""A prediction, committed before the answer is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from helpers.check.result import clip, marked

NAN = "not a number"
WRITE_ONE = "write one in place of None, and run both cells again. The answer is folded below."


class Guess:
    """What the reader guessed beside what came out; without a guess it keeps the answer to itself.

    A notebook stores what it shows without one. So the answer stands folded in the text below, too.

    Args:
        guess: the reader's; None, or what is not of the answer's kind, is none; NaN is no number.
        answer: what came out.
        why: a sentence behind it.
        like: something of the kind that is asked for, where the answer is told in words.
        options: what there is to choose from, if little is.

    Raises:
        ValueError: the answer is NaN.
    """

    def __init__(
        self, guess: Any, answer: Any, why: str = "", *, like: Any = None, options: Sequence[Any] = ()
    ) -> None:
        self.guess, self.answer, self.why = guess, answer, why
        self.wanted, self.options = kind_of(answer if like is None else like), options
        if self.wanted == NAN:
            raise ValueError(f"the answer is {answer}; expected a number: look at what computes it")

    @property
    def right(self) -> bool:
        """Whether the guess is the answer; lists, tuples, sets and arrays count as equal."""
        guess, answer = _plain(self.guess), _plain(self.answer)
        if isinstance(guess, set) and isinstance(answer, list):
            return len(guess) == len(answer) and all(part in [*guess] for part in answer)
        return bool(guess == answer)

    @property
    def none(self) -> str:
        """Why there is no guess yet, and what to write; "" if there is one."""
        if self.guess is None or self.guess is ...:
            return WRITE_ONE
        if self.options and _plain(self.guess) not in map(_plain, self.options):
            problem, wanted = f"none of {', '.join(map(repr, self.options))}", "one of them"
        elif (kind := kind_of(self.guess)) != self.wanted:
            problem, wanted = kind, self.wanted
        else:
            return ""
        return f"{clip(repr(self.guess))} is {problem}. Write {wanted}, and run again."

    def __repr__(self) -> str:
        if self.none:
            return f"No guess yet: {self.none}"
        first = f"You guessed {self.guess}. {'Right' if self.right else f'It is {self.answer}'}."
        return f"{first}\n{self.why}" if self.why else first

    def _repr_html_(self) -> str | None:
        return None if self.none else marked(self.right, repr(self))


def kind_of(x: Any) -> str:
    """Say of what kind a guess is, or has to be."""
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
    """Compare a guess with that one of the options to which a measured ratio is nearest.

    Raises:
        ValueError: what was measured is no ratio.
    """
    if not 0 < measured < math.inf:
        raise ValueError(f"the measured ratio is {measured}; expected a number above 0: measure again")
    return Guess(guess, min(options, key=lambda n: abs(math.log(n / measured))), why, options=options)


def _plain(x: Any) -> Any:
    """Write an array or a tuple as a list, and text in one way, so that `==` compares all alike."""
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, list | tuple | range):
        return [_plain(part) for part in x]
    return x.strip().lower() if isinstance(x, str) else x
