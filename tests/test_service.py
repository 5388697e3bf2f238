"""The believable service: what follows from its settings, each number worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cost import step_time
from helpers.cost.layers import GIB, cache_nbytes
from helpers.cost.models import CARDS, MODELS
from helpers.cost.service import Service

ROW = 128 * 1024  # bytes of a token of Llama-3.1-8B


def test_the_service_by_hand() -> None:
    service = Service()
    assert (service.requests_per_second, service.tokens_per_second, service.idle_chats) == (2, 500, 60)
    assert service.context == 6000 + sum(550 * turn + 300 + 125 for turn in range(10)) / 10 == 8900
    assert service.shared_nbytes == 6000 * ROW
    assert service.idle_nbytes == sum(550 * turn for turn in range(1, 11)) / 10 * ROW == 3025 * ROW
    assert service.weights_nbytes == 2 * MODELS["Llama-3.1-8B"].n_parameters
    assert service.replying(0.01) == 5
    free = 68.25 * GIB - service.weights_nbytes - (6000 + 5 * 2900) * ROW
    assert service.idle_chats_that_fit(5) == free // (3025 * ROW) == 137
    assert Service(memory_gib=10).idle_chats_that_fit(5) == 0


def test_its_step_is_that_of_the_equation() -> None:
    service = Service(card="A100", weight_bits=8, row_bits=4, turns=1)
    bits: dict[str, Any] = {"weight_bits": 8, "row_bits": 4}
    expected = step_time(MODELS["Llama-3.1-8B"], CARDS["A100"], 6425, 3, overlap=True, **bits)
    assert service.step(3, overlap=True) == expected


def test_a_window_keeps_no_more_than_its_rows() -> None:
    service = Service("Mistral-7B v0.1", reply=4700)
    assert service.idle_nbytes == service.shared_nbytes == cache_nbytes(service.model.layers, 4096)


@pytest.mark.parametrize(
    "wrong",
    [{"card": "abacus"}, {"tools": -1}, {"turns": 0}, {"pause": 0}, {"memory_gib": "80"}, {"model": "?"}],
)
def test_what_is_no_service_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Service(**wrong)
