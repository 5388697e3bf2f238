"""Facts that go out of date have a source and a day, and the notebooks state what the file says."""

from __future__ import annotations

import re
from datetime import date

import nbformat
import pytest

from helpers.cost.dated import DATED, DatedFact
from tests.machine import NOTEBOOKS, ROOT
from tools import dates

ENTRIES = [(f"{group}: {name}", entry) for group, those in DATED.items() for name, entry in those.items()]


def prose(name: str) -> str:
    """Return the Markdown of a notebook."""
    cells = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", 4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize(("name", "entry"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_entries_have_sources_days_and_matching_notebooks(name: str, entry: DatedFact) -> None:
    assert entry.source
    assert re.fullmatch(r"([1-9]\d? )?[A-Z][a-z]+ 20\d\d", entry.checked_date)
    values = entry.value if isinstance(entry.value, list) else [str(entry.value)]
    assert [(page, value) for page in entry.pages for value in values if value not in prose(page)] == []


@pytest.mark.parametrize("page", [path.stem for path in NOTEBOOKS])
def test_engine_options_in_tables_are_dated(page: str) -> None:
    table = [line for line in prose(page).splitlines() if line.startswith("|")]
    headers = [n for n, line in enumerate(table) if re.match(r"\| (complaint|case) \|", line)]
    stated = {option for n in headers for row in table[n + 1 :] for option in re.findall(r"`([^`]+)`", row)}
    dated = {
        option
        for _, entry in ENTRIES
        if entry.unit == "options" and page in entry.pages
        for option in entry.value
    }
    assert stated - dated == set()


def test_notebook_17_states_the_prices_of_its_bills() -> None:
    text = prose("17_pages")
    for entry in (DATED["prices"]["Claude Opus 5.5"], DATED["prices"]["GPT-6.2 Sol"]):
        prices = {name: f"{price:.2f}" for name, price in entry.value.items() if name != "output"}
        missing = [name for name, price in prices.items() if not re.search(rf"(?<![\d.]){price}(?!\d)", text)]
        assert missing == []
        assert " ".join(entry.checked_date.split()[-2:]) in text


def test_command_lists_facts_older_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {day: DatedFact(1, None, "a page", day) for day in ("2026-11", "2026-11-20", "2026-10-31")}
    monkeypatch.setattr(dates, "DATED", {"prices": facts})
    for days, ages in ((30, ["32", "31"]), (31, ["32"])):  # November counts from its first day
        lines = dates.facts_older_than(days, date(2026, 12, 2))
        assert [line.split()[0] for line in lines] == ages
