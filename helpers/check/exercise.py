"""Exercises. Each is defined by its cases, its right answer, and typical wrong answers with their reasons.

    from helpers.check.exercise import Case, Exercise

    double = Exercise(
        name="double",
        todo="let double return twice the number.",
        cases=[(3,), Case((0,), failure_hint="twice nothing is 0.")],
        right_answer=lambda x: 2 * x,
        wrong_answers=["multiplied by itself, not by 2.", lambda x: x * x, lambda x: x**2],
        success="6 for 3, and 0 for 0.",
    )

`double(answer)` checks an answer. It returns a `Result` and raises no exception other than KeyboardInterrupt.
A call of the answer that takes more than ten seconds is stopped.

`run_case` computes the result of an answer for one case. The results of the reader's answer are compared with
those of the right answer and, if they are wrong, with those of each listed wrong answer. If a listed wrong
answer gives the same results in every case, the reader is shown the reason for it. The right answer's result
also defines the expected type: a number, a bool, text, an array or tensor of a certain shape, a list, a set
(the reader may return its items as a list in any order), a tuple with a certain number of items, or None.

To compare more than the return value, `run_case` returns a dict that maps verbs to values, such as
{"returns": words, "leaves length at": 5}. The first value that differs is shown.

An answer may also be data instead of a function, such as a list of numbers or a table. In this case,
`run_case` returns the item of the answer that the case tests, and an item that is `...` counts as not filled
in yet. To find the reason, only the first wrong case is compared with the listed wrong answers.
"""

from __future__ import annotations

import copy
import itertools
import operator
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, KeysView, ValuesView
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from helpers.check.reader import TimeLimitError, quote_failing_line, record_solved, time_limit
from helpers.check.result import (
    TOLERANCE,
    NotRightError,
    NotSolvedError,
    Result,
    clip,
    describe_with_type,
    format_value,
    is_tensor,
)

SPECIAL_CASE_ERRORS = (ArithmeticError, LookupError, ValueError, StopIteration)  # of a forgotten special case
MAX_ITERATOR_ITEMS = 10_000  # items taken from an iterator
MAX_SECONDS = 10  # time limit for one call of an answer
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
NO_RETURN_REASON = "a function that reaches no `return` gives None: end with `return …`."


@dataclass(frozen=True)
class Case:
    """One input for which the reader's answer is compared with the right answer."""

    args: tuple[Any, ...]  # the answer is called with copies of these
    label: str = ""  # the input in words; if empty, the call is shown as code
    failure_hint: str = (
        ""  # what a function has probably overlooked if it raises an error or gives NaN or None here
    )
    expected_in_words: str = ""  # the expected result in words, where its value would give the answer away


class Exercise:
    """An exercise. To get a `Result`, call it with the reader's answer.

    If the call has several arguments, the answer is the tuple of these arguments.

    Args:
        name: the name of the function or variable that the reader defines.
        todo: what the reader should do. It is shown if the answer has not been written yet.
        cases: the inputs. Each is a `Case` or a tuple of arguments. If the answer is wrong, the first case in
            which it is wrong is shown.
        right_answer: a function, or the expected data. A function is called immediately for every case, so
            later definitions cannot change the expected results.
        wrong_answers: reasons, each followed by the wrong answers that it explains. If several reasons apply,
            the first is shown.
        success: the message for a right answer, with results from the cases.
        run_case: function that takes an answer and a case's arguments, and returns the result to compare.
        describe_difference: function that takes a wrong result and the expected result, both of the same type
            and shape, and describes how they differ, in the form "gives …; expected …".
    """

    def __init__(
        self,
        name: str,
        todo: str,
        *,
        cases: Iterable[Case | tuple[Any, ...]],
        right_answer: Any,
        wrong_answers: Iterable[Any],
        success: str,
        run_case: Callable[..., Any] = operator.call,
        describe_difference: Callable[[Any, Any], str] | None = None,
    ) -> None:
        self.name, self.todo, self.right_answer, self.success = name, todo, right_answer, success
        self.run_case, self.describe_difference = run_case, describe_difference
        self.is_function = callable(right_answer)  # otherwise the answer is data
        self.cases = [case if isinstance(case, Case) else Case(case) for case in cases]
        self.wrong_answers: dict[str, list[Any]] = {}  # maps each reason to the answers that it explains
        for item in wrong_answers:
            if isinstance(item, str):
                answers = self.wrong_answers.setdefault(item, [])
            else:
                answers.append(item)
        self.expected = [self.result_of(right_answer, case) for case in self.cases]

    def __call__(self, *answers: Any) -> Result:
        """Check an answer. If it is right, record the exercise as solved.

        Warnings are suppressed, and no exception is raised other than KeyboardInterrupt.
        """
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.raise_unless_right(answers[0] if len(answers) == 1 else answers)
        except NotSolvedError as stop:
            return Result("not solved yet", str(stop))
        except NotRightError as stop:
            return Result("not right yet", stop.message + stop.failing_line, stop.reason)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an answer so odd that it cannot be inspected
            message = f"this answer cannot be checked: {error_text(error)}.{quote_failing_line(error)}"
            return Result("not right yet", message)
        record_solved(self)
        return Result("right", self.success)

    def raise_unless_right(self, answer: Any) -> None:
        """Raise NotSolvedError or NotRightError unless the answer is right in every case."""
        if answer is ... or answer is None:
            raise NotSolvedError(self.todo)
        if self.is_function and not callable(answer):
            raise NotRightError(
                f"got {describe_with_type(answer)}; expected a function: pass its name, without ()."
            )
        answer = answer if self.is_function else normalize_result(answer)
        got: list[Any] = []
        for case in self.cases:
            got.append(self.result_of(answer, case))
            if self.is_function and isinstance(got[-1], NotRightError):
                break  # an answer that raises here may not return in the next case
        for n, (value, expected) in enumerate(zip(got, self.expected, strict=False)):
            if value is not ... and (problem := self.find_error(value, expected, self.cases[n])):
                raise self.with_reason(problem, got, n)
        if blank := [case.label for case, value in zip(self.cases, got, strict=True) if value is ...]:
            n_right = len(got) - len(blank)
            so_far = f"{n_right} of {len(got)} are right; next: {blank[0]}."
            raise NotSolvedError(so_far if n_right else self.todo)

    def result_of(self, answer: Any, case: Case) -> Any:
        """Run an answer on a case and return the result, after `normalize_result`.

        If the answer raises an error, exceeds the time limit or changes an argument, a NotRightError is
        returned, not raised. If the answer is data that has not been filled in for this case, `...` is
        returned.

        Raises:
            NotSolvedError: the answer is a function that returned `...`, or a list, tuple or dict that
                contains `...`.
        """
        args = copy.deepcopy(case.args)
        prepared = self.with_normalized_result(answer) if self.is_function else answer
        try:
            with time_limit(MAX_SECONDS):
                value = normalize_result(self.run_case(prepared, *args))
        except NotRightError as stop:  # raised by an object that the exercise passed to the answer
            return stop
        except TimeLimitError as stop:
            message = f"{self.label(case)} has not come back after {MAX_SECONDS} seconds; does the loop end?"
            return NotRightError(message, failing_line=quote_failing_line(stop))
        except (KeyboardInterrupt, NotSolvedError):
            raise
        except BaseException as error:
            verb = "raises" if self.is_function else "cannot be read:"
            reason = case.failure_hint if isinstance(error, SPECIAL_CASE_ERRORS) else ""
            return NotRightError(
                f"{self.label(case)} {verb} {error_text(error)}.", reason, quote_failing_line(error)
            )
        if not self.is_function and value is None:
            return ...
        for n, (before, after) in enumerate(zip(case.args, args, strict=True)):
            if before is not after and not values_equal(before, after, atol=0):
                message = f"{self.label(case)} changes its {ORDINALS[n]} argument; expected it as it was."
                return NotRightError(message, "it is written to in place; work on a copy.")
        return value

    def with_normalized_result(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its result is normalized.

        The wrapped function raises NotSolvedError if the result or one of its items is `...`.
        """

        def call(*args: Any) -> Any:
            result = normalize_result(function(*args))
            if any(part is ... for part in items_or_self(result)):
                raise NotSolvedError(self.todo)
            return result

        return call

    def label(self, case: Case) -> str:
        """Return the case's label. If it has none, return the call of the answer as code."""
        return case.label or f"{self.name}({', '.join(clip(repr(arg)) for arg in case.args)})"

    def find_error(self, got: Any, expected: Any, case: Case) -> NotRightError | None:
        """Return an error that describes what is wrong with a result, or None if the result is right.

        If the wrong value is None or contains NaN, the error's reason is the case's `failure_hint`.
        `with_reason` looks for a better reason.

        Args:
            got: the result of the reader's answer, from `result_of`.
            expected: the result of the right answer.
            case: the case that both results are for.
        """
        if isinstance(got, NotRightError):
            return got
        verb = "gives" if self.is_function else "is"
        if not isinstance(expected, dict):
            got, expected = {verb: got}, {verb: expected}
        for verb, wanted in expected.items():
            value = got.get(verb)
            if problem := describe_type_mismatch(value, wanted, case.expected_in_words):
                message = f"{verb} {problem}"
            elif values_equal(value, wanted):
                continue
            elif self.describe_difference is not None and verb == "gives":
                message = self.describe_difference(to_array_if_numeric(value), to_array_if_numeric(wanted))
            else:
                shown, wanted = (format_value(to_array_if_numeric(x)) for x in (value, wanted))
                message = f"{verb} {shown}; expected {case.expected_in_words or wanted}"
            reason = case.failure_hint if value is None or has_nan(value) else ""
            return NotRightError(f"{self.label(case)} {message}.", reason)
        return None

    def with_reason(self, error: NotRightError, results: list[Any], case_index: int) -> NotRightError:
        """Return the error with the reason of the first listed wrong answer that gives the same results.

        If no listed wrong answer gives the same results, the error keeps its own reason. If it has none and
        the reader's function returned None, the reason is that it lacks a `return`.

        Args:
            error: the error for one case.
            results: the results of the reader's answer, one for each case that was run.
            case_index: index, from 0, of the case that `error` describes.
        """
        compared = [*range(len(results))] if self.is_function else [case_index]
        if isinstance(results[-1], NotRightError) and len(compared) - 1 > case_index:
            compared.pop()  # it raises in a later case; only the results before that are compared

        def fits(answer: Any) -> bool:
            pairs = ((results[n], self.result_of(answer, self.cases[n])) for n in compared)
            return all(
                str(a) == str(b) if isinstance(a, NotRightError) else values_equal(a, b) for a, b in pairs
            )

        reasons = (reason for reason, answers in self.wrong_answers.items() if any(map(fits, answers)))
        reason = next(reasons, error.reason)
        none_is_an_answer = any(expected is None for expected in self.expected)
        if (
            not reason
            and not none_is_an_answer
            and any(part is None for part in items_or_self(results[case_index]))
        ):
            reason = NO_RETURN_REASON
        return NotRightError(error.message, reason, error.failing_line)


def error_text(error: BaseException) -> str:
    """Return the type and message of an error on one line, even if `str(error)` fails."""
    return clip("".join(traceback.format_exception_only(error))).rstrip(".")


def normalize_result(value: Any) -> Any:
    """Convert iterators and arrays of strings to lists, and fractions to ints or floats.

    Lists, tuples and dicts are searched for such values at any depth.
    """
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "OU":
        return normalize_result(value.tolist())
    if isinstance(value, Iterator | KeysView | ValuesView):
        value = [*itertools.islice(value, MAX_ITERATOR_ITEMS)]
    if type(value) in (list, tuple):
        return type(value)(map(normalize_result, value))
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return {verb: normalize_result(part) for verb, part in value.items()} if type(value) is dict else value


def items_or_self(value: Any) -> list[Any]:
    """Return the items of a list or tuple, or the values of a dict, as a list.

    For any other value, return a list that contains only this value.
    """
    if isinstance(value, dict):
        return [*value.values()]
    return [*value] if isinstance(value, list | tuple) else [value]


def to_array_if_numeric(value: Any) -> Any:
    """Convert a value to an array of numbers or bools. If it cannot be converted, return it unchanged."""
    if is_tensor(value):
        dense = value.detach().cpu().to_dense()
        return (dense.float() if dense.is_floating_point() else dense).numpy()
    if isinstance(value, set | frozenset | range):
        value = sorted(value)
    if isinstance(value, list | tuple) and any(map(is_tensor, value)):
        value = [to_array_if_numeric(part) for part in value]
    try:
        array = np.asarray(value)
    except Exception:  # rows of unequal length, or an object that cannot be converted
        return value
    return array if array.dtype.kind in "biuf" else value


def has_nan(value: Any) -> bool:
    """Return whether a number or an array-like value contains NaN."""
    array = to_array_if_numeric(value)
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and bool(np.isnan(array).any())


def values_equal(got: Any, expected: Any, atol: float = TOLERANCE) -> bool:
    """Return whether two values are equal. Numbers may differ by up to `atol`, and NaN equals only NaN.

    If `expected` is a set, the order of the items in `got` does not matter.
    """
    if isinstance(got, dict) and isinstance(expected, dict):
        return got.keys() == expected.keys() and all(
            values_equal(got[key], expected[key], atol) for key in got
        )
    a, b = to_array_if_numeric(got), to_array_if_numeric(expected)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        a = np.sort(a) if isinstance(expected, set | frozenset) else a
        x, y = a.astype(float), b.astype(float)
        same_type = (a.dtype == bool) == (b.dtype == bool)
        return a.shape == b.shape and same_type and np.allclose(x, y, 1e-9, atol, equal_nan=True)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(values_equal(x, y, atol) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def describe_type_mismatch(got: Any, expected: Any, expected_in_words: str = "") -> str:
    """Describe how a result's type or shape differs from that of the expected result.

    If type and shape are as expected, return "".

    Args:
        got: the result of the reader's answer.
        expected: the result of the right answer.
        expected_in_words: the expected result in words. If it is empty, the expected type is named instead.
    """
    message, a, b = describe_with_type(got), to_array_if_numeric(got), to_array_if_numeric(expected)
    if isinstance(expected, tuple):
        got = [*got] if isinstance(a, np.ndarray) and a.ndim else got
        fits = isinstance(got, list | tuple) and len(got) == len(expected)
        problems = [describe_type_mismatch(*pair) for pair in zip(got, expected, strict=True)] if fits else []
        if any(problems):
            part, problem = next((n, text) for n, text in enumerate(problems, 1) if text)
            return f"part {part} as {problem}"
    elif got is None or expected is None or isinstance(expected, str):
        fits = type(got) is type(expected)
    elif isinstance(expected, list | set | frozenset):
        fits = is_list_of_expected_type(got, expected)
    elif not isinstance(a, np.ndarray) or (is_tensor(expected) and not is_tensor(got)):
        fits = False
    elif not b.ndim:
        fits = not a.ndim and (a.dtype == bool) == (b.dtype == bool)
    elif a.shape != b.shape:
        fits, message = False, f"an answer of shape {a.shape}" if a.ndim else message
    else:
        fits, message = b.dtype != bool or a.dtype == bool, f"numbers ({a.dtype})"
    return "" if fits else f"{message}; expected {expected_in_words or expected_type_in_words(expected)}"


def is_list_of_expected_type(got: Any, expected: Any) -> bool:
    """Return whether a result is a list whose items have the same type as those of `expected`.

    If `expected` contains text, the items must be text. Otherwise, they must be whole numbers.
    """
    if any(isinstance(part, str) for part in expected):
        return isinstance(got, list | tuple) and all(isinstance(part, str) for part in got)
    row = to_array_if_numeric(got)
    return isinstance(row, np.ndarray) and row.ndim == 1 and (row.dtype.kind in "iu" or not row.size)


def expected_type_in_words(expected: Any) -> str:
    """Describe the type of an expected value in words for the reader, such as "a list of words"."""
    if isinstance(expected, tuple):
        return f"{len(expected)} parts"
    if isinstance(expected, list | set | frozenset):
        return "a list of words" if any(isinstance(p, str) for p in expected) else "a list of whole numbers"
    if isinstance(expected, bool | np.bool_):
        return "True or False"
    if is_tensor(expected):
        return f"a tensor of shape {tuple(expected.shape)}"
    if isinstance(expected, np.ndarray) and expected.ndim:
        return f"{'True and False, ' if expected.dtype == bool else ''}shape {expected.shape}"
    return "None" if expected is None else "text" if isinstance(expected, str) else "one number"
