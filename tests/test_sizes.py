"""What a notebook asks of its reader is measured, and kept within the limits."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from sizes import (
    LOOKED_UP,
    MAPPED,
    MOST,
    README,
    Taken,
    limits,
    minutes,
    rewritten,
    sizes,
    with_all_minutes,
    with_contents,
    with_minutes,
    words,
)

from tests.machine import NOTEBOOKS, prose_of

new = nbformat.v4
READ = [path for path in NOTEBOOKS if path.stem not in LOOKED_UP]


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_a_notebook_is_within_the_limits(path: Path) -> None:
    over = list(sizes(nbformat.read(path, as_version=4)).over(limits(path.stem)))
    assert not over


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_the_first_cell_says_the_computed_minutes(path: Path) -> None:
    """To write them: python .ci/sizes.py --write."""
    book = nbformat.read(path, as_version=4)
    assert f" · {sizes(book).minutes[0]} minutes" in book.cells[0].source
    assert rewritten(path) == book


def test_which_limits_a_page_has() -> None:
    found = [limits(name) for name in ("01_a", "05_b", "24_d", "words")]
    assert [one.get("exercises") for one in found] == [1, 2, None, None]
    assert found[1] == MOST
    assert "words" not in found[2]


def test_the_readme_says_the_minutes_of_each_notebook_and_of_the_ways() -> None:
    """To write them: python .ci/sizes.py --write."""
    text = README.read_text(encoding="utf-8")
    assert with_all_minutes(text, minutes()) == text
    assert len(MAPPED.findall(text)) == len(NOTEBOOKS)
    assert re.search(r"\*\*The short way\*\*, \d+ minutes, \d+ with the exercises:", text)
    assert re.search(r"\*\*The whole way\*\*, \d+ hours, \d+ with the exercises:", text)


def test_the_contents_of_00_are_the_readmes_map() -> None:
    """To write them: python .ci/sizes.py --write."""
    text = prose_of(NOTEBOOKS[0])
    assert len(MAPPED.findall(text)) == len(NOTEBOOKS)
    assert with_contents(text) == text


def test_minutes_of_a_way_are_added_up() -> None:
    each = {"00_a": (5, 0), "01_b": (25, 25), "05_c": (95, 30), "A1_d": (300, 0)}
    text = "| [A](notebooks/01_b.ipynb) | Why? | 1 |\n**The short way**, 1: a.\n**The whole way**, 1: b"
    assert with_all_minutes(text, each) == (
        "| [A](notebooks/01_b.ipynb) | Why? | 25 + 25 |\n"
        "**The short way**, 30 minutes, 55 with the exercises: a.\n"
        "**The whole way**, 2 hours, 3 with the exercises: b"
    )


def picture(source: str) -> nbformat.NotebookNode:
    return new.new_code_cell(source, outputs=[new.new_output("display_data", {"image/png": ""})])


def printed(text: str, html: str) -> nbformat.NotebookNode:
    data = new.new_output("display_data", {"text/html": html})
    return new.new_code_cell("printed", outputs=[new.new_output("stream", text=text), data])


def table(n: int) -> str:
    return "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * n


def made() -> nbformat.NotebookNode:
    """A notebook with one of each."""
    html = "<table>" + "<tr><td>1</td></tr>" * 6 + "</table>"
    folded = {"jupyter": {"source_hidden": True}}
    return new.new_notebook(
        cells=[
            new.new_markdown_cell("# Two words\n\nYou need [one more](x.ipynb) · run it in [Colab](y)"),
            new.new_code_cell("a = 1\nb = 1", metadata=folded),
            new.new_code_cell(
                "def nowhere_else():\n" + "    x = 1\n\n" * 20
            ),  # a function that helpers have not
            new.new_code_cell("def softmax(x):\n" + "    x = 1\n" * 30),
            picture("show()\n\n# twice\nshow()"),
            new.new_markdown_cell(
                "**Predict.** How many?\n```python\nx = 1\ny = 2\n```\n$$a + b$$\n" + table(5)
            ),
            new.new_markdown_cell("words and $x + y$ words <br>\n\n" + table(4)),
            new.new_code_cell("table", outputs=[new.new_output("display_data", {"text/html": html})]),
            new.new_code_cell("def exercise(): ...", metadata={"tags": ["exercise-one"]}),
            new.new_markdown_cell("two words\n```python\nx = 1\n```", metadata={"tags": ["solution-one"]}),
            printed("one two three four five six\nonly five words of it\n", "<p>under a picture</p>"),
        ]
    )


def test_the_sizes_of_a_made_notebook() -> None:
    found = sizes(made())
    counted = found.cells, found.lines, found.longest, found.exercises, found.tables, found.shown
    assert counted == (7, 21 + 31 + 3 + 1 + 1 + 1 + 3, 21, 1, 2, 2)
    # headings and table cells are words; signs are none
    assert found.words == (2 + 4) + (3 + 2 + 5 * 2) + (4 + 2 + 4 * 2) + 2 + 6 + 3
    assert found.in_a_row
    assert list(found.over()) == ["longest: 21, at most 12", "two long tables in a row"]


def test_something_parts_two_tables() -> None:
    book = made()
    book.cells.insert(7, picture("show()"))
    assert not sizes(book).in_a_row
    assert sizes(book).tables == 2


def code(source: str, *tags: str) -> nbformat.NotebookNode:
    return new.new_code_cell(source, metadata={"tags": list(tags)})


@pytest.mark.parametrize("name", MOST)
def test_one_too_many_is_said(name: str) -> None:
    cells = {
        "words": [new.new_markdown_cell("a word\n\n" * 600 + "word")],
        "paragraph": [new.new_markdown_cell("- word\n" * 70 + "\n" + "word " * 61)],
        "cells": [code("1") for _ in range(21)],
        "longest": [code("1\n" * 13)],
        "exercises": [code("1", f"exercise-{n}") for n in range(3)],
        "tables": [new.new_markdown_cell(table(5)) for _ in range(3)],
    }
    if name == "tables":
        cells[name][1:1] = [picture("show()")]
        cells[name][3:3] = [picture("show()")]
    (over,) = sizes(new.new_notebook(cells=cells[name])).over()
    assert over.startswith(name)


def test_minutes() -> None:
    assert Taken(words=0, lines=0, shown=0, exercises=0).minutes == (5, 0)
    assert Taken(words=1800, lines=0, shown=0, exercises=0).minutes == (15, 0)
    assert Taken(words=1800, lines=150, shown=6, exercises=2).minutes == (40, 25)


def test_the_header_is_written_in_one_form() -> None:
    badges = "run it in [Colab](a) or [Binder](b)"
    cells = [code("1", f"exercise-{n}") for n in range(2)]
    none, one, two = (sizes(new.new_notebook(cells=cells[:n])) for n in range(3))
    assert with_minutes(f"# A\n\nYou need x · {badges}\n\nmore", none) == (
        f"# A\n\nYou need x · 5 minutes · {badges}\n\nmore"
    )
    first = with_minutes(f"You need x · 7 minutes, one of them training · {badges}", one)
    assert first == f"You need x · 5 minutes, one of them training, and 10 for the exercise · {badges}"
    assert with_minutes(first, two) == (
        f"You need x · 5 minutes, one of them training, and 25 for the exercises · {badges}"
    )


def test_what_is_a_word() -> None:
    assert words("a **b** [c d](e.ipynb) | 3 · — $x$") == 6
