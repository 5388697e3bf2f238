"""What bounds a pass: by hand, against what the parts alone say, and against numbers worked out elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.cost.bytes import read_by_step
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import seconds_at_least
from helpers.model import shipped
from helpers.stepper.machines import OURS
from tests.work_cases import bound_of, tokens_until_arithmetic, weights_of_others, work_of_pass

LLAMA, H100 = MODELS["Llama-3.1-8B"], CARDS["H100"]


def test_a_decode_step_of_a_published_model_on_a_card() -> None:
    step = work_of_pass(LLAMA, 1, 42)
    assert step.weights == 15_009_849_344
    assert (step.rows_read, step.rows_written) == (42 * 131_072, 131_072)
    assert step.attention == 4 * 43 * 32 * 4096  # pairs, layers, H · D
    assert seconds_at_least(step.work, H100) == pytest.approx(4.48e-3, rel=1e-3)
    assert bound_of(step, H100) == "weights"
    assert bound_of(work_of_pass(LLAMA, 1, 120_000), H100) == "rows"
    assert bound_of(work_of_pass(LLAMA, 1, 42, users=400), H100) == "arithmetic"
    assert bound_of(work_of_pass(LLAMA, 1, 8192, users=400), H100) == "rows"


def test_prefill_is_bound_by_arithmetic_from_some_length_on() -> None:
    prefill = work_of_pass(LLAMA, 2048)
    assert prefill.products == pytest.approx(28.6e12, rel=1e-3)
    assert prefill.attention == pytest.approx(1.1e12, rel=1e-3)
    assert prefill.rows_read == 0
    assert tokens_until_arithmetic(LLAMA, H100) == 317
    assert [bound_of(work_of_pass(LLAMA, n), H100) for n in (316, 317)] == ["weights", "arithmetic"]
    assert work_of_pass(LLAMA, 5, readouts=5).readout == 5 * work_of_pass(LLAMA, 5).readout
    slow = replace(H100, flops_per_second=1e20)
    assert tokens_until_arithmetic(LLAMA, slow) is None


def test_a_step_reads_what_its_parts_say() -> None:
    for model in (LLAMA, MODELS["SmolLM2-135M"], OURS):
        for users in (1, 7):
            step, read = work_of_pass(model, 1, 99, users=users), read_by_step(model, 100, users=users)
            assert step.rows_read + step.rows_written == read["rows"]
            assert step.weights == sum(read.values()) - read["rows"] - read["new rows"] - read["embedding"]


def test_a_window_sees_its_last_tokens() -> None:
    model = replace(LLAMA, n_layers=1, window=4)
    for new, before in ((1, 0), (3, 0), (6, 0), (1, 2), (2, 3), (5, 9), (1, 4)):
        pairs = sum(min(4, before + n) for n in range(1, new + 1))
        work = work_of_pass(model, new, before)
        assert work.attention == 4 * pairs * 4096
        row = 2 * 2 * 8 * 128
        assert (work.rows_read, work.rows_written) == (min(before, 3) * row, min(new, 4) * row)


def test_experts_are_read_once_by_those_who_choose_them() -> None:
    model = MODELS["gpt-oss-20b"]
    expert = 24 * 3 * (2880 * 2880 + 2880)  # three matrices and their biases in each layer
    assert weights_of_others(model, 1) == 0
    assert weights_of_others(model, 2) == pytest.approx(4 * (28 / 32) * expert)  # 28 of 32 are not yet read
    assert weights_of_others(model, 10_000) == pytest.approx(28 * expert)
    assert weights_of_others(LLAMA, 10_000) == 0


def test_the_series_model_is_the_shipped_one() -> None:
    sizes = {name: size for name, size in vars(shipped.CONFIG).items() if hasattr(OURS, name)}
    assert {name: getattr(OURS, name) for name in sizes} == sizes
    assert OURS.n_parameters == shipped.CONFIG.n_parameters
