"""The model class for each config class, and a function that makes a model from a config."""

from __future__ import annotations

from typing import Any

from helpers.model.config import LatentConfig, ModelConfig, NoPEConfig, QKNormConfig, StateConfig
from helpers.model.latent import LatentTransformer
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.model.variants import NoPETransformer, QKNormTransformer

MODEL_CLASSES: dict[type[ModelConfig], Any] = {
    ModelConfig: Transformer,
    LatentConfig: LatentTransformer,
    StateConfig: StateTransformer,
    QKNormConfig: QKNormTransformer,
    NoPEConfig: NoPETransformer,
}


def make_model(config: ModelConfig) -> Transformer:
    """Return a model with random weights. Its class is the one in `MODEL_CLASSES` for the config's class."""
    return MODEL_CLASSES[type(config)](config)
