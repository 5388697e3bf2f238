"""Do the exercises of a part: untouched, with their solutions, and with each plausible wrong answer."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import nbformat
import pytest
from matplotlib import pyplot

from tests.machine import NOTEBOOKS
from tests.wrong_answers import Answers

matplotlib.use("Agg")

SLOW = "slow"  # tag of a cell that takes long and that no exercise needs
DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise as its notebook has it; an empty text for what is missing."""

    name: str
    stub: str
    check: str
    solutions: tuple[str, ...]

    def faults(self, wrong: Mapping[str, Answers]) -> Iterator[str]:
        """Name what an exercise lacks."""
        if not self.stub:
            yield f"{self.name}: no cell is tagged exercise-{self.name}"
        if not self.check:
            yield f"{self.name}: no cell is tagged check-{self.name}"
        if len(self.solutions) != 1:
            found = len(self.solutions)
            yield f"{self.name}: {found} Python fences in the details tagged solution-{self.name}, not one"
        if not wrong.get(self.name):
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
    """Run the code cells of a notebook in its folder, but for slow ones, and return the names they left."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(path.parent):
        for n, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "code" and SLOW not in cell.metadata.get("tags", []):
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


@dataclass(frozen=True)
class Part:
    """The exercises of some notebooks.

    Args:
        names: what each notebook has to ask, by its name without the suffix.
        wrong: wrong answers to each exercise.
    """

    names: Mapping[str, set[str]]
    wrong: Mapping[str, Answers]

    @functools.cached_property
    def found(self) -> list[tuple[Path, Exercise]]:
        """Every exercise that the notebooks have, complete or not."""
        paths = [path for path in NOTEBOOKS if path.stem in self.names]
        return [(path, exercise) for path in paths for exercise in exercises(path).values()]

    @functools.cached_property
    def complete(self) -> list[tuple[Path, Exercise]]:
        """The exercises that lack nothing."""
        return [(path, exercise) for path, exercise in self.found if not [*exercise.faults(self.wrong)]]


class ExerciseTests:
    """Tests of a part's exercises; a class that inherits them says which part."""

    part: ClassVar[Part]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test for each exercise, for each wrong answer to it, or for each notebook."""
        complete = self.part.complete
        if "words" in metafunc.fixturenames:
            wrong = [
                pytest.param(path, exercise, written, words, id=f"{exercise.name}: {title}")
                for path, exercise in complete
                for title, (written, *words) in self.part.wrong[exercise.name].items()
            ]
            metafunc.parametrize(("path", "exercise", "written", "words"), wrong)
        elif "exercise" in metafunc.fixturenames:
            metafunc.parametrize(("path", "exercise"), complete, ids=[e.name for _, e in complete])
        elif "notebook" in metafunc.fixturenames:
            metafunc.parametrize("notebook", self.part.names)

    def test_every_exercise_is_complete(self) -> None:
        assert [fault for _, exercise in self.part.found for fault in exercise.faults(self.part.wrong)] == []

    def test_no_exercise_is_missing(self, notebook: str) -> None:
        names = {exercise.name for path, exercise in self.part.found if path.stem == notebook}
        assert names == self.part.names[notebook]

    def test_wrong_answers_belong_to_exercises(self) -> None:
        assert set(self.part.wrong) == {name for names in self.part.names.values() for name in names}

    def test_untouched_stub_is_not_solved_yet(self, path: Path, exercise: Exercise) -> None:
        assert answer(path, exercise, exercise.stub).startswith("Not solved yet: ")

    def test_solution_is_right(self, path: Path, exercise: Exercise) -> None:
        assert answer(path, exercise, exercise.solutions[0]).startswith("Right: ")

    def test_solution_is_under_ten_lines(self, path: Path, exercise: Exercise) -> None:
        assert len(exercise.solutions[0].splitlines()) < 10

    def test_wrong_answer_gets_its_reason(
        self, path: Path, exercise: Exercise, written: str, words: list[str]
    ) -> None:
        said = answer(path, exercise, written)
        assert said.startswith("Not right yet: "), said
        assert [missing for missing in words if missing not in said] == [], said
        assert words or "Likely reason" not in said, said

    def test_answers_are_short_and_the_same_each_time(self, path: Path, exercise: Exercise) -> None:
        wrong = [written for written, *_ in self.part.wrong[exercise.name].values()]
        for written in (exercise.stub, *exercise.solutions, *wrong):
            said = answer(path, exercise, written)
            assert said == answer(path, exercise, written)
            assert len(said.splitlines()) <= 3
            assert all(len(line) <= 240 for line in said.splitlines())
            assert "cannot be checked" not in said
