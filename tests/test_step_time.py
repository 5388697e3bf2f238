"""The one equation of a step, by hand: Llama-3.1-8B on an H100.

3.35e12 bytes and 989.4e12 operations a second; 15,009,849,344 bytes of weights, half as many numbers,
131,072 bytes of KV entries per token, 32 layers.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from helpers.cost.config import model_of
from helpers.cost.dated import DATED
from helpers.cost.experts import expected_experts_read
from helpers.cost.layers import Full, Selected, State, Window, cache_nbytes
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Roofline
from helpers.cost.step import attention_pairs, step_time
from helpers.model import shipped
from helpers.stepper.machines import SHIPPED_MODEL
from tests.work_cases import bound_of, tokens_until_compute

LLAMA, H100 = MODELS["Llama-3.1-8B"], CARDS["H100"]
W, R = 15_009_849_344 / 3.35e12, 131_072 / 3.35e12  # seconds to read the weights, and one token's KV entries
P = 15_009_849_344 / 989.4e12  # to compute with all, for one token: 2 operations, and 2 bytes a number
HEAD = 2 * 128_256 * 4096 / 989.4e12  # of it, the LM head
PAIR = 4 * 32 * 32 * 128 / 989.4e12  # scores and contexts of a pair, in all heads and layers


@pytest.mark.parametrize(
    ("tokens", "users", "more", "total", "bound"),
    [
        (100, 1, {}, 101 * R + W, "memory-bound"),
        (500, 512, {}, 512 * (501 * R + P), "memory-bound"),  # 17.80 ms
        (500, 512, {"overlap": True}, 512 * 501 * R + W, "memory-bound"),  # 14.52 ms
        (1, 512, {}, 512 * (2 * R + P), "compute-bound"),
        (0, 1, {"new_tokens": 2000}, 2000 * (P - HEAD) + HEAD + 2001 * 1000 * PAIR, "compute-bound"),
        (99, 1, {"new_tokens": 5, "logits": 5}, 104 * R + W, "memory-bound"),
        (99, 100, {"new_tokens": 5, "logits": None}, 10400 * R + 500 * P, "compute-bound"),
        (100, 1, {"weight_bits": 4, "kv_bits": 8}, 101 * R / 2 + W / 4, "memory-bound"),
        (100, 1, {"bandwidth_reached": 0.5, "launch": 1e-3}, 2 * (101 * R + W) + 1e-3, "memory-bound"),
        (1, 512, {"compute_reached": 0.5}, 512 * (2 * R + 2 * P), "compute-bound"),
        (100, 1, {"cards": 4, "collective": 1e-5}, (101 * R + W) / 4 + 64e-5, "memory-bound"),
        (100, 1, {"collective": 1e-5}, 101 * R + W, "memory-bound"),  # nothing to add up on one card
        ([(0, 300), (100, 1)], 1, {}, 45_251 * PAIR + W, "memory-bound"),  # a chunk beside a decode step
    ],
)
def test_step_time_equals_hand_computed(tokens: Any, users: int, more: Any, total: float, bound: str) -> None:
    step = step_time(LLAMA, H100, tokens, users, **more)
    assert (step.total, bound_of(step)) == (pytest.approx(total), bound)
    new = sum(n for _, n in tokens) if isinstance(tokens, list) else users * more.get("new_tokens", 1)
    assert step.throughput * step.total == pytest.approx(new)


@pytest.mark.parametrize("name", [*MODELS])
def test_more_work_or_a_slower_card_takes_longer(name: str) -> None:
    def total(tokens: int = 100, users: int = 8, card: Any = H100, **more: Any) -> float:
        return step_time(MODELS[name], card, tokens, users, **more).total

    more = [total(10_000), total(users=900), total(new_tokens=500), total(launch=1e-3)]
    worse = [total(bandwidth_reached=0.5), total(compute_reached=0.5), total(weight_bits=32)]
    assert all(one >= total() for one in more + worse)
    assert total(tokens=10_000, users=900) > total()
    assert total(overlap=True, users=400) <= total(users=400)
    twice = Roofline(2 * H100.flops_per_second, 2 * H100.bytes_per_second)
    assert total(card=twice) == pytest.approx(total() / 2)
    if name != "DeepSeek-V3":
        assert total(cards=2) == pytest.approx(total() / 2)


@pytest.mark.parametrize(("name", "kv_heads"), [("DeepSeek-V3", 1), ("Qwen2.5-7B", 4), ("Llama-3.1-8B", 8)])
def test_cards_split_kv_heads_but_copy_latents(name: str, kv_heads: int) -> None:
    model = MODELS[name]
    one, many = step_time(model, H100, 32_768, 16), step_time(model, H100, 32_768, 16, cards=16)
    assert many.kv_cache == pytest.approx(one.kv_cache / kv_heads)
    others = [(step.weights, step.attention, step.products) for step in (one, many)]
    assert others[1] == pytest.approx([seconds / 16 for seconds in others[0]])
    nbytes = [cache_nbytes(model.layers, 100, cards=n) for n in (1, 2, 16)]
    assert nbytes == [nbytes[0], nbytes[0] * max(1, 2 // kv_heads), nbytes[0] * 16 // kv_heads]
    assert cache_nbytes([State(10)], 100, cards=16) == 20


def test_shipped_model_windows_states_and_latents() -> None:
    config = shipped.CONFIG
    no_compute = Roofline(1e30, 1.0)
    assert step_time(config, no_compute, 9, weight_bits=32).weights == 4 * config.n_parameters
    for layer, new, before in ((Window(1, 1, 1, 4), 5, 9), (Window(1, 1, 1, 4), 6, 0), (Full(1, 1, 1), 3, 2)):
        limit = getattr(layer, "window", 99)
        assert attention_pairs(layer, before, new) == sum(min(limit, before + n) for n in range(1, new + 1))
    assert attention_pairs(State(5), 7, 3) == 3
    latent, state = (
        step_time(MODELS[name], Roofline(1.0, 1e30), 9) for name in ("DeepSeek-V3", "Qwen3.5-27B")
    )
    assert latent.attention == 61 * 10 * 128 * 2 * (512 + 64 + 512)
    assert state.attention == 16 * 10 * 24 * 4 * 256 + 48 * 4 * 48 * 128 * 128


def test_a_step_reads_indexer_keys_and_selected_entries() -> None:
    """DeepSeek-V3.2: entries of 576 numbers, keys of 128 for an indexer of 64 heads, 2,048 selected."""
    model = model_of(DATED["models"]["DeepSeek-V3.2"].value)
    for cached, read in ((100, 100), (50_000, 2048)):
        step = step_time(model, Roofline(1.0, 1.0), cached)
        assert step.kv_cache == 2 * 61 * (cached * 128 + read * 576 + 128 + 576)
        pairs = min(cached + 1, 2048)
        assert step.attention == 61 * 2 * (pairs * 128 * (576 + 512) + (cached + 1) * 64 * 128)
    chosen = Selected(Full(1, 1, 1), 4, None)
    assert attention_pairs(chosen, 2, 5) == 3 + 4 + 4 + 4 + 4


def test_an_expert_is_read_once_per_pass() -> None:
    expert = 24 * 3 * (2880 * 2880 + 2880)  # three matrices and their biases in each layer
    one, two, many = (
        step_time(MODELS["gpt-oss-20b"], Roofline(1e30, 1.0), 0, new_tokens=n).weights / 2
        for n in (1, 2, 10_000)
    )
    assert two - one == pytest.approx(4 * (28 / 32) * expert)  # 28 of 32 are not yet read
    assert many - one == pytest.approx(28 * expert)


def test_experts_read_is_the_mean_over_all_choices() -> None:
    pairs = list(itertools.combinations(range(4), 2))
    for T in (0, 1, 2, 3):
        read = [len({n for pair in chosen for n in pair}) for chosen in itertools.product(pairs, repeat=T)]
        assert expected_experts_read(4, 2, T) == pytest.approx(sum(read) / len(read))
    assert expected_experts_read(3, 3, 1) == 3
    with pytest.raises(ValueError, match="n_chosen is 3; expected at most n_experts, 2"):
        expected_experts_read(2, 3, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"users": 0}, "users is 0"),
        ({"new_tokens": 0}, "new_tokens is 0"),
        ({"cards": 1.5}, "cards is 1.5"),
        ({"bandwidth_reached": 1.2}, "bandwidth_reached is 1.2; expected a finite number, over 0 and at"),
        ({"compute_reached": 0}, "compute_reached is 0"),
        ({"kv_bits": 0}, "kv_bits is 0"),
        ({"launch": -1}, "launch is -1"),
        ({"tokens": -1}, "tokens is -1"),
        ({"tokens": [(5, 1), (-1, 1)]}, "tokens is -1; expected a whole number, 0 or more"),
        ({"tokens": [(5, 1.5)]}, "new tokens is 1.5"),
        ({"tokens": iter([])}, "tokens is empty; expected a pair .cached, new. for each"),
        ({"logits": 0}, "logits is 0"),
    ],
)
def test_invalid_step_arguments_are_rejected(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step_time(**{"model": LLAMA, "card": H100, "tokens": 1} | wrong)


def test_the_first_compute_bound_prompt() -> None:
    bounds = [bound_of(step_time(LLAMA, H100, 0, new_tokens=n)) for n in (317, 318)]
    assert bounds == ["memory-bound", "compute-bound"]
    assert tokens_until_compute(LLAMA, H100) == 318
    assert tokens_until_compute(LLAMA, replace(H100, flops_per_second=1e20)) is None


def test_sizes_of_the_shipped_model_match_its_config() -> None:
    sizes = {name: size for name, size in vars(shipped.CONFIG).items() if hasattr(SHIPPED_MODEL, name)}
    assert {name: getattr(SHIPPED_MODEL, name) for name in sizes} == sizes
    assert SHIPPED_MODEL.n_parameters == shipped.CONFIG.n_parameters
