"""The exercise and the prediction of notebook 04, the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.sampling import softmax

NUMBERS = [float(toy.NUMBERS[word]) for word in toy.PROMPT]
LayerCaches = list[tuple[list[Any], list[Any]]]  # (keys, values) of each layer


def look(keys: Sequence[Any], values: Sequence[float]) -> np.ndarray:
    """Return the contexts of the newest token, (H,), computed as in the notebook.

    Args:
        keys: two numbers for each token: whether its position is even, and the position, from 1.
        values: one number for each token.
    """
    weights = softmax(np.column_stack([toy.QUERIES @ np.array(keys).T, toy.SINK]))[:, :-1]
    return np.asarray(weights @ np.array(values))


def decode_token(cache: LayerCaches, number: float, position_of: Any = len, mistake: str = "") -> np.ndarray:
    """Decode one token, optionally with a mistake, and return its contexts in the last layer, (H,).

    Args:
        cache: the keys and values of each layer; the token's own are appended.
        number: the number that the token carries.
        position_of: takes the keys of a layer and returns the token's position, counted from 0.
        mistake: the mistake, if any: "not stored", "looks first" (before storing), or "own number" (into the
            next layer).
    """
    for keys, values in cache:
        position, seen = position_of(keys) + 1, ([*keys], [*values])
        if mistake == "not stored":
            keys, values = seen
        keys.append([position % 2 == 0, position])
        values.append(number)
        contexts = look(*(seen if mistake == "looks first" else (keys, values)))
        number = number if mistake == "own number" else contexts.mean()
    return contexts


def run_decode_steps(
    decode_step: Any,
    cached_numbers: Sequence[float],
    new_numbers: Sequence[float],
    n_layers: int,
    position_shift: int = 0,
) -> dict[str, Any]:
    """Run decode steps after stored tokens; return the last contexts and what is then in the cache.

    Args:
        decode_step: the function to check.
        cached_numbers: the numbers of the tokens that are in the cache at first.
        new_numbers: the numbers of the tokens to decode, one step each.
        n_layers: the number of layers.
        position_shift: how much to add to the positions in the stored keys.

    Returns:
        The contexts of the last step, and the values and the last key of each layer.
    """
    cache: LayerCaches = [([], []) for _ in range(n_layers)]
    for number in cached_numbers:
        decode_token(cache, number)
    for keys, _ in cache:
        keys[:] = [
            np.array([(position + position_shift) % 2 == 0, position + position_shift], float)
            for _, position in keys
        ]
    for number in new_numbers:
        contexts = decode_step(cache, number)
    found = {"gives": contexts}
    for n, (keys, values) in enumerate(cache, 1):
        found[f"leaves V of layer {n} with"] = np.array(values)
        found[f"leaves K of layer {n} with the last row"] = np.array(keys[-1])
    return found


decode_step = Exercise(
    name="decode_step",
    todo="let decode_step store a row in every layer and return the last layer's four contexts.",
    cases=[
        Case((NUMBERS, [14.0], 1), "decode_step in one layer, 14 after 10, 20, 1, 5,"),
        Case((NUMBERS, [14.0], 2), "decode_step in two layers, 14 after 10, 20, 1, 5,"),
        Case(([3.0, 8, 4], [6.0], 3), "decode_step in three layers, 6 after 3, 8, 4,"),
        Case((NUMBERS, [14.0, 12.0], 2), "decode_step in two layers, 14 and then 12,"),
        Case((NUMBERS, [14.0], 1, 1), "decode_step behind keys that were changed"),
    ],
    run_case=run_decode_steps,
    right_answer=decode_token,
    wrong_answers=[
        "looked before storing: a token sees its own row too.",
        partial(decode_token, mistake="looks first"),
        "not the next position: the new token stands behind those whose keys are there.",
        partial(decode_token, position_of=lambda keys: 0),
        partial(decode_token, position_of=lambda keys: len(keys) - 1),
        "the row was not stored: append to the lists of the cache.",
        partial(decode_token, mistake="not stored"),
        "into the next layer a token carries the mean of its contexts, not its own number.",
        partial(decode_token, mistake="own number"),
    ],
    success="12.5, 14, 10, 10 in one layer, 12.69, 11.62, 7.5, 10.97 in two; the rows are right, too.",
)


def check_stale_values_guess(guess: Any) -> Guess:
    """Compare a guess with the tokens, from 1, whose V in layer 2 changes if *weather* carries 8, not 20."""
    changed = [10, 8, 1, 5, 14], [10, 20, 1, 5, 14]
    before, after = (toy.prefill_matrix(numbers).mean(axis=1) for numbers in changed)
    return Guess(guess, (np.flatnonzero(before != after) + 1).tolist())
