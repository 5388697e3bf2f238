"""What a value that somebody passes in must be: a whole number, a finite one."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def is_whole(value: object) -> bool:
    """Whether value is a whole number, Python's or NumPy's; True and False are none."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def is_number(value: object) -> bool:
    """Whether value is one finite number that a float can hold; text, True and arrays are none."""
    if type(value) is not float and (not isinstance(value, Real) or isinstance(value, bool)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number of more digits than a float has room for
        return False


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """Return value as Python's int. ValueError unless it is a whole number, `least` or more."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} is {value!r}; expected a whole number, {least} or more")
    return int(value)
