"""Bytes of any config.json are those of `transformers` itself; what is not counted is refused or named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from helpers.cost.config import model_of
from helpers.cost.models import MODELS
from tests.config_cases import CONFIGS


@pytest.mark.parametrize("name", MODELS)
def test_the_table_of_published_models_is_what_their_configs_say(name: str) -> None:
    model = model_of(CONFIGS[name])
    assert replace(model, name=name, source=MODELS[name].source, notes=()) == MODELS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_transformers_modules(name: str) -> None:
    config = AutoConfig.for_model(**CONFIGS[name].get("text_config", CONFIGS[name]))
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(config)
    stored = theirs.state_dict()
    buffers = [buffer for key, buffer in theirs.named_buffers() if key in stored]
    model = model_of(CONFIGS[name])
    assert model.n_parameters == sum(x.numel() for x in [*theirs.parameters(), *buffers])
    head, table = theirs.get_output_embeddings(), theirs.get_input_embeddings()
    assert model.tied == (head.weight is table.weight)
