"""The checkers alone: what they hold to be right is what the toy does, and nothing makes them raise."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import toy
from helpers.check import part1
from helpers.check.cases import Case, call, compare, is_stub, likely_reason, read_number, read_row
from helpers.check.guess import Guess
from helpers.check.part1.kv_cache import _mask_right, _stale_right
from helpers.check.result import (
    NotRightError,
    NotSolvedError,
    Result,
    describe,
    exercise,
    same,
    show,
)
from helpers.recording.toy import record_toy
from helpers.sampling import softmax
from tests.machine import ROOT

CHECKERS: dict[str, Callable[..., Result]] = {
    name: getattr(part1, name) for name in part1.__all__ if name != "prefill_lines"
}


def check(name: str, answer: Any) -> Result:
    """Hand the same answer to every parameter of a checker."""
    n_answers = {"count_work": 2, "reuse_rows": 2}.get(name, 1)
    return CHECKERS[name](*[answer] * n_answers)


def two(x: Any) -> Any:
    """Return its argument, as a reader's function might."""
    return x


class Odd:
    """Something that nobody should hand in."""

    def __bool__(self) -> bool:
        raise RuntimeError("no truth in it")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


def shout(*args: Any) -> Any:
    """Raise, with a message of two lines."""
    raise RuntimeError("first\nsecond")


def leave(*args: Any) -> Any:
    """Try to end the program."""
    sys.exit(3)


ODD_ANSWERS = {
    "number": 5,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "text": "text",
    "empty list": [],
    "list": [1, 2],
    "ragged list": [[1], [1, 2]],
    "dict": {"so": 1},
    "array": np.zeros((2, 3)),
    "set": {1, 2},
    "object": object(),
    "odd object": Odd(),
    "class": Case,
    "generator": (n for n in range(3)),
    "raises": shout,
    "leaves": leave,
    "takes nothing": lambda: 3,
    "gives text": lambda *args: "text",
    "gives a number": lambda *args: 3,
    "gives NaN": lambda *args: float("nan"),
    "gives infinity": lambda *args: float("inf"),
    "gives True": lambda *args: True,
    "gives a list": lambda *args: [],
    "gives texts": lambda *args: ["a", "b", "c", "d"],
    "gives a ragged list": lambda *args: [[1], [1, 2]],
    "gives its first argument": lambda *args: args[0],
    "gives itself": two,
    "gives an object": lambda *args: object(),
    "gives an odd object": lambda *args: Odd(),
    "gives a complex number": lambda *args: 1j,
    "gives objects": lambda *args: np.array([None, "a"]),
    "gives a generator": lambda *args: (n for n in range(3)),
    "gives a function": lambda *args: shout,
    "gives dates": lambda *args: np.array(["2026-01-01"], dtype="datetime64[D]"),
}


@pytest.mark.parametrize("odd", ODD_ANSWERS)
@pytest.mark.parametrize("name", CHECKERS)
def test_an_odd_answer_gets_a_plain_line(name: str, odd: str) -> None:
    result = check(name, ODD_ANSWERS[odd])
    assert result.state == "not right yet" or (odd == "empty list" and name == "order_prefill")
    assert len(repr(result).splitlines()) <= 3
    assert " at 0x" not in repr(result)
    if "odd object" not in odd:
        assert "cannot be checked" not in repr(result)


@pytest.mark.parametrize("untouched", [None, ...], ids=["None", "dots"])
@pytest.mark.parametrize("name", CHECKERS)
def test_nothing_is_not_solved_yet(name: str, untouched: Any) -> None:
    assert check(name, untouched).state == "not solved yet"


def pass_only(*args: Any) -> Any:
    pass


def dots_only(*args: Any) -> Any:
    """Say something."""
    ...


def returns_dots(*args: Any) -> Any:
    return ...


def half_written(*args: Any) -> Any:
    picked: Any = ...
    return sum(picked)


STUBS = [pass_only, dots_only, returns_dots, half_written]


@pytest.mark.parametrize("stub", STUBS)
@pytest.mark.parametrize(
    "name", sorted(set(CHECKERS) - {"table", "order_prefill", "count_work", "reuse_rows"})
)
def test_stub_is_not_solved_yet(name: str, stub: Callable[..., Any]) -> None:
    assert check(name, stub).state == "not solved yet"


def test_a_function_that_does_something_is_no_stub() -> None:
    assert [is_stub(f) for f in (pass_only, dots_only, returns_dots)] == [True] * 3
    assert [is_stub(f) for f in (half_written, two, print, Odd())] == [False] * 4


@pytest.mark.parametrize("name", CHECKERS)
def test_ctrl_c_stops_a_checker(name: str) -> None:
    def stop(*args: Any) -> Any:
        raise KeyboardInterrupt

    if name in ("table", "order_prefill", "count_work"):
        return  # these run nothing of the reader's
    answers = (5.5, stop) if name == "reuse_rows" else (stop,)
    with pytest.raises(KeyboardInterrupt):
        CHECKERS[name](*answers)


# The table and the counts of an exercise that is half done.


def test_table_counts_right_cells_and_names_the_next() -> None:
    table: dict[str, list[Any]] = {
        "weather": [20, 20, 10, 15],
        "is": [20, 1, 10, 31 / 3],
        "so": [12.5, ..., 10, ...],
        "Today": [..., ..., ..., ...],
    }
    assert repr(part1.table(table)) == "Not solved yet: 10 of 16 cells are right; next: `so` under `newest`."
    table["Today"][0] = 12.5
    assert "sees the future" in repr(part1.table(table))


@pytest.mark.parametrize(("cell", "solved"), [(10.33, True), (10.34, True), (31 / 3, True), (10.35, False)])
def test_table_takes_two_digits(cell: float, solved: bool) -> None:
    rows = {
        "weather": [20, 20, 10, 15],
        "is": [20, 1, 10, cell],
        "so": [12.5, 5, 10, 9],
        "Today": [0, 10, 10, 10],
    }
    assert part1.table(rows).solved is solved


def test_one_count_is_not_the_other() -> None:
    assert (
        repr(part1.count_work(60, ...))
        == "Not solved yet: `positions`, 60, is right; write a number for `pairs`."
    )
    assert repr(part1.count_work(None, 276)).endswith("write a number for `positions`.")
    both = repr(part1.count_work(72, 492))
    assert "positions: prefill emits a word too" in both
    assert "pairs: masked products were counted" in both
    assert part1.count_work(60.0, np.int64(276)).solved


def test_reuse_rows_asks_for_one_part_after_the_other() -> None:
    assert "what `even` gives at `so`" in repr(part1.reuse_rows(..., dots_only))
    assert "even_at_so, 5.5, is right; now" in repr(part1.reuse_rows(5.5, dots_only))


# What is right is what the toy does.


@pytest.mark.parametrize("n", range(1, 7))
def test_stale_rows_are_those_that_change_in_the_toy(n: int) -> None:
    rng = np.random.default_rng(n)
    before = rng.normal(size=n)
    for j in range(1, n + 1):
        after = before.copy()
        after[j - 1] += 1
        x, y = before, after
        for layer in range(1, 5):
            changed = (
                np.flatnonzero(~np.isclose(x, y, rtol=0, atol=1e-12)) + 1
            )  # far above float64's rounding
            assert list(changed) == _stale_right(layer, j, n)
            x, y = toy.prefill_matrix(x).mean(axis=1), toy.prefill_matrix(y).mean(axis=1)


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 5), (2, 6), (4, 4), (3, 7)])
def test_mask_is_that_of_the_cache(T: int, S: int) -> None:
    cache = toy.KVCache()
    if S > T:
        toy.run_pass(np.ones(S - T), cache)
    assert np.array_equal(_mask_right(T, S), cache.mask(T))


def test_work_is_what_the_recorder_counts() -> None:
    trace = record_toy(ban_eos=True, max_new=8, training=False, form="rules")
    passes = trace.runs[0].passes
    positions, pairs = (sum(one.counts[name] for one in passes) for name in ("positions", "pairs"))
    assert part1.count_work(positions, pairs).solved


def test_one_order_alone_is_right() -> None:
    right = [order for order in itertools.permutations("ABCDEFG", 6) if part1.order_prefill(order).solved]
    assert right == [tuple("DGBEFA")]
    assert not any(
        part1.order_prefill(order).solved for k in (5, 7) for order in itertools.permutations("ABCDEFG", k)
    )


@pytest.mark.parametrize("order", ["dgbefa", "D, G, B, E, F, A", ["D ", "g", "B", "E", "F", "A"]])
def test_order_may_be_written_in_several_ways(order: Any) -> None:
    assert part1.order_prefill(order).solved


def test_the_lines_are_printed_with_their_letters(capsys: pytest.CaptureFixture[str]) -> None:
    part1.prefill_lines()
    lines = capsys.readouterr().out.splitlines()
    assert [line[0] for line in lines] == list("ABCDEFG")
    assert all(len(line) < 110 and line == line.rstrip() for line in lines)


# Other right answers than the solution's.


def decode_by_toy(cache: toy.KVCache, number: float) -> np.ndarray:
    """Decode by the toy's own step."""
    return toy.decode_step(cache, number)


def future_by_appending(prefill: Callable[[Any], np.ndarray]) -> bool:
    """Append a token in place of changing one."""
    return np.array_equal(prefill([10, 20, 1, 5]), prefill([10, 20, 1, 5, 14])[:4])


def future_everywhere(prefill: Callable[[Any], np.ndarray]) -> bool:
    """Change each number in turn."""
    numbers = np.array([10.0, 20, 1, 5, 7])
    later = [numbers + 3 * (np.arange(5) == j) for j in range(5)]
    return all(np.array_equal(prefill(later[j])[:j], prefill(numbers)[:j]) for j in range(5))


def generate_as_tuple(
    step: Callable[[list[str]], np.ndarray], prompt: list[str], max_new: int
) -> tuple[str, ...]:
    """Return a tuple."""
    return tuple(toy.generate(step, prompt, max_new))


def future_by_prefixes(prefill: Callable[[Any], np.ndarray]) -> bool:
    """Leave tokens out in place of changing one."""
    return all(np.allclose(prefill([3, 1, 4, 1][:t]), prefill([3, 1, 4, 1])[:t]) for t in (1, 2, 3))


def future_by_rows(prefill: Callable[[Any], np.ndarray]) -> bool:
    """Ask which rows change: the last alone."""
    changed = np.flatnonzero((prefill([10, 20, 1, 5]) != prefill([10, 20, 1, 500])).any(axis=1))
    return list(changed) == [3]


def generate_by_recursion(
    step: Callable[[list[str]], np.ndarray], prompt: list[str], max_new: int
) -> list[str]:
    """Say one word, and let the same function say the others."""
    word = toy.VOCABULARY[int(np.argmax(step(prompt)))]
    over = word == toy.EOS or max_new == 1
    return [word] if over else [word, *generate_by_recursion(step, [*prompt, word], max_new - 1)]


def decode_through_every_layer(cache: toy.KVCache, number: float) -> np.ndarray:
    """Append in a loop over the layers, and advance before attending."""
    positions = np.array([cache.length + 1])
    for layer in range(cache.n_layers):
        q, k, v = toy.make_qkv(positions, np.array([number]))
        cache.append(layer, k, v)
    cache.advance(1)
    return toy.attention(q, cache.k[0], cache.v[0], np.ones((1, cache.length), dtype=bool)).squeeze()


OTHER_RIGHT_ANSWERS: list[tuple[str, Any]] = [
    ("pick_even", lambda visible: np.mean(visible[1::2]) if visible[1:] else 0),
    ("pick_even", lambda visible: round(np.mean([*visible[1::2]] or [0]), 2)),
    ("pick_even", lambda visible: np.array(float(np.mean([*visible[1::2]] or [0])))),
    ("attend", toy.attend),
    ("attend", lambda scores, values: list(toy.attend(scores, values))),
    (
        "attend",
        lambda scores, values: [softmax(row[: t + 1]) @ values[: t + 1] for t, row in enumerate(scores)],
    ),
    ("change_future", future_by_appending),
    ("change_future", future_everywhere),
    ("change_future", future_by_prefixes),
    ("change_future", future_by_rows),
    ("generate", toy.generate),
    ("generate", generate_as_tuple),
    ("generate", generate_by_recursion),
    ("decode_step", decode_by_toy),
    ("decode_step", decode_through_every_layer),
    ("decode_step", lambda cache, number: list(toy.decode_step(cache, number))),
    ("stale", lambda layer, j, n: {j} if layer == 1 else range(j, n + 1)),
    ("stale", lambda layer, j, n: np.arange(j, (j if layer == 1 else n) + 1)),
    ("mask", lambda T, S: [[k <= q for k in range(S)] for q in range(S - T, S)]),
]


@pytest.mark.parametrize(("name", "answer"), OTHER_RIGHT_ANSWERS)
def test_another_right_answer_is_right(name: str, answer: Any) -> None:
    assert CHECKERS[name](answer).solved, CHECKERS[name](answer)


def test_a_cache_of_the_checker_looks_like_the_toys() -> None:
    shown: list[str] = []

    def decode(cache: toy.KVCache, number: float) -> np.ndarray:
        shown.append(repr(cache))
        return toy.decode_step(cache, number)

    assert part1.decode_step(decode).solved
    twin = toy.KVCache()
    toy.run_pass([10, 20, 1, 5], twin)
    assert shown[0] == repr(twin)


# Guesses.


@pytest.mark.parametrize(
    ("guess", "answer", "said"),
    [
        (None, 3, "No guess yet. It is 3."),
        (..., 3, "No guess yet. It is 3."),
        (3, 3, "You guessed 3. Right."),
        (3.0, np.int64(3), "You guessed 3.0. Right."),
        (4, 3, "You guessed 4. It is 3."),
        ("3", 3, "You guessed '3', which is text. It is 3."),
        (" Decode", "decode", "You guessed  Decode. Right."),
        ("prefill", "decode", "You guessed prefill. It is decode."),
        (True, 1, "You guessed True. It is 1."),
        (1, True, "You guessed 1. It is True."),
        ([True], [1], "You guessed [True]. It is [1]."),
        (np.array([2, 3]), [2, 3], "You guessed [2 3]. Right."),
        (np.array([2, 5]), [2, 3], "You guessed [2 5]. It is [2, 3]."),
        (np.zeros((2, 2)), 4, "You guessed [[0. 0.]\n [0. 0.]]. It is 4."),
        ((2, 3), [2, 3], "You guessed (2, 3). Right."),
        (range(2, 4), [2, 3], "You guessed range(2, 4). Right."),
        ({3, 2}, [2, 3], "You guessed {2, 3}. Right."),
        ({2, "a"}, [2, 3], None),
        ([3, 2], [2, 3], "You guessed [3, 2]. It is [2, 3]."),
    ],
)
def test_a_guess_beside_what_came_out(guess: Any, answer: Any, said: str | None) -> None:
    shown = repr(Guess(guess, answer, "That is why."))
    assert shown.endswith("\nThat is why.")
    assert said is None or shown == f"{said}\nThat is why."
    assert Guess(guess, answer).right == ("Right." in shown)


# The base, which Part II's checkers stand on too.


def test_result_is_one_to_two_lines_of_text() -> None:
    assert repr(Result("right", "12.5.")) == "Right: 12.5."
    assert (
        repr(Result("not right yet", "got 1.", "a guess."))
        == "Not right yet: got 1.\nLikely reason: a guess."
    )
    assert Result("right", "").solved
    assert not Result("not solved yet", "").solved


def test_exercise_turns_errors_into_answers() -> None:
    def checker(answer: Any) -> str:
        raise answer

    assert exercise(checker)(NotSolvedError("write it")) == Result("not solved yet", "write it")
    assert exercise(checker)(NotRightError("got 1", "why")) == Result("not right yet", "got 1", "why")
    assert "cannot be checked: OSError: gone" in repr(exercise(checker)(OSError("gone")))
    assert "cannot be checked: TypeError" in repr(exercise(checker)())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.5, "12.5"),
        (31 / 3, "10.33"),
        (10, "10"),
        (100.0, "100"),
        (0.0, "0"),
        (-0.001, "0"),
        (-0.5, "-0.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-inf"),
        (123456789.0, "1.23e+08"),
        ([1, 2.5], "1, 2.5"),
        ([], "nothing"),
        (np.array([0.125, 3]), "0.12, 3"),
        (["nice", "<eos>"], "nice, <eos>"),
    ],
)
def test_show(value: Any, text: str) -> None:
    assert show(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (..., "..."),
        ("a", "'a' (str)"),
        (True, "True (bool)"),
        ([1, 2], "[1, 2] (list)"),
        (np.zeros((2, 3)), "an array of shape (2, 3)"),
        ((np.zeros(2), 1), "a tuple of 2 parts"),
        (two, "the function two"),
        (object(), "a object"),
    ],
)
def test_describe(value: Any, text: str) -> None:
    assert describe(value) == text


def test_numbers_that_are_told_apart_look_different() -> None:
    assert same(10.33, 31 / 3)
    assert not same(10.32, 31 / 3)
    for off in np.linspace(-0.03, 0.03, 61):
        assert same(10 + off, 10) or show(10 + off) != show(10)


def test_same_needs_the_same_shape() -> None:
    assert not same([1, 2], [1, 2, 3])
    assert not same([1], 1)
    assert same([np.nan, 1], [np.nan, 1])
    assert not same([np.nan, 1], [0, 1])


def test_call_hands_out_copies_and_finds_changes() -> None:
    numbers = [1, 2]
    case = Case("double", (numbers,))
    with pytest.raises(NotRightError, match="changes its first argument"):
        call(lambda x: x.append(3) or x, case, "")
    assert numbers == [1, 2]
    with pytest.raises(NotRightError, match="changes its first argument"):
        call(lambda x: x.fill(1) or 3, Case("fill", (np.zeros(2),)), "")


def test_call_names_what_was_raised_and_the_trap() -> None:
    with pytest.raises(NotRightError, match=r"double raises ZeroDivisionError: division by zero\.") as caught:
        call(lambda x: x / 0, Case("double", (1,), "nothing to divide by."), "")
    assert caught.value.reason == "nothing to divide by."
    with pytest.raises(NotRightError, match="raises NameError") as caught:
        call(lambda x: y, Case("double", (1,), "nothing to divide by."), "")  # type: ignore[name-defined]  # noqa: F821
    assert caught.value.reason == ""


@pytest.mark.parametrize("value", ["1", None, [1], True, 1j, np.zeros(2), np.array("a")])
def test_read_number_refuses(value: Any) -> None:
    with pytest.raises(NotRightError, match="expected one number"):
        read_number(value, Case("double", ()))


@pytest.mark.parametrize("value", ["1", 1, [1, 2], [[1, 2, 3]], [1, "a", 3], object()])
def test_read_row_refuses(value: Any) -> None:
    with pytest.raises(NotRightError, match=r"expected .*3 numbers"):
        read_row(value, Case("double", ()), 3)


DOUBLE_CASES = [Case("double(1)", (1,)), Case("double(3)", (3,))]


def double(function: Callable[[Any], Any]) -> list[Any]:
    """Compare a function with 2x."""
    return compare(
        function,
        DOUBLE_CASES,
        attempt=lambda f, case: read_number(call(f, case, "write it"), case),
        right=lambda x: 2 * x,
        mistakes={"squared.": [lambda x: x + 1, lambda x: x**2]},
    )


def test_compare_reports_the_first_case_and_the_reason_that_fits_them_all() -> None:
    assert double(lambda x: 2 * x) == [2, 6]
    with pytest.raises(NotRightError, match=r"double\(1\) gives 1; expected 2\.") as caught:
        double(lambda x: x**2)
    assert caught.value.reason == "squared."
    with pytest.raises(NotRightError, match=r"double\(1\) gives 1; expected 2\.") as caught:
        double(lambda x: 1)
    assert caught.value.reason == ""  # a square at 1, but not at 3


def test_compare_reports_a_wrong_answer_before_a_later_error() -> None:
    with pytest.raises(NotRightError, match=r"double\(1\) gives 9"):
        double(lambda x: {1: 9}[x])
    with pytest.raises(NotRightError, match=r"double\(3\) raises KeyError"):
        double(lambda x: {1: 2}[x])


def test_nan_stands_for_the_zero_of_our_softmax_only() -> None:
    cases = [Case("", ())]
    assert likely_reason({"why": [lambda: [0, 5]]}, cases, [[np.nan, 5]]) == "why"
    assert likely_reason({"why": [lambda: [1, 5]]}, cases, [[np.nan, 5]]) == ""


def test_checkers_are_light() -> None:
    heavy = "{'torch', 'matplotlib', 'IPython', 'ipywidgets', 'anywidget'}"
    code = f"import sys\nfrom helpers.check import part1\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
