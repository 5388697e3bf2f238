"""Checks of the exercises and guesses in the notebooks, which run in the kernel that ran the notebook."""

from __future__ import annotations

import ast
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import nbformat

from helpers.check.exercise import Exercise
from helpers.check.guess import Guess
from tools.exercises import ROLES, exercise_sources

# Wrong answers to the exercises that a page checks itself, in a cell that its reader sees.
WRONG: dict[str, list[Any]] = {
    "forget": [
        lambda entries, n: entries[n:],
        lambda entries, n: entries[:, :n],
        lambda entries, n: entries[:, :-n],
        lambda entries, n: entries[..., n:],
        lambda entries, n: entries,
        lambda entries, n: entries * 1.5,
    ]
}
DETAILS = re.compile(r"<details>.*?</details>", re.DOTALL)
NUMBER = re.compile(r"(?<![\w-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w-])")
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def keep_promises(path: str, exercise: str, names: dict[str, Any]) -> None:
    """Run an exercise's check on its stub, its solution and its known wrong answers.

    Args:
        path: the notebook.
        exercise: the name of the exercise.
        names: the global names in the kernel after the notebook was run.

    Raises:
        AssertionError: the check's message for one of these answers is not the expected one.
    """
    cells = exercise_sources(Path(path))[exercise]
    assert cells.keys() == set(ROLES), f"of {ROLES} {exercise} has only {sorted(cells)}"
    (solution,) = FENCE.findall("".join(DETAILS.findall(cells["solution"])))  # one fence in the folded part
    assert len(solution.splitlines()) < 10
    expect("Not solved yet: ", shown(cells["check"], cells["exercise"], names))
    expect("Right: ", shown(cells["check"], solution, names))
    if exercise in WRONG:
        for answer in WRONG[exercise]:
            expect("Not right yet: ", shown(cells["check"], solution, names, {exercise: answer}))
        return
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
    """Return the answer to each guess in a notebook, by the source of the cell that asks.

    The answer is the folded text below the cell. Guesses whose answers are measured are left out.
    """
    cells, found = nbformat.read(path, as_version=4).cells, {}
    for n, cell in enumerate(cells):
        measured = {"slow", "nbval-ignore-output"} & {*cell.metadata.get("tags", [])}
        if "in place of None, and run" in str(cell.get("outputs")) and not measured:
            below = DETAILS.findall("".join(cell.source for cell in cells[n + 1 : n + 3]))[0]
            found[cell.source] = below.partition("</summary>")[2].strip("\n* ")
    return found


def check_guess(guess: Guess, text: str) -> None:
    """Assert that a notebook's answer text begins with the answer of a guess.

    An answer is a word, or one or more numbers. If it is 0, the text may also begin with "None".
    """
    answer = guess.answer
    if isinstance(answer, str | bool) or (answer == 0 and text.startswith("None")):
        word = answer if isinstance(answer, str | bool) else None
        assert text.lower().startswith(str(word).lower()), (answer, text)
        return
    numbers = [*answer] if isinstance(answer, list | tuple | set) else [answer]
    found = [float(number.replace(",", "")) for number in NUMBER.findall(text)]
    assert found[: len(numbers)] == numbers, (answer, text)


def expect(beginning: str, sentence: str) -> None:
    """Assert that the check's message begins with `beginning`."""
    assert sentence.startswith(beginning), f"{beginning!r} was expected: {sentence}"


def shown(check: str, source: str, names: dict[str, Any], answers: dict[str, Any] | None = None) -> str:
    """Run a student's source, then the check cell, and return what the check cell shows or prints.

    Args:
        check: the source of the check cell.
        source: the source of the exercise cell, with the stub replaced.
        names: global names for both cells.
        answers: values that replace names defined by `source`.
    """
    names = dict(names)
    exec(compile(source, "<written>", "exec"), names)
    names |= answers or {}
    *before, last = ast.parse(check).body
    if isinstance(last, ast.If):  # plain code, which prints
        with redirect_stdout(StringIO()) as printed:
            exec(compile(check, "<check>", "exec"), names)
        return printed.getvalue()
    assert isinstance(last, ast.Expr), "a check has to end with the call, to show its answer"
    exec(compile(ast.Module(before, []), "<check>", "exec"), names)
    return repr(eval(compile(ast.Expression(last.value), "<check>", "eval"), names))
