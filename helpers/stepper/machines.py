"""The models and cards that readers can choose in a view, as data for js/cost.ts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from helpers.cost.layers import GIB, LayerType, Selected, State, Window
from helpers.cost.models import CARDS, MODELS, Card, PublishedModel
from helpers.cost.step import operations_per_pair

SHIPPED_MODEL = PublishedModel(  # as helpers.model.shipped has it; a view imports no PyTorch
    "this series' own model", "", 4, 4, 2, 32, 128, 352, 185, 2048, True, 762_112
)
TWO_CORES = Card("two CPU cores", 16 * GIB, 0.3e12, 40e9, "measured for this series, in float32, rounded")
_SIZES = ("name", "hidden_size", "vocab_size", "tied", "n_active", "experts", "max_seq_len")


def models_and_cards() -> dict[str, list[dict[str, Any]]]:
    """Return all models, starting with the shipped one, and all cards, as dicts of what js/cost.ts needs."""
    return {
        "models": [model_fields(model) for model in (SHIPPED_MODEL, *MODELS.values())],
        "cards": [
            {name: value for name, value in vars(card).items() if name not in ("source", "checked")}
            for card in (TWO_CORES, *CARDS.values())
        ],
    }


def model_fields(model: PublishedModel) -> dict[str, Any]:
    """Return a model's dimensions and parameter count, and its layers grouped by type.

    Each type of layer is a dict, and so is each type of indexer:
        layers: number of layers of this type.
        entry_size: number of values in one KV entry, or in the state of a sequence.
        window: number of tokens in the window, or None.
        state: whether the layers keep a state instead of KV entries.
        kv_heads: number of KV heads that can be divided among cards: 1 for a latent, None for a state.
        pair: number of operations for one query-key pair in all heads.
        chosen: maximum number of entries that a query reads; missing if it reads all of them.
    """
    layer_types = [
        {
            "layers": layers,
            "entry_size": layer_type.entry_size,
            "window": layer_type.window if isinstance(layer_type, Window) else None,
            "state": isinstance(layer_type, State),
            "kv_heads": None if isinstance(layer_type, State) else kv_heads_of(layer_type),
            "pair": operations_per_pair(layer_type, getattr(layer_type, "n_heads", model.n_heads)),
        }
        | ({"chosen": layer_type.n_chosen} if isinstance(layer_type, Selected) else {})
        for layer_type, layers in Counter(without_indexers(model.layers)).items()
    ]
    sizes = {name: getattr(model, name) for name in (*_SIZES, "n_layers", "n_heads")}
    sizes["n_parameters"] = model.parameters
    return {**sizes, "kinds": layer_types, "notes": [*model.notes]}


def without_indexers(layers: Sequence[LayerType]) -> Iterator[LayerType]:
    """Yield each layer without its indexer, followed by the indexer if it has one."""
    for layer in layers:
        if isinstance(layer, Selected) and layer.indexer:
            yield replace(layer, indexer=None)
            yield layer.indexer
        else:
            yield layer


def kv_heads_of(layer: LayerType) -> int:
    """Return the number of KV heads that can be divided among cards."""
    return getattr(layer.entry if isinstance(layer, Selected) else layer, "n_kv_heads", 1)
