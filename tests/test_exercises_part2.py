"""The exercises of Part II."""

from __future__ import annotations

from helpers.check.part2 import __all__ as provided
from tests.exercises import ExerciseTests, Part, exercises
from tests.machine import NOTEBOOKS
from tests.test_exercises import TestPartOne as PartOne
from tests.wrong_answers_part2 import WRONG

TOOLS = {"hidden_states", "misread"}  # what notebook 08 takes from the checkers beside them


class TestPartTwo(ExerciseTests):
    part = Part(
        {
            "05_projections": {"split_heads", "torch_mask", "cached_step"},
            "06_transformer": {"who_moves", "shift_targets", "count_parameters"},
            "07_prefill_decode": {"append", "may_differ", "predict_tpot"},
            "08_your_model": {"bytes_per_token", "first_difference", "longest_context"},
        },
        WRONG,
    )


def test_every_checker_has_an_exercise() -> None:
    asked = {name for names in TestPartTwo.part.names.values() for name in names}
    assert asked == set(provided) - TOOLS


def test_no_notebook_asks_without_tests() -> None:
    listed = {*PartOne.part.names, *TestPartTwo.part.names}
    assert [path.stem for path in NOTEBOOKS if exercises(path) and path.stem not in listed] == []
