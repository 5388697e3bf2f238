"""What is published: the pictures of the static form, the page to send, the gallery, the notebooks to read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import make_page
import nbformat
import numpy as np
import pytest
from render_notebooks import render

from helpers.recording.diary import load_diary
from helpers.stepper import Stepper
from helpers.stepper.page import Link, Section, build
from helpers.trace import Trace
from tests.machine import NOTEBOOKS, ROOT
from tests.made_traces import HOSTILE, record_toy
from tests.test_stepper import Tables

MOST = 400_000  # bytes of a page that is sent
TRACES: dict[str, Callable[[], Trace]] = {
    "toy": record_toy,
    "two layers": lambda: record_toy(n_layers=2),
    "rules": lambda: record_toy(form="rules"),
    "hostile": lambda: record_toy(HOSTILE, numbers=list(range(1, 9))),
    "12 columns": lambda: record_toy(["Today"] * 12, numbers=[1] * 12, max_new=2),
    "diary": load_diary,
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """What the workflow publishes, but for the notebooks."""
    diary = load_diary()
    return {"index.html": make_page.index(diary), **make_page.gallery(diary)}


# ---- the pictures of a stepper that is not running


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("start", [None, "training"])
def test_a_picture_shows_what_the_table_of_its_pass_does(name: str, start: str | None) -> None:
    """The tables are held against the trace; a picture has their last twelve columns."""
    trace = TRACES[name]()
    if start and trace.run("cached" if name != "rules" else "rules").passes[0].phase != start:
        return
    pictures, _, tables = Stepper(trace, start=start).static_html().partition("<details>")
    drawn, full = Tables(pictures), Tables(tables)
    assert len(drawn.tables) == min(2, len(full.tables))
    for picture, table in zip(drawn.tables, full.tables, strict=False):
        width = len(table[0]) - 2
        grid, rows = table[1 : 1 + width], {row[0]: row[1:] for row in table[1 + width :]}
        shown = min(width, 12)
        tail = [cells[1:-1][-min(shown, 6) :] for cells in grid[-min(shown, 6) :]]
        lines = picture[1 : 1 + shown]
        assert [line[1:-1][-min(shown, 6) :] for line in lines[-min(shown, 6) :]] == tail
        assert ("more" in picture[0][0]) == (width > 12 or "…" in table[0])
        words = rows["rows of K, V"][:-1][-1]
        assert picture[-1][-2] == words * 2
    assert "KV cache" in pictures or name == "rules"
