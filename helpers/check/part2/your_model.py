"""Checkers of notebook 08, your own model; and two tools that look into one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.check.cases import Case, Mistakes, compare, with_reason
from helpers.check.part2.shared import call, drawn, read_number
from helpers.check.result import NotRightError, exercise, show
from helpers.model.config import ModelConfig
from helpers.model.transformer import Transformer

BYTES_TODO = "let bytes_per_token return the bytes of one token's keys and values."
NO_HEAD_DIM = (
    "not every config.json has head_dim, or it is null: then it is hidden_size / num_attention_heads."
)
NO_KV_HEADS = "without num_key_value_heads there are as many KV heads as query heads."
Config = dict[str, Any]
CONFIGS: dict[str, Config] = {
    "SmolLM2-135M": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    },
    "Llama-3.1-8B": {
        "head_dim": None,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "Llama-2-7B, without num_key_value_heads": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
    },
    "Mistral-Nemo, head_dim 128": {
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "num_key_value_heads": 8,
        "vocab_size": 131072,
    },
}


def _sizes(config: Config) -> tuple[int, int, int, int]:
    """Return layers, query heads, KV heads, and numbers of a head."""
    H = config["num_attention_heads"]
    D = config.get("head_dim") or config["hidden_size"] // H
    return config["num_hidden_layers"], H, config.get("num_key_value_heads") or H, D


def _bytes(config: Config) -> int:
    L, _, Hkv, D = _sizes(config)
    return 2 * L * Hkv * D * 2


def _from_sizes(count: Callable[[int, int, int, int], float]) -> Callable[[Config], float]:
    """Return a count made of layers, query heads, KV heads and head_dim."""
    return lambda config: count(*_sizes(config))


def _with_head_dim(config: Config, head_dim: int) -> int:
    L, _, Hkv, _ = _sizes(config)
    return 2 * L * Hkv * head_dim * 2


def _shared_width(config: Config) -> int:
    """Divide hidden_size among the KV heads, which is wrong."""
    return config["hidden_size"] // _sizes(config)[2]


BYTES_MISTAKES: Mistakes = {
    "query heads were counted; keys and values have num_key_value_heads.": [
        _from_sizes(lambda L, H, Hkv, D: 4 * L * H * D),
        lambda config: 4 * config["num_hidden_layers"] * config["hidden_size"],
    ],
    "half of it: K and V are both kept, and a number has two bytes.": [
        _from_sizes(lambda L, H, Hkv, D: 2 * L * Hkv * D)
    ],
    "twice too much: K and V are two, and a number has two bytes, as in bfloat16.": [
        _from_sizes(lambda L, H, Hkv, D: 8 * L * Hkv * D)
    ],
    "one layer only: every layer has a cache.": [_from_sizes(lambda L, H, Hkv, D: 4 * Hkv * D)],
    "one KV head only; there are num_key_value_heads.": [_from_sizes(lambda L, H, Hkv, D: 4 * L * D)],
    "a quarter of it: K and V are both kept, and a number has two bytes.": [
        _from_sizes(lambda L, H, Hkv, D: L * Hkv * D)
    ],
    "head_dim is left out: each head has that many numbers.": [_from_sizes(lambda L, H, Hkv, D: 4 * L * Hkv)],
    "the MLP's width is for nothing kept: K and V are heads of head_dim.": [
        lambda config: 4 * config["num_hidden_layers"] * config["intermediate_size"]
    ],
    "bits: a byte has eight of them.": [_from_sizes(lambda L, H, Hkv, D: 32 * L * Hkv * D)],
    "KiB; bytes are asked for, 1024 in each.": [lambda config: _bytes(config) / 1024],
    "kB; bytes are asked for.": [lambda config: _bytes(config) / 1000],
    "head_dim is what the config says; hidden_size / num_attention_heads only where it says nothing.": [
        lambda config: _with_head_dim(config, config["hidden_size"] // config["num_attention_heads"])
    ],
    "H / Hkv is how many query heads share a KV head; rows are kept for each of the Hkv.": [
        _from_sizes(lambda L, H, Hkv, D: 4 * L * (H // Hkv) * D)
    ],
    "head_dim is hidden_size / num_attention_heads, not / num_key_value_heads.": [
        lambda config: _with_head_dim(config, config.get("head_dim") or _shared_width(config)),
        lambda config: _with_head_dim(config, _shared_width(config)),
    ],
    "queries are not kept: two tensors a layer, K and V.": [
        _from_sizes(lambda L, H, Hkv, D: 2 * L * (H + 2 * Hkv) * D),
        _from_sizes(lambda L, H, Hkv, D: 2 * L * (H + Hkv) * D),
        _from_sizes(lambda L, H, Hkv, D: 6 * L * Hkv * D),
    ],
}
BYTES_ERRORS = {"KeyError: 'head_dim'": NO_HEAD_DIM, "KeyError: 'num_key_value_heads'": NO_KV_HEADS}


def _bytes_once(function: Any, case: Case) -> float:
    (config,) = case.args
    errors = BYTES_ERRORS | ({"NoneType": NO_HEAD_DIM} if "head_dim" in config else {"NoneType": NO_KV_HEADS})
    try:
        return read_number(call(function, case, BYTES_TODO), case.label)
    except NotRightError as stop:
        raise with_reason(stop, errors) from None


def _kib(count: float) -> str:
    return f"{show(count)} bytes" if not count >= 1024 else f"{show(count / 1024)} KiB"


@exercise
def bytes_per_token(answer: Any) -> str:
    """08: `bytes_per_token(config)` counts the bytes of one token's keys and values from a config.json."""
    expected = compare(
        answer,
        [Case(f"bytes_per_token for {name},", (config,)) for name, config in CONFIGS.items()],
        attempt=_bytes_once,
        right=_bytes,
        mistakes=BYTES_MISTAKES,
        tell=lambda got, wanted: f"gives {_kib(got)}; expected {_kib(wanted)}",
    )
    smol, llama, old, _ = map(_kib, expected)
    return f"{smol} a token in SmolLM2-135M, {llama} in Llama-3.1-8B, {old} in Llama-2-7B."


def misread(model: Transformer, layers: Collection[int]) -> Transformer:
    """Return a copy of a model in which these layers' Q and K have the other RoPE layout.

    That is what a wrong conversion does: it stores the pairs (i, i + D / 2) where (2i, 2i + 1) are expected.
    The numbers stay finite and of the right size; only which two of them turn together is wrong.

    Args:
        model: left as it is.
        layers: indices, from 0.
    """
    wrong, D = copy.deepcopy(model), model.config.head_dim
    order = torch.arange(D).view(2, D // 2).T.flatten()  # 0, D / 2, 1, D / 2 + 1, …
    for layer in layers:
        for name in ("q_proj", "k_proj"):
            project = wrong.get_submodule(f"layers.{layer}.self_attn.{name}")
            for weight in project.parameters():  # (H * D, C), and (H * D,) where there are biases
                weight.data = weight.data.unflatten(0, (-1, D))[:, order].flatten(0, 1)
    return wrong


def hidden_states(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """Run ids (1, T) without a cache, and return what each layer gave, L tensors (T, C)."""
    states: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda _block, _inputs, output: states.append(output[0]))
        for block in model.layers
    ]
    try:
        with torch.no_grad():
            model(tokens, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    return states


LAYER_TODO = "let first_difference return the first layer in which the two differ, or None."
NO_LAYER = -1.0  # stands for None, which is an answer here
SMALL = ModelConfig(
    n_layers=4,
    n_heads=6,
    n_kv_heads=3,
    head_dim=8,
    hidden_size=20,
    intermediate_size=28,
    vocab_size=11,
    max_seq_len=16,
)
States = list[Tensor]


def _differs_first(differs: Callable[[Tensor, Tensor, float], bool]) -> Callable[..., float]:
    """Return a `first_difference` that calls two layers different by this."""

    def first(a: States, b: States, tolerance: float) -> float:
        found = (layer for layer, (x, y) in enumerate(zip(a, b, strict=True)) if differs(x, y, tolerance))
        return float(next(found, NO_LAYER))

    return first


def _over(x: Tensor, y: Tensor, tolerance: float) -> bool:
    return bool((x - y).abs().max() > tolerance)


def _own_tolerance(own: float) -> Callable[..., float]:
    return _differs_first(lambda x, y, tolerance: _over(x, y, own))


_layer_right = _differs_first(_over)


def _last(a: States, b: States, tolerance: float) -> float:
    return max((n for n in range(len(a)) if _over(a[n], b[n], tolerance)), default=NO_LAYER)


def _largest(a: States, b: States, tolerance: float) -> float:
    return float(np.argmax([float((x - y).abs().max()) for x, y in zip(a, b, strict=True)]))


def _after(a: States, b: States, tolerance: float) -> float:
    found = _layer_right(a, b, tolerance)
    return found + 1 if found != NO_LAYER else found


LAYER_MISTAKES: Mistakes = {
    "position 0 alone is compared: it sees itself alone, so its weight is 1 whatever the rotation is.": [
        _differs_first(lambda x, y, tolerance: _over(x[:1], y[:1], tolerance)),
        _differs_first(lambda x, y, tolerance: _over(x[0, 0], y[0, 0], tolerance)),
    ],
    "the last position alone is compared; compare all of them.": [
        _differs_first(lambda x, y, tolerance: _over(x[-1], y[-1], tolerance)),
        _differs_first(lambda x, y, tolerance: _over(x[-1, -1], y[-1, -1], tolerance)),
    ],
    "without the sign: abs() before max(), as a difference may be negative.": [
        _differs_first(lambda x, y, tolerance: bool((x - y).max() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((y - x).max() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((x - y).max().abs() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((y - x).max().abs() > tolerance)),
    ],
    "two layers differ if any number does; here all of them have to.": [
        _differs_first(lambda x, y, tolerance: bool((x - y).abs().min() > tolerance)),
    ],
    "position 0 is left out; compare all of them.": [
        _differs_first(lambda x, y, tolerance: _over(x[1:], y[1:], tolerance)),
    ],
    "the differences are added up, and many small ones make a large one: take the largest.": [
        _differs_first(lambda x, y, tolerance: bool((x - y).norm() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((x - y).abs().sum() > tolerance)),
    ],
    "the mean difference was taken: one position may differ and be lost in it. Take the largest.": [
        _differs_first(lambda x, y, tolerance: bool((x - y).abs().mean() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((x - y).mean().abs() > tolerance)),
    ],
    "the tolerance is left out: rounding alone makes two runs differ in their last digits.": [
        _differs_first(lambda x, y, tolerance: not torch.equal(x, y)),
    ],
    "torch.allclose adds rtol, 1e-5 of each number, to atol: pass rtol=0.": [
        _differs_first(lambda x, y, tolerance: not torch.allclose(x, y, atol=tolerance)),
    ],
    "relative to the size of the numbers; tolerance is a difference.": [
        _differs_first(lambda x, y, tolerance: not torch.allclose(x, y, rtol=tolerance)),
        _differs_first(lambda x, y, tolerance: bool(((x - y) / x).abs().max() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool(((x - y) / y).abs().max() > tolerance)),
    ],
    "a tolerance of its own; the argument says what counts as different.": [
        _own_tolerance(own) for own in (1e-3, 1e-4, 1e-5, 1e-6)
    ],
    "over tolerance, so > and not >=: at tolerance 0 equal layers do not differ.": [
        _differs_first(lambda x, y, tolerance: bool((x - y).abs().max() >= tolerance)),
    ],
    "squared: the square of a small difference is far smaller. Take abs().": [
        _differs_first(lambda x, y, tolerance: bool((x - y).square().max() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((x - y).square().sum() > tolerance)),
    ],
    "the largest numbers of both were compared; compare number by number.": [
        _differs_first(lambda x, y, tolerance: bool((x.max() - y.max()).abs() > tolerance)),
        _differs_first(lambda x, y, tolerance: bool((x.abs().max() - y.abs().max()).abs() > tolerance)),
    ],
    "the sums were compared: the same numbers in other places have the same sum.": [
        _differs_first(lambda x, y, tolerance: bool((x.sum() - y.sum()).abs() > tolerance)),
    ],
    "0 stands for layer 0: where all layers agree, give None.": [
        lambda a, b, tolerance: max(_layer_right(a, b, tolerance), 0.0)
    ],
    "layer 0 is left out; layers count from 0.": [
        lambda a, b, tolerance: 1 + n if (n := _layer_right(a[1:], b[1:], tolerance)) != NO_LAYER else n
    ],
    "the last layer is left out; compare all of them.": [
        lambda a, b, tolerance: _layer_right(a[:-1], b[:-1], tolerance)
    ],
    "the last layer that differs; return from the loop at the first.": [_last],
    "the layer that differs most; asked is the first that differs at all.": [_largest],
    "counted from 1; layers count from 0.": [_after],
    "the first layer that agrees; asked is the first that differs.": [
        _differs_first(lambda x, y, tolerance: not _over(x, y, tolerance))
    ],
    "the first layer decides alone: go on to the next where two agree, and give None after the last.": [
        lambda a, b, tolerance: 0.0 if _over(a[0], b[0], tolerance) else NO_LAYER
    ],
    "None is given only if all layers agree; here one differs.": [lambda a, b, tolerance: NO_LAYER],
    "the number of layers that differ; asked is the first of them.": [
        lambda a, b, tolerance: float(sum(_over(x, y, tolerance) for x, y in zip(a, b, strict=True)))
    ],
}


def _model() -> Transformer:
    """Return a small model, the same each time; torch's generator is as before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer(SMALL)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.data *= 20  # from 0.02 to 0.4: large enough to attend unevenly
    return model.eval()


AGREE = "where all layers agree, nothing is found: give None."


def _planted() -> list[Case]:
    """Return lists of four layers that differ in one place, in one layer's order, a little, or not at all."""
    a = [drawn(n, 5, 6) for n in range(4)]
    a[1][2, 3] = 5  # the largest of its layer
    far = [x + 1000 for x in a]

    def moved(layer: int, place: tuple[int, int], by: float) -> States:
        b = [x.clone() for x in a]
        b[layer][place] += by
        return b

    lists = [
        ("differ by -0.05 in layer 1 at position 2", a, moved(1, (2, 3), 0.05), 0.01),
        ("differ by 0.05 in layer 0 at position 0", a, moved(0, (0, 0), -0.05), 0.01),
        ("differ by 0.05 in layer 2 at position 4", a, moved(2, (4, 5), -0.05), 0.01),
        ("have the numbers of layer 3 in other places", a, [*a[:3], a[3].flip(1)], 0.01),
        ("differ by -0.02 from layer 2 on", a, [*a[:2], a[2] + 0.02, a[3] + 0.02], 0.01),
        ("differ by 0.005 everywhere, tolerance 0.01,", a, [x + 0.005 for x in a], 0.01),
        ("differ by 0.015 in layer 3, numbers near 1000,", far, [*far[:3], far[3] + 0.015], 0.01),
        ("differ by 0.5 in one number, tolerance 1,", a, moved(1, (2, 3), -0.5), 1.0),
        ("differ by 0.45 in one number of layer 1, tolerance 0.2,", a, moved(1, (2, 3), -0.45), 0.2),
        ("are equal, tolerance 0,", a, a, 0.0),
    ]
    return [Case(f"first_difference of lists that {how}", (x, y, t)) for how, x, y, t in lists]


def _layer_cases() -> list[Case]:
    model, tokens = _model(), torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    right = hidden_states(model, tokens)
    rounded = [x + 5e-7 for x in right]
    wrong = {layers: hidden_states(misread(model, layers), tokens) for layers in ((2, 3), (0, 1, 2, 3), (3,))}
    name = "first_difference of a model and"
    found = [
        Case(f"{name} one misread from layer {layers[0]} on", (rounded, states, 1e-4))
        for layers, states in wrong.items()
    ]
    same = Case(f"{name} itself, rounded otherwise,", (rounded, right, 1e-4))
    every = (*found, same, *_planted())
    return [replace(case, trap=AGREE * (_layer_right(*case.args) == NO_LAYER)) for case in every]


def _layer_once(function: Any, case: Case) -> float:
    """Run the reader's function; None is an answer, so it becomes a number here."""
    try:
        value = call(function, case, LAYER_TODO, none=NO_LAYER)
    except NotRightError as stop:
        raise with_reason(stop, {"StopIteration": AGREE}) from None
    if value is NO_LAYER:
        return NO_LAYER
    found = read_number(value, case.label)
    if found < 0:
        raise NotRightError(f"{case.label} gives {show(found)}; expected a layer from 0 on, or None.")
    return found


def _layer(found: float) -> str:
    if found == NO_LAYER:
        return "None"
    return f"layer {show(found)}"


@exercise
def first_difference(answer: Any) -> str:
    """08: `first_difference(a, b, tolerance)` finds the first layer in which a and b differ, or None.

    Both list a tensor (T, C) for each layer.
    """
    expected = compare(
        answer,
        _layer_cases(),
        attempt=_layer_once,
        right=_layer_right,
        mistakes=LAYER_MISTAKES,
        tell=lambda got, wanted: f"gives {_layer(got)}; expected {_layer(wanted)}",
    )
    return (
        f"{_layer(expected[0])} where the model is misread from there on, and None where only the rounding "
        "differs."
    )


CONTEXT_TODO = "let longest_context return how many tokens fit, as a whole number."
Inputs = tuple[float, int, int, int]


def _free(ram_gib: float, weights: int, gib: int = 2**30) -> float:
    return ram_gib * gib - weights


def _fit(ram_gib: float, weights: int, row: int, most: int, gib: int = 2**30) -> float:
    """Return how many tokens fit, with a GiB of this many bytes."""
    return max(0, min(_free(ram_gib, weights, gib) // row, most))


CONTEXT_MISTAKES: Mistakes = {
    "the weights were forgotten: they take their bytes first.": [
        lambda ram, weights, row, most: _fit(ram, 0, row, most),
    ],
    "rounded up or to the nearest: a part of a token does not fit.": [
        lambda ram, weights, row, most: max(0, min(math.ceil(_free(ram, weights) / row), most)),
        lambda ram, weights, row, most: max(0, min(round(_free(ram, weights) / row), most)),
    ],
    "RAM and weights were each rounded to tokens: take the weights off in bytes, then divide once.": [
        lambda ram, weights, row, most: max(0, min(ram * 2**30 // row - weights // row, most)),
        lambda ram, weights, row, most: min(ram * 2**30 // row - weights // row, most),
        lambda ram, weights, row, most: max(0, min(ram * 2**30 // row - -(-weights // row), most)),
    ],
    "not a whole number: tokens come whole, so round down with //.": [
        lambda ram, weights, row, most: max(0, min(_free(ram, weights) / row, most)),
        lambda ram, weights, row, most: min(_free(ram, weights) / row, most),
    ],
    "GB, not GiB: a GiB is 2**30 bytes, a GB 10**9.": [
        lambda ram, weights, row, most: _fit(ram, weights, row, most, 10**9),
        lambda ram, weights, row, most: min(_free(ram, weights, 10**9) // row, most),
    ],
    "MiB, not GiB: a GiB is 2**30 bytes.": [
        lambda ram, weights, row, most: _fit(ram, weights, row, most, 2**20),
        lambda ram, weights, row, most: min(_free(ram, weights, 2**20) // row, most),
    ],
    "GiB taken for bytes: multiply by 2**30.": [
        lambda ram, weights, row, most: _fit(ram, weights, row, most, 1),
        lambda ram, weights, row, most: min(_free(ram, weights, 1) // row, most),
    ],
    "max_positions is left out: a model knows no positions beyond it, whatever the RAM.": [
        lambda ram, weights, row, most: max(0, _free(ram, weights) // row),
        lambda ram, weights, row, most: _free(ram, weights) // row,
    ],
    "fewer than 0 tokens: where the weights alone do not fit, give 0.": [
        lambda ram, weights, row, most: min(_free(ram, weights) // row, most)
    ],
    "bytes_per_token holds K and V already: not twice.": [
        lambda ram, weights, row, most: _fit(ram, weights, 2 * row, most)
    ],
    "max_positions tokens fit too: the limit is not one less.": [
        lambda ram, weights, row, most: _fit(ram, weights, row, most - 1)
    ],
    "the larger of the two was taken; both limits hold, so take the smaller.": [
        lambda ram, weights, row, most: max(_free(ram, weights) // row, most),
        lambda ram, weights, row, most: max(0, _free(ram, weights) // row, most),
    ],
    "max_positions whatever the RAM is.": [lambda ram, weights, row, most: most],
    "bytes, not tokens: divide by bytes_per_token.": [
        lambda ram, weights, row, most: max(0, min(_free(ram, weights), most)),
        lambda ram, weights, row, most: _free(ram, weights),
    ],
    "the weights were added to the RAM; they take from it.": [
        lambda ram, weights, row, most: _fit(ram, -weights, row, most)
    ],
}


def _context_cases() -> list[Case]:
    inputs: list[tuple[str, Inputs]] = [
        ("Llama-3.1-8B in 24 GiB", (24, 16_060_522_496, 131_072, 131_072)),
        ("Llama-3.1-8B in 16 GiB", (16, 16_060_522_496, 131_072, 131_072)),
        ("Llama-3.1-8B in 8 GiB", (8, 16_060_522_496, 131_072, 131_072)),
        ("SmolLM2-135M in 8 GiB", (8, 269_030_016, 23_040, 8_192)),
        ("SmolLM2-135M in half a GiB", (0.5, 434_230_272, 23_040, 8_192)),
        ("weights of 100 bytes and rows of 7 in 2 GiB", (2, 100, 7, 10**9)),
        ("weights of 98 bytes and rows of 7 in 4 GiB", (4, 98, 7, 10**9)),
    ]
    trap = "where the weights alone do not fit, give 0."
    return [Case(f"longest_context for {name}", args, trap * (not _fit(*args))) for name, args in inputs]


@exercise
def longest_context(answer: Any) -> str:
    """08: `longest_context(ram_gib, weights_bytes, bytes_per_token, max_positions)` counts what fits."""
    expected = compare(
        answer,
        _context_cases(),
        attempt=lambda function, case: read_number(call(function, case, CONTEXT_TODO), case.label),
        right=_fit,
        mistakes=CONTEXT_MISTAKES,
        tell=lambda got, wanted: f"gives {_tokens(got)}; expected {_tokens(wanted)}",
    )
    large, small, none, smol, *_ = map(_tokens, expected)
    return (
        f"Llama-3.1-8B fits {large} tokens into 24 GiB, {small} into 16 and {none} into 8; SmolLM2-135M "
        f"stops at {smol}, its last position."
    )


def _tokens(count: float) -> str:
    """Write a count of tokens in full, with two digits after the point if it is not whole."""
    if not math.isfinite(count):
        return show(count)
    return f"{count:,.0f}" if count == int(count) else f"{count:,.2f}"
