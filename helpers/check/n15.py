"""Predictions of notebook 15, fewer heads: `from helpers.check import n15 as check`."""

from __future__ import annotations

from typing import Any

from helpers.check.guess import Guess
from helpers.cost.models import MODELS


def operations_a_byte(guess: Any) -> Guess:
    """Compare the guess how many operations a byte attention does in Llama-3.1-8B, in a decode step."""
    model = MODELS["Llama-3.1-8B"]
    return Guess(guess, model.n_heads // model.n_kv_heads, "A row that is read serves four heads.")
