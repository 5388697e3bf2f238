"""Exercises of notebook 15, fewer heads: `from helpers.check import n15 as check`."""

from __future__ import annotations

from typing import Any

from helpers.check.exercise import Exercise
from helpers.check.guess import Guess
from helpers.cost.models import MODELS


def operations_a_byte(guess: Any) -> Guess:
    """Compare the guess how many operations a byte attention does in Llama-3.1-8B, in a decode step."""
    model = MODELS["Llama-3.1-8B"]
    return Guess(guess, model.n_heads // model.n_kv_heads, "A row that is read serves four heads.")


def multiplications(T: int, S: int, D: int, rank: int) -> tuple[int, int]:
    """Count those of T queries with S latents in one head: (expanded, absorbed)."""
    return S * rank * D + T * S * D, T * D * rank + T * S * rank


def order(T: int, S: int, D: int, rank: int) -> str:
    """Name the order that takes fewer multiplications."""
    expanded, absorbed = multiplications(T, S, D, rank)
    return "expanded" if expanded < absorbed else "absorbed"


cheaper = Exercise(
    name="cheaper",
    todo='let cheaper return "expanded" or "absorbed".',
    cases=[
        *[(1, 1000, 128, 512), (1000, 1000, 128, 512), (16, 1000, 128, 512), (4000, 8000, 128, 512)],
        *[(1000, 1000, 32, 24), (1, 1, 32, 24), (150, 1000, 128, 512), (300, 1000, 128, 512)],
    ],
    right=order,
    wrong=[
        "that is the dearer one.",
        lambda *sizes: {"expanded": "absorbed", "absorbed": "expanded"}[order(*sizes)],
        "always absorbed: with many queries at once the wide scores cost more than the keys.",
        lambda T, S, D, rank: "absorbed",
        "always expanded: for one query it makes every key anew.",
        lambda T, S, D, rank: "expanded",
        "decided by one query or several alone: count the multiplications of both orders.",
        lambda T, S, D, rank: "absorbed" if T == 1 else "expanded",
    ],
    success="absorbed for one query, expanded for 1,000 at once, in DeepSeek-V3's sizes.",
)
