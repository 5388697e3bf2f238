"""What dates: each entry has its source and day, and the pages say what the file says."""

from __future__ import annotations

import re

import nbformat
import pytest

from helpers.cost.dated import DATED, Dated
from tests.machine import NOTEBOOKS, ROOT

ENTRIES = [(f"{group}: {name}", one) for group, those in DATED.items() for name, one in those.items()]


def prose(name: str) -> str:
    """Return the Markdown of a notebook."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize(("name", "one"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_an_entry_has_a_source_and_a_day_and_its_pages_say_it(name: str, one: Dated) -> None:
    assert one.source
    assert re.fullmatch(r"([1-9]\d? )?[A-Z][a-z]+ 20\d\d", one.day)
    values = one.value if isinstance(one.value, list) else [str(one.value)]
    assert [(page, value) for page in one.pages for value in values if value not in prose(page)] == []


@pytest.mark.parametrize("page", [path.stem for path in NOTEBOOKS])
def test_an_option_in_a_table_of_engines_has_a_day(page: str) -> None:
    table = [line for line in prose(page).splitlines() if line.startswith("|")]
    begins = [n for n, line in enumerate(table) if re.match(r"\| (complaint|case) \|", line)]
    said = {option for n in begins for line in table[n + 1 :] for option in re.findall(r"`([^`]+)`", line)}
    dated = {
        option for _, one in ENTRIES if one.unit == "options" and page in one.pages for option in one.value
    }
    assert said - dated == set()


def test_17_says_the_prices_that_its_bills_are_made_of() -> None:
    text, one = prose("17_pages"), DATED["prices"]["Claude Opus 5.5"]
    said = {name: f"{price:.2f}" for name, price in one.value.items() if name != "output"}
    assert [name for name, price in said.items() if not re.search(rf"(?<![\d.]){price}(?!\d)", text)] == []
    assert one.day in text
