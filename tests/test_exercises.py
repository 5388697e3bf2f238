"""The exercises: their data hold what they say. What a notebook asks is asked in its kernel, see notebook.py.

A checker's own data are what it is tested with: the right answer, and the wrong ones with their reasons.
Each notebook has a folded solution besides; `tests/right_answers.py` has right ones of odd forms.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from helpers.check.exercise import Exercise
from helpers.check.result import Result
from helpers.drawing.numbers import format_number
from tests.exercises import NUMBER, exercise_sources
from tests.machine import NOTEBOOKS, ROOT
from tests.right_answers import RIGHT

PATHS = [
    *sorted((ROOT / "helpers/check").glob("n*.py")),
    *sorted((ROOT / "helpers/chapters").glob("[!_]*.py")),
]
MODULES = [importlib.import_module(f"helpers.{path.parent.name}.{path.stem}") for path in PATHS]
MADE = [pair for module in MODULES for pair in vars(module).items()]
CHECKERS = {name: value for name, value in MADE if isinstance(value, Exercise)}
MISTAKES = [(name, reason) for name, checker in CHECKERS.items() for reason in checker.wrong_answers]


@pytest.mark.parametrize("name", CHECKERS)
def test_right_answers_are_right(name: str) -> None:
    checker = CHECKERS[name]
    forms = [in_form(write, checker.right_answer) for write in FORMS]
    for answer in (checker.right_answer, *forms, *RIGHT.get(name, [])):
        result = call(checker, answer)
        assert result.solved, result
        assert_readable(result)


FORMS: list[Callable[[Any], Any]] = [
    lambda x: tuple(x) if isinstance(x, list | set | np.ndarray) else x,
    lambda x: x if x is None or isinstance(x, set) else np.array(x)[()],
    lambda x: Fraction(x) if isinstance(x, int) else (y for y in x) if isinstance(x, list) else x,
]


def in_form(write: Callable[[Any], Any], value: Any) -> Any:
    """Return a value in another form, or a function that gives it so; the parts of a tuple each by itself."""
    if callable(value):
        return lambda *args: in_form(write, value(*args))
    if isinstance(value, tuple):
        return [in_form(write, part) for part in value]
    return value if isinstance(value, bool | str | dict | torch.Tensor) else write(value)


@pytest.mark.parametrize(("name", "reason"), MISTAKES)
def test_wrong_answers_get_their_reason(name: str, reason: str) -> None:
    for answer in CHECKERS[name].wrong_answers[reason]:
        result = call(CHECKERS[name], answer)
        assert (result.state, result.reason) == ("not right yet", reason), result
        assert_readable(result)
        assert repr(call(CHECKERS[name], answer)) == repr(result)


@pytest.mark.parametrize("name", [name for name, checker in CHECKERS.items() if checker.is_function])
def test_what_is_nearly_right_is_not_right(name: str) -> None:
    """What the right answer gives is changed a little, in one way after the other, in one case alone."""
    checker = CHECKERS[name]
    for case, expected in zip(checker.cases, checker.expected, strict=True):
        given: list[Any] = []  # and so it stays where the right answer raises
        checker.result_of(giving(checker.right_answer, given), case)
        for other in near(given[-1]) if given else []:
            got = checker.result_of(giving(checker.right_answer, [], other), case)
            assert checker.find_error(got, expected, case), (checker.label(case), other)


def giving(right: Any, given: list[Any], *other: Any) -> Any:
    """Return an answer that does what is right, notes what that gives, and may give another value."""

    def answer(*args: Any) -> Any:
        given.append(right(*args))
        return other[0] if other else given[-1]

    return answer


def near(value: Any) -> list[Any]:
    """Return values that differ from this one in a number, in their length or in their form."""
    if isinstance(value, tuple):
        return [(*value[:n], other, *value[n + 1 :]) for n, part in enumerate(value) for other in near(part)]
    if isinstance(value, list | set):
        parts = [*value]
        floats = [float(part) for part in parts if not isinstance(part, str | tuple)]
        return [[*parts, *(parts[-1:] or [0])], *([parts[:-1], floats] if parts else [])]
    if isinstance(value, torch.Tensor):
        return [torch.from_numpy(other) for other in near(value.numpy())]
    if isinstance(value, np.ndarray):
        others = [value.copy(), value.copy(), value[None]]
        if value.dtype == bool:
            others.append(value.astype(int))
        for other, at in zip(others, (0, -1), strict=False):
            other.flat[at] = other.flat[at] + 1 if value.dtype != bool else not other.flat[at]
        return others
    if value is None or isinstance(value, str):
        return ["another"]
    return [not value, int(value)] if isinstance(value, bool) else [value + max(0.011, 1e-8 * abs(value))]


@pytest.mark.parametrize("name", CHECKERS)
def test_stubs_are_not_solved_yet(name: str) -> None:
    checker = CHECKERS[name]
    for answer in (None, ..., *([stub] if checker.is_function else [])):
        assert checker(answer).state == "not solved yet", checker(answer)


def test_an_exercise_has_four_reasons_at_most() -> None:
    assert [name for name, checker in CHECKERS.items() if len(checker.wrong_answers) > 4] == []


def test_the_numbers_of_a_success_are_those_of_its_cases() -> None:
    other = {"reusable": 5.5, "count_work": 8, "may_change": 0.5}  # neither given nor got
    for name, checker in CHECKERS.items():
        known = {other.get(name, 0.0)} | numbers_in([checker.expected, [case.args for case in checker.cases]])
        known |= numbers_in([checker.label(case) for case in checker.cases])
        for text in NUMBER.findall(checker.success):
            digits = len(text.partition(".")[2])
            assert text in {format_number(one, digits) for one in known}, f"{name}: {text}"


def numbers_in(value: Any) -> set[float]:
    """Return the numbers of a few values, also in KiB, the lengths of lists and what is True of bools."""
    if isinstance(value, str):
        return {float(text.replace(",", "")) for text in NUMBER.findall(value)}
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if hasattr(value, "tolist"):
        shape = {float(size) for size in value.shape}
        return shape | ({float(value.sum())} if value.ndim > 1 else numbers_in(value.tolist()))
    if isinstance(value, list | tuple):
        return {float(len(value))}.union(*map(numbers_in, value))
    return {float(value), value / 1024} if isinstance(value, int | float) else set()


def stub(*args: Any) -> Any:
    """Do nothing yet, as the cells that ask for a function do."""
    return ...


def call(checker: Exercise, answer: Any) -> Result:
    """Hand an answer over as its notebook does: a tuple as several arguments."""
    several = isinstance(checker.right_answer, tuple) and isinstance(answer, tuple)
    return checker(*answer) if several else checker(answer)


def assert_readable(result: Result) -> None:
    lines = repr(result).splitlines()
    assert len(lines) <= 2
    assert max(map(len, lines)) <= 260, lines
    assert " at 0x" not in repr(result)
    assert "cannot be checked" not in repr(result)


def test_every_checker_is_asked() -> None:
    checks = "".join(cells["check"] for path in NOTEBOOKS for cells in exercise_sources(path).values())
    assert [name for name in CHECKERS if not re.search(rf"\b{name}\b", checks)] == []
