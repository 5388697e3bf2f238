"""Read the texts of the views from view.json, and format numbers and sentences as js/format.ts does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VIEW: dict[str, Any] = json.loads((HERE / "view.json").read_text(encoding="utf-8"))

_SLOT = re.compile(r"\{(\w+)(?:\|([\w ]+))?\}")


def percent(p: float) -> str:
    """Format a fraction as a percentage, such as 72.3%, or as <0.1% or >99.9% if it is almost 0 or 1."""
    if 0 < p < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= p < 1 else f"{100 * p:.1f}%"


def fill_template(template: str, **values: object) -> str:
    """Fill in the slots of a template from view.json.

    The slot {pairs} becomes the value of `pairs`. The slot {pairs|pair} becomes the value with a noun in the
    singular or plural: "1 pair", "15 pairs".
    """

    def one(slot: re.Match[str]) -> str:
        value, unit = values[slot[1]], slot[2]
        text = f"{value:,}" if isinstance(value, int) else str(value)
        if unit and value != 1:
            unit = re.sub("y$", "ie", unit) + "s"
        return f"{text} {unit}" if unit else text

    return _SLOT.sub(one, template)
