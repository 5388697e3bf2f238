"""The pool, the Python face: which step is shown, bad arguments; tests/js and tests/browser hold the rest."""

from __future__ import annotations

import pytest

from helpers.stepper import Pool
from tests.pool_cases import trace


def test_the_step_that_is_shown() -> None:
    run = trace("six")
    assert [Pool(run, step=n).options["step"] for n in (1, 9)] == [0, 8]
    assert Pool(run).options == {"step": 0, "pages": True}
    assert Pool(run, step=2, pages=False).options == {"step": 1, "pages": False}
    for step in (0, 1.5, len(run.steps) + 1):
        with pytest.raises(ValueError, match=f"got step={step}, expected 1 to {len(run.steps)}"):
            Pool(run, step)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got pages='no', expected one of"):
        Pool(run, pages="no")  # type: ignore[arg-type]
    assert repr(Pool(run)) == f"Pool(made: 6 requests, 12 pages, {len(run.steps)} steps)"
