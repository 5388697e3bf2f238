"""Predictions of A1, library traps: `from helpers.check import a1 as check`."""

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


def positions_left(guess: Any) -> Guess:
    """Compare a guess of how many of the positions 0 to 1,023 differ in bfloat16."""
    left = len(torch.arange(1024).bfloat16().unique())
    return Guess(guess, left, "Up to 256 each has its own number; then two share one, from 512 on four.")
