"""Model configs for measurements: three with increasing numbers of parameters, and any published model's.

The three are those of the shipped model, of a model with 16 million parameters, and of SmolLM2-135M.
"""

from __future__ import annotations

from dataclasses import replace

from helpers.cost.models import MODELS
from helpers.model import shipped
from helpers.model.config import SIZES, ModelConfig


def published_config(name: str) -> ModelConfig:
    """Return the config of a published model, given its name in `MODELS`. Raise KeyError for another name."""
    return ModelConfig(**{size: getattr(MODELS[name], size) for size in SIZES}, tied=MODELS[name].tied)


_SMOL = replace(published_config("SmolLM2-135M"), max_seq_len=2048)
_BETWEEN = replace(_SMOL, n_layers=8, n_heads=6, n_kv_heads=2, hidden_size=384, intermediate_size=1024)
CONFIGS = {"shipped": shipped.CONFIG, "16M": replace(_BETWEEN, vocab_size=8192), "135M": _SMOL}


def narrow_config(n_layers: int, vocab_size: int = shipped.CONFIG.vocab_size) -> ModelConfig:
    """Return a config with hidden size 16, so small that a step consists almost only of launch overhead."""
    heads = replace(
        shipped.CONFIG, n_layers=n_layers, n_heads=2, n_kv_heads=1, head_dim=8, vocab_size=vocab_size
    )
    return replace(heads, hidden_size=16, intermediate_size=32)
