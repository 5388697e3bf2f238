"""The exercises of Part I, and the machinery that does exercises, on notebooks made here."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.exercises import ExerciseTests, Part, answer, exercises, run
from tests.wrong_answers import WRONG, Answers


class TestPartOne(ExerciseTests):
    part = Part(
        {
            "01_four_heads": {"pick_even", "table", "attend"},
            "02_prefill": {"order_prefill", "change_future"},
            "03_decode": {"generate", "count_work"},
            "04_kv_cache": {"decode_step", "stale", "reuse_rows", "mask"},
        },
        WRONG,
    )


# The machinery itself, on notebooks made here.

STUB = "def double(x):\n    ..."
CHECK = """\
class Answer(str):
    __repr__ = str.__str__
Answer("Right: 4" if double(2) == 4 else "Not solved yet: 4")
"""
SOLUTION = "<details>\n\n```python\ndef double(x):\n    return FACTOR * x\n```\n\n</details>"


def notebook(path: Path, **cells: str) -> Path:
    """Write a notebook with an exercise `double`, in which these cells replace the good ones."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("FACTOR = 2")])
    for role, source in {"exercise": STUB, "check": CHECK, "solution": SOLUTION, **cells}.items():
        make = nbformat.v4.new_markdown_cell if role == "solution" else nbformat.v4.new_code_cell
        book.cells.append(make(source, metadata={"tags": [f"{role}-double"] if source else []}))
    nbformat.write(book, path / "book.ipynb")
    return path / "book.ipynb"


DOUBLES: dict[str, Answers] = {"double": {"one": ("double = lambda x: 1",)}}


def test_a_good_notebook_passes(tmp_path: Path) -> None:
    path = notebook(tmp_path)
    exercise = exercises(path)["double"]
    assert [*exercise.faults(DOUBLES)] == []
    assert answer(path, exercise, exercise.stub) == "Not solved yet: 4"
    assert answer(path, exercise, exercise.solutions[0]) == "Right: 4"
    assert answer(path, exercise, exercise.stub) == "Not solved yet: 4"  # the copy alone was changed


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ({"check": ""}, "check-double"),
        ({"exercise": ""}, "exercise-double"),
        ({"solution": ""}, "0 Python fences"),
        ({"solution": SOLUTION.replace("<details>", "").replace("</details>", "")}, "0 Python fences"),
        ({"solution": SOLUTION + SOLUTION}, "2 Python fences"),
    ],
)
def test_an_incomplete_exercise_is_found(tmp_path: Path, cells: dict[str, str], fault: str) -> None:
    (found,) = exercises(notebook(tmp_path, **cells))["double"].faults(DOUBLES)
    assert fault in found


def test_an_exercise_without_wrong_answers_is_found(tmp_path: Path) -> None:
    (found,) = exercises(notebook(tmp_path))["double"].faults({})
    assert "no wrong answers" in found


def test_a_notebook_that_raises_is_found(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(notebook(tmp_path, exercise="1 / 0"))


def test_a_slow_cell_is_left_out(tmp_path: Path) -> None:
    path = notebook(tmp_path)
    book = nbformat.read(path, as_version=4)
    book.cells.append(nbformat.v4.new_code_cell("1 / 0", metadata={"tags": ["slow"]}))
    nbformat.write(book, path)
    assert run(path)["FACTOR"] == 2
