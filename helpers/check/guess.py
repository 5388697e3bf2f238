"""Predictions that a reader makes before the answer is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from helpers.check.result import clip, result_html

NOT_A_NUMBER = "not a number"
NO_GUESS_MESSAGE = "write one in place of None, and run both cells again. The answer is folded below."


class Guess:
    """A comparison of the reader's guess with the answer. The answer is shown only if there is a guess.

    Notebooks are stored without guesses, so each notebook also gives the answer in folded text below.

    Args:
        guess: the reader's guess. None, `...`, NaN, and a value of another type than the answer do not count
            as a guess.
        answer: the right answer.
        explanation: a sentence that explains the answer.
        example_answer: a value of the expected type. It is needed only if `answer` is a text that describes
            the answer, so that its own type is not the expected one.
        options: the values that the reader may choose from. If there are none, any value of the expected type
            is allowed.

    Raises:
        ValueError: the answer is NaN.
    """

    def __init__(
        self,
        guess: Any,
        answer: Any,
        explanation: str = "",
        *,
        example_answer: Any = None,
        options: Sequence[Any] = (),
    ) -> None:
        self.guess, self.answer, self.explanation = guess, answer, explanation
        self.expected_type, self.options = (
            answer_type_in_words(answer if example_answer is None else example_answer),
            options,
        )
        if self.expected_type == NOT_A_NUMBER:
            raise ValueError(f"the answer is {answer}; expected a number: look at what computes it")

    @property
    def is_right(self) -> bool:
        """Whether the guess equals the answer.

        Lists, tuples and arrays are equal if their items are. A set equals an answer with the same items in
        any order. In text, upper and lower case are equal.
        """
        guess, answer = _plain(self.guess), _plain(self.answer)
        if isinstance(guess, set) and isinstance(answer, list):
            return len(guess) == len(answer) and all(part in [*guess] for part in answer)
        return bool(guess == answer)

    @property
    def why_not_counted(self) -> str:
        """A message that says why the guess does not count and what to write instead, or "" if it counts."""
        if self.guess is None or self.guess is ...:
            return NO_GUESS_MESSAGE
        if self.options and _plain(self.guess) not in map(_plain, self.options):
            problem, wanted = f"none of {', '.join(map(repr, self.options))}", "one of them"
        elif (name := answer_type_in_words(self.guess)) != self.expected_type:
            problem, wanted = name, self.expected_type
        else:
            return ""
        return f"{clip(repr(self.guess))} is {problem}. Write {wanted}, and run again."

    def __repr__(self) -> str:
        if self.why_not_counted:
            return f"No guess yet: {self.why_not_counted}"
        result = f"You guessed {self.guess}. {'Right' if self.is_right else f'It is {self.answer}'}."
        return f"{result}\n{self.explanation}" if self.explanation else result

    def _repr_html_(self) -> str | None:
        return None if self.why_not_counted else result_html(self.is_right, repr(self))


def answer_type_in_words(x: Any) -> str:
    """Describe the type of a value in words for the reader, such as "a number" for 3."""
    x = x.tolist() if hasattr(x, "tolist") else x
    if isinstance(x, bool):
        return "True or False"
    if isinstance(x, str):
        return "text in quotes"
    if isinstance(x, list | tuple | range | set):
        return "a list"
    if isinstance(x, Real):
        return NOT_A_NUMBER if math.isnan(x) else "a number"
    return f"a {type(x).__name__}"


def check_ratio_guess(
    guess: Any, options: Sequence[float], measured_ratio: float, explanation: str = ""
) -> Guess:
    """Compare a guess with the option that is nearest to a measured ratio.

    Distances are measured on a logarithmic scale, so for a ratio of 3, the option 4 is nearer than 2.

    Raises:
        ValueError: the measured ratio is not a finite number above 0.
    """
    if not 0 < measured_ratio < math.inf:
        raise ValueError(f"the measured ratio is {measured_ratio}; expected a number above 0: measure again")
    return Guess(
        guess, min(options, key=lambda n: abs(math.log(n / measured_ratio))), explanation, options=options
    )


def _plain(x: Any) -> Any:
    """Convert a value to a form that `==` can compare.

    Sequences and arrays become lists. Text becomes lower case, without spaces at either end.
    """
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, list | tuple | range):
        return [_plain(part) for part in x]
    return x.strip().lower() if isinstance(x, str) else x
