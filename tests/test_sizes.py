"""The length of the notebooks is measured, and kept within limits."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tests.machine import NOTEBOOKS, prose_of
from tools.sizes import (
    LIMITS,
    LOOKED_UP,
    README,
    README_ROW,
    WAYS,
    Minutes,
    Sizes,
    count_words,
    limits_of_notebook,
    main,
    measure_notebook,
    with_all_minutes,
    with_minutes,
)

new = nbformat.v4
READ = [path for path in NOTEBOOKS if path.stem not in LOOKED_UP]


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_notebooks_are_within_the_limits(path: Path) -> None:
    assert (
        list(measure_notebook(nbformat.read(path, as_version=4)).exceeded(limits_of_notebook(path.stem)))
        == []
    )


def test_written_minutes_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """To write them: python -m tools sizes --write."""
    written: dict[Path, str] = {}
    monkeypatch.setattr(Path, "write_text", lambda path, text, **_: written.update({path: text}))
    monkeypatch.setattr("sys.argv", ["sizes", "00", "--write"])
    main()
    assert {*written} == {README, *READ}
    assert [path.name for path, text in written.items() if path.read_text(encoding="utf-8") != text] == []
    assert len(README_ROW.findall(prose_of(README))) == len(NOTEBOOKS)
    for text, left_out in ((prose_of(README), set()), (prose_of(NOTEBOOKS[0]), {"The whole way"})):
        found = re.findall(r"\*\*(.+)\*\*, \d+ (?:minutes|hours), \d+ with the exercises:", text)
        assert {*found} == WAYS.keys() - left_out
    assert all(" minutes" in prose_of(path).partition(" · run it in")[0] for path in READ)


def test_a_ways_minutes_are_the_sum() -> None:
    pairs = {"00_a": (5, 0), "01_b": (25, 25), "05_c": (95, 30), "A1_d": (300, 0)}
    minutes = {name: Minutes(*pair) for name, pair in pairs.items()}
    text = "| [A](notebooks/01_b.ipynb) | Why? | 1 |\n**The short way**, 1: a.\n**The whole way**, 1: b"
    text += "\n- **Find what is wrong**, 1: c."
    assert with_all_minutes(text, minutes) == (
        "| [A](notebooks/01_b.ipynb) | Why? | 25 + 25 |\n"
        "**The short way**, 30 minutes, 55 with the exercises: a.\n"
        "**The whole way**, 2 hours, 3 with the exercises: b\n"
        "- **Find what is wrong**, 395 minutes, 425 with the exercises: c."
    )


def picture(source: str) -> nbformat.NotebookNode:
    return new.new_code_cell(source, outputs=[new.new_output("display_data", {"image/png": ""})])


def printed(text: str, html: str) -> nbformat.NotebookNode:
    data = new.new_output("display_data", {"text/html": html})
    return new.new_code_cell("printed", outputs=[new.new_output("stream", text=text), data])


def table(n: int) -> str:
    return "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * n


def made() -> nbformat.NotebookNode:
    """Return a notebook with one of each thing that is measured."""
    html = "<table>" + "<tr><td>1</td></tr>" * 6 + "</table>"
    folded = {"jupyter": {"source_hidden": True}}
    return new.new_notebook(
        cells=[
            new.new_markdown_cell("# Two words\n\nYou need [one more](x.ipynb) · run it in [Colab](y)"),
            new.new_code_cell("a = 1\nb = 1", metadata=folded),
            new.new_code_cell(
                "def nowhere_else():\n" + "    x = 1\n\n" * 20
            ),  # helpers have no such function
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


def test_sizes_of_an_example_notebook() -> None:
    found = measure_notebook(made())
    counted = found.lines, found.longest_cell, found.exercises, found.tables, found.shown
    assert counted == (21 + 31 + 3 + 1 + 1 + 1 + 3, 21, 1, 2, 2)
    # headings and table cells count, punctuation does not
    assert found.words == (2 + 4) + (3 + 2 + 5 * 2) + (4 + 2 + 4 * 2) + 2 + 6 + 3
    assert found.adjacent_tables == 1
    assert list(found.exceeded()) == ["adjacent_tables: 1, at most 0"]


def test_a_picture_separates_two_tables() -> None:
    book = made()
    book.cells.insert(7, picture("show()"))
    assert not measure_notebook(book).adjacent_tables
    assert measure_notebook(book).tables == 2


@pytest.mark.parametrize("name", LIMITS)
def test_each_exceeded_limit_is_reported(name: str) -> None:
    assert not list(Sizes(**LIMITS).exceeded())
    (over,) = Sizes(**LIMITS | {name: LIMITS[name] + 1}).exceeded()
    assert over.startswith(name)


def test_minutes_are_rounded_to_five() -> None:
    assert Sizes().minutes == (5, 0)
    assert Sizes(words=3000).minutes == (15, 0)
    assert Sizes(words=1800, lines=150, shown=6, exercises=2).minutes == (40, 25)


def test_minutes_in_the_header_are_replaced() -> None:
    badges = "run it in [Colab](a) or [Binder](b)"
    none, one, two = (Sizes(exercises=n) for n in range(3))
    assert with_minutes(f"# A\n\nYou need x · {badges}\n\nmore", none) == (
        f"# A\n\nYou need x · 5 minutes · {badges}\n\nmore"
    )
    first = with_minutes(f"You need x · 7 minutes, one of them training · {badges}", one)
    assert first == f"You need x · 5 minutes, one of them training, and 10 for the exercise · {badges}"
    assert with_minutes(first, two) == (
        f"You need x · 5 minutes, one of them training, and 25 for the exercises · {badges}"
    )


def test_which_words_are_counted() -> None:
    assert count_words("a **b** [c d](e.ipynb) | 3 · — $x$") == 6
