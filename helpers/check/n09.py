"""Exercises of notebook 09, memory: `from helpers.check import n09 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from helpers.check.exercise import Case, Exercise, Wrong
from helpers.check.n08 import fit, show_bytes, show_tokens
from helpers.cost.bytes import Full, Latent, Window
from helpers.cost.models import MODELS

Readings = Sequence[tuple[int, float]]
Fit = tuple[float, float]


def layers_case(name: str, tokens: int) -> Case:
    """Return a published model, and so many tokens."""
    return Case((list(MODELS[name].layers), tokens), f"cache_bytes of {name} at {tokens:,} tokens")


def counting(
    *,
    rows: Callable[[Any, int, Any], int] = lambda layer, tokens, layers: min(
        tokens, getattr(layer, "window", tokens)
    ),
    latent: Callable[[Any], int] = lambda layer: layer.rank + layer.rope_dim,
    heads: Callable[[Any], int] = lambda layer: layer.n_kv_heads * (layer.k_dim + layer.v_dim),
    each: int = 2,
) -> Callable[[Any, int], int]:
    """Return a `cache_bytes`.

    Args:
        rows: rows of a layer, from the layer, the tokens and all layers.
        latent, heads: numbers in a row of a latent layer, and of one with KV heads.
        each: bytes a number.
    """

    def cache_bytes(layers: Any, tokens: int) -> int:
        numbers = [latent(one) if isinstance(one, Latent) else heads(one) for one in layers]
        kept = [rows(one, tokens, layers) for one in layers]
        return each * sum(a * b for a, b in zip(numbers, kept, strict=True))

    return cache_bytes


def smallest_window(_: Any, tokens: int, layers: Any) -> int:
    """Cut every layer off at the window of any."""
    return min([tokens, *[one.window for one in layers if isinstance(one, Window)]])


cache_bytes = Exercise(
    name="cache_bytes",
    todo="let cache_bytes return the bytes of all layers' rows.",
    cases=[
        layers_case("Llama-3.1-8B", 1000),
        layers_case("Mistral-7B v0.1", 1000),
        layers_case("Mistral-7B v0.1", 10_000),
        layers_case("gpt-oss-120b", 100_000),
        layers_case("DeepSeek-V3", 1000),
        Case(([Full(3, 8, 5), Window(2, 4, 6, 10)], 40), "cache_bytes where keys and values differ in width"),
    ],
    right=counting(),
    wrong=[
        Wrong(
            "a layer with a window keeps min(tokens, window) rows: no more, and at first fewer.",
            counting(rows=lambda layer, tokens, layers: tokens),
            counting(rows=lambda layer, tokens, layers: getattr(layer, "window", tokens)),
        ),
        Wrong("the window was taken for every layer: full layers have none.", counting(rows=smallest_window)),
        Wrong(
            "K and V were counted for a latent layer: its one list stands for both.",
            counting(latent=lambda layer: 2 * (layer.rank + layer.rope_dim)),
            counting(latent=lambda layer: 2 * layer.rank + layer.rope_dim),
            counting(latent=lambda layer: 2 * layer.rank),
        ),
        Wrong(
            "the rotated part was dropped: a latent row is rank + rope_dim numbers.",
            counting(latent=lambda layer: layer.rank),
        ),
        Wrong(
            "a row holds a key and a value, n_kv_heads · (k_dim + v_dim) numbers.",
            counting(heads=lambda layer: layer.n_kv_heads * layer.k_dim),
            counting(heads=lambda layer: 2 * layer.n_kv_heads * layer.k_dim),
            counting(heads=lambda layer: layer.k_dim + layer.v_dim),
        ),
        Wrong("numbers, not bytes: 2 bytes a number.", counting(each=1)),
    ],
    said="1,000 tokens take 125 MiB in Llama-3.1-8B and 67 MiB in DeepSeek-V3; Mistral-7B stops at 512 MiB.",
    tell=lambda got, expected: f"gives {show_bytes(got)}; expected {show_bytes(expected)}",
)


def users(memory_gib: float, weights: float, user: float, **changed: Any) -> float:
    """Count the users that fit, as `fit` counts rows; they may be as many as they like."""
    return fit(memory_gib, weights, user, math.inf, **changed)


def users_case(memory_gib: float, tokens: int) -> Case:
    """Return Llama-3.1-8B in 2-byte numbers, users with so many tokens each."""
    model = MODELS["Llama-3.1-8B"]
    args = (memory_gib, 2 * model.n_parameters, tokens * model.cache_nbytes_per_token())
    trap = "where the weights alone do not fit, give 0." * (users(*args) == 0)
    return Case(args, f"users_that_fit for Llama-3.1-8B, {tokens:,} tokens each, in {memory_gib} GiB", trap)


users_that_fit = Exercise(
    name="users_that_fit",
    todo="let users_that_fit return how many users fit, as a whole number.",
    cases=[
        users_case(80, 8192),
        users_case(24, 1024),
        users_case(141, 100_000),
        users_case(8, 8192),
        Case((2, 100, 7), "users_that_fit for weights of 100 bytes and users of 7 in 2 GiB"),
        Case((4, 98, 7), "users_that_fit for weights of 98 bytes and users of 7 in 4 GiB"),
    ],
    right=users,
    wrong=[
        Wrong(
            "the weights were forgotten: they take their bytes first.",
            lambda memory, weights, user: users(memory, 0, user),
        ),
        Wrong(
            "the weights were counted for each user: all share one copy.",
            lambda memory, weights, user: users(memory, 0, weights + user),
        ),
        Wrong(
            "not rounded down: a part of a user does not fit.",
            *[partial(users, rounded=rounded) for rounded in (math.ceil, round, float)],
        ),
        Wrong(
            "memory_gib counts GiB, and the rest bytes: a GiB is 2**30 bytes (a GB 10**9).",
            *[partial(users, gib=gib, least=least) for gib in (10**9, 1) for least in (0, -math.inf)],
        ),
        Wrong("fewer than 0: where the weights alone do not fit, give 0.", partial(users, least=-math.inf)),
    ],
    said="65 users of 8,192 tokens fit into 80 GiB beside Llama-3.1-8B, 72 of 1,024 into 24, none into 8.",
    tell=lambda got, expected: f"gives {show_tokens(got)}; expected {show_tokens(expected)}",
)


def line(readings: Readings) -> Fit:
    """Return the fixed cost and that of a token, from two readings."""
    (t1, b1), (t2, b2) = readings
    per_token = (b2 - b1) / (t2 - t1)
    return b1 - per_token * t1, per_token


def spread(n: int, m: int, readings: Readings) -> Fit:
    """Divide reading n by its tokens, and take their share off reading m."""
    per_token = readings[n][1] / readings[n][0]
    return readings[m][1] - per_token * readings[m][0], per_token


def fit_case(fixed: int, per_token: int, *tokens: int) -> Case:
    """Return readings of a program that takes so much, at these numbers of tokens."""
    readings = [(n, fixed + per_token * n) for n in tokens]
    told = " and ".join(f"{nbytes:,} bytes at {n:,} tokens" for n, nbytes in readings)
    return Case((readings,), f"fit_log of {told}")


fit_log = Exercise(
    name="fit_log",
    todo="let fit_log return two numbers: the fixed bytes, and the bytes a token.",
    cases=[
        fit_case(1000, 20, 10, 30),
        fit_case(4_000_000, 2048, 100, 1500),
        fit_case(500, 3, 80, 20),
        fit_case(0, 7, 10, 20),
    ],
    right=line,
    wrong=[
        Wrong(
            "one reading was divided by its tokens: that spreads the fixed bytes. Divide differences.",
            *[partial(spread, n, m) for n in (0, 1) for m in (0, 1)],
        ),
        Wrong(
            "the fixed bytes were dropped: they are what is left of a reading without its tokens' share.",
            lambda readings: (0, line(readings)[1]),
        ),
        Wrong(
            "a whole reading was given as the fixed bytes: take its tokens' share away.",
            lambda readings: (readings[0][1], line(readings)[1]),
            lambda readings: (readings[1][1], line(readings)[1]),
        ),
        Wrong("the other way round: the fixed bytes first.", lambda readings: line(readings)[::-1]),
        Wrong(
            "a reading is a pair, (tokens, bytes): unpack them as (t1, b1), (t2, b2).",
            lambda readings: line([*zip(*readings, strict=True)]),
        ),
        Wrong(
            "tokens a byte: divide bytes by tokens.",
            lambda readings: (line(readings)[0], 1 / line(readings)[1]),
        ),
    ],
    said="1,200 bytes at 10 tokens and 1,600 at 30 are 1,000 fixed and 20 a token.",
)
