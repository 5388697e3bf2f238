"""view.json, and numbers, texts and sentences as pictures write them; js/format.ts does the same."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VIEW: dict[str, Any] = json.loads((HERE / "view.json").read_text(encoding="utf-8"))
LONG = 1e6  # from here on a number has an exponent

_PREFIXES = [(10.0**n, prefix) for n, prefix in zip(range(15, -10, -3), [*"PTGMk", "", *"mµn"], strict=True)]
_SLOT = re.compile(r"\{(\w+)(?:\|([\w ]+))?\}")
_BLANK, _UNSAFE = re.compile(f"{VIEW['blank']}*"), re.compile(VIEW["unsafe"])


def number(x: float) -> str:
    """At most two decimals, no trailing zeros, a real minus sign: 12.5, 10.33, −4, 1.5e9."""
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
    """Three digits with the prefix that fits: 15.0 GB, 4.48 ms; of seconds as many as there are: 1,258 s."""
    prefixes = [(size, prefix) for size, prefix in _PREFIXES if name != "s" or size <= 1]
    size, prefix = next((one for one in prefixes if x >= one[0] * 0.9995), (1, ""))
    scaled = x / size
    digits = 0 if x == 0 or scaled >= 99.95 else 1 if scaled >= 9.995 else 2
    return f"{scaled:,.{digits}f} {prefix}{name}"


def gib(nbytes: float) -> str:
    """Bytes as memories are sold: 80.0 GiB, 128.0 MiB."""
    size, name = (2**30, "GiB") if nbytes >= 2**30 else (2**20, "MiB")
    return f"{nbytes / size:,.1f} {name}"


def percent(p: float) -> str:
    """A share of 1: 72.3%; what is not quite 0 or 1 as <0.1% or >99.9%."""
    if 0 < p < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= p < 1 else f"{100 * p:.1f}%"


def fill(template: str, **values: object) -> str:
    """A template of view.json: {pairs} is filled in, {pairs|pair} counted: "1 pair", "15 pairs"."""

    def one(slot: re.Match[str]) -> str:
        value, unit = values[slot[1]], slot[2]
        text = f"{value:,}" if isinstance(value, int) else str(value)
        return f"{text} {unit}{'' if value == 1 else 's'}" if unit else text

    return _SLOT.sub(one, template)


def _code_points(text: str) -> str:
    return " ".join(f"U+{ord(character):04X}" for character in text)


def visible(text: str) -> str:
    """A token's text; what would leave no mark, or turn the text around it, by its code points."""
    if not text:
        return str(VIEW["labels"]["empty"])
    if _BLANK.fullmatch(text):
        return _code_points(text)
    return _UNSAFE.sub(lambda found: _code_points(found[0]), text)


def clipped(text: str, most: int) -> str:
    """A token's visible text, cut to so many characters."""
    whole = visible(text)
    return whole if len(whole) <= most else whole[: most - 1] + "…"


def key_text(numbers: list[float]) -> str:
    """A row of K."""
    return " · ".join(map(number, numbers))
