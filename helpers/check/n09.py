"""Exercises of notebook 09, the pause and the drip: `from helpers.check import n09 as check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.words import digits

Clock = Callable[[int], float]  # from tokens to milliseconds


def times(
    steps: int = -1,
    one_pause: bool = False,
    one_step: bool = False,
) -> Callable[..., tuple[float, float]]:
    """Return a `reply_ms`: steps over n, and what never changes."""

    def reply_ms(pause: Clock, step: Clock, P: int, n: int) -> tuple[float, float]:
        behind = [P if one_step else P + i for i in range(n + steps)]
        lengths = [P if one_pause else P + i for i in range(n)]
        return pause(P) + sum(map(step, behind)), sum(map(pause, lengths))

    return reply_ms


reply_ms = Exercise(
    name="reply_ms",
    todo="let reply_ms return two times, with the rows kept and with nothing kept.",
    cases=[
        Case((lambda T: 1 + T * T / 10, step, P, n), f"reply_ms for P = {P}, n = {n}")
        for P, n, step in [
            *[(4, 8, lambda t: 1 + t / 8), (10, 3, lambda t: 1 + t * t / 40)],
            *[(7, 1, lambda t: 1 + t / 8), (2, 2, lambda t: 1 + t / 8)],
        ]
    ],
    right=times(),
    wrong=[
        "the first word comes out of the pause, so n words take n - 1 steps.",
        times(steps=0),
        times(steps=0, one_pause=True),
        "the pause is not a step: with the rows kept there is one pause, and then n - 1 steps.",
        lambda pause, step, P, n: (sum(step(P + i) for i in range(n)), times()(pause, step, P, n)[1]),
        "with nothing kept, the words that have come run again too: each pause is a token longer.",
        times(one_pause=True),
        times(one_pause=True, one_step=True),
        "each step leaves a row: the next one stands behind one more.",
        times(one_step=True),
    ],
    success="15.7 and 57.2 ms for 8 words behind 4 tokens; a single word is one pause either way.",
)


def row_nbytes(guess: Any, config: Any) -> Guess:
    """Compare a guess with the bytes that one token leaves in all layers, in float32."""
    numbers = 2 * config.n_layers * config.n_kv_heads * config.head_dim
    why = f"2 (a key and a value) · 4 layers · 2 KV heads · 32 numbers = {numbers}, of 4 bytes each."
    return Guess(guess, 4 * numbers, why)


def times_as_long(guess: Any, answer: float) -> Guess:
    """Compare a guess with how many times as long something took; within a fifth it is right."""
    near = isinstance(guess, int | float) and abs(guess - answer) <= answer / 5
    why = f"{digits(answer, 2)} times as long, here."
    return Guess(guess, guess if near else digits(answer, 2), why, like=answer)
