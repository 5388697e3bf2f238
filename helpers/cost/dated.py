"""What dates: cards, prices, what engines and providers offer, and what others measured, each with its day.

`dated.json` is the only place for such a number. An entry holds its `value`, the `unit`, the `source` to open
again, and the day or month on which it was `checked`. `pages` names the notebooks that say it in their text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Dated:
    """One entry of dated.json."""

    value: Any
    unit: str | dict[str, str] | None
    source: str
    checked: str  # 2026-11 or 2026-11-28
    pages: tuple[str, ...] = ()

    @property
    def day(self) -> str:
        """When it was checked, in words: November 2026, or 28 November 2026."""
        year, month, *days = map(int, self.checked.split("-"))
        return " ".join([*map(str, days), f"{date(year, month, 1):%B %Y}"])


def read() -> dict[str, dict[str, Dated]]:
    """Return all entries, by group and name."""
    groups = json.loads(Path(__file__).with_name("dated.json").read_text(encoding="utf-8"))
    return {
        group: {
            name: Dated(**{**entry, "pages": (*entry.get("pages", ()),)}) for name, entry in entries.items()
        }
        for group, entries in groups.items()
    }


DATED = read()
