"""view.json, shares, and how sentences are filled in; js/format.ts does the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VIEW: dict[str, Any] = json.loads((HERE / "view.json").read_text(encoding="utf-8"))

_SLOT = re.compile(r"\{(\w+)(?:\|([\w ]+))?\}")


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
