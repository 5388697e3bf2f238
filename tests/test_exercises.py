"""Do every exercise of the notebooks: untouched, with its solution, and with each plausible wrong answer."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import pytest
from matplotlib import pyplot

from tests.machine import NOTEBOOKS
from tests.wrong_answers import WRONG

matplotlib.use("Agg")

PART_ONE = {
    "01_four_heads": {"pick_even", "table", "attend"},
    "02_prefill": {"order_prefill", "change_future"},
    "03_decode": {"generate", "count_work"},
    "04_kv_cache": {"decode_step", "stale", "reuse_rows", "mask"},
}
DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise as its notebook has it; an empty text for what is missing."""

    name: str
    stub: str
    check: str
    solutions: tuple[str, ...]

    def faults(self) -> Iterator[str]:
        """Name what an exercise lacks."""
        if not self.stub:
            yield f"{self.name}: no cell is tagged exercise-{self.name}"
        if not self.check:
            yield f"{self.name}: no cell is tagged check-{self.name}"
        if len(self.solutions) != 1:
            found = len(self.solutions)
            yield f"{self.name}: {found} Python fences in the details tagged solution-{self.name}, not one"
        if not WRONG.get(self.name):
            yield f"{self.name}: no wrong answers are listed"


def exercises(path: Path) -> dict[str, Exercise]:
    """Return the exercises of a notebook by name, complete or not."""
    cells: dict[tuple[str, str], str] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        for tag in cell.metadata.get("tags", []):
            role, _, name = tag.partition("-")
            if role in ("exercise", "check", "solution"):
                assert (role, name) not in cells, f"{path.name}: two cells are tagged {tag}"
                cells[role, name] = cell.source
    return {
        name: Exercise(
            name,
            cells.get(("exercise", name), ""),
            cells.get(("check", name), ""),
            tuple(FENCE.findall("".join(DETAILS.findall(cells.get(("solution", name), ""))))),
        )
        for _, name in cells
    }


@functools.cache
def run(path: Path) -> dict[str, Any]:
    """Run the code cells of a notebook in its folder, and return the names they left."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(path.parent):
        for n, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "code":
                exec(compile(cell.source, f"{path.name}, cell {n}", "exec"), names)
    pyplot.close("all")
    return names


def answer(path: Path, exercise: Exercise, written: str) -> str:
    """Write something in place of the stub, run the check cell, and return what it shows."""
    names = dict(run(path))
    exec(compile(written, f"{exercise.name}, written", "exec"), names)
    *before, last = ast.parse(exercise.check).body
    assert isinstance(last, ast.Expr), f"check-{exercise.name} has to end with the call, to show its answer"
    exec(compile(ast.Module(before, []), f"check-{exercise.name}", "exec"), names)
    return repr(eval(compile(ast.Expression(last.value), f"check-{exercise.name}", "eval"), names))


FOUND = [(path, exercise) for path in NOTEBOOKS for exercise in exercises(path).values()]
COMPLETE = [(path, exercise) for path, exercise in FOUND if not [*exercise.faults()]]
EACH = pytest.mark.parametrize(("path", "exercise"), COMPLETE, ids=[e.name for _, e in COMPLETE])
WRONG_ANSWERS = [
    pytest.param(path, exercise, written, words, id=f"{exercise.name}: {title}")
    for path, exercise in COMPLETE
    for title, (written, *words) in WRONG[exercise.name].items()
]


def test_every_exercise_is_complete() -> None:
    assert [fault for _, exercise in FOUND for fault in exercise.faults()] == []


@pytest.mark.parametrize("notebook", PART_ONE)
def test_no_exercise_of_part_one_is_missing(notebook: str) -> None:
    names = {exercise.name for path, exercise in FOUND if path.stem == notebook}
    assert names == PART_ONE[notebook]


def test_wrong_answers_belong_to_exercises() -> None:
    assert set(WRONG) == {exercise.name for _, exercise in FOUND}


@EACH
def test_untouched_stub_is_not_solved_yet(path: Path, exercise: Exercise) -> None:
    assert answer(path, exercise, exercise.stub).startswith("Not solved yet: ")


@EACH
def test_solution_is_right(path: Path, exercise: Exercise) -> None:
    assert answer(path, exercise, exercise.solutions[0]).startswith("Right: ")


@EACH
def test_solution_is_under_ten_lines(path: Path, exercise: Exercise) -> None:
    assert len(exercise.solutions[0].splitlines()) < 10


@pytest.mark.parametrize(("path", "exercise", "written", "words"), WRONG_ANSWERS)
def test_wrong_answer_gets_its_reason(path: Path, exercise: Exercise, written: str, words: list[str]) -> None:
    said = answer(path, exercise, written)
    assert said.startswith("Not right yet: ")
    assert [missing for missing in words if missing not in said] == [], said
    assert words or "Likely reason" not in said, said


def test_answers_are_short_and_the_same_each_time() -> None:
    for path, exercise in COMPLETE:
        for written in (exercise.stub, *exercise.solutions, *(w for w, *_ in WRONG[exercise.name].values())):
            said = answer(path, exercise, written)
            assert said == answer(path, exercise, written)
            assert len(said.splitlines()) <= 3
            assert all(len(line) <= 240 for line in said.splitlines())
            assert "cannot be checked" not in said


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


@pytest.fixture
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong answers exist for the exercise `double`."""
    monkeypatch.setitem(WRONG, "double", {"one": ("double = lambda x: 1",)})


@pytest.mark.usefixtures("doubles")
def test_a_good_notebook_passes(tmp_path: Path) -> None:
    path = notebook(tmp_path)
    exercise = exercises(path)["double"]
    assert [*exercise.faults()] == []
    assert answer(path, exercise, exercise.stub) == "Not solved yet: 4"
    assert answer(path, exercise, exercise.solutions[0]) == "Right: 4"
    assert answer(path, exercise, exercise.stub) == "Not solved yet: 4"  # the copy alone was changed


@pytest.mark.usefixtures("doubles")
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
    (found,) = exercises(notebook(tmp_path, **cells))["double"].faults()
    assert fault in found


def test_an_exercise_without_wrong_answers_is_found(tmp_path: Path) -> None:
    (found,) = exercises(notebook(tmp_path))["double"].faults()
    assert "no wrong answers" in found


def test_a_notebook_that_raises_is_found(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(notebook(tmp_path, exercise="1 / 0"))
