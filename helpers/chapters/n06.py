"""What notebook 06, learned heads, uses alone: its prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers import corpus
from helpers.check.guess import Guess


def names_found(guess: Any, best: Sequence[str]) -> Guess:
    """Compare a guess with how many of the 50 words that fit best are names."""
    names = sum(word in corpus.NAMES for word in best[:50])
    return Guess(guess, names, "Every name comes before every other word.")
