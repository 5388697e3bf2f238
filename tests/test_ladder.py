"""A decode step beside its lower bound, by clocks of our own: each number is worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count, cycle
from typing import Any

import numpy as np
import pytest
import torch

from helpers.chapters import n13
from helpers.cost import active_parameters
from helpers.model import shipped
from helpers.model.sizes import narrow_config
from helpers.model.transformer import Transformer
from tools import ladder

WAYS = [*n13.STEP_VARIANTS]
WEIGHTS = active_parameters(shipped.CONFIG)
ROWS = 257 * 2 * shipped.CONFIG.n_layers * shipped.CONFIG.n_kv_heads * shipped.CONFIG.head_dim  # numbers


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> n13.StepTimeLadder:
    """The shipped model's ladder of three rounds, the second of them undisturbed."""
    rounds = {name: iter(slow) for name, slow in zip("lrsp", [(2, 1, 4)] * 4, strict=True)}
    kinds, asked, steps = cycle("rsp"), count(), count()  # in each round: the rate, the steps, the products

    def measure_bandwidth(nbytes: int) -> float:
        return 1e9 * torch.get_num_threads() * 4e6 / nbytes / (1 if next(asked) // 4 == 1 else 2)

    def fastest_ms(tasks: Mapping[Any, Any], turns: int) -> dict[Any, float]:
        kind = next(kinds)
        slow, most = next(rounds[kind]), {"r": 2.0, "s": 20.0, "p": 10.0}[kind]
        return {name: slow * (most if kind == "r" else most - n) for n, name in enumerate(tasks)}

    monkeypatch.setattr(n13.machine, "measure_launch_overhead", lambda steps: next(rounds["l"]) * 1e-6)
    monkeypatch.setattr(n13.machine, "measure_bandwidth", measure_bandwidth)
    monkeypatch.setattr(n13, "with_own_products", lambda model: model)
    monkeypatch.setattr(n13, "speed_up", lambda model, bits, threads: model)
    monkeypatch.setattr(n13, "compiled_products_task", lambda twin: lambda: None)
    monkeypatch.setattr(n13, "count_operators", lambda step: (step(), 90 - next(steps))[1])
    monkeypatch.setattr(n13.numba, "set_num_threads", lambda n: None)  # 2 on a machine of one core
    monkeypatch.setattr(n13, "fastest_ms", fastest_ms)
    threads = torch.get_num_threads()
    measured = n13.measure_ladder("shipped", cores=2)
    assert torch.get_num_threads() == threads, "or all that runs behind it waits in busy loops"
    return measured


def test_what_is_measured(found: n13.StepTimeLadder) -> None:
    assert (found.model_size, found.cores, found.launch_seconds) == (
        "shipped",
        2,
        2e-6,
    )  # the median of the rounds
    narrow, wide = shipped.CONFIG.hidden_size, shipped.CONFIG.intermediate_size  # columns of matrices
    repeated = {columns: 20 * (2**19 // columns) * columns for columns in (narrow, wide)}  # weights in 2 ms
    in_wide = shipped.CONFIG.n_layers * narrow * wide
    ms = 2 * ((WEIGHTS - in_wide) / repeated[narrow] + in_wide / repeated[wide])
    assert found.weights_per_second_per_core == pytest.approx(1000 * WEIGHTS / ms)
    launched = 2e-3 * (90 - len(WAYS))  # ms: the operators of PyTorch's products are counted last
    assert found.products_ms == {way: 10.0 - n - (0 if n else launched) for n, way in enumerate(WAYS)}
    assert found.measured_ms == {way: 20.0 - n for n, way in enumerate(WAYS)}
    for way, threads, bits in zip(WAYS, (1, 1, 1, 2, 2, 2), (32, 32, 32, 32, 16, 8), strict=True):
        nbytes = int(4 * ROWS + bits / 8 * WEIGHTS)
        assert found.bandwidths[way] == pytest.approx(threads * 4e15 / nbytes)
        assert found.weight_megabytes(way) == pytest.approx(bits / 8 * WEIGHTS / 1e6)
    assert found.n_operators == {way: 90 - (0 if n == 1 else n) for n, way in enumerate(WAYS)}


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
        products = max(5, weights, arithmetic)
        assert spans["launches"] == (0, pytest.approx(2))
        assert spans["reading"] == pytest.approx((2, least))
        assert spans["arithmetic"] == pytest.approx((2 + rows, 2 + rows + arithmetic))
        assert slow.lower_bound_ms(WAYS[-1]) == pytest.approx(2 + rows + max(weights, arithmetic))
        assert spans["rest"] == pytest.approx((2 + rows + products, 15))
        assert slow.waterfall_bars()[WAYS[-1]] == (spans, 15.0)


def test_slow_products_are_what_they_take_over_their_bound() -> None:
    kept = n13.load_recorded_ladder()
    for way in WAYS:
        least = 1000 * max(kept.lower_bound_terms(way).weights, kept.lower_bound_terms(way).products)
        slow = replace(kept, products_ms={way: least + 0.1})
        start, end = slow.part_spans_ms(way)["slow products"]
        assert (start, end - start) == (kept.lower_bound_ms(way), pytest.approx(0.1))
        start, end = replace(kept, products_ms={way: least - 0.1}).part_spans_ms(way)["slow products"]
        assert start == end


def test_our_linear_layers_agree_with_those_they_replace() -> None:
    model = Transformer(narrow_config(2))
    own = n13.with_own_products(model)
    assert not any(isinstance(part, torch.nn.Linear) for part in own.modules())
    assert any(isinstance(part, torch.nn.Linear) for part in model.modules())
    tokens = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode():
        torch.testing.assert_close(own(tokens), model(tokens), atol=1e-5, rtol=1e-4)


def test_products_alone_go_through_all_matrices() -> None:
    model = Transformer(narrow_config(2))
    shapes = [product.shape for product in n13.torch_products_task(model)()]
    assert shapes == [(1, 1, p.out_features) for p in model.modules() if isinstance(p, torch.nn.Linear)]
    x, out = np.ones((1, 3), np.float32), np.empty((1, 4), np.float32)
    matrices = np.stack([np.zeros((4, 3)), np.arange(12).reshape(4, 3)]).astype(np.float32)
    ones, zeros = np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32)
    n13.stacked_linear_loop(x, matrices, ones, zeros, out)
    assert out[0].tolist() == matrices[1].sum(axis=1).tolist()


def test_a_run_that_cannot_be_used_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = n13.load_recorded_ladder()
    assert not kept.why_unusable()
    assert "only one core" in n13.measure_ladder_here(cores=1).why_unusable()
    busy = replace(kept, measured_ms={**kept.measured_ms, "half the bytes": 0.1})
    monkeypatch.setattr(n13, "measure_ladder", lambda size, cores: busy)
    assert "faster than its bound" in n13.measure_ladder_here(cores=2).why_unusable()


def test_the_orders_of_rows_are_as_the_page_says() -> None:
    kept = n13.load_recorded_ladder()
    torch_speeds, neighbours, far_apart = kept.product_speeds.values()
    assert 0.8 < neighbours[0] / far_apart[0] < 1.25, "in the cache the order makes little difference"
    assert torch_speeds[0] > 0.65 * far_apart[0] > 1.8 * torch_speeds[1]
    assert far_apart[1] > 1.8 * neighbours[1], "from memory it decides"
    assert neighbours[3] > 1.4 * neighbours[1]
    assert torch_speeds[3] > 1.4 * torch_speeds[1]
    assert min(far_apart[1:]) > 0.8 * max(far_apart[1:]), "whatever the length of the rows"


def test_the_ladder_reads_no_slower_than_a_product() -> None:
    kept = replace(n13.load_recorded_ladder(), bandwidths=dict.fromkeys(WAYS, 3e10))
    for fastest in (2.0, 40.0):
        found = ladder.fastest_reading(replace(kept, product_speeds={"ours": [90.0, 1.0, fastest]}))
        assert [found[way] for way in WAYS] == [max(3e10, 1e9 * fastest)] * 3 + [3e10] * 3


def test_the_page_defines_what_the_tool_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    page = ladder.timing_code()
    matrix, token = torch.randn(8, 16), torch.randn(16)
    for routine in ("far_apart", "neighbours"):
        torch.testing.assert_close(page[routine](matrix, token), matrix @ token, atol=1e-5, rtol=1e-4)
    monkeypatch.setitem(page, "speed", lambda product, matrices: len(matrices))
    monkeypatch.setattr(page["torch"], "set_num_threads", lambda n: None)
    recorded = n13.load_recorded_ladder().product_speeds
    assert page["measure_speeds"]() == {name: [108, 42, 16, 8] for name in recorded}
