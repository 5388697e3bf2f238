"""What dates: each entry has its source and day, and the pages say what the file says."""

from __future__ import annotations

import re

import nbformat
import pytest

from helpers.cost.dated import DATED, Dated
from tests.machine import ROOT

ENTRIES = [(f"{group}: {name}", one) for group, those in DATED.items() for name, one in those.items()]


def prose(name: str) -> str:
    """Return the Markdown of a notebook."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize(("name", "one"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_an_entry_has_a_source_and_a_day_and_its_pages_say_it(name: str, one: Dated) -> None:
    assert one.source
    assert re.fullmatch(r"([1-9]\d? )?[A-Z][a-z]+ 20\d\d", one.day)
    assert [page for page in one.pages if str(one.value) not in prose(page)] == []


def test_17_says_the_prices_that_its_bills_are_made_of() -> None:
    text, one = prose("17_pages"), DATED["prices"]["Claude Opus 5.5"]
    said = {name: f"{price:.2f}" for name, price in one.value.items() if name != "output"}
    assert [name for name, price in said.items() if not re.search(rf"(?<![\d.]){price}(?!\d)", text)] == []
    assert one.day in text
