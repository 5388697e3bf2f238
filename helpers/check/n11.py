"""Exercises of notebook 11, memory: `from helpers.check import n11 as check`."""

from __future__ import annotations

import math
from functools import partial
from itertools import starmap
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.cost.models import MODELS


def users_in_4_bits(guess: Any) -> Guess:
    """Compare a guess of the users with 8,192 tokens that fit in 80 GiB, Llama-3.1-8B in 4 bits a number."""
    model = MODELS["Llama-3.1-8B"]
    weights, user = model.n_parameters / 2, 8192 * model.cache_nbytes_per_token()
    why = f"The weights shrink to {weights / 2**30:.2f} GiB, and eleven squares come free."
    return Guess(guess, fit(80, weights, user), why)


def kib_after_the_cut(guess: Any) -> Guess:
    """Compare a guess of the KiB that a growing cache of 104 tokens holds, cut back to 10."""
    return Guess(guess, 208, "Its 10 rows are the beginning of tensors that still hold 104.")


def fit(*sizes: float, gib: int = 2**30, least: float = 0, rounded: Any = math.floor) -> float:
    """Count the users that fit, with a GiB of `gib` bytes, at least so many, rounded in this way."""
    memory, weights, user = sizes
    return max(least, rounded((memory * gib - weights) / user))


def users_case(memory_gib: float, tokens: int) -> Case:
    """Return Llama-3.1-8B in 2-byte numbers, users with so many tokens each."""
    model = MODELS["Llama-3.1-8B"]
    args = (memory_gib, 2 * model.n_parameters, tokens * model.cache_nbytes_per_token())
    label = f"users_that_fit for Llama-3.1-8B, {tokens:,} tokens each, in {memory_gib} GiB"
    return Case(args, label, "" if fit(*args) else "where the weights alone do not fit, give 0.")


users_that_fit = Exercise(
    name="users_that_fit",
    todo="let users_that_fit return how many users fit, as a whole number.",
    cases=[
        *starmap(users_case, [(80, 8192), (24, 1024), (141, 100_000), (8, 8192)]),
        Case((2, 100, 7), "users_that_fit for weights of 100 bytes and users of 7 in 2 GiB"),
        Case((4, 98, 7), "users_that_fit for weights of 98 bytes and users of 7 in 4 GiB"),
    ],
    right=fit,
    wrong=[
        "the weights were forgotten: they take their bytes first.",
        lambda memory, weights, user: fit(memory, 0, user),
        "the weights were counted for each user: all share one copy.",
        lambda memory, weights, user: fit(memory, 0, weights + user),
        "not rounded down: a part of a user does not fit.",
        *[partial(fit, rounded=rounded) for rounded in (math.ceil, round, float)],
        "memory_gib counts GiB, and the rest bytes: a GiB is 2**30 bytes (a GB 10**9).",
        *[partial(fit, gib=gib, least=least) for gib in (10**9, 1) for least in (0, -math.inf)],
    ],
    success="65 users of 8,192 tokens fit into 80 GiB beside Llama-3.1-8B, 72 of 1,024 into 24, none into 8.",
)
