"""Exercises of notebook 08, your own model: `from helpers.check import n08 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise, Wrong
from helpers.check.n07 import largest
from helpers.check.result import show
from helpers.cost.models import MODELS

Config = dict[str, Any]
States = list[Tensor]
Measure = Callable[[Tensor, Tensor], Tensor]
Found = Callable[[States, States, float], int | None]
Round = Callable[[float], float]

KEYS = "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size"
SIZES = "n_layers", "n_heads", "n_kv_heads", "hidden_size", "intermediate_size"


def config_json(name: str, without: str = "", **added: Any) -> Config:
    """Return what the config.json of a published model says, without one key, and with others added."""
    config = {key: getattr(MODELS[name], size) for key, size in zip(KEYS, SIZES, strict=True)} | added
    return {key: value for key, value in config.items() if key != without}


def count(config: Config, element_bytes: float = 2, **changed: int) -> float:
    """Count the bytes of one token's rows; sizes may be given otherwise."""
    n_heads = config["num_attention_heads"]
    sizes = {
        "n_layers": config["num_hidden_layers"],
        "n_kv_heads": config.get("num_key_value_heads") or n_heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // n_heads,
    } | changed
    return 2 * element_bytes * math.prod(sizes.values())


def show_bytes(nbytes: float) -> str:
    """Write bytes, many of them as KiB."""
    return f"{show(nbytes)} bytes" if not nbytes >= 1024 else f"{show(nbytes / 1024)} KiB"


bytes_per_token = Exercise(
    name="bytes_per_token",
    todo="let bytes_per_token return the bytes of one token's keys and values.",
    cases=[
        Case((config,), f"bytes_per_token for {name},")
        for name, config in [
            ("SmolLM2-135M", config_json("SmolLM2-135M")),
            ("Llama-3.1-8B, whose head_dim is null", config_json("Llama-3.1-8B", head_dim=None)),
            ("Llama-2-7B, without num_key_value_heads", config_json("Llama-2-7B", "num_key_value_heads")),
            ("Llama-3.1-8B with head_dim 160", config_json("Llama-3.1-8B", head_dim=160)),
        ]
    ],
    right=count,
    wrong=[
        Wrong(
            "query heads were counted; keys and values have num_key_value_heads.",
            lambda config: count(config, n_kv_heads=config["num_attention_heads"]),
            lambda config: 4 * config["num_hidden_layers"] * config["hidden_size"],
        ),
        Wrong("half of it: K and V, and two bytes a number.", partial(count, element_bytes=1)),
        Wrong("twice too much: K and V, and two bytes a number.", partial(count, element_bytes=4)),
        Wrong("one layer only: every layer has a cache.", partial(count, n_layers=1)),
        Wrong(
            "head_dim is what the config says; hidden_size / num_attention_heads only where it says nothing.",
            lambda config: count(config, head_dim=config["hidden_size"] // config["num_attention_heads"]),
        ),
        Wrong(
            "a config.json may leave out head_dim (then it is hidden_size / num_attention_heads) and "
            "num_key_value_heads (then there are as many as query heads).",
            lambda config: count(config, head_dim=config["head_dim"]),
            lambda config: count(config, n_kv_heads=config["num_key_value_heads"]),
        ),
    ],
    said="22.5 KiB a token in SmolLM2-135M, 128 KiB in Llama-3.1-8B, 512 KiB in Llama-2-7B.",
    tell=lambda got, expected: f"gives {show_bytes(got)}; expected {show_bytes(expected)}",
)


def first(measure: Measure = largest, *, start: int = 0, nan: bool = True) -> Found:
    """Return a `first_difference`.

    Args:
        measure: gives what is held against the tolerance.
        start: the number of the first layer.
        nan: whether NaN differs; it is neither over the tolerance nor within.
    """

    def found(a: States, b: States, tolerance: float) -> int | None:
        for layer, (x, y) in enumerate(zip(a, b, strict=True), start):
            if not measure(x, y) <= tolerance if nan else measure(x, y) > tolerance:
                return layer
        return None

    return found


def both(*measures: Measure, start: int = 0) -> list[Found]:
    """Return a `first_difference` by each of these measures, to which NaN differs and to which not."""
    return [first(measure, start=start, nan=nan) for measure in measures for nan in (True, False)]


def layer_cases() -> list[Case]:
    """Return pairs of four layers (T, C) that differ in some way that a check may overlook, or do not."""
    generator = torch.Generator().manual_seed(0)
    a, other = torch.randn(2, 4, 5, 6, generator=generator)
    a[1, 2, 3] = 5.0  # the largest number of its layer
    rounded, levels = a + 5e-7, torch.arange(4)[:, None, None]

    def misread(layer: int) -> Tensor:
        """Change all positions but the first from this layer on."""
        return torch.where((levels >= layer) & (torch.arange(5)[:, None] > 0), other, rounded)

    def moved(t: int, c: Any, by: Any) -> Tensor:
        """Change a number of layer 1, or some."""
        b = a.clone()
        b[1, t, c] += by
        return b

    cases = [
        ("from layer 2 on at every position but the first", 2, a, misread(2), 1e-4),
        ("in layer 3 at every position but the first", 3, a, misread(3), 1e-4),
        ("from layer 0 on at every position but the first", 0, a, misread(0), 1e-4),
        ("in their rounding alone", None, a, rounded, 1e-4),
        ("by one number of layer 1 that is larger", 1, a, moved(3, 2, 0.5), 0.1),
        ("by one number of layer 1 that is smaller", 1, a, moved(3, 2, -0.5), 0.1),
        ("at position 0 of layer 1 alone", 1, a, moved(0, [2, 3], torch.tensor([0.5, -0.5])), 0.1),
        ("by the sign of one number of layer 1", 1, a, moved(2, 3, -10.0), 0.1),
        ("by 0.005 everywhere, at a tolerance of 0.01", None, a, a + 0.005, 0.01),
        ("by 0.015 in layer 3, near 1000", 3, a + 1000, a + 1000 + 0.015 * (levels == 3), 0.01),
        ("nowhere, at a tolerance of 0", None, a, a.clone(), 0.0),
        ("by a NaN in layer 1", 1, a, moved(4, 2, math.nan), 0.1),
    ]
    return [
        Case(
            ([*a], [*b], tolerance),
            label=f"first_difference of layers that differ {how},",
            trap="where all layers agree, nothing is found: give None." * (layer is None),
            wanted="None" if layer is None else f"layer {layer}",
        )
        for how, layer, a, b, tolerance in cases
    ]


first_difference = Exercise(
    name="first_difference",
    todo="let first_difference return the first layer in which the two differ, or None.",
    cases=layer_cases(),
    right=first(),
    wrong=[
        Wrong(
            "position 0 alone is compared: it sees itself alone, so its weight is 1 whatever RoPE does.",
            *both(lambda x, y: largest(x[:1], y[:1]), lambda x, y: (x - y).abs()[0, 0]),
        ),
        Wrong(
            "without the sign: abs() before max(), as a difference may be negative.",
            *both(lambda x, y: (x - y).max(), lambda x, y: (y - x).max(), lambda x, y: (x - y).max().abs()),
        ),
        Wrong(
            "the mean difference was taken: one position may differ and be lost in it. Take the largest.",
            *both(lambda x, y: (x - y).abs().mean()),
        ),
        Wrong(
            "the tolerance is left out: rounding alone makes two runs differ in their last digits.",
            *[lambda a, b, tolerance, found=found: found(a, b, 0) for found in both(largest)],
        ),
        Wrong("counted from 1; layers count from 0.", *both(largest, start=1)),
        Wrong("NaN is never over a tolerance: ask for `not difference <= tolerance`.", first(nan=False)),
    ],
    said="layer 2 where all but the first position differ from there on, None where only the rounding does, "
    "and a NaN is found.",
)


def fit(*sizes: float, gib: int = 2**30, least: float = 0, rounded: Round = math.floor) -> float:
    """Count the rows that fit, with a GiB of `gib` bytes, at least so many, rounded in this way."""
    ram, weights, row, most = sizes
    return max(least, min(rounded((ram * gib - weights) / row), most))


def context_case(name: str, ram_gib: float) -> Case:
    """Return a published model, 2 bytes a number, on a machine of so much memory."""
    model = MODELS[name]
    args = (ram_gib, 2 * model.n_parameters, model.cache_nbytes_per_token(), model.max_seq_len)
    trap = "where the weights alone do not fit, give 0." * (fit(*args) == 0)
    return Case(args, f"longest_context for {name} in {show(ram_gib)} GiB", trap)


def show_tokens(n_tokens: float) -> str:
    """Write a count in full, with two digits after the point if it is not whole."""
    whole = math.isfinite(n_tokens) and n_tokens == int(n_tokens)
    return f"{n_tokens:,.0f}" if whole else f"{n_tokens:,.2f}"


longest_context = Exercise(
    name="longest_context",
    todo="let longest_context return how many tokens fit, as a whole number.",
    cases=[
        context_case("Llama-3.1-8B", 24),
        context_case("Llama-3.1-8B", 16),
        context_case("SmolLM2-135M", 8),
        context_case("Llama-3.1-8B", 8),
        context_case("SmolLM2-135M", 0.3),
        Case((2, 100, 7, 10**9), "longest_context for weights of 100 bytes and rows of 7 in 2 GiB"),
        Case((4, 98, 7, 10**9), "longest_context for weights of 98 bytes and rows of 7 in 4 GiB"),
    ],
    right=fit,
    wrong=[
        Wrong(
            "the weights were forgotten: they take their bytes first.",
            lambda ram, weights, row, most: fit(ram, 0, row, most),
        ),
        Wrong(
            "not rounded down: a part of a token does not fit.",
            *[partial(fit, rounded=rounded) for rounded in (math.ceil, round, float)],
        ),
        Wrong("GB, not GiB: a GiB is 2**30 bytes, a GB 10**9.", partial(fit, gib=10**9)),
        Wrong(
            "max_positions is left out: a model knows no positions beyond it, whatever the RAM.",
            lambda ram, weights, row, most: fit(ram, weights, row, math.inf),
            lambda ram, weights, row, most: fit(ram, weights, row, math.inf, least=-math.inf),
        ),
        Wrong("fewer than 0: where the weights alone do not fit, give 0.", partial(fit, least=-math.inf)),
    ],
    said="Llama-3.1-8B fits 74,075 tokens into 24 GiB, 8,539 into 16 and none into 8; SmolLM2-135M stops at "
    "8,192, its last position.",
    tell=lambda got, expected: f"gives {show_tokens(got)}; expected {show_tokens(expected)}",
)
