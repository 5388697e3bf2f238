"""What A1, library traps, uses: its predictions."""

from __future__ import annotations

from typing import Any

import torch

from helpers.check.guess import Guess


def weight_left(guess: Any) -> Guess:
    """Compare a guess of the weight that a mask after the softmax leaves the first of four equal tokens."""
    return Guess(guess, 1 / 4, "Softmax shared 1 among four, and three shares were thrown away.")


def keys_seen(guess: Any, seen: list[int]) -> Guess:
    """Compare a guess of the keys that one query sees with those that it saw."""
    return Guess(guess, seen, "It is query 1 of this call, so it sees key 1.")


def with_sink(guess: Any) -> Guess:
    """Compare a guess of what a head brings of 10, 20, 1 and 5 beside a sink, all five with score 0."""
    return Guess(guess, sum((10, 20, 1, 5)) / 5, "Five shares of 0.2, and the sink's is thrown away.")


def added_in_bfloat16(guess: Any) -> Guess:
    """Compare a guess of 256 + 1 + 1 in bfloat16, added from the left."""
    left = torch.tensor(256.0).bfloat16() + 1 + 1
    return Guess(guess, left.item(), "257 would need 9 bits, so it is rounded to 256, twice.")
