"""Facts that go out of date: cards, prices, options of engines and providers, and published measurements.

These facts are stored only in `dated.json`. Each entry has a `value` and its `unit`, the `source` to check
the value against, and the day or month in which it was last `checked`. `pages` lists the notebooks that state
the fact in their prose.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DatedFact:
    """An entry of dated.json. Its fields are described in the module's docstring."""

    value: Any
    unit: str | dict[str, str] | None
    source: str
    checked: str  # 2026-11 or 2026-11-28
    pages: tuple[str, ...] = ()

    @property
    def checked_date(self) -> str:
        """The date of the last check, with the month's name: "November 2026" or "28 November 2026"."""
        days = self.checked.split("-")[2:]
        return " ".join([*(str(int(day)) for day in days), f"{self.first_possible_day:%B %Y}"])

    @property
    def first_possible_day(self) -> date:
        """The day of the last check; the first of its month if only the month is known."""
        year, month, *days = map(int, self.checked.split("-"))
        return date(year, month, *days or [1])


def read_dated_facts() -> dict[str, dict[str, DatedFact]]:
    """Return all entries of dated.json as {group: {name: entry}}, such as cards by name."""
    groups = json.loads(Path(__file__).with_name("dated.json").read_text(encoding="utf-8"))
    return {
        group: {
            name: DatedFact(**{**entry, "pages": (*entry.get("pages", ()),)})
            for name, entry in entries.items()
        }
        for group, entries in groups.items()
    }


DATED = read_dated_facts()
