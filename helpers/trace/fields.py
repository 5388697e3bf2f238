"""Look at one field of the JSON form of a trace, and name it if it is wrong."""

from __future__ import annotations

import math
import sys
from typing import Any, NoReturn

from helpers.trace.record import TraceError, is_utf8


def wrong(path: str, got: Any, expected: str) -> NoReturn:
    """Raise a TraceError that names the field."""
    try:
        shown = repr(got)
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes out
        shown = f"{type(got).__name__} too long to show"
    raise TraceError(f"{path}: got {shown if len(shown) <= 80 else shown[:77] + '…'}; expected {expected}")


def need(condition: bool, path: str, got: Any, expected: str) -> None:
    """Name the field unless the condition holds."""
    if not condition:
        wrong(path, got, expected)


def get(data: Any, key: str, path: str) -> Any:
    """Return an entry of an object."""
    need(isinstance(data, dict), path or "trace", data, "an object")
    if key not in data:
        wrong(
            f"{path}.{key}".lstrip("."), "nothing", "this field (the file may be cut off or of another tool)"
        )
    return data[key]


def get_list(data: Any, key: str, path: str) -> list[Any]:
    """Return an entry that is a list."""
    value = get(data, key, path)
    need(isinstance(value, list), f"{path}.{key}".lstrip("."), value, "a list")
    return value


def get_some(data: Any, key: str, path: str) -> list[Any]:
    """Return an entry that is a list of one or more."""
    value = get_list(data, key, path)
    need(len(value) > 0, f"{path}.{key}".lstrip("."), value, "a list of one or more")
    return value


def get_text(data: Any, key: str, path: str) -> str:
    """Return an entry that is text."""
    value = get(data, key, path)
    fine = isinstance(value, str) and is_utf8(value)
    need(fine, f"{path}.{key}".lstrip("."), value, "text")
    return value


def whole(value: Any, path: str, low: int = 0, high: float = math.inf) -> int:
    """Return a whole number from low to high."""
    fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    allowed = f"from {low} to {high}" if high < math.inf else f"of at least {low}"
    need(fine, path, value, f"a whole number {allowed}")
    return value


def finite(value: Any, path: str) -> float:
    """Return a number that a float can hold."""
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    need(fine and abs(value) <= sys.float_info.max, path, value, "a finite number")
    return value
