"""An exercise as data: its cases, its right answer, and the wrong ones that readers give, with the reasons.

    from helpers.check.exercise import Case, Exercise

    double = Exercise(
        name="double",
        todo="let double return twice the number.",
        cases=[(3,), Case((0,), trap="twice nothing is 0.")],
        right=lambda x: 2 * x,
        wrong=["multiplied by itself, not by 2.", lambda x: x * x, lambda x: x**2],
        success="6 for 3, and 0 for 0.",
    )

`double(mine)` gives a `Result` and never raises; a call that has not come back after ten seconds is ended.
Right, wrong and reader's answers go through the same `run`, and what comes out is compared: an answer gets
the reason of the listed one that does the same in every case. What the right one gives says what is expected:
a number, an array or tensor of a shape, bools, a list, a set (a list in any order), a tuple of parts, None.
A `run` that looks at more than what a function returns gives a dict from verb to value, {"returns": words,
"leaves length at": 5}; the first that differs is shown. An answer may also be data (numbers, a table): then
`run` picks out the part that a case names, a part that is `...` is still to be filled, and each case finds
its reason alone.
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

from helpers.check.reader import NotBackError, keep_solved, line_of, time_limit
from helpers.check.result import (
    TOLERANCE,
    NotRightError,
    NotSolvedError,
    Result,
    clip,
    describe,
    is_tensor,
    show,
)

EMPTY_HANDED = (ArithmeticError, LookupError, ValueError, StopIteration)  # by a forgotten special case
LONGEST_LIST = 10_000  # of what a generator gives
LONGEST_CALL = 10  # seconds
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
NO_RETURN = "a function that reaches no `return` gives None: end with `return …`."


@dataclass(frozen=True)
class Case:
    """One input."""

    args: tuple[Any, ...]  # go in as copies
    label: str = ""  # the input in words; without one, the call as it would be written
    trap: str = ""  # what a function that raises, or gives NaN or None, here has most likely forgotten
    wanted: str = ""  # what is expected in words, where the number itself would give the answer away


class Exercise:
    """An exercise; called with the reader's answer, or several, it says whether that is right.

    Args:
        name: what the reader writes.
        todo: what is left to do, for a stub.
        cases: the inputs, a `Case` or its arguments alone; the first that goes wrong is shown.
        right: the right answer, run when the exercise is made: nobody can redefine what is expected later.
        wrong: reasons, each followed by the answers that it fits, those that several readers make first.
        success: the message for a right answer, with its numbers.
        run: takes an answer and a case's arguments, and gives what is compared.
        difference: says how a value of the right kind and shape differs, "gives …; expected …".
    """

    def __init__(
        self,
        name: str,
        todo: str,
        *,
        cases: Iterable[Case | tuple[Any, ...]],
        right: Any,
        wrong: Iterable[Any],
        success: str,
        run: Callable[..., Any] = operator.call,
        difference: Callable[[Any, Any], str] | None = None,
    ) -> None:
        self.name, self.todo, self.right, self.success = name, todo, right, success
        self.run, self.difference = run, difference
        self.is_function = callable(right)  # or data
        self.cases = [case if isinstance(case, Case) else Case(case) for case in cases]
        self.wrong: dict[str, list[Any]] = {}  # answers, by the reason that fits them
        for one in wrong:
            if isinstance(one, str):
                answers = self.wrong.setdefault(one, [])
            else:
                answers.append(one)
        self.expected = [self.observe(right, case) for case in self.cases]

    def __call__(self, *answers: Any) -> Result:
        """Check an answer, and keep what is right; never raises, but Ctrl-C, and never warns."""
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.check(answers[0] if len(answers) == 1 else answers)
        except NotSolvedError as stop:
            return Result("not solved yet", str(stop))
        except NotRightError as stop:
            return Result("not right yet", stop.message + stop.line, stop.reason)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an answer so odd that it cannot even be looked at
            return Result("not right yet", f"this answer cannot be checked: {raised(error)}.{line_of(error)}")
        keep_solved(self)
        return Result("right", self.success)

    def check(self, answer: Any) -> None:
        """Raise NotSolvedError or NotRightError unless the answer is right in every case."""
        if answer is ... or answer is None:
            raise NotSolvedError(self.todo)
        if self.is_function and not callable(answer):
            raise NotRightError(f"got {describe(answer)}; expected a function: pass its name, without ().")
        answer = answer if self.is_function else normal(answer)
        got: list[Any] = []
        for case in self.cases:
            got.append(self.observe(answer, case))
            if self.is_function and isinstance(got[-1], NotRightError):
                break  # what raises once may not end in the next case
        for n, (value, wanted) in enumerate(zip(got, self.expected, strict=False)):
            if value is not ... and (problem := self.differs(value, wanted, self.cases[n])):
                raise self.explained(problem, got, n)
        if blank := [case.label for case, value in zip(self.cases, got, strict=True) if value is ...]:
            n_right = len(got) - len(blank)
            so_far = f"{n_right} of {len(got)} are right; next: {blank[0]}."
            raise NotSolvedError(so_far if n_right else self.todo)

    def observe(self, answer: Any, case: Case) -> Any:
        """Run an answer on a case; return what it gives, or a NotRightError if it raises.

        A function that gives `...`, or a tuple with one, raises NotSolvedError.
        """
        args = copy.deepcopy(case.args)
        try:
            with time_limit(LONGEST_CALL):
                value = normal(self.run(self.watched(answer) if self.is_function else answer, *args))
        except NotRightError as stop:  # from something of ours that the answer was given
            return stop
        except NotBackError as stop:
            late = f"{self.label(case)} has not come back after {LONGEST_CALL} seconds; does the loop end?"
            return NotRightError(late, line=line_of(stop))
        except (KeyboardInterrupt, NotSolvedError):
            raise
        except BaseException as error:
            verb = "raises" if self.is_function else "cannot be read:"
            trap = case.trap if isinstance(error, EMPTY_HANDED) else ""
            return NotRightError(f"{self.label(case)} {verb} {raised(error)}.", trap, line_of(error))
        if not self.is_function and value is None:
            return ...
        for n, (before, after) in enumerate(zip(case.args, args, strict=True)):
            if before is not after and not same(before, after, atol=0):
                what = f"{self.label(case)} changes its {ORDINALS[n]} argument; expected it as it was."
                return NotRightError(what, "it is written to in place; work on a copy.")
        return value

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a reader's function, its result written plainly; `...` in it raises NotSolvedError."""

        def call(*args: Any) -> Any:
            result = normal(function(*args))
            if any(part is ... for part in parts(result)):
                raise NotSolvedError(self.todo)
            return result

        return call

    def label(self, case: Case) -> str:
        """Return a case in words."""
        return case.label or f"{self.name}({', '.join(clip(repr(arg)) for arg in case.args)})"

    def differs(self, got: Any, expected: Any, case: Case) -> NotRightError | None:
        """Return what is wrong with what an answer gave in a case, without a reason; None if nothing is."""
        if isinstance(got, NotRightError):
            return got
        verb = "gives" if self.is_function else "is"
        if not isinstance(expected, dict):
            got, expected = {verb: got}, {verb: expected}
        for verb, wanted in expected.items():
            value = got.get(verb)
            if problem := kind_differs(value, wanted, case.wanted):
                message = f"{verb} {problem}"
            elif same(value, wanted):
                continue
            elif self.difference is not None and verb == "gives":
                message = self.difference(plain(value), plain(wanted))
            else:
                message = f"{verb} {show(plain(value))}; expected {case.wanted or show(plain(wanted))}"
            trap = case.trap if value is None or has_nan(value) else ""
            return NotRightError(f"{self.label(case)} {message}.", trap)
        return None

    def explained(self, problem: NotRightError, got: list[Any], n: int) -> NotRightError:
        """Give a problem in case n the reason of the first mistake of which some answer does the same."""
        compared = [*range(len(got))] if self.is_function else [n]
        if isinstance(got[-1], NotRightError) and len(compared) - 1 > n:
            compared.pop()  # it raises later on; what it gave before is compared with the mistakes

        def fits(answer: Any) -> bool:
            pairs = ((got[n], self.observe(answer, self.cases[n])) for n in compared)
            return all(str(a) == str(b) if isinstance(a, NotRightError) else same(a, b) for a, b in pairs)

        reasons = (reason for reason, answers in self.wrong.items() if any(map(fits, answers)))
        reason = next(reasons, problem.reason)
        none_is_an_answer = any(expected is None for expected in self.expected)
        if not reason and not none_is_an_answer and any(part is None for part in parts(got[n])):
            reason = NO_RETURN
        return NotRightError(problem.message, reason, problem.line)


def raised(error: BaseException) -> str:
    """Say what was raised, on one line; a text that cannot be had is said to be so."""
    return clip("".join(traceback.format_exception_only(error))).rstrip(".")


def normal(value: Any) -> Any:
    """Write what is as good as a list or a number as one: a generator, an array of text, a fraction."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "OU":
        return normal(value.tolist())
    if isinstance(value, Iterator | KeysView | ValuesView):
        value = [*itertools.islice(value, LONGEST_LIST)]
    if type(value) in (list, tuple):
        return type(value)(map(normal, value))
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return {verb: normal(part) for verb, part in value.items()} if type(value) is dict else value


def parts(value: Any) -> list[Any]:
    """Return the parts of a list, tuple or dict, and anything else as its own only part."""
    if isinstance(value, dict):
        return [*value.values()]
    return [*value] if isinstance(value, list | tuple) else [value]


def plain(value: Any) -> Any:
    """Return what can be an array of numbers or bools as one; anything else as it is."""
    if is_tensor(value):
        dense = value.detach().cpu().to_dense()
        return (dense.float() if dense.is_floating_point() else dense).numpy()
    if isinstance(value, set | frozenset | range):
        value = sorted(value)
    if isinstance(value, list | tuple) and any(map(is_tensor, value)):
        value = [plain(part) for part in value]
    try:
        array = np.asarray(value)
    except Exception:  # rows of unequal length, or an object that refuses
        return value
    return array if array.dtype.kind in "biuf" else value


def has_nan(value: Any) -> bool:
    """Whether there is a NaN among the numbers."""
    array = plain(value)
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and bool(np.isnan(array).any())


def same(got: Any, expected: Any, atol: float = TOLERANCE) -> bool:
    """Whether two values agree, numbers to 0.01; NaN agrees with NaN only."""
    if isinstance(got, dict) and isinstance(expected, dict):
        return got.keys() == expected.keys() and all(same(got[key], expected[key], atol) for key in got)
    a, b = plain(got), plain(expected)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        a = np.sort(a) if isinstance(expected, set | frozenset) else a
        x, y = a.astype(float), b.astype(float)
        kinds = {a.dtype == bool, b.dtype == bool}
        return a.shape == b.shape and len(kinds) == 1 and np.allclose(x, y, 1e-9, atol, equal_nan=True)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y, atol) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def kind_differs(got: Any, expected: Any, wanted: str = "") -> str:
    """Say how the kind or the shape of an answer differs from that of the expected one; "" if it does not."""
    message, a, b = describe(got), plain(got), plain(expected)
    if isinstance(expected, tuple):
        got = [*got] if isinstance(a, np.ndarray) and a.ndim else got
        fits = isinstance(got, list | tuple) and len(got) == len(expected)
        problems = [kind_differs(*pair) for pair in zip(got, expected, strict=True)] if fits else []
        if any(problems):
            part, problem = next((n, text) for n, text in enumerate(problems, 1) if text)
            return f"part {part} as {problem}"
    elif got is None or expected is None or isinstance(expected, str):
        fits = type(got) is type(expected)
    elif isinstance(expected, list | set | frozenset):
        fits = fits_items(got, expected)
    elif not isinstance(a, np.ndarray) or (is_tensor(expected) and not is_tensor(got)):
        fits = False
    elif not b.ndim:
        fits = not a.ndim and (a.dtype == bool) == (b.dtype == bool)
    elif a.shape != b.shape:
        fits, message = False, f"an answer of shape {a.shape}" if a.ndim else message
    else:
        fits, message = b.dtype != bool or a.dtype == bool, f"numbers ({a.dtype})"
    return "" if fits else f"{message}; expected {wanted or expected_kind(expected)}"


def fits_items(got: Any, expected: Any) -> bool:
    """Whether an answer is a list whose parts are of the kind that is expected: text, or whole numbers."""
    if any(isinstance(part, str) for part in expected):
        return isinstance(got, list | tuple) and all(isinstance(part, str) for part in got)
    row = plain(got)
    return isinstance(row, np.ndarray) and row.ndim == 1 and (row.dtype.kind in "iu" or not row.size)


def expected_kind(expected: Any) -> str:
    """Say what kind of answer is expected."""
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
