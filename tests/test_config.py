"""Bytes of any config.json are those of `transformers` itself; what is not counted is refused or named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, DynamicCache

from helpers.cost import model_of, step_time
from helpers.cost.config import FAMILIES
from helpers.cost.layers import State, Window
from helpers.cost.models import CARDS, MODELS
from helpers.stepper import StepTime
from tests.config_cases import CONFIGS, DROP, changed

UNBUILT = {
    "kimi_k2": "transformers has it as deepseek_v3",
    "ministral": "its class's defaults build no model",
}
SMALL: dict[str, Any] = {  # all distinct, and head_dim is not hidden / heads
    "hidden_size": 72, "n_embd": 60, "num_hidden_layers": 4, "n_layer": 4, "num_attention_heads": 6,
    "n_head": 6, "num_key_value_heads": 3, "head_dim": 8, "intermediate_size": 32, "vocab_size": 97,
    "sliding_window": 7, "moe_intermediate_size": 16, "num_experts": 5, "num_local_experts": 5,
    "n_routed_experts": 5, "num_experts_per_tok": 2, "experts_per_token": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "shared_expert_intermediate_size": 20, "q_lora_rank": 18, "kv_lora_rank": 22,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 10, "v_head_dim": 9, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5, "rotary_dim": 4,
    "eos_token_id": 1, "bos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip


def their_numbers(config: Any, kind: Any = AutoModelForCausalLM) -> int:
    """The numbers that `transformers` stores of a model, tied matrices once; its modules without memory."""
    with torch.device("meta"):
        model = kind.from_config(config)
    stored = model.state_dict()
    buffers = [buffer for name, buffer in model.named_buffers() if name in stored]
    return sum(x.numel() for x in [*model.parameters(), *buffers])


@pytest.mark.parametrize("name", MODELS)
def test_the_table_of_published_models_is_what_their_configs_say(name: str) -> None:
    model = model_of(CONFIGS[name])
    assert replace(model, name=name, source=MODELS[name].source, notes=()) == MODELS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_of_published_models_are_those_of_their_modules(name: str) -> None:
    config = AutoConfig.for_model(**CONFIGS[name].get("text_config", CONFIGS[name]))
    assert model_of(CONFIGS[name]).n_parameters == their_numbers(config)


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {*UNBUILT}))
def test_a_family_is_counted_as_its_modules_are_and_says_what_it_misses(family: str) -> None:
    """With its class's own sizes; and without each of the keys, which is refused or changes nothing."""
    theirs = AutoConfig.for_model(family, **{"num_experts_per_tok": 2} if family == "deepseek_v2" else {})
    config = json.loads(json.dumps(theirs.get_text_config().to_dict(), default=str)) | {"model_type": family}
    model = model_of(config)
    if "_vl" in family:  # no class of their own with an LM head
        headless = model_of(config | {"tie_word_embeddings": True})
        assert headless.n_parameters == their_numbers(theirs.get_text_config(), AutoModel)
    else:
        assert model.n_parameters == their_numbers(theirs)
    assert not [note for note in model.notes if "known" in note]
    for key in {*config} - {"model_type"}:
        try:
            assert replace(model_of(changed(config, key, DROP)), notes=model.notes) == model, key
        except ValueError as error:
            assert "is missing; expected" in str(error)  # noqa: PT017


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_windows_begin_at_max_window_layers(family: str) -> None:
    few = {"num_hidden_layers": 5, "max_window_layers": 2, "sliding_window": 64}
    theirs = AutoConfig.for_model(family, use_sliding_window=True, **few)
    assert theirs.layer_types == ["full_attention"] * 2 + ["sliding_attention"] * 3
    model = model_of(changed(theirs.to_dict(), "layer_types", DROP))
    assert [getattr(layer, "window", None) for layer in model.layers] == [None, None, 64, 64, 64]
    assert "begin at max_window_layers, as in Qwen2" in model.notes[-1]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_layer_keeps_what_a_cache_of_transformers_does(name: str) -> None:
    small = {
        key: SMALL.get(key, value) for key, value in CONFIGS[name].get("text_config", CONFIGS[name]).items()
    }
    small = {key: value[:4] if isinstance(value, list) else value for key, value in small.items()}
    small = {key: value for key, value in small.items() if key not in ("rope_scaling", "quantization_config")}
    if "rope_parameters" in small:
        small["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    if "kv_lora_rank" in small:  # DeepSeek's code asks for as many as query heads
        small["num_key_value_heads"] = small["num_attention_heads"]
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**small)).eval()
    model = model_of(small)
    for tokens in (5, 12):
        cache = DynamicCache(config=theirs.config)
        with torch.no_grad():
            theirs(torch.arange(tokens)[None], past_key_values=cache)
        for layer, kept in zip(model.layers, cache.layers, strict=True):
            if isinstance(layer, State):
                assert kept.recurrent_states[0].numel() == layer.row
            else:  # the rows that a window needs are the newest token's and those between passes
                rows = layer.rows(tokens) - (isinstance(layer, Window) and tokens > layer.window)
                assert kept.keys.numel() + kept.values.numel() == rows * layer.row


def test_a_config_comes_as_a_dict_a_file_a_folder_or_text(tmp_path: Path) -> None:
    text = json.dumps(CONFIGS["Qwen3-0.6B"])
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    given = [json.loads(text), tmp_path / "config.json", tmp_path, str(tmp_path), f"\n {text}"]
    models = [model_of(one) for one in given]
    assert [hash(model) for model in models] == [hash(models[0])] * 5
    assert models == [models[0]] * 5 == [StepTime(one).model for one in given]
    read = 596_049_920 / CARDS["H100"].bytes_per_second  # the embedding is the LM head, too
    assert step_time(models[0], CARDS["H100"], 1).weights == pytest.approx(2 * read)


def test_notes_say_what_was_counted_how_and_what_was_not() -> None:
    notes = {name: model_of(config).notes for name, config in CONFIGS.items()}
    assert notes["Llama-3.1-8B"] == notes["Qwen3-0.6B"] == notes["SmolLM3-3B"] == ()
    assert notes["Gemma-3-27B"] == (
        "The text model alone is counted, without vision_config.",
        "Windows of 1,024 tokens are counted in 52 of 62 layers.",
    )
    assert notes["Qwen3-30B-A3B"] == (
        "Experts are counted: of 30.5 billion parameters a token reads 3 billion.",
    )
    latents, experts, bits, further = notes["DeepSeek-V3"]
    assert latents == "Latents are counted in place of K and V."
    assert experts == "Experts are counted: of 671 billion parameters a token reads 36.6 billion."
    assert ("quantization_config" in bits, "MTP" in further) == (True, True)
    new = CONFIGS["Llama-3.1-8B"] | {"model_type": "llama9", "gates": 7, "head_width": 1.5, "my_eps": 2}
    assert (model_of(new).name, model_of(new).notes) == (
        "llama9 8B",
        (
            'The model_type "llama9" is not known: it is counted as a Llama, and comes to 8 billion '
            "parameters; compare that with its maker's number.",
            "Not known, and not counted: gates.",
        ),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": DROP}, "hidden_size is missing; expected a whole number, 1 to 100,000,000: take"),
        ({"num_hidden_layers": 1e9}, "num_hidden_layers is 1000000000; expected a whole number, 1 to 10,000"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; expected true or false"),
        ({"layer_types": ["full_attention"]}, 'layer_types is ["full_attention"]; expected a list of 32'),
        ({"mamba_d_state": 128}, "mamba_d_state is 128, and such layers are not counted; expected full"),
        ({"model_type": "new", "hidden_act": "relu2"}, 'hidden_act is "relu2", and model_type "new" is not'),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok is 5; expected at most the 4"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window is missing; expected a whole number"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused(changes: dict[str, Any], message: str) -> None:
    config = CONFIGS["Llama-3.1-8B"]
    for key, value in changes.items():
        config = changed(config, key, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        model_of(config)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no/such/file", "no/such/file is no file; expected config.json, its folder, its text, or one of"),
        ('{"hidden_size": 4096', "the config is no JSON: "),
        ("<!doctype html>" * 400, "the config is no JSON: "),
        ([1], "the config is [1]; expected an object, as config.json holds it"),
    ],
)
def test_what_is_no_config_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        model_of(given)
