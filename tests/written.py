"""The formats in which views show values and token texts, for tests of pages. js/format.ts has the same."""

from __future__ import annotations

import math
import re

from helpers.stepper.format import VIEW

LONG = 1e6  # from here on a number has an exponent

_PREFIXES = [(10.0**n, prefix) for n, prefix in zip(range(15, -10, -3), [*"PTGMk", "", *"mµn"], strict=True)]
_BLANK, _UNSAFE = re.compile(f"{VIEW['blank']}*"), re.compile(VIEW["unsafe"])


def number(x: float) -> str:
    """Format a value with up to two decimals, no trailing zeros, and a minus sign: 12.5, 10.33, −4, 1.5e9."""
    if not math.isfinite(x):
        return str(x)
    if abs(x) < LONG:
        cents = math.floor(100 * abs(x) + 0.5001)  # 9.1249999 is 9.125 with noise
        text = f"{math.copysign(cents, x) / 100 if cents else 0:.2f}".rstrip("0").rstrip(".")
    else:
        digits, exponent = f"{x:.2e}".split("e")
        text = f"{float(digits):g}e{int(exponent)}"
    return text.replace("-", "−")


def unit(x: float, name: str) -> str:
    """Format a quantity with three significant digits and an SI prefix: 15.0 GB, 4.48 ms.

    Seconds get no prefix above 1, so that all digits before the decimal point are shown: 1,258 s.
    """
    prefixes = [(size, prefix) for size, prefix in _PREFIXES if name != "s" or size <= 1]
    size, prefix = next((one for one in prefixes if x >= one[0] * 0.9995), (1, ""))
    scaled = x / size
    digits = 0 if x == 0 or scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {prefix}{name}"


def _code_points(text: str) -> str:
    return " ".join(f"U+{ord(character):04X}" for character in text)


def visible(text: str) -> str:
    """Return a token's text in a visible form.

    Control characters, and characters that change the direction of text, are replaced by their code points.
    If the text has only invisible characters, all of them are replaced.
    """
    if not text:
        return str(VIEW["labels"]["empty"])
    if _BLANK.fullmatch(text):
        return _code_points(text)
    return _UNSAFE.sub(lambda found: _code_points(found[0]), text)


def clipped(text: str, most: int) -> str:
    """Return a token's visible text, cut to at most `most` characters."""
    whole = visible(text)
    return whole if len(whole) <= most else whole[: most - 1] + "…"
