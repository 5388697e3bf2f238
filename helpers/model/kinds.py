"""The kinds of model, each by its config."""

from __future__ import annotations

from typing import Any

from helpers.model.config import LatentConfig, ModelConfig, NoPEConfig, QKNormConfig, StateConfig
from helpers.model.latent import LatentTransformer
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.model.variants import NoPETransformer, QKNormTransformer

KINDS: dict[type[ModelConfig], Any] = {
    ModelConfig: Transformer,
    LatentConfig: LatentTransformer,
    StateConfig: StateTransformer,
    QKNormConfig: QKNormTransformer,
    NoPEConfig: NoPETransformer,
}


def model_of(config: ModelConfig) -> Transformer:
    """Return a model of these sizes with random weights, of the kind that the config is of."""
    return KINDS[type(config)](config)
