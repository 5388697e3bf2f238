"""Checks of argument values: whole numbers and finite numbers."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def is_whole(value: object) -> bool:
    """Return whether the value is an integer of Python or NumPy. A bool is not accepted."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_number(value: object) -> bool:
    """Return whether the value is a finite number that fits into a float.

    A str, a bool or an array is not accepted.
    """
    if type(value) is not float and (not isinstance(value, Real) or isinstance(value, bool)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def check_whole(name: str, value: Any, minimum: int = 1) -> int:
    """Return the value as a Python int. Raise ValueError unless it is a whole number, `minimum` or more."""
    if not is_whole(value) or value < minimum:
        raise ValueError(f"{name} is {value!r}; expected a whole number, {minimum} or more")
    return int(value)
