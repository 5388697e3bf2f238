"""The texts of view.json, and how percentages and sentences are formatted. js/format.ts does the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VIEW: dict[str, Any] = json.loads((HERE / "view.json").read_text(encoding="utf-8"))

_SLOT = re.compile(r"\{(\w+)(?:\|([\w ]+))?\}")


def percent(p: float) -> str:
    """Format a fraction as a percentage, such as 72.3%. Almost 0 is <0.1%, and almost 1 is >99.9%."""
    if 0 < p < 0.0005:
        return "<0.1%"
    return ">99.9%" if 0.9995 <= p < 1 else f"{100 * p:.1f}%"


def fill_template(template: str, **values: object) -> str:
    """Fill in a template of view.json: {pairs} becomes a value, {pairs|pair} a count such as "15 pairs"."""

    def one(slot: re.Match[str]) -> str:
        value, unit = values[slot[1]], slot[2]
        text = f"{value:,}" if isinstance(value, int) else str(value)
        if unit and value != 1:
            unit = re.sub("y$", "ie", unit) + "s"
        return f"{text} {unit}" if unit else text

    return _SLOT.sub(one, template)
