"""The race, the Python face: bad arguments; tests/js and tests/browser hold the rest."""

from __future__ import annotations

import pytest

from helpers.stepper import Race
from tests.made_traces import record_toy


def test_what_cannot_race() -> None:
    for name in ("cached", "uncached"):
        with pytest.raises(
            ValueError, match=r"got runs with the caches \['\w+'\], expected one with a cache"
        ):
            Race(record_toy().only_run(name))
