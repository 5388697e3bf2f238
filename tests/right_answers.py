"""Correct answers to the exercises, in forms that neither the checkers nor the notebooks use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers import toy


def decode_by_layers(cache: list[Any], number: float) -> list[float]:
    """Answer `decode_step` without a softmax: each head averages the values with the highest score."""
    for keys, values in cache:
        keys += [np.array([(len(keys) + 1) % 2 == 0, len(keys) + 1])]
        values += [number]
        scores = np.array(keys) @ np.array([*toy.QUERIES.values()]).T
        picked = [
            np.isclose(line, line.max()) & (line.max() > 0 if h == 0 else True)
            for h, line in enumerate(scores.T)
        ]
        lines = [float(np.mean(np.array(values)[rows])) if rows.any() else 0.0 for rows in picked]
        number = sum(lines) / 4
    return lines


def who_by_negating(f: Callable[[Tensor], Tensor], x: Tensor) -> list[list[bool]]:
    """Answer `who_moves` by reversing and negating a token's channels.

    The outputs are compared with a tolerance, and the result is a list of lists instead of a tensor.
    """
    columns = []
    for j in range(x.shape[1]):
        changed = x.clone()
        changed[:, j] = -changed[:, j].flip(-1)
        columns.append(~np.isclose(f(changed)[0], f(x)[0], atol=1e-6).all(axis=1))
    return np.array(columns).T.tolist()


# By the name that the notebook's tags have.
RIGHT: dict[str, list[Any]] = {
    "table": [
        {
            "Today": ("none", 10, 10, 10),
            "weather": [20.0, 20, 10, 15],
            "is": [20, 1, 10, np.float64(10.333)],
            "so": [12.5, 5, 10, 9],
        }
    ],
    "change_future": [
        lambda f: [*np.flatnonzero((f([10, 20, 1, 5]) != f([10, 20, 1, 500])).any(axis=1))] == [3],
        lambda prefill: np.array_equal(prefill([10, 20, 1, 5]), prefill([10, 20, 1, 5, 14])[:4]),
    ],
    "decode_step": [decode_by_layers],
    "who_moves": [who_by_negating],
    "visible": [
        lambda T, length, pads: torch.tensor(
            [[pads <= key <= length + query for key in range(length + T)] for query in range(T)]
        )
    ],
    "second": ["Mia writes from Oslo . " * 20],
}
