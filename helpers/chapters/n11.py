"""The figure, the prediction and the exercise of notebook 11."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import starmap
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.cost.layers import GIB
from helpers.cost.models import MODELS
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import join_words, text_width
from helpers.plots.batches import FILLS

# GiB for weights and KV entries, by vLLM's log of December 2024: https://github.com/vllm-project/vllm/pull/10511
ENGINE_GIB = 14.96 + 53.29


def memory_chart(gib_by_use: Mapping[str, float]) -> Picture:
    """Draw the memory of a GPU as squares of 1 GiB. The colour of a square shows what the memory is used for.

    Args:
        gib_by_use: one to four uses. Maps the name of each use to its memory in GiB, which is rounded to a
            whole number of squares.
    """
    counts = {name: round(gib) for name, gib in gib_by_use.items()}
    taken = [colour for n, colour in zip(counts.values(), FILLS, strict=False) for _ in range(n)]

    def draw(sheet: Sheet) -> None:
        x, y, line = 18.0, 18.0, 16
        for (name, n), colour in zip(counts.items(), FILLS, strict=False):
            message = f"{n}: {name}"
            if x + 22 + text_width(message) > sheet.width - 18:
                x, y = 18, y + 25
            sheet.square(x + 7, y, 14, colour)
            sheet.text(x + 22, y, message)
            x += 52 + text_width(message)
        side = (sheet.width - 36) / line
        for n, colour in enumerate(taken):
            left, top = 18 + n % line * side, y + 24 + n // line * side
            sheet.box(left, top, side - 3, side - 3, fill=colour, radius=2)

    sentence = join_words([f"{n} of them {name}" for name, n in counts.items()])
    return Picture(draw, f"{len(taken)} squares of 1 GiB: {sentence}.")


def check_4_bit_users_guess(guess: Any) -> Guess:
    """Compare a guess with the number of users that fit if the weights of Llama-3.1-8B are stored in 4 bits.

    Each user has 8,192 tokens in the KV cache.
    """
    model = MODELS["Llama-3.1-8B"]
    weights, user = model.n_parameters / 2, 8192 * model.cache_nbytes_per_token()
    why = f"The weights shrink to {weights / GIB:.2f} GiB, and eleven squares come free."
    return Guess(guess, count_users_that_fit(ENGINE_GIB, weights, user), why)


def count_users_that_fit(
    *sizes: float, nbytes_per_gib: int = GIB, minimum: float = 0, round_users: Any = math.floor
) -> float:
    """Return the number of users whose KV caches fit in memory next to the weights.

    The default values of the keyword arguments give the right answer. Other values give typical wrong
    answers.

    Args:
        sizes: three values: the memory in GiB, the bytes of the weights, and the bytes per user in the KV
            cache.
        nbytes_per_gib: number of bytes that count as a GiB.
        minimum: the smallest number that is returned.
        round_users: function that rounds the number of users.
    """
    memory, weights, user = sizes
    return max(minimum, round_users((memory * nbytes_per_gib - weights) / user))


def users_that_fit_case(memory_gib: float, tokens: int) -> Case:
    """Return a `Case` for Llama-3.1-8B with weights and KV cache in 16 bits.

    Args:
        memory_gib: the memory of the GPU, in GiB.
        tokens: number of tokens in each user's KV cache.
    """
    model = MODELS["Llama-3.1-8B"]
    args = (memory_gib, 2 * model.n_parameters, tokens * model.cache_nbytes_per_token())
    label = f"users_that_fit for Llama-3.1-8B, {tokens:,} tokens each, in {memory_gib} GiB"
    return Case(
        args, label, "" if count_users_that_fit(*args) else "where the weights alone do not fit, give 0."
    )


users_that_fit = Exercise(
    name="users_that_fit",
    todo="let users_that_fit return how many users fit, as a whole number.",
    cases=[
        *starmap(users_that_fit_case, [(68.25, 8192), (24, 1024), (141, 100_000), (8, 8192)]),
        Case((2, 100, 7), "users_that_fit for weights of 100 bytes and users of 7 in 2 GiB"),
        Case((4, 98, 7), "users_that_fit for weights of 98 bytes and users of 7 in 4 GiB"),
    ],
    right_answer=count_users_that_fit,
    wrong_answers=[
        "the weights were counted for each user: all share one copy.",
        lambda memory, weights, user: count_users_that_fit(memory, 0, weights + user),
        "not rounded down: a part of a user does not fit.",
        *[partial(count_users_that_fit, round_users=rounded) for rounded in (math.ceil, round, float)],
        "the weights alone can be too much: then give 0.",
        partial(count_users_that_fit, minimum=-math.inf),
        "memory_gib counts GiB, and the rest bytes: a GiB is 2**30 bytes (a GB 10**9).",
        *[
            partial(count_users_that_fit, nbytes_per_gib=gib, minimum=least)
            for gib in (10**9, 1)
            for least in (0, -math.inf)
        ],
    ],
    success="53 users of 8,192 tokens fit next to Llama-3.1-8B in 68.25 GiB, 72 of 1,024 in 24, none in 8.",
)
