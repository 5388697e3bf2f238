"""The kinds of model, each by its config."""

from __future__ import annotations

from helpers.model.config import LatentConfig, ModelConfig, StateConfig
from helpers.model.latent import LatentTransformer
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer


def model_of(config: ModelConfig) -> Transformer:
    """Return a model of these sizes with random weights, of the kind that the config is of."""
    if isinstance(config, LatentConfig):
        return LatentTransformer(config)
    return StateTransformer(config) if isinstance(config, StateConfig) else Transformer(config)
