"""Run a function that a reader wrote on several inputs, and say where and why it goes wrong."""

from __future__ import annotations

import copy
import dis
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.check.result import NotRightError, NotSolvedError, describe, same, show

CONSTANTS_ONLY = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
ORDINALS = ("first", "second", "third", "fourth", "fifth")
EMPTY_HANDED = (ArithmeticError, LookupError, ValueError)  # what a forgotten special case raises


@dataclass(frozen=True)
class Case:
    """One input.

    Args:
        label: the input in words, such as "pick_even([10, 20])".
        args: the arguments; the reader's function gets copies.
        trap: what a function that raises, or gives NaN or None, here has most likely forgotten.
    """

    label: str
    args: tuple[Any, ...]
    trap: str = ""


# The likely reason of a wrong answer, with functions that give such answers.
Mistakes = Mapping[str, Sequence[Callable[..., Any]]]


def got_expected(got: Any, expected: Any) -> str:
    """Put a number or row beside the expected one."""
    return f"gives {show(got)}; expected {show(expected)}"


def call(function: Any, case: Case, todo: str) -> Any:
    """Call the reader's function on a case, and return what it returns.

    Lists and arrays go in as copies; any other argument (a cache, a step) goes in as it is.

    Raises:
        NotSolvedError: it is the untouched stub, or a part of it is; the message is `todo`.
        NotRightError: no function; it raised, returned nothing, or changed its input.
    """
    check_function(function, todo)
    args = [copy.deepcopy(arg) if isinstance(arg, list | np.ndarray) else arg for arg in case.args]
    try:
        value = function(*args)
    except (NotRightError, NotSolvedError):  # from something of ours that the function was given
        raise
    except (Exception, SystemExit) as error:
        raise explain(error, case, todo) from None
    if value is ... or (value is None and is_stub(function)):
        raise NotSolvedError(todo)
    if value is None:
        reason = case.trap or "a function that reaches no `return` gives None: end with `return …`."
        raise NotRightError(f"{case.label} gives None.", reason)
    for n, (before, after) in enumerate(zip(case.args, args, strict=True)):
        check_untouched(n, before, after, case.label)
    return value


def explain(error: BaseException, case: Case, todo: str) -> NotRightError | NotSolvedError:
    """Turn what the reader's function raised into what the reader is told."""
    if "ellipsis" in str(error).lower():
        return NotSolvedError(todo)
    text = " ".join(str(error).split()).rstrip(".")
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    reason = case.trap if isinstance(error, EMPTY_HANDED) else ""
    return NotRightError(f"{case.label} raises {what}.", reason)


def with_reason(stop: NotRightError, reasons: Mapping[str, str]) -> NotRightError:
    """Give a call that raised the likely reason that belongs to a piece of its message."""
    reason = next((reason for text, reason in reasons.items() if text in stop.message), "")
    return NotRightError(stop.message, stop.reason or reason)


def check_function(function: Any, todo: str) -> None:
    """Raise unless the reader handed over a function."""
    if function is ... or function is None:
        raise NotSolvedError(todo)
    if not callable(function):
        raise NotRightError(f"got {describe(function)}; expected a function: pass its name, without ().")


def is_stub(function: Any) -> bool:
    """Whether a function's body does nothing but hold constants, as `...`, `pass` and a docstring do."""
    if not isinstance(function, types.FunctionType):
        return False
    return {step.opname for step in dis.get_instructions(function)} <= CONSTANTS_ONLY


def check_untouched(n: int, before: Any, after: Any, label: str) -> None:
    """Raise if the function changed a list or array that it was given as argument n."""
    if isinstance(before, np.ndarray):
        changed = not (before.shape == after.shape and np.array_equal(before, after, equal_nan=True))
    else:
        changed = isinstance(before, list) and before != after
    if changed:
        raise written_to(n, label)


def written_to(n: int, label: str) -> NotRightError:
    """Return what the reader is told of a function that changed its argument n."""
    return NotRightError(
        f"{label} changes its {ORDINALS[n]} argument; expected it as it was.",
        "it is written to in place; work on a copy, because others may still need it.",
    )


def compare(
    function: Any,
    cases: Sequence[Case],
    *,
    attempt: Callable[[Any, Case], Any],
    right: Callable[..., Any],
    mistakes: Mistakes,
    tell: Callable[[Any, Any], str] = got_expected,
) -> list[Any]:
    """Hold the reader's function against the right one on every case.

    Args:
        function: the reader's.
        cases: the inputs; the first one that goes wrong is reported.
        attempt: runs the reader's function on a case and reads its answer, a number or an array.
        right: gives what is expected.
        mistakes: the first that fits every answer of the reader's function is the likely reason.
        tell: says how an answer differs from the expected one.

    Returns:
        What was expected, one for each case.

    Raises:
        NotSolvedError, NotRightError: from `attempt`, or because an answer differs.
    """
    expected = [right(*case.args) for case in cases]
    got, problem = collect(function, cases, attempt)
    for case, answer, wanted in zip(cases, got, expected, strict=False):
        if not same(answer, wanted):
            reason = likely_reason(mistakes, cases, got)
            if np.isnan(np.asarray(answer, dtype=float)).any():
                reason = reason or case.trap
            raise NotRightError(f"{case.label} {tell(answer, wanted)}.", reason)
    if problem is not None:
        raise problem
    return expected


def collect(
    function: Any, cases: Sequence[Case], attempt: Callable[[Any, Case], Any]
) -> tuple[list[Any], NotRightError | None]:
    """Return the answers up to the first that cannot be had, and why it cannot."""
    got: list[Any] = []
    for case in cases:
        try:
            got.append(attempt(function, case))
        except NotRightError as stop:
            return got, stop
    return got, None


def likely_reason(mistakes: Mistakes, cases: Sequence[Case], got: Sequence[Any]) -> str:
    """Return the reason of the first mistake that gives all the same answers, or an empty text."""
    for reason, functions in mistakes.items():
        for wrong in functions:
            answers = zip(cases, got, strict=False)
            if all(alike(answer, wrong(*case.args)) for case, answer in answers):
                return reason
    return ""


def alike(got: Any, wrong: Any) -> bool:
    """Whether an answer is this wrong one; our softmax gives 0 where a plain one gives NaN."""
    got, wrong = np.asarray(got, dtype=float), np.asarray(wrong, dtype=float)
    if got.shape != wrong.shape:
        return False
    return same(np.where(np.isnan(got) & (wrong == 0), 0, got), wrong)


def is_number(value: Any) -> bool:
    """Whether this is one number; True and False are none."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def read_number(value: Any, case: Case) -> float:
    """Return what the reader's function gave as one number, or raise NotRightError."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not is_number(value):
        raise NotRightError(f"{case.label} gives {describe(value)}; expected one number.")
    return float(value)


def read_row(
    value: Any, case: Case, length: int, hints: Mapping[tuple[int, ...], str] | None = None
) -> np.ndarray:
    """Return what the reader's function gave as a row of `length` numbers, or raise NotRightError.

    Args:
        hints: what a wrong shape most likely means.
    """
    try:
        row = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise NotRightError(f"{case.label} gives {describe(value)}; expected {length} numbers.") from None
    if row.shape != (length,):
        reason = (hints or {}).get(row.shape, "")
        raise NotRightError(
            f"{case.label} gives an answer of shape {row.shape}; expected {(length,)}, {length} numbers.",
            reason,
        )
    return row


def tell_mask(got: np.ndarray, expected: np.ndarray, first: int) -> str:
    """Say which query of a mask sees which keys, for the first that is wrong; both count from `first`."""
    query = int((got != expected).any(axis=1).argmax())
    of_all = f" of {len(got)}" if first == 1 else ""
    seen, wanted = visible_keys(got[query], first), visible_keys(expected[query], first)
    return f"lets query {query + first}{of_all} see {seen}; expected {wanted}"


def visible_keys(row: np.ndarray, first: int) -> str:
    """Write the keys that a query sees, counted from `first`, as a range where they are one."""
    keys = np.flatnonzero(row) + first
    if not len(keys):
        return "no key"
    if len(keys) > 1 and len(keys) == keys[-1] - keys[0] + 1:
        return f"keys {keys[0]} to {keys[-1]}"
    return f"key {keys[0]}" if len(keys) == 1 else f"keys {show(keys)}"
