"""What notebook 10, your own model, uses: a model as `transformers` opens it, and its exercise."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.cost.models import MODELS
from helpers.recording.hf import in_transformers as in_transformers

COUNTRIES = "France Japan Italy Spain Germany Egypt Kenya Peru India Canada"
COUNTRIES += " China Russia Brazil Greece Poland Mexico Sweden Turkey Chile Cuba"
SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "vocab_size": 99,
    "head_dim": 16,
}
SMALL |= {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64}
SMALL |= {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
FAMILIES = {
    "mistral": "a window, which these 40 tokens do not fill",
    "qwen2": "biases of Q, K and V",
    "qwen3": "a norm of each query and key",
    "smollm3": "no rotation in every fourth layer",
}
KEYS = "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size"
SIZES = "n_layers", "n_heads", "n_kv_heads", "hidden_size", "intermediate_size"


def small_model(family: str) -> Any:
    """Return a model of `transformers` of this family, of few numbers: random ones, so that each counts."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # that of saving it
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SMALL)).eval()
    with torch.no_grad():
        for numbers in model.parameters():  # or every norm's were 1, and every bias 0
            numbers.add_(0.3 * torch.randn_like(numbers))
    return model


def pieces_of_strawberry(guess: Any) -> Guess:
    """Compare a guess of how many pieces SmolLM2 cuts "strawberry" into, without a blank before it."""
    return Guess(guess, 3, "st, raw and berry. With a blank before it, inside a sentence, it is one piece.")


def config_json(name: str, without: str = "", **added: Any) -> dict[str, Any]:
    """Return what the config.json of a published model says, without one key, and with others added."""
    config = {key: getattr(MODELS[name], size) for key, size in zip(KEYS, SIZES, strict=True)} | added
    return {key: value for key, value in config.items() if key != without}


def count(config: Any, each: float = 2, n_layers: int = 0, n_kv_heads: int = 0, head_dim: int = 0) -> float:
    """Count the bytes of one token's rows, from a config.json where a size is not given."""
    n_heads = config["num_attention_heads"]
    n_layers = n_layers or config["num_hidden_layers"]
    n_kv_heads = n_kv_heads or config.get("num_key_value_heads") or n_heads
    head_dim = head_dim or config.get("head_dim") or config["hidden_size"] // n_heads
    return 2 * each * n_layers * n_kv_heads * head_dim


bytes_per_token = Exercise(
    name="bytes_per_token",
    todo="let bytes_per_token return the bytes of one token's keys and values.",
    cases=[
        Case((config,), f"bytes_per_token for {name},")
        for name, config in [
            ("SmolLM2-135M", config_json("SmolLM2-135M")),
            ("Llama-3.1-8B, whose head_dim is null", config_json("Llama-3.1-8B", head_dim=None)),
            ("Llama-2-7B, without num_key_value_heads", config_json("Llama-2-7B", "num_key_value_heads")),
            ("Llama-3.1-8B with head_dim 160", config_json("Llama-3.1-8B", head_dim=160)),
        ]
    ],
    right=count,
    wrong=[
        "query heads were counted; keys and values have num_key_value_heads.",
        lambda config: count(config, n_kv_heads=config["num_attention_heads"]),
        lambda config: 4 * config["num_hidden_layers"] * config["hidden_size"],
        "half of it: K and V, and two bytes a number.",
        partial(count, each=1),
        "twice too much: K and V, and two bytes a number.",
        partial(count, each=4),
        "one layer only: every layer has a cache.",
        partial(count, n_layers=1),
    ],
    success="22.5 KiB a token in SmolLM2-135M, 128 KiB in Llama-3.1-8B, 512 KiB in Llama-2-7B.",
)
