"""A decode step beside its floor: what is known adds up, and each step is timed once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from helpers.model.sizes import CONFIGS, narrow
from helpers.recording import floor
from helpers.tables import short


def climbed(monkeypatch: pytest.MonkeyPatch, cores: int, ms: float) -> floor.Ladder:
    """A ladder of a tiny model, by a clock that always says the same."""
    monkeypatch.setitem(CONFIGS, "tiny", narrow(2))
    monkeypatch.setattr(floor, "fastest", lambda tasks, turns: dict.fromkeys(tasks, ms))
    return floor.climb("tiny", cores, rounds=1)


def test_a_ladder_from_counts_to_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replace(climbed(monkeypatch, cores=1, ms=4.0), start=1e-6)
    first, second, *_, last = floor.WAYS
    assert found.operators[last] < found.operators[first]
    assert found.speeds[first] == found.speeds[second]  # the same bytes, and one core
    for rate in (1e6, 1e9, 1e15):  # the arithmetic is the longest, or the reading
        one = replace(found, rate=rate)
        spans, step = one.spans(last), one.step(last)
        assert spans["starts"] == (0, pytest.approx(1e-3 * one.operators[last]))
        begun, done = spans["arithmetic"]
        assert done - begun == pytest.approx(1000 * step.products)
        assert begun - spans["reading"][0] == pytest.approx(1000 * max(step.rows, step.attention))
        assert max(spans["reading"][1], done) == pytest.approx(one.floor(last))
        counts, _, ms = one.receipt(last).rows
        assert counts[1:5] == [str(one.operators[last]), "0.0 MB", "0.0 MB", "0.0 M"]
        assert ms[5:] == [short(x) for x in (one.floor(last), 4 - one.floor(last), 4)]
    assert found.bars()[first] == (found.spans(first), 4.0)


def test_slow_products_are_what_they_take_over_reading() -> None:
    kept = floor.recorded("16M")
    first, second, *_ = floor.WAYS
    least = 1000 * max(kept.step(first).weights, kept.step(first).products)
    start, end = replace(kept, products=least + 1.5).spans(first)["slow products"]
    assert (start, end - start) == (kept.floor(first), pytest.approx(1.5))
    start, end = replace(kept, products=least - 1).spans(first)["slow products"]
    assert start == end
    assert "slow products" not in kept.spans(second)
    assert kept.spans(second)["rest"] == (kept.floor(second), kept.measured[second])


def test_a_run_that_cannot_be_used_gives_way_to_a_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = floor.recorded("16M")
    assert not kept.flaw()
    assert kept.measured["as it is"] > 3 * kept.measured["a quarter of the bytes"]
    assert "only one core" in floor.ladder("16M", cores=1).said
    busy = replace(kept, measured={**kept.measured, "half the bytes": 0.1})
    monkeypatch.setattr(floor, "climb", lambda size, cores: busy)
    found = floor.ladder("16M", cores=2)
    assert "half the bytes, took 0.10 ms, under its floor" in found.said
    assert found.measured == kept.measured
    monkeypatch.setattr(floor, "climb", lambda size, cores: kept)
    assert floor.ladder("16M", cores=2) is kept


def test_terms_lie_end_to_end() -> None:
    found = floor.end_to_end({"starts": 1.0, "rows": 0.5}, measured=4.0)
    assert found == {"starts": (0, 1), "rows": (1, 1.5), "rest": (1.5, 4)}


def test_prices_are_measured_here() -> None:
    torch.set_num_threads(1)
    assert 0 < floor.rate_of_loop() < 1e13
    assert abs(floor.price_of_start()) < 1e-3
