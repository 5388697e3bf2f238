"""Format numbers for figures, tables and checks. The views use `stepper.format` instead."""

from __future__ import annotations

import math
from typing import Any


def format_number(x: Any, digits: int = 2) -> str:
    """Format a number with at most `digits` decimals and no trailing zeros.

    Texts are returned unchanged; True becomes "yes", and False "·". A half is rounded away from zero, as on
    paper and in the views: 11.625 is 11.63.

    >>> [format_number(x) for x in (12.5, 10.333, 9.0, 2e-8, float("nan"), float("-inf"), True)]
    ['12.5', '10.33', '9', '0', 'nan', '-inf', 'yes']
    """
    if isinstance(x, str):
        return x
    if str(x) in ("True", "False"):
        return "yes" if x else "·"
    if isinstance(x, int):
        return f"{x:,}"
    text = f"{math.nextafter(x, math.copysign(math.inf, x)):,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def format_digits(x: float, n: int = 3) -> str:
    """Format a number with n significant digits, such as 0.0123, 39.1 or 2,070.

    The thousands separator is a comma, and there is no exponent. An int keeps all of its digits.
    """
    if isinstance(x, int):
        return f"{x:,}"
    if x == 0 or not math.isfinite(x):
        return f"{x:g}"
    return f"{x:,.{max(0, n - 1 - math.floor(math.log10(abs(x))))}f}"
