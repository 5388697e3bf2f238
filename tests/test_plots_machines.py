"""The figure of notebook 14: legible in both layouts, and each head drawn where it is."""

from __future__ import annotations

import pytest

from helpers import plots
from helpers.plots.machines import Heads
from tests.pictures import boxes, check_form, words

HALVES: list[Heads] = [([0, 1], [0]), ([2, 3], [1])]
SHARED: list[Heads] = [([0, 1, 2, 3], [0, 1]), ([4, 5, 6, 7], [1, 2])]  # both hold KV head 1


@pytest.mark.parametrize(("held", "tokens"), [(HALVES, 17), (SHARED, 1)])
def test_it_is_legible_themed_small_and_the_same_each_time(held: list[Heads], tokens: int) -> None:
    check_form(plots.two_ranks(held, tokens, 4, 512), plots.two_ranks(held, tokens, 4, 512))


def test_each_head_and_row_is_drawn_where_it_is() -> None:
    picture = plots.two_ranks(HALVES, 17, 4, 512)
    for figure in (picture.figure, picture.narrow):
        assert len(boxes(figure, "query fill")) == 4
        assert len(boxes(figure, "key fill")) == 2
        assert len(boxes(figure, "value fill")) == 2 * 17
        assert words(figure).count("512 bytes") == 2
    assert picture.numbers == {"sum": 512, "token": 4096}
    assert "Rank 1 holds query heads 2 and 3 of 4, KV head 1 of 2 with its part of 17 rows" in picture.alt
    with pytest.raises(ValueError, match="3 ranks; expected 2"):
        plots.two_ranks([*HALVES, HALVES[0]], 17, 4, 512)
