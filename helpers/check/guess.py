"""A prediction, committed before the answer is seen."""

from __future__ import annotations

from typing import Any


class Guess:
    """What the reader guessed beside what came out; answers even without a guess."""

    def __init__(self, guess: Any, answer: Any, why: str = "") -> None:
        self.guess, self.answer, self.why = guess, answer, why

    @property
    def right(self) -> bool:
        """Whether the guess is the answer; lists and tuples count as equal."""
        return _same(self.guess) == _same(self.answer)

    def __repr__(self) -> str:
        if self.guess is None or self.guess is ...:
            first = f"No guess yet. It is {self.answer}."
        elif self.right:
            first = f"You guessed {self.guess}. Right."
        else:
            first = f"You guessed {self.guess}. It is {self.answer}."
        return f"{first}\n{self.why}" if self.why else first


def _same(x: Any) -> Any:
    if isinstance(x, list | tuple | set | range):
        return sorted(x) if isinstance(x, set) else list(x)
    return x.strip().lower() if isinstance(x, str) else x
