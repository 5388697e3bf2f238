"""The exercises: their data hold what they say, and every notebook asks and checks them as they are meant.

A checker's own data are what it is tested with: the right answer, and the wrong ones with their reasons.
`tests/right_answers.py` writes the right ones otherwise, and each notebook has a folded solution.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import nbformat
import pytest
from matplotlib import pyplot

from helpers.check.exercise import Exercise, Wrong
from helpers.check.result import Result
from tests.machine import NOTEBOOKS, ROOT
from tests.right_answers import RIGHT

matplotlib.use("Agg")

SLOW = "slow"  # tag of a cell that takes long and that no exercise needs
DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATHS = sorted((ROOT / "helpers/check").glob("n*.py"))
MODULES = {path.stem: importlib.import_module(f"helpers.check.{path.stem}") for path in PATHS}
MADE = [pair for module in MODULES.values() for pair in vars(module).items()]
CHECKERS = {name: value for name, value in MADE if isinstance(value, Exercise)}
MISTAKES = [(name, wrong) for name, checker in CHECKERS.items() for wrong in checker.wrong]


# The data of each exercise.


@pytest.mark.parametrize("name", CHECKERS)
def test_right_answers_are_right(name: str) -> None:
    checker, others = CHECKERS[name], RIGHT.get(name, [])
    assert others, f"write another right answer to {name} into tests/right_answers.py"
    for answer in (checker.right, *others):
        result = call(checker, answer)
        assert result.solved, result
        assert_readable(result)


@pytest.mark.parametrize(("name", "wrong"), MISTAKES)
def test_wrong_answers_get_their_reason(name: str, wrong: Wrong) -> None:
    for answer in wrong.answers:
        result = call(CHECKERS[name], answer)
        assert (result.state, result.reason) == ("not right yet", wrong.reason), result
        assert_readable(result)
        assert repr(call(CHECKERS[name], answer)) == repr(result)


@pytest.mark.parametrize("name", CHECKERS)
def test_stubs_are_not_solved_yet(name: str) -> None:
    checker = CHECKERS[name]
    for stub in (None, ..., *([dots, half_written] if checker.is_function else [])):
        assert checker(stub).state == "not solved yet", checker(stub)


def test_an_exercise_has_six_reasons_at_most() -> None:
    assert [name for name, checker in CHECKERS.items() if len(checker.wrong) > 6] == []


def dots(*args: Any) -> Any:
    """Say what it does, and do nothing."""
    ...


def half_written(*args: Any) -> Any:
    picked: Any = ...
    return sum(picked)


def call(checker: Exercise, answer: Any) -> Result:
    """Hand an answer over as its notebook does: a tuple as several arguments."""
    several = isinstance(checker.right, tuple) and isinstance(answer, tuple)
    return checker(*answer) if several else checker(answer)


def assert_readable(result: Result) -> None:
    lines = repr(result).splitlines()
    assert len(lines) <= 2
    assert max(map(len, lines)) <= 260, lines
    assert " at 0x" not in repr(result)
    assert "cannot be checked" not in repr(result)


# The notebooks.


@dataclass(frozen=True)
class Asked:
    """One exercise as its notebook has it; an empty text for what is missing."""

    path: Path
    name: str
    stub: str
    check: str
    solutions: tuple[str, ...]

    @property
    def module(self) -> ModuleType | None:
        """The module of its checker."""
        return MODULES.get(f"n{self.path.name[:2]}")

    def shown(self, source: str, written: dict[str, Any] | None = None) -> str:
        """Run this in place of the stub, and then the check cell; return what that shows."""
        names = dict(run(self.path))
        exec(compile(source, f"{self.name}, written", "exec"), names)
        names |= written or {}
        *before, last = ast.parse(self.check).body
        assert isinstance(last, ast.Expr), f"check-{self.name} has to end with the call, to show its answer"
        exec(compile(ast.Module(before, []), f"check-{self.name}", "exec"), names)
        return repr(eval(compile(ast.Expression(last.value), f"check-{self.name}", "eval"), names))


def asked(path: Path) -> list[Asked]:
    """Return the exercises of a notebook, complete or not."""
    cells: dict[tuple[str, str], str] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        for tag in cell.metadata.get("tags", []):
            role, _, name = tag.partition("-")
            if role in ("exercise", "check", "solution"):
                assert (role, name) not in cells, f"{path.name}: two cells are tagged {tag}"
                cells[role, name] = cell.source
    found = []
    for name in dict.fromkeys(name for _, name in cells):
        stub, check, solution = (cells.get((role, name), "") for role in ("exercise", "check", "solution"))
        folded = "".join(DETAILS.findall(solution))
        found.append(Asked(path, name, stub, check, tuple(FENCE.findall(folded))))
    return found


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


EXERCISES = [exercise for path in NOTEBOOKS for exercise in asked(path)]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: f"{one.path.stem}: {one.name}")
def test_an_exercise_of_a_notebook_does_what_it_promises(exercise: Asked) -> None:
    assert exercise.stub, f"no cell is tagged exercise-{exercise.name}"
    assert exercise.check, f"no cell is tagged check-{exercise.name}"
    (solution,) = exercise.solutions  # one Python fence in the details of the cell tagged solution-…
    assert len(solution.splitlines()) < 10
    assert exercise.shown(exercise.stub).startswith("Not solved yet: ")
    assert exercise.shown(solution).startswith("Right: ")
    (arguments,) = re.findall(rf"check\.{exercise.name}\((.*)\)", exercise.check)
    names, whole = arguments.split(", "), getattr(exercise.module, exercise.name)
    checkers = [(whole, names)] if isinstance(whole, Exercise) else [(CHECKERS[one], [one]) for one in names]
    for checker, given in checkers:
        for wrong, answer in [(one, answer) for one in checker.wrong for answer in one.answers]:
            written = dict(zip(given, answer if len(given) > 1 else [answer], strict=True))
            shown = exercise.shown(solution, written)
            assert shown.startswith("Not right yet: "), shown
            assert shown.endswith(f"\nLikely reason: {wrong.reason}"), shown


def test_every_checker_is_asked() -> None:
    checks = "".join(exercise.check for exercise in EXERCISES)
    assert [name for name in CHECKERS if not re.search(rf"\b{name}\b", checks)] == []
