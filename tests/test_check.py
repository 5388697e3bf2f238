"""The exercise checker, with small exercises."""

from __future__ import annotations

import linecache
import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import toy
from helpers.chapters import n01, n02, n03, n04
from helpers.check.exercise import Case, Exercise, values_equal
from helpers.check.guess import NO_GUESS_MESSAGE, Guess, check_ratio_guess
from helpers.check.reader import SOLVED_FILE
from helpers.check.result import Result, describe_with_type, format_value

double = Exercise(
    name="double",
    todo="let double return twice the number.",
    cases=[(1,), (3,), Case((0,), failure_hint="twice nothing is 0.")],
    right_answer=lambda x: 2 * x,
    wrong_answers=["one more.", lambda x: x + 1 if x else 0, "the square.", lambda x: x * x + 1],
    success="2, 6 and 0.",
)
SUMS = Exercise(
    name="sums",
    todo="write two sums.",
    cases=[Case(("a",), "`a`", expected_in_words="1 + 2"), Case(("b",), "`b`")],
    run_case=lambda answer, name: answer[name],
    right_answer={"a": 3, "b": 7},
    wrong_answers=["multiplied.", {"a": 2, "b": 12}],
    success="3 and 7.",
)


def exercise(right: Any, *cases: Case, run_case: Any = None) -> Exercise:
    """Return an exercise with this right answer."""
    kwargs = {"run_case": run_case} if run_case else {}
    cases = cases or (Case((), "f()"),)
    return Exercise(
        "f", "write f.", cases=cases, right_answer=right, wrong_answers=[], success="so it is.", **kwargs
    )


class Odd:
    """An answer that raises when it is compared, shown or asked for its shape."""

    __hash__ = None  # type: ignore[assignment]

    def refuse(self, *args: object) -> Any:
        raise RuntimeError("not to be looked at")

    __bool__ = __eq__ = __repr__ = refuse
    shape = property(refuse)


def raising(error: BaseException) -> Any:
    """Return a function that raises an error."""

    def function(*args: Any) -> Any:
        raise error

    return function


def test_right_wrong_and_missing_answers_get_their_results() -> None:
    assert double(lambda x: 2 * x) == Result("right", "2, 6 and 0.")
    assert double(lambda x: 2.003 * x).solved
    assert double(...) == Result("not solved yet", "let double return twice the number.")
    wrong = double(lambda x: x * x + 1)
    assert repr(wrong) == "Not right yet: double(3) gives 10; expected 6.\nLikely reason: the square."


def test_a_reason_has_to_fit_every_case() -> None:
    assert double(lambda x: 2).reason == ""  # one more at 1, but not at 3
    first = double(lambda x: {1: 2, 3: 4}[x])  # a wrong value is reported before a later error
    assert (first.message, first.reason) == ("double(3) gives 4; expected 6.", "one more.")
    assert "double(3) raises KeyError: 3." in double(lambda x: {1: 2}[x]).message
    with pytest.raises(KeyboardInterrupt):
        double(raising(KeyboardInterrupt()))
    called: list[int] = []
    double(lambda x: called.append(x) or 1 / 0)  # type: ignore[func-returns-value]
    assert called == [1]  # an answer that raises is not run on the next case


def test_a_failing_special_case_shows_its_trap() -> None:
    for failing in (
        lambda x: 2 / x * x * x,
        lambda x: 2 * x if x else None,
        lambda x: np.float64(2 * x * x) / x,
        lambda x: next(2 * n for n in range(x, x + bool(x))),
    ):
        assert double(failing).reason == "twice nothing is 0."
    assert double(lambda x: 2 * x if x else nothing).reason == ""  # type: ignore[name-defined]  # noqa: F821
    assert double(lambda x: 2.0 * x or 5.0).reason == ""


def test_a_function_without_return_gets_that_reason() -> None:
    assert "reaches no `return`" in double(lambda x: [x].append(x)).reason
    assert exercise(lambda: None)(lambda: print(end="")).solved  # None is an answer here
    assert exercise(lambda x: x or None, Case((0,)), Case((1,)))(lambda x: print(end="")).reason == ""


def test_each_part_of_data_has_its_reason() -> None:
    assert SUMS({"a": 3, "b": 7}).solved
    assert repr(SUMS({"a": ..., "b": ...})) == "Not solved yet: write two sums."
    assert repr(SUMS({"a": 3, "b": None})) == "Not solved yet: 1 of 2 are right; next: `b`."
    assert SUMS({"a": ..., "b": 8}).message == "`b` is 8; expected 7."
    assert SUMS({"a": 2, "b": 8}) == Result("not right yet", "`a` is 2; expected 1 + 2.", "multiplied.")
    assert SUMS({"a": 3}).message == "`b` cannot be read: KeyError: 'b'."


@pytest.mark.parametrize(
    ("right", "answer", "problem"),
    [
        (1.5, True, "True (bool); expected one number"),
        (1.5, np.ones(1), "an array of shape (1,); expected one number"),
        (True, 1, "1 (int); expected True or False"),
        (True, np.bool_(False), "False; expected True"),
        (np.ones(2), [1, 2, 3], "an answer of shape (3,); expected shape (2,)"),
        (np.ones(2), [[1], [1, 2]], "[[1], [1, 2]] (list); expected shape (2,)"),
        (np.ones(2), [1, 2], "1, 2; expected 1, 1"),
        (np.ones(2, dtype=bool), [1, 1], "numbers (int64); expected True and False, shape (2,)"),
        (["nice"], "nice", "'nice' (str); expected a list of words"),
        (["nice"], ["warm"], "warm; expected nice"),
        ({2, 3}, [True, True], "[True, True] (list); expected a list of whole numbers"),
        ({2, 3}, [2.0, 3.0], "[2.0, 3.0] (list); expected a list of whole numbers"),
        ({2, 3}, [3, 2, 2], "3, 2, 2; expected 2, 3"),
        ({2, 3}, [3, 4], "3, 4; expected 2, 3"),
        ((1, np.ones(2)), 1, "1 (int); expected 2 parts"),
        ((1, np.ones(2)), (1, 2), "part 2 as 2 (int); expected shape (2,)"),
        ((1, 2), (1, 2, 3), "(1, 2, 3) (tuple); expected 2 parts"),
        (None, 3, "3 (int); expected None"),
        (3, None, "None; expected one number"),
    ],
)
def test_the_right_answer_defines_the_expected_type(right: Any, answer: Any, problem: str) -> None:
    assert exercise(lambda: right)(lambda: answer).message == f"f() gives {problem}."
    assert exercise(lambda: right)(lambda: right).solved
    assert exercise(lambda: (1, right))(lambda: (1, ...)).state == "not solved yet"


def test_a_run_may_observe_several_values() -> None:
    first_differs = exercise(
        lambda: 3, run_case=lambda f: {"gives": f(), "needs steps:": 1 if f() == 3 else 2}
    )
    assert first_differs(lambda: 4).message == "f() gives 4; expected 3."
    second_differs = exercise(lambda: 1, run_case=lambda f: {"gives": 3, "needs steps:": f()})
    assert second_differs(lambda: 2).message == "f() needs steps: 2; expected 1."


def test_arguments_are_copies_and_changes_are_reported() -> None:
    numbers = np.zeros(2)
    total = exercise(lambda x: x.sum(), Case((numbers,), "f"))
    changed = "f changes its first argument; expected it as it was."
    assert total(lambda x: x.fill(0.001) or 0.0).message == changed  # however little
    assert numbers.sum() == 0
    assert "second argument" in exercise(lambda x, y: 1, Case((1, [2])))(lambda x, y: y.pop()).message


def test_odd_answers_get_a_short_message() -> None:
    values = [Odd(), [Odd()], [*range(10**5)], 1j, iter([])]
    errors = [RuntimeError("first\nsecond"), SystemExit(3), ValueError("x" * 10**6)]
    for odd in (5, Odd(), *[lambda x, value=value: value for value in values], *map(raising, errors)):
        for checker in (double, exercise(lambda x: ["a"], Case((1,)))):
            result = checker(odd)
            assert result.state == "not right yet"
            assert len(repr(result)) < 300
            assert "\n" not in result.message
            assert " at 0x" not in repr(result)


def in_a_cell(source: str) -> Any:
    """Return the function f of a notebook cell with this source."""
    name, names = f"/nowhere/ipykernel_1/{hash(source)}.py", dict[str, Any]()
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), names)
    return names["f"]


def test_an_error_names_the_line_of_its_cell() -> None:
    inner = in_a_cell("def f(x):\n    return 1 / x")
    outer = in_a_cell("def f(x):\n    # calls another\n    return 2 * x if x else inner(x)\n")
    outer.__globals__["inner"] = inner
    message = "double(0) raises ZeroDivisionError: division by zero. In line 3 of its cell: "
    assert double(outer).message == f"{message}return 2 * x if x else inner(x)"
    assert double(outer).reason == "twice nothing is 0."
    assert "line" not in double(lambda x: 1 / 0).message  # not for a function of a file


def test_tracing_works_after_a_time_limit() -> None:
    code = """
import sys
from helpers.check.reader import TimeLimitError, time_limit
def lines(): return 1
for seconds in (9, 0.01):
    try:
        with time_limit(seconds):
            while seconds < 1: pass
    except TimeLimitError:
        print("ended")
sys.settrace(lambda *_: None)
print(lines())
"""
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, timeout=60, text=True, check=True).stdout == "ended\n1\n"


def test_an_endless_call_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.check.exercise.MAX_SECONDS", 0.2)
    slow = double(in_a_cell("def f(x):\n    while True:\n        pass"))
    late = "double(1) has not come back after 0.2 seconds; does the loop end? In line "
    assert re.fullmatch(rf"{re.escape(late)}[23] of its cell: (while True:|pass)", slow.message)
    assert double(lambda x: 2 * x).solved


def test_solved_exercises_are_noted_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell = SimpleNamespace(user_ns={"check": n02})
    assert n02.change_future(n02.change_future.right_answer).solved
    assert not Path(SOLVED_FILE).exists(), "no notebook runs"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    n02.change_future(...)
    assert not Path(SOLVED_FILE).exists(), "it is not solved"
    longer = "02 change_future_too\n"
    Path(SOLVED_FILE).write_text(longer)
    for _ in range(2):
        n02.change_future(n02.change_future.right_answer)
    assert Path(SOLVED_FILE).read_text() == f"{longer}02 change_future\n"
    Path(SOLVED_FILE).write_bytes(b"\xff")
    assert n02.change_future(n02.change_future.right_answer).solved, "the file cannot be read"
    Path(SOLVED_FILE).unlink()
    Path(SOLVED_FILE).mkdir()
    assert n02.change_future(n02.change_future.right_answer).solved, "the file cannot be written"
    shell.user_ns["check"] = 1
    assert n02.change_future(n02.change_future.right_answer).solved, "the reader has redefined `check`"


def test_redefined_functions_do_not_change_expected_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("attention", "run_pass", "generate"):
        monkeypatch.setattr(toy, name, lambda *args, **kwargs: np.zeros(4))
    assert not n04.decode_step(lambda cache, number: np.zeros(4)).solved
    assert not n03.generate(lambda step, prompt, max_new_tokens: np.zeros(4)).solved


def test_a_table_with_missing_rows_is_not_right() -> None:
    assert "there is no row `weather`" in n01.table({}).message
    assert n01.table(dict.fromkeys(toy.PROMPT, ...)).state == "not solved yet"
    for row in ([1, 2], [20, 20, 10, 15, 0]):
        assert "expected four numbers" in n01.table({"weather": row}).message


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (format_value, 31 / 3, "10.33"),
        (format_value, 100.0, "100"),
        (format_value, -0.001, "0"),
        (format_value, float("nan"), "NaN"),
        (format_value, float("-inf"), "-inf"),
        (format_value, 123456789.0, "123,456,789"),
        (format_value, 1e300, "1e+300"),
        (format_value, "x" * 121, f"{'x' * 120} …"),
        (format_value, [], "nothing"),
        (format_value, np.array([0.125, 3]), "0.13, 3"),
        (format_value, ["nice", "<eos>"], "nice, <eos>"),
        (describe_with_type, ..., "..."),
        (describe_with_type, np.zeros((2, 3)), "an array of shape (2, 3)"),
        (describe_with_type, (np.zeros(2), 1), "a tuple of 2 parts"),
        (describe_with_type, raising, "the function raising"),
        (describe_with_type, object(), "something of type object"),
    ],
)
def test_values_are_shown_in_words(write: Any, value: Any, text: str) -> None:
    assert write(value) == text


def test_numbers_that_differ_look_different() -> None:
    for off in np.linspace(-0.03, 0.03, 61):
        assert values_equal(10 + off, 10) or format_value(10 + off) != format_value(10)
    assert values_equal([np.nan, 1], [np.nan, 1])
    assert values_equal({"gives": 10.004}, {"gives": 10})
    different: Any = [([np.nan, 1], [0, 1]), ([1, 1], [True, True]), (10.011, 10)]
    different += [({"gives": 1, "leaves": 2}, other) for other in ({"gives": 1}, {"gives": 1, "leaves": 3})]
    for a, b in different:
        assert not values_equal(a, b)
        assert not values_equal(b, a)


@pytest.mark.parametrize(
    ("guess", "answer", "sentence"),
    [
        (3.0, np.int64(3), "You guessed 3.0. Right."),
        (4, 3, "You guessed 4. It is 3."),
        (" Decode", "decode", "You guessed  Decode. Right."),
        (True, False, "You guessed True. It is False."),
        (np.array([2, 5]), [2, 3], "You guessed [2 5]. It is [2, 3]."),
        (range(2, 4), [2, 3], "You guessed range(2, 4). Right."),
        ({3, 2}, [2, 3], "You guessed {2, 3}. Right."),
        ([3, 2], [2, 3], "You guessed [3, 2]. It is [2, 3]."),
        ({4, 3, 2}, [2, 3], "You guessed {2, 3, 4}. It is [2, 3]."),
    ],
)
def test_a_guess_is_compared_with_the_answer(guess: Any, answer: Any, sentence: str) -> None:
    assert repr(Guess(guess, answer, "That is why.")) == f"{sentence}\nThat is why."
    assert Guess(guess, answer).is_right == ("Right." in sentence)


def test_without_a_guess_the_answer_is_not_shown() -> None:
    for guess in (None, ...):
        assert repr(Guess(guess, 3, "That is why.")) == f"No guess yet: {NO_GUESS_MESSAGE}"
        assert Guess(guess, 3)._repr_html_() is None


def test_nearest_rounds_a_ratio_to_an_option() -> None:
    assert [check_ratio_guess(4, (1, 4, 16), ratio).answer for ratio in (0.5, 1.9, 2.1, 99)] == [1, 1, 4, 16]
    for measured in (math.nan, 0.0, math.inf):
        with pytest.raises(ValueError, match=f"ratio is {measured}; expected a number above 0"):
            check_ratio_guess(4, (1, 4, 16), measured)
    with pytest.raises(ValueError, match="the answer is nan; expected a number"):
        Guess(3, math.nan)


@pytest.mark.parametrize(
    ("guess", "answer", "kwargs", "problem"),
    [
        ("20", 20, {}, "'20' is text in quotes. Write a number"),
        (True, 1, {}, "True is True or False. Write a number"),
        ("yes", True, {}, "'yes' is text in quotes. Write True or False"),
        (20, [20], {}, "20 is a number. Write a list"),
        (math.nan, 20, {}, "nan is not a number. Write a number"),
        (np.float32("nan"), 20, {"example_answer": 1.0}, "np.float32(nan) is not a number. Write a number"),
        ("0.9", "0.9 to 1.1", {"example_answer": 1.0}, "'0.9' is text in quotes. Write a number"),
        (10, 8, {"options": (1, 8)}, "10 is none of 1, 8. Write one of them"),
        ("d", "B", {"options": "ABC"}, "'d' is none of 'A', 'B', 'C'. Write one of them"),
    ],
)
def test_a_guess_of_another_type_does_not_count(guess: Any, answer: Any, kwargs: Any, problem: str) -> None:
    assert repr(Guess(guess, answer, "That is why.", **kwargs)) == f"No guess yet: {problem}, and run again."
    assert Guess(guess, answer, **kwargs)._repr_html_() is None
    assert Guess(
        answer, answer, **{"example_answer": answer} if "example_answer" in kwargs else kwargs
    ).is_right


def test_right_and_wrong_look_different() -> None:
    assert double(...)._repr_html_() is None
    for right, wrong in ((Guess(3, 3), Guess(2, 3)), (double(lambda x: 2 * x), double(lambda x: x))):
        good, bad = right._repr_html_(), wrong._repr_html_()
        assert good and "✓" in good and "success" in good  # noqa: PT018
        assert bad and "✗" in bad and "error" in bad  # noqa: PT018
    assert "&lt;b&gt;" in (Guess("<b>", "a")._repr_html_() or "")
