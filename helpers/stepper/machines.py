"""Models and cards to choose from in a view instead of the recorded model, as data for js/cost.ts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from helpers.cost.layers import GIB, State, Window
from helpers.cost.models import CARDS, MODELS, Card, PublishedModel
from helpers.cost.step import operations_per_pair

OURS = PublishedModel(  # as helpers.model.shipped has it; a view imports no PyTorch
    "this series' own model", "", 4, 4, 2, 32, 128, 352, 185, 2048, True, 762_112
)
TWO_CORES = Card("two CPU cores", 16 * GIB, 0.3e12, 40e9, "measured for this series, in float32, rounded")
_SIZES = ("name", "hidden_size", "vocab_size", "tied", "n_active", "experts", "max_seq_len")


def machines() -> dict[str, list[dict[str, Any]]]:
    """Return the fields that js/cost.ts needs of all models, smallest first, and of all cards."""
    return {
        "models": [model_line(model) for model in (OURS, *MODELS.values())],
        "cards": [
            {name: value for name, value in vars(card).items() if name not in ("source", "checked")}
            for card in (TWO_CORES, *CARDS.values())
        ],
    }


def model_line(model: PublishedModel) -> dict[str, Any]:
    """Return a model's sizes, and its layers grouped by type.

    The fields of a type are: the number of layers; the numbers in one KV entry or state; the window in
    tokens, or None; whether it has a state; the number of KV heads that cards can share (1 for a latent, None
    for a state); and the operations for one query-key pair in all heads.
    """
    kinds = [
        {
            "layers": layers,
            "entry_size": kind.entry_size,
            "window": kind.window if isinstance(kind, Window) else None,
            "state": isinstance(kind, State),
            "kv_heads": None if isinstance(kind, State) else getattr(kind, "n_kv_heads", 1),
            "pair": operations_per_pair(kind, model.n_heads),
        }
        for kind, layers in Counter(model.layers).items()
    ]
    sizes = {name: getattr(model, name) for name in (*_SIZES, "n_layers", "n_heads")}
    sizes["n_parameters"] = model.parameters
    return {**sizes, "kinds": kinds, "notes": [*model.notes]}
