"""The worksheets, their answers and the card print on one sheet each; the card is notebook 09's."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tools import handout, sheets, worksheet

TO_PRINT: dict[str, Callable[[], str]] = {
    "walk": worksheet.worksheet_page,
    "walk-answers": lambda: worksheet.worksheet_page(True),
    "card": handout.comparison_card_page,
    **{name: partial(str, text) for name, text in sheets.sheet_pages().items()},
}


def pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.fixture
def sheet(tmp_path: Path) -> Path:
    path = tmp_path / "worksheet.html"
    path.write_text(worksheet.worksheet_page(), encoding="utf-8")
    return path


@pytest.mark.browser
@pytest.mark.parametrize("paper", ["A4", "Letter"])
@pytest.mark.parametrize("text", TO_PRINT.values(), ids=TO_PRINT)
def test_it_prints_on_one_sheet(page: Page, text: Callable[[], str], paper: str) -> None:
    page.set_content(text())
    assert pages(page.pdf(format=paper)) == 1
    page.add_style_tag(
        content="body::after { display: block; height: 120mm; content: '' }"
    )  # a page more is counted as one
    assert pages(page.pdf(format=paper)) == 2


@pytest.mark.browser
def test_nothing_is_cut_off_at_the_width_of_the_paper(page: Page, sheet: Path) -> None:
    page.set_viewport_size({"width": 695, "height": 950})  # A4 within its margins
    page.emulate_media(media="print")
    page.goto(sheet.as_uri())
    overflow = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) == 0
    cell = page.locator(".triangle td").first.bounding_box()
    assert cell is not None
    assert min(cell["width"], cell["height"]) > 30  # 8 mm: room for a digit by hand


def test_the_card_is_the_table_of_notebook_09() -> None:
    lines, text = handout.match_section()["table"].splitlines(), handout.comparison_card_page()
    assert text.count("<tr ") == len(lines) - 1 == 8
    assert 'href="notebooks/12_floor.html"' in text
    assert text.count("<circle") == 15 + 15 + 4
