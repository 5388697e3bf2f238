"""Sizes read from a config.json equal those in `transformers`; what is not supported is rejected or noted."""

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
from helpers.cost.dated import DATED
from helpers.cost.layers import Selected, State, Window, cache_nbytes
from helpers.cost.models import CARDS, MODELS, PublishedModel
from helpers.stepper import StepTime
from tests.config_cases import CONFIGS, DROP, PUBLISHED, changed

UNBUILT = {
    "kimi_k2": "transformers has it as deepseek_v3",
    "chatglm": "transformers has it as glm",
    "qwen2_5_omni_text": "a part, and no model of its own",
    "jetmoe longcat_flash": "its passes need numbers",
    "ministral": "its class's defaults build no model",
    "minimax_m3 minimax_m3_vl": "transformers has its text model as minimax_m3_vl_text",
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


def hf_parameters(config: Any, kind: Any = AutoModelForCausalLM) -> int:
    """Return the number of weights that `transformers` stores, tied ones once; no memory is allocated."""
    with torch.device("meta"):
        model = kind.from_config(config)
    stored = model.state_dict()
    buffers = [buffer for name, buffer in model.named_buffers() if name in stored]
    return sum(x.numel() for x in [*model.parameters(), *buffers])


def entries_of(model: PublishedModel) -> list[tuple[int, int | None]]:
    """Return the numbers in an entry of each layer, and its window."""
    return [(layer.entry_size, getattr(layer, "window", None)) for layer in model.layers]


def hf_entries(config: Any) -> list[tuple[int, int | None]]:
    """Return the same for the cache that `transformers` fills; no memory is allocated."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config).eval().to(torch.bfloat16)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(torch.zeros((1, 2), dtype=torch.long, device="meta"), past_key_values=cache)
    return [
        (sum(map(torch.numel, stored_in(layer))) // 2, getattr(layer, "sliding_window", None))
        for layer in cache.layers
        if getattr(layer, "keys", None) is not None
    ]


def stored_in(layer: Any) -> list[torch.Tensor]:
    """Return what a layer of a transformers' cache stores for its tokens: K, V, and an indexer's keys."""
    stored = [getattr(layer, name, None) for name in ("keys", "values", "indexer_keys", "idx_keys")]
    return [x for x in stored if x is not None]


@pytest.mark.parametrize("name", MODELS)
def test_published_models_match_their_configs(name: str) -> None:
    model = model_of(CONFIGS[name])
    assert replace(model, name=name, source=MODELS[name].source, notes=()) == MODELS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_of_published_models_match_transformers(name: str) -> None:
    config = AutoConfig.for_model(**CONFIGS[name].get("text_config", CONFIGS[name]))
    assert model_of(CONFIGS[name]).n_parameters == hf_parameters(config)


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {*" ".join(UNBUILT).split()}))
def test_each_family_matches_transformers_and_notes_missing_keys(family: str) -> None:
    """Its default sizes are right, and dropping any key of the config changes nothing."""
    hf_config = AutoConfig.for_model(family, **{"num_experts_per_tok": 2} if family == "deepseek_v2" else {})
    text_config = hf_config.get_text_config().to_dict()
    config = json.loads(json.dumps(text_config, default=str)) | {"model_type": family}
    model = model_of(config)
    if "_vl" in family and model.parameters:  # no class of their own with an LM head
        headless = model_of(config | {"tie_word_embeddings": True})
        assert headless.n_parameters == hf_parameters(hf_config.get_text_config(), AutoModel)
    elif FAMILIES[family].get("parts", True):
        assert model.n_parameters == hf_parameters(hf_config)
    else:
        assert entries_of(model) == hf_entries(hf_config)
    assert not [note for note in model.notes if note.startswith(("Not known", "The model_type"))]
    for key in {*config} - {"model_type", "per_layer_config"}:
        less = model_of(changed(config, key, DROP))
        if less.parameters is None != model.parameters:
            assert less.notes[0].startswith("KV entries alone are counted")
            assert less.layers == model.layers, key
        else:
            assert replace(less, notes=model.notes) == model, key


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_windows_begin_at_max_window_layers(family: str) -> None:
    few = {"num_hidden_layers": 5, "max_window_layers": 2, "sliding_window": 64}
    hf_config = AutoConfig.for_model(family, use_sliding_window=True, **few)
    assert hf_config.layer_types == ["full_attention"] * 2 + ["sliding_attention"] * 3
    model = model_of(changed(hf_config.to_dict(), "layer_types", DROP))
    assert [getattr(layer, "window", None) for layer in model.layers] == [None, None, 64, 64, 64]
    assert "begin at max_window_layers, as in Qwen2" in model.notes[-1]


@pytest.mark.parametrize("name", CONFIGS)
def test_entries_per_layer_match_a_transformers_cache(name: str) -> None:
    small = {
        key: SMALL.get(key, value) for key, value in CONFIGS[name].get("text_config", CONFIGS[name]).items()
    }
    small = {key: value[:4] if isinstance(value, list) else value for key, value in small.items()}
    small = {key: value for key, value in small.items() if key not in ("rope_scaling", "quantization_config")}
    if "rope_parameters" in small:
        small["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    if "kv_lora_rank" in small:  # DeepSeek's code asks for as many as query heads
        small["num_key_value_heads"] = small["num_attention_heads"]
    hf_model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**small)).eval()
    model = model_of(small)
    for tokens in (5, 12):
        cache = DynamicCache(config=hf_model.config)
        with torch.no_grad():
            hf_model(torch.arange(tokens)[None], past_key_values=cache)
        for layer, kept in zip(model.layers, cache.layers, strict=True):
            if isinstance(layer, State):
                assert kept.recurrent_states[0].numel() == layer.entry_size
            else:  # between passes a window does not need the entry of its oldest token
                n_entries = layer.n_entries(tokens) - (isinstance(layer, Window) and tokens > layer.window)
                assert kept.keys.numel() + kept.values.numel() == n_entries * layer.entry_size


@pytest.mark.parametrize("name", DATED["models"])
def test_bytes_of_dated_models_match_a_transformers_cache(name: str) -> None:
    """At their real sizes, layer by layer; no memory is allocated."""
    config = AutoConfig.for_model(**DATED["models"][name].value)
    with torch.device("meta"):
        hf_model = AutoModelForCausalLM.from_config(config).eval().to(torch.bfloat16)
    cache, layers = DynamicCache(config=hf_model.config), model_of(DATED["models"][name].value).layers
    with torch.no_grad():
        hf_model(torch.zeros((1, 300), dtype=torch.long, device="meta"), past_key_values=cache)
    stored = [sum(x.nbytes for x in stored_in(layer)) for layer in cache.layers]
    assert [cache_nbytes([layer], 300) for layer in layers] == stored
    with_keys = [len(stored_in(layer)) == 3 for layer in cache.layers]
    assert [isinstance(layer, Selected) and layer.indexer is not None for layer in layers] == with_keys
    if model_of(DATED["models"][name].value).parameters is not None:
        assert model_of(DATED["models"][name].value).parameters == hf_parameters(config)


def test_layers_without_an_indexer_use_an_earlier_selection() -> None:
    """GLM-5.2 has an indexer in its first three layers, and in every fourth from then on."""
    names = ("GLM-5.2", "an indexer in the first layer", "an indexer in the second layer")
    models = [model_of(PUBLISHED[name]) for name in names]
    own = [[getattr(layer, "indexer", None) is not None for layer in model.layers] for model in models]
    assert [i for i, has in enumerate(own[0]) if has] == [0, 1, *range(2, 78, 4)]
    assert own[1:] == [[True, False, False], [True, True, False]]


def test_config_as_dict_file_folder_or_text(tmp_path: Path) -> None:
    text = json.dumps(CONFIGS["Qwen3-0.6B"])
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    given = [json.loads(text), tmp_path / "config.json", tmp_path, str(tmp_path), f"\n {text}"]
    models = [model_of(one) for one in given]
    assert [hash(model) for model in models] == [hash(models[0])] * 5
    assert models == [models[0]] * 5 == [StepTime(one).model for one in given]
    read = 596_049_920 / CARDS["H100"].bytes_per_second  # the embedding is the LM head, too
    assert step_time(models[0], CARDS["H100"], 1).weights == pytest.approx(2 * read)


def test_notes_describe_how_sizes_were_counted() -> None:
    notes = {name: model_of(config).notes for name, config in CONFIGS.items()}
    assert notes["Llama-3.1-8B"] == notes["Qwen3-0.6B"] == notes["SmolLM3-3B"] == ()
    assert notes["Gemma-3-27B"] == (
        "Not in the config, and counted as in the class of transformers: vocab_size 262,208, "
        "max_position_embeddings 131,072.",
        "The text model alone is counted, without vision_config.",
        "Windows of 1,024 tokens are counted in 52 of 62 layers.",
    )
    assert notes["Qwen3-30B-A3B"] == (
        "Experts are counted: of 30.5 billion parameters a token reads 3 billion.",
    )
    latents, experts, bits, further = notes["DeepSeek-V3"]
    assert latents == "Latents are counted in place of K and V."
    assert experts == "Experts are counted: of 671 billion parameters a token reads 36.6 billion."
    assert ("quantization" in bits, "MTP" in further) == (True, True)
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
        ({"hidden_size": 0}, "hidden_size is 0; expected a whole number, 1 to 100,000,000: take"),
        ({"model_type": "x", "hidden_size": DROP}, 'hidden_size is missing, and what model_type "x" takes'),
        ({"num_hidden_layers": 1e9}, "num_hidden_layers is 1000000000; expected a whole number, 1 to 10,000"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1; expected true or false"),
        ({"layer_types": ["full_attention"]}, 'layer_types is ["full_attention"]; expected a list of 32'),
        ({"mamba_d_state": 128}, "mamba_d_state is 128, and such layers are not counted; expected full"),
        ({"attn_type_list": [0, 1] * 16}, "attn_type_list is [0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1…, and"),
        ({"layer_group_size": 8}, "layer_group_size is 8, and what that changes in the KV cache is"),
        ({"cla_share_factor": 2}, "cla_share_factor is 2, and what that changes in the KV cache is"),
        ({"attn_config": {"kv_n_heads": 1}}, 'attn_config is {"kv_n_heads":1}, and what that changes in the'),
        ({"per_layer_config": {"0": {"gates": 2}}}, 'per_layer_config is {"0":{"gates":2}}, and what that'),
        ({"index_kpool": 16}, "index_kpool is 16, and such layers are not counted; expected full attention"),
        ({"compress_rates": {"x": 4}}, 'compress_rates is {"x":4}, and such layers are not counted'),
        ({"layer_types": ["indexed_attention"] * 32}, "index_n_heads is missing, and what model_type"),
        ({"model_type": "glm_moe_dsa", "indexer_types": ["full"]}, 'indexer_types is ["full"]; expected one'),
        ({"num_kv_shared_layers": 32}, "num_kv_shared_layers is 32; expected a whole number, 0 to 31"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok is 5; expected at most the 4"),
        ({"model_type": "phi3", "layer_types": ["sliding_attention"] * 32}, "sliding_window is 0; expected"),
    ],
)  # fmt: skip
def test_unsupported_sizes_are_rejected(changes: dict[str, Any], message: str) -> None:
    config = CONFIGS["Llama-3.1-8B"]
    for key, value in changes.items():
        config = changed(config, key, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        model_of(config)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no/such/file", "no/such/file is not a file; expected config.json, its folder, its text, or one of"),
        ('{"hidden_size": 4096', "the config is not valid JSON: "),
        ("<!doctype html>" * 400, "the config is not valid JSON: "),
        ('{"a": ' * 100_000, "the config is not valid JSON: "),
        ([1], "the config is [1]; expected an object, as config.json holds it"),
    ],
)
def test_invalid_configs_are_rejected(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        model_of(given)


@pytest.mark.parametrize(
    ("name", "layers", "entry_size", "parameters"),
    [  # parameters as published by the owners, without the vision parts
        ("PaliGemma-3B", 18, 512, 2_508_662_784),
        ("LLaVA-1.5-7B", 32, 8192, 6_738_415_616 + 2 * 64 * 4096),
        ("Pixtral-12B", 40, 2048, 12_247_782_400),
        ("Qwen2.5-Omni-7B", 28, 1024, 7_615_616_512),
        ("ERNIE-4.5-21B", 28, 1024, 21_825_437_888),
        ("GLM-4-9B", 40, 512, 9_399_951_360),
        ("Falcon-7B", 32, 128, None),
        ("Falcon-40B", 60, 1024, None),
        ("Bloom-176B", 70, 28672, None),
        ("MPT-7B", 32, 8192, None),
        ("LongCat-Flash", 56, 576, None),
        ("experts under other names", 4, 1024, None),
        ("two layers shared", 30, 8192, None),
        ("OLMo-1.7-7B", 32, 8192, 6_888_095_744 + 65 * 4096),  # as a Llama, whose norms have weights
    ],
)
def test_missing_keys_take_the_defaults_of_the_class(
    name: str, layers: int, entry_size: int, parameters: int | None
) -> None:
    model = model_of(PUBLISHED[name])
    assert [layer.entry_size for layer in model.layers] == [entry_size] * layers
    assert model.parameters == parameters


@pytest.mark.parametrize("kind", "apertus bitnet gptj gpt_bigcode gpt_neox opt phi starcoder2".split())
def test_kv_entries_without_known_parameters(kind: str) -> None:
    hf_config = AutoConfig.for_model(kind)
    model = model_of(hf_config.to_dict())
    assert entries_of(model) == hf_entries(hf_config)
    with pytest.raises(ValueError, match=f"^{kind}: KV entries alone are counted, and no parameters, so"):
        StepTime(model)


def test_windows_follow_the_code_of_the_family() -> None:
    llama, phi = (model_of(PUBLISHED[f"{name} with windows"]) for name in ("Llama", "Phi-3"))
    assert {type(layer).__name__ for layer in llama.layers} == {"Full"}
    assert llama.notes[-1].startswith('No windows are counted: in the code of "llama" each layer sees all')
    assert {layer.window for layer in phi.layers if isinstance(layer, Window)} == {2047}
    exaone = model_of(PUBLISHED["EXAONE-4.0-32B"])
    assert [getattr(layer, "window", None) for layer in exaone.layers[:5]] == [4096, 4096, 4096, None, 4096]


def test_every_second_layer_is_sparse() -> None:
    config = PUBLISHED["every other layer sparse"]
    hf_config = AutoConfig.for_model(**config)
    assert model_of(config).n_parameters == hf_parameters(hf_config)


def test_layers_that_share_kv_cache_nothing() -> None:
    model = model_of(PUBLISHED["Gemma 4, K and V shared"])
    assert entries_of(model) == hf_entries(AutoConfig.for_model(**PUBLISHED["Gemma 4, K and V shared"]))
    assert "The last 4 of 12 layers keep no KV entries: they read those of earlier layers." in model.notes
    llama = model_of(PUBLISHED["two heads in one layer"])
    assert [layer.entry_size for layer in llama.layers] == [8192] * 3 + [512] + [8192] * 28
