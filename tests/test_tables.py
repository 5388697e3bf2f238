"""Tables: few digits, a name for each row and column, the same as text and as HTML."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from helpers.drawing.numbers import format_number
from helpers.drawing.tables import Table


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (12.5, "12.5"), (10.333, "10.33"), (9.0, "9"), (1200.0, "1,200"), (2e-8, "0"), (-2e-8, "0"),
        (float("nan"), "nan"), (float("-inf"), "-inf"), (1_234_567, "1,234,567"), (100, "100"),
        ("0.50", "0.50"), (True, "yes"), (np.False_, "·"),
    ],
)  # fmt: skip
def test_numbers_have_few_digits(x: Any, text: str) -> None:
    assert format_number(x) == text
    assert format_number(100.4, digits=0) == "100"


def test_table_as_text_and_html() -> None:
    table = Table([[1.2345, -2.0], [True, "a<b"]], ["one", "three"], ["x", "long"], digits=3, corner="n")
    assert repr(table) == "n          x  long\none    1.235    -2\nthree    yes   a<b"
    assert repr(Table([[""]], ["a"], ["x"])) == "   x\na"
    cells = re.findall(">([^<]+)<", table._repr_html_())
    assert cells == ["n", "x", "long", "one", "1.235", "−2", "three", "yes", "a&lt;b"]


@pytest.mark.parametrize(
    ("rows", "sentence"), [([[1, 2]], "1 rows of .2. cells"), ([[1], [2, 3]], "2 rows of .1, 2.")]
)
def test_number_of_names_must_match(rows: Any, sentence: str) -> None:
    with pytest.raises(
        ValueError, match=f"{sentence}.* came with 2 row names and 2 column names; expected one name"
    ):
        Table(rows, "ab", "xy")
