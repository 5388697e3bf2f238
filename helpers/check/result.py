"""What a checker answers: right, not right yet or not solved yet, as a few lines of plain text."""

from __future__ import annotations

import functools
import reprlib
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = 0.01  # readers may round to two digits; messages show two, so numbers told apart look different


@dataclass(frozen=True, repr=False)
class Result:
    """A checker's answer.

    Args:
        state: "right", "not right yet" or "not solved yet".
        message: what showed it.
        reason: the likely reason of a wrong answer; empty where none is known.
    """

    state: str
    message: str
    reason: str = ""

    @property
    def solved(self) -> bool:
        """Whether the exercise is done."""
        return self.state == "right"

    def __repr__(self) -> str:
        first = f"{self.state.capitalize()}: {self.message}"
        return f"{first}\nLikely reason: {self.reason}" if self.reason else first


class NotSolvedError(Exception):
    """The reader has not written it yet, or not all of it; the message says what is left to write."""


class NotRightError(Exception):
    """The reader's answer is wrong: what was got, what was expected, and the likely reason if known."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.message, self.reason = message, reason


def exercise(check: Callable[..., str]) -> Callable[..., Result]:
    """Turn a function that returns what was right, or raises one of the two errors, into a checker.

    The checker never raises and never warns, whatever the reader hands in.
    """

    @functools.wraps(check)
    def checker(*answers: Any) -> Result:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return Result("right", check(*answers))
        except NotSolvedError as stop:
            return Result("not solved yet", str(stop))
        except NotRightError as stop:
            return Result("not right yet", stop.message, stop.reason)
        except Exception as error:  # an answer so odd that it cannot even be looked at
            return Result("not right yet", f"this answer cannot be checked: {type(error).__name__}: {error}")

    return checker


def show(value: Any) -> str:
    """Write a number with two digits at most, several with commas between them, text as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return ", ".join(map(show, value)) or "nothing"
    if np.isnan(value):
        return "NaN"
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{round(float(value), 2) + 0.0:.2f}".rstrip("0").rstrip(".")  # + 0.0 makes -0 a plain 0


def describe(value: Any) -> str:
    """Say what kind of thing a reader handed over instead of what was expected, on one line."""
    kind = type(value).__name__
    if value is None or value is ...:
        return "None" if value is None else "..."
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if callable(value):
        return f"the function {getattr(value, '__name__', kind)}"
    if isinstance(value, list | tuple) and any(isinstance(part, np.ndarray) for part in value):
        return f"a {kind} of {len(value)} parts"
    if " at 0x" in repr(value):  # an address, which is another one each time
        return f"a {kind}"
    return f"{' '.join(reprlib.repr(value).split())} ({kind})"


def same(got: Any, expected: Any) -> bool:
    """Whether two numbers, or two rows of them, agree to 0.01; NaN agrees with NaN only."""
    a, b = np.asarray(got, dtype=float), np.asarray(expected, dtype=float)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=TOLERANCE, equal_nan=True)
