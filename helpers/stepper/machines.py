"""Models and cards that the cost strip can put in the place of the recorded one, as data for js/cost.js."""

from __future__ import annotations

from typing import Any

from helpers.cost.layers import GIB, Window
from helpers.cost.models import CARDS, MODELS, Card, PublishedModel

OURS = PublishedModel(  # as helpers.model.shipped has it; a view imports no PyTorch
    "this series' own model", "", 4, 4, 2, 32, 128, 352, 185, 2048, True, 762_112
)
OFFERED = ("SmolLM2-135M", "Llama-3.1-8B", "Llama-3.1-70B", "gpt-oss-120b")
TWO_CORES = Card("two CPU cores", 16 * GIB, 0.3e12, 40e9, "measured for this series, in float32, rounded")


def machines() -> dict[str, list[dict[str, Any]]]:
    """Return the models, smallest first, each with the window of each layer or None, and the cards."""
    models = [OURS, *(MODELS[name] for name in OFFERED)]
    lines = [
        {**vars(model), "windows": [x.window if isinstance(x, Window) else None for x in model.layers]}
        for model in models
    ]
    return {"models": lines, "cards": [vars(card) for card in (TWO_CORES, *CARDS.values())]}
