"""Exercises of notebook 10, your own model: `from helpers.check import n10 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.check.result import show
from helpers.cost.models import MODELS

Measure = Callable[[Tensor, Tensor], Tensor]
Found = Callable[[Sequence[Tensor], Sequence[Tensor], float], int | None]

KEYS = "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size"
SIZES = "n_layers", "n_heads", "n_kv_heads", "hidden_size", "intermediate_size"


def pieces_of_strawberry(guess: Any) -> Guess:
    """Compare a guess of how many pieces SmolLM2 cuts "strawberry" into, without a blank before it."""
    return Guess(guess, 3, "st, raw and berry. With a blank before it, inside a sentence, it is one piece.")


def kib_a_token(guess: Any) -> Guess:
    """Compare a guess of how many KiB one token takes in SmolLM2's cache."""
    why = "K and V × 30 layers × 3 KV heads × 64 numbers × 2 bytes = 23,040 bytes."
    return Guess(guess, MODELS["SmolLM2-135M"].cache_nbytes_per_token() / 1024, why)


def config_json(name: str, without: str = "", **added: Any) -> dict[str, Any]:
    """Return what the config.json of a published model says, without one key, and with others added."""
    config = {key: getattr(MODELS[name], size) for key, size in zip(KEYS, SIZES, strict=True)} | added
    return {key: value for key, value in config.items() if key != without}


def count(config: Any, each: float = 2, n_layers: int = 0, n_kv_heads: int = 0, head_dim: int = 0) -> float:
    """Count the bytes of one token's rows, from a config.json where a size is not given."""
    n_heads = config["num_attention_heads"]
    n_layers = n_layers or config["num_hidden_layers"]
    n_kv_heads = n_kv_heads or config.get("num_key_value_heads") or n_heads
    head_dim = head_dim or config.get("head_dim") or config["hidden_size"] // n_heads
    return 2 * each * n_layers * n_kv_heads * head_dim


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
        "query heads were counted; keys and values have num_key_value_heads.",
        lambda config: count(config, n_kv_heads=config["num_attention_heads"]),
        lambda config: 4 * config["num_hidden_layers"] * config["hidden_size"],
        "half of it: K and V, and two bytes a number.",
        partial(count, each=1),
        "twice too much: K and V, and two bytes a number.",
        partial(count, each=4),
        "one layer only: every layer has a cache.",
        partial(count, n_layers=1),
        "head_dim is what the config says; hidden_size / num_attention_heads only where it says nothing.",
        lambda config: count(config, head_dim=config["hidden_size"] // config["num_attention_heads"]),
        "a config.json may leave out head_dim or give None (then it is hidden_size / num_attention_heads), "
        "and num_key_value_heads (then there are as many as query heads).",
        lambda config: count(config, head_dim=config["head_dim"]),
        lambda config: count(config, n_kv_heads=config["num_key_value_heads"]),
        lambda config: config.get("head_dim", 1) * count(config, head_dim=1),
    ],
    said="22.5 KiB a token in SmolLM2-135M, 128 KiB in Llama-3.1-8B, 512 KiB in Llama-2-7B.",
    shown=show_bytes,
)


def largest(a: Tensor, b: Tensor) -> Tensor:
    """Return the largest difference, NaN if there is one."""
    return (a - b).abs().max()


def first(measure: Measure = largest, *, start: int = 0, nan: bool = True) -> Found:
    """Return a `first_difference` by a measure, to which NaN may not differ; layers count from `start`."""

    def found(a: Sequence[Tensor], b: Sequence[Tensor], tolerance: float) -> int | None:
        for layer, (x, y) in enumerate(zip(a, b, strict=True), start):
            if not measure(x, y) <= tolerance if nan else measure(x, y) > tolerance:
                return layer
        return None

    return found


def both(*measures: Measure, start: int = 0) -> list[Found]:
    """Return a `first_difference` by each of these measures, to which NaN differs and to which not."""
    return [first(measure, start=start, nan=nan) for measure in measures for nan in (True, False)]


A, OTHER = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))  # four layers (T, C)
A[1, 2, 3] = 5.0  # the largest number of its layer
LAYERS = torch.arange(4)[:, None, None]


def misread(layer: int) -> Tensor:
    """Return A with other numbers at all positions but the first from this layer on, and rounding before."""
    return torch.where((layer <= LAYERS) & (torch.arange(5)[:, None] > 0), OTHER, A + 5e-7)


def moved(t: int, c: Any, by: Any) -> Tensor:
    """Return A with another number in layer 1, or some."""
    b = A.clone()
    b[1, t, c] += by
    return b


def differing(how: str, layer: int | None, b: Tensor, tolerance: float, a: Tensor = A) -> Case:
    """Return two stacks of layers that differ in some way that a check may overlook, or do not."""
    trap = "where all layers agree, nothing is found: give None." * (layer is None)
    label, wanted = f"first_difference of layers that differ {how},", f"layer {layer}"
    return Case(([*a], [*b], tolerance), label, trap, "None" if layer is None else wanted)


first_difference = Exercise(
    name="first_difference",
    todo="let first_difference return the first layer in which the two differ, or None.",
    cases=[
        differing("from layer 2 on at every position but the first", 2, misread(2), 1e-4),
        differing("in layer 3 at every position but the first", 3, misread(3), 1e-4),
        differing("from layer 0 on at every position but the first", 0, misread(0), 1e-4),
        differing("in their rounding alone", None, A + 5e-7, 1e-4),
        differing("by one number of layer 1 that is larger", 1, moved(3, 2, 0.5), 0.1),
        differing("by one number of layer 1 that is smaller", 1, moved(3, 2, -0.5), 0.1),
        differing("at position 0 of layer 1 alone", 1, moved(0, [2, 3], torch.tensor([0.5, -0.5])), 0.1),
        differing("by the sign of one number of layer 1", 1, moved(2, 3, -10.0), 0.1),
        differing("by 0.005 everywhere, at a tolerance of 0.01", None, A + 0.005, 0.01),
        differing("by 0.015 in layer 3, near 1000", 3, A + 1000 + 0.015 * (LAYERS == 3), 0.01, A + 1000),
        differing("nowhere, at a tolerance of 0", None, A.clone(), 0.0),
        differing("by a NaN in layer 1", 1, moved(4, 2, math.nan), 0.1),
    ],
    right=first(),
    wrong=[
        "position 0 alone is compared: it sees itself alone, so its weight is 1 whatever RoPE does.",
        *both(lambda x, y: largest(x[:1], y[:1]), lambda x, y: (x - y).abs()[0, 0]),
        "without the sign: abs() before max(), as a difference may be negative.",
        *both(lambda x, y: (x - y).max(), lambda x, y: (y - x).max(), lambda x, y: (x - y).max().abs()),
        "the mean difference was taken: one position may differ and be lost in it. Take the largest.",
        *both(lambda x, y: (x - y).abs().mean()),
        "the tolerance is left out: rounding alone makes two runs differ in their last digits.",
        *[lambda a, b, tolerance, found=found: found(a, b, 0) for found in both(largest)],
        "counted from 1; layers count from 0.",
        *both(largest, start=1),
        "NaN is never over a tolerance: ask for `not difference <= tolerance`.",
        first(nan=False),
    ],
    said="layer 2 where all but the first position differ from there on, None where only the rounding does, "
    "and a NaN is found.",
)
