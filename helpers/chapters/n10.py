"""The countries, the figure and the exercise of notebook 10, your own model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.cost.models import MODELS
from helpers.drawing.canvas import Picture, Sheet

COUNTRIES = "France Japan Italy Spain Germany Egypt Kenya Peru India Canada"
COUNTRIES += " China Russia Brazil Greece Poland Mexico Sweden Turkey Chile Cuba"
CONFIG_KEYS = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "intermediate_size",
)
CONFIG_FIELDS = "n_layers", "n_heads", "n_kv_heads", "hidden_size", "intermediate_size"


def head_map(counts: Mapping[tuple[int, int], int], heads: Sequence[tuple[int, int]]) -> Picture:
    """Draw a model's heads as a grid. The more often the experiment found a head, the darker the head's cell.

    Args:
        counts: maps (layer, head), both indices from 1, to how often this head was found.
        heads: all heads of the model as (layer, head), both indices from 0.
    """
    n_layers, n_heads = (1 + max(places) for places in zip(*heads, strict=True))
    total = sum(counts.values())
    most = sorted(counts.items(), key=lambda one: -one[1])[:3]
    named = [f"layer {layer}, head {head}: in {n} of {total}" for (layer, head), n in most]

    def draw(sheet: Sheet) -> None:
        left, top = 64.0, 46.0
        cell = min(24.0, (sheet.width - left - 14) / n_layers)
        right, bottom = left + cell * n_layers, top + cell * n_heads
        for n in range(n_layers + 1):
            sheet.line((left + cell * n, top), (left + cell * n, bottom), colour="line", width=1)
        for n in range(n_heads + 1):
            sheet.line((left, top + cell * n), (right, top + cell * n), colour="line", width=1)
        for (layer, head), n in counts.items():
            place = left + cell * (layer - 1), top + cell * (head - 1), cell, cell
            sheet.box(*place, fill="query", opacity=n / total, edge="query", radius=0)
        sheet.note(left + cell / 2, top - 14, "layer 1", at="center")
        sheet.note(right - cell / 2, top - 14, str(n_layers), at="right")
        sheet.note(left - 8, top + cell / 2, "head 1", at="right")
        sheet.note(left - 8, bottom - cell / 2, str(n_heads), at="right")
        for n, line in enumerate(named):
            sheet.text(left, bottom + 24 * (n + 1), line, colour="query", bold=True)

    return Picture(draw, f"{n_layers} layers of {n_heads} heads. {'; '.join(named)}.")


def config_json(name: str, omitted_key: str = "", **replaced: Any) -> dict[str, Any]:
    """Return the numbers of layers, heads and channels of a published model, with the keys of config.json.

    Args:
        name: name of the model in `MODELS`.
        omitted_key: config key to leave out; "" leaves out none.
        replaced: config keys to add or replace, with their new values.
    """
    config = {
        key: getattr(MODELS[name], size) for key, size in zip(CONFIG_KEYS, CONFIG_FIELDS, strict=True)
    } | replaced
    return {key: value for key, value in config.items() if key != omitted_key}


def kv_nbytes_per_token(
    config: Any, nbytes_per_number: float = 2, n_layers: int = 0, n_kv_heads: int = 0, head_dim: int = 0
) -> float:
    """Return the bytes per token in a model's KV cache, in all layers together.

    Args:
        config: the model's config.json as a dict.
        nbytes_per_number: bytes per number in the KV cache.
        n_layers, n_kv_heads, head_dim: values that replace those in the config, unless they are 0.
    """
    n_heads = config["num_attention_heads"]
    n_layers = n_layers or config["num_hidden_layers"]
    n_kv_heads = n_kv_heads or config.get("num_key_value_heads") or n_heads
    head_dim = head_dim or config.get("head_dim") or config["hidden_size"] // n_heads
    return 2 * nbytes_per_number * n_layers * n_kv_heads * head_dim


bytes_per_token = Exercise(
    name="bytes_per_token",
    todo="let bytes_per_token return the bytes of one token's keys and values.",
    cases=[
        Case((config,), f"bytes_per_token for {name},")
        for name, config in [
            ("SmolLM2-135M", config_json("SmolLM2-135M")),
            ("Llama-3.1-8B, whose head_dim is null", config_json("Llama-3.1-8B", head_dim=None)),
            ("Llama-2-7B, without num_key_value_heads", config_json("Llama-2-7B", "num_key_value_heads")),
            (
                "Llama-2-7B, num_key_value_heads null",
                config_json("Llama-2-7B", num_key_value_heads=None),
            ),
            ("Llama-3.1-8B with head_dim 160", config_json("Llama-3.1-8B", head_dim=160)),
        ]
    ],
    right_answer=kv_nbytes_per_token,
    wrong_answers=[
        "query heads were counted; keys and values have num_key_value_heads.",
        lambda config: kv_nbytes_per_token(config, n_kv_heads=config["num_attention_heads"]),
        lambda config: 4 * config["num_hidden_layers"] * config["hidden_size"],
        "half of it: K and V, and two bytes a number.",
        partial(kv_nbytes_per_token, nbytes_per_number=1),
        "twice too much: K and V, and two bytes a number.",
        partial(kv_nbytes_per_token, nbytes_per_number=4),
        "one layer only: every layer has a cache.",
        partial(kv_nbytes_per_token, n_layers=1),
    ],
    success="22.5 KiB a token in SmolLM2-135M, 128 KiB in Llama-3.1-8B, 512 KiB in Llama-2-7B.",
)
