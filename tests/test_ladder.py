"""A decode step beside its lower bound, by clocks of our own: each number is worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch

from helpers.chapters import n13
from helpers.cost import active_parameters
from helpers.model import shipped
from helpers.model.sizes import narrow_config
from helpers.model.transformer import Transformer
from helpers.timing.steps import PARTS

WAYS = [*n13.STEP_VARIANTS]
WEIGHTS = active_parameters(shipped.CONFIG)
ROWS = 257 * 2 * shipped.CONFIG.n_layers * shipped.CONFIG.n_kv_heads * shipped.CONFIG.head_dim  # numbers


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> n13.StepTimeLadder:
    """The shipped model's ladder of three rounds, the second of them undisturbed."""
    rounds = {name: iter(slow) for name, slow in zip("lrsp", [(2, 1, 4)] * 4, strict=True)}
    asked, steps = count(), count()

    def measure_bandwidth(nbytes: int) -> float:
        return 1e9 * torch.get_num_threads() * 4e6 / nbytes / (1 if next(asked) // 5 == 1 else 2)

    def fastest_ms(tasks: Mapping[str, Any], turns: int) -> dict[str, float]:
        if "loop" in tasks:
            return {"loop": 2.0 * next(rounds["r"])}
        slow = next(rounds["s"])
        return {name: slow * (20.0 - n) for n, name in enumerate(tasks)}

    monkeypatch.setattr(n13.machine, "measure_launch_overhead", lambda steps: next(rounds["l"]) * 1e-6)
    monkeypatch.setattr(n13.machine, "measure_bandwidth", measure_bandwidth)
    monkeypatch.setattr(n13, "speed_up", lambda model, bits, threads: Transformer(narrow_config(1)))
    monkeypatch.setattr(n13, "count_operators", lambda step: step() or 90 - next(steps))
    monkeypatch.setattr(n13, "fastest_ms", fastest_ms)
    monkeypatch.setattr(
        n13,
        "fastest_part_ms",
        lambda model, tasks, turns: {"step": dict(zip(PARTS, (9.0, 10.0 * next(rounds["p"])), strict=True))},
    )
    threads = torch.get_num_threads()
    ladder = n13.measure_ladder("shipped", cores=2)
    assert torch.get_num_threads() == threads, "or all that runs behind it waits in busy loops"
    return ladder


def test_what_is_measured(found: n13.StepTimeLadder) -> None:
    assert (found.model_size, found.cores, found.launch_seconds) == (
        "shipped",
        2,
        2e-6,
    )  # the median of the rounds
    assert found.weights_per_second_per_core == pytest.approx(2**20 / 0.002)
    assert found.unchanged_products_ms == pytest.approx(10 - 1e-3 * (7 * shipped.CONFIG.n_layers + 1))
    assert found.measured_ms == {way: 20.0 - n for n, way in enumerate(WAYS)}
    for way, threads, bits in zip(WAYS, (1, 1, 2, 2, 2), (32, 32, 32, 16, 8), strict=True):
        nbytes = int(4 * ROWS + bits / 8 * WEIGHTS)
        assert found.bandwidths[way] == pytest.approx(threads * 4e15 / nbytes)
        assert found.weight_megabytes(way) == pytest.approx(bits / 8 * WEIGHTS / 1e6)
    assert found.n_operators == {way: 90 - n for n, way in enumerate(WAYS)}


def test_a_breakdown_and_its_spans_by_hand(found: n13.StepTimeLadder) -> None:
    one = replace(
        found, launch_seconds=1e-4, weights_per_second_per_core=1e9, n_operators=dict.fromkeys(WAYS, 20)
    )
    one = replace(one, bandwidths=dict.fromkeys(WAYS, 2e9))
    rows, weights, arithmetic = ROWS * 4 / 2e6, WEIGHTS / 2e6, WEIGHTS / 2e6  # ms: 8 bits, two cores
    table = one.lower_bound_table(WAYS[-1]).rows
    assert [line[1:3] for line in table] == [
        ["20", "100.0 µs each"],
        [f"{ROWS * 4e-6:.1f} MB", "2 GB/s"],
        [f"{WEIGHTS / 1e6:.1f} MB", "2 GB/s"],
        [f"{WEIGHTS / 1e6:.1f} M weights", "2 billion a second"],
        ["", ""],
    ]
    faster = replace(one, bandwidths=dict.fromkeys(WAYS, 2e10))
    assert faster.lower_bound_table(WAYS[-1]).rows[1][2] == "20 GB/s"
    least = 2 + rows + weights
    expected = [2, rows, weights, arithmetic, least]
    assert [float(line[3]) for line in table] == pytest.approx(expected, abs=0.006)
    for rate in (0.25e9, 1e15):  # the arithmetic is the longer, or the reading
        slow = replace(one, weights_per_second_per_core=rate)
        spans, arithmetic = slow.part_spans_ms(WAYS[-1]), WEIGHTS / 2 / rate * 1000
        assert spans["launches"] == (0, pytest.approx(2))
        assert spans["reading"] == pytest.approx((2, least))
        assert spans["arithmetic"] == pytest.approx((2 + rows, 2 + rows + arithmetic))
        assert slow.lower_bound_ms(WAYS[-1]) == pytest.approx(2 + rows + max(weights, arithmetic))
        assert spans["rest"] == pytest.approx((slow.lower_bound_ms(WAYS[-1]), 16))
        assert slow.ms_without_overlap(WAYS[-1]) == pytest.approx(least + arithmetic)
        assert slow.waterfall_bars()[WAYS[-1]] == (spans, 16.0)


def test_slow_products_are_what_they_take_over_reading() -> None:
    kept = n13.load_recorded_ladder()
    first, second, *_ = WAYS
    least = 1000 * max(kept.lower_bound_terms(first).weights, kept.lower_bound_terms(first).products)
    start, end = replace(kept, unchanged_products_ms=least + 1.5).part_spans_ms(first)["slow products"]
    assert (start, end - start) == (kept.lower_bound_ms(first), pytest.approx(1.5))
    start, end = replace(kept, unchanged_products_ms=least - 1).part_spans_ms(first)["slow products"]
    assert start == end
    assert "slow products" not in kept.part_spans_ms(second)


def test_a_run_that_cannot_be_used_gives_way_to_a_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = n13.load_recorded_ladder()
    assert not kept.why_unusable()
    assert "only one core" in n13.measure_or_load_ladder(cores=1).source
    busy = replace(kept, measured_ms={**kept.measured_ms, "half the bytes": 0.1})
    monkeypatch.setattr(n13, "measure_ladder", lambda size, cores: busy)
    found = n13.measure_or_load_ladder(cores=2)
    assert "half the bytes, took 0.10 ms, where the prices measured here say 0.57 at least" in found.source
    assert found.measured_ms == kept.measured_ms
    monkeypatch.setattr(n13, "measure_ladder", lambda size, cores: kept)
    assert n13.measure_or_load_ladder(cores=2) is kept
