"""The example service: what follows from its settings, each number computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.cost import step_time
from helpers.cost.layers import GIB, cache_nbytes
from helpers.cost.models import CARDS, MODELS
from helpers.cost.service import Service

TOKEN = 128 * 1024  # bytes of one token's KV entries in Llama-3.1-8B


def test_load_and_memory_match_hand_computed_numbers() -> None:
    service = Service()
    assert (service.requests_per_second, service.demand_tokens_per_second, service.idle_chats) == (2, 500, 60)
    assert service.mean_context == 6000 + sum(550 * turn + 300 + 125 for turn in range(10)) / 10 == 8900
    assert service.shared_nbytes == 6000 * TOKEN
    assert service.idle_nbytes == sum(550 * turn for turn in range(1, 11)) / 10 * TOKEN == 3025 * TOKEN
    assert service.weights_nbytes == 2 * MODELS["Llama-3.1-8B"].n_parameters
    assert service.mean_replying(0.01) == 5
    free = 68.25 * GIB - service.weights_nbytes - (6000 + 5 * 2900) * TOKEN
    assert service.idle_chats_that_fit(5) == free // (3025 * TOKEN) == 137
    assert Service(memory_gib=10).idle_chats_that_fit(5) == 0


def test_step_uses_the_service_settings() -> None:
    service = Service(card="A100", weight_bits=8, kv_bits=4, turns=1)
    bits: dict[str, Any] = {"weight_bits": 8, "kv_bits": 4}
    expected = step_time(MODELS["Llama-3.1-8B"], CARDS["A100"], 6425, 3, overlap=True, **bits)
    assert service.decode_step(3, overlap=True) == expected


def test_a_window_limits_the_bytes_of_a_chat() -> None:
    service = Service("Mistral-7B v0.1", reply_tokens=4700)
    assert service.idle_nbytes == service.shared_nbytes == cache_nbytes(service.model.layers, 4096)


@pytest.mark.parametrize(
    "wrong",
    [
        {"card": "abacus"},
        {"tool_tokens": -1},
        {"turns": 0},
        {"pause_seconds": 0},
        {"memory_gib": "80"},
        {"model": "?"},
    ],
)
def test_invalid_settings_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Service(**wrong)
