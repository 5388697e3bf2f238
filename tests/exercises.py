"""The exercises as the notebooks have them, and what each has to say in the kernel that ran its notebook."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat

from helpers.check.exercise import Exercise
from helpers.check.guess import Guess
from tools.exercises import ROLES, exercise_sources

DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
NUMBER = re.compile(r"(?<![\w-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w-])")
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def keep_promises(path: str, exercise: str, names: dict[str, Any]) -> None:
    """Answer an exercise in every way that it knows, with the names that its notebook left.

    Raises:
        AssertionError: it does not say of an answer what it promises.
    """
    cells = exercise_sources(Path(path))[exercise]
    assert cells.keys() == set(ROLES), f"of {ROLES} {exercise} has only {sorted(cells)}"
    (solution,) = FENCE.findall("".join(DETAILS.findall(cells["solution"])))  # one fence in the folded part
    assert len(solution.splitlines()) < 10
    expect("Not solved yet: ", shown(cells["check"], cells["exercise"], names))
    expect("Right: ", shown(cells["check"], solution, names))
    ((module_name, arguments),) = re.findall(rf"(\w+)\.{exercise}\((.*)\)", cells["check"])
    module = names[module_name]
    given, whole = arguments.split(", "), getattr(module, exercise)
    checkers = [(whole, given)] if isinstance(whole, Exercise) else [(vars(module)[n], [n]) for n in given]
    for checker, written in checkers:
        for reason, answer in [(why, one) for why, wrong in checker.wrong_answers.items() for one in wrong]:
            answers = dict(zip(written, answer if len(written) > 1 else [answer], strict=True))
            sentence = shown(cells["check"], solution, names, answers)
            expect("Not right yet: ", sentence)
            assert sentence.endswith(f"\nLikely reason: {reason}"), f"{reason!r} was expected: {sentence}"


def guessed(path: Path) -> dict[str, str]:
    """Return the folded answers of a notebook's guesses, by the cell that asks; none of the measured."""
    cells, found = nbformat.read(path, as_version=4).cells, {}
    for n, cell in enumerate(cells):
        measured = {"slow", "nbval-ignore-output"} & {*cell.metadata.get("tags", [])}
        if "in place of None, and run" in str(cell.get("outputs")) and not measured:
            below = DETAILS.findall("".join(cell.source for cell in cells[n + 1 : n + 3]))[0]
            found[cell.source] = below.partition("</summary>")[2].strip("\n* ")
    return found


def check_guess(guess: Guess, text: str) -> None:
    """AssertionError unless a text begins with the answer of a guess: a word, or numbers; 0 may be None."""
    answer = guess.answer
    if isinstance(answer, str | bool) or (answer == 0 and text.startswith("None")):
        word = answer if isinstance(answer, str | bool) else None
        assert text.lower().startswith(str(word).lower()), (answer, text)
        return
    numbers = [*answer] if isinstance(answer, list | tuple | set) else [answer]
    found = [float(number.replace(",", "")) for number in NUMBER.findall(text)]
    assert found[: len(numbers)] == numbers, (answer, text)


def expect(beginning: str, sentence: str) -> None:
    """AssertionError if this is said otherwise."""
    assert sentence.startswith(beginning), f"{beginning!r} was expected: {sentence}"


def shown(check: str, source: str, names: dict[str, Any], answers: dict[str, Any] | None = None) -> str:
    """Run a source in place of the stub, and then the check cell; return what that shows."""
    names = dict(names)
    exec(compile(source, "<written>", "exec"), names)
    names |= answers or {}
    *before, last = ast.parse(check).body
    assert isinstance(last, ast.Expr), "a check has to end with the call, to show its answer"
    exec(compile(ast.Module(before, []), "<check>", "exec"), names)
    return repr(eval(compile(ast.Expression(last.value), "<check>", "eval"), names))
