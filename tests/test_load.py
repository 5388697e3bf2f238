"""Checkpoints in folders: equal to `transformers`, or refused with a message that names what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DeepseekV3Config,
    MixtralConfig,
    Qwen2VLConfig,
    Qwen3Config,
)

from helpers.model.config import LatentConfig
from helpers.model.latent import LatentTransformer
from helpers.model.load import CheckpointError, load, save
from helpers.model.load.config import CONFIG_FILE, DEFAULTS, GENERATION_FILE, read_config
from helpers.model.load.safetensors import INDEX, WEIGHTS
from tests.tiny import SCALING, SIZES, tiny, tokens

torch.set_num_threads(1)

NAN = float("nan")
SHARDS = tuple(f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))


def in_one_file(folder: Path) -> Path:
    """Make a good checkpoint of one file."""
    save(tiny(hidden_size=36, eos_ids=(2,)), folder)
    return folder


def in_three_files(folder: Path) -> Path:
    """Make a good checkpoint of three files and their index."""
    in_one_file(folder)
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    places = {name: SHARDS[n % 3] for n, name in enumerate(tensors)}
    for file in SHARDS:
        save_file({name: x for name, x in tensors.items() if places[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return in_one_file(tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return in_three_files(tmp_path)


def change_config(folder: Path, **changed: Any) -> None:
    """Change keys of config.json; a value of ... removes the key."""
    path = folder / CONFIG_FILE
    data = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not ...}))


Change = Callable[[dict[str, Any]], object]


def change_weights(folder: Path, change: Change) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def refused(source: Any, message: str, **settings: Any) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(source, **settings)


# Configs.

MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = LLAMA31 | {"original_max_position_embeddings": 16}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
SMOLLM3 = {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}
WINDOW: dict[str, Any] = QWEN2 | {"use_sliding_window": True, "sliding_window": 7}
PLAIN = {"rope_theta": 500.0, "rope_type": "default"}
ORIGINAL = "original_max_position_embeddings"
OTHER = {"is_causal": False, "partial_rotary_factor": 0.5, "hidden_act": "gelu", "quantization_config": "4"}
OTHER |= dict.fromkeys(["rope_interleaved", "attention_bias", "mlp_bias"], True)
LEFT_OUT = "num_key_value_heads head_dim tie_word_embeddings eos_token_id rope_theta rms_norm_eps".split()


@pytest.mark.parametrize(
    "changed",
    [
        {"rope_scaling": LLAMA3 | {"rope_theta": 300.0}, "rope_parameters": PLAIN},
        {"rope_scaling": {}, "rope_parameters": PLAIN, "rope_theta": 90.0},
        {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_type"} | {"type": "llama3"}},
        {"rope_scaling": LLAMA3, ORIGINAL: 8},
        {"rope_parameters": PLAIN, "rope_theta": ...},
        dict.fromkeys(LEFT_OUT, ...),
        {"rope_scaling": {"type": "linear", "factor": 1.0}},
        {"sliding_window": 7, "use_sliding_window": True, "layer_types": ["sliding_attention"] * 3},
        {"head_dim": None, "num_key_value_heads": None},
        MISTRAL | {"sliding_window": None},
        MISTRAL | {"sliding_window": 40},
        MISTRAL | {"sliding_window": ..., "max_position_embeddings": 4096},
        QWEN2 | {"sliding_window": 7},
        WINDOW | {"max_window_layers": 0, "sliding_window": None},
        WINDOW | {"max_window_layers": 3},
        WINDOW | {"layer_types": ["full_attention"] * 3, "max_window_layers": 0},
        QWEN3 | {"head_dim": ..., "sliding_window": 7},
        SMOLLM3 | {"no_rope_layers": [0, 1, 0, 1], "sliding_window": 7},
        SMOLLM3 | {"no_rope_layers": [1, 1, 0], "tie_word_embeddings": ..., "rope_theta": ...},
        SMOLLM3 | {"no_rope_layer_interval": 2, "num_key_value_heads": None},
    ],
    ids=str,
)
def test_it_is_the_model_that_transformers_makes_of_it(folder: Path, changed: dict[str, Any]) -> None:
    change_config(folder, **changed)
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    stored = theirs.state_dict()
    if theirs.config.tie_word_embeddings:
        del stored["lm_head.weight"]
    save_file(stored, folder / WEIGHTS)
    ids = tokens(2, 40)
    with torch.no_grad():
        logits = theirs(ids, use_cache=False).logits  # its cache slides where its forward has no windows
        torch.testing.assert_close(load(folder)(ids), logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", [family for family in DEFAULTS if family != "watch_it_decode"])
def test_defaults_are_those_of_transformers(family: str) -> None:
    config = AutoConfig.for_model(family)
    theirs = config.to_dict() | {"rope_theta": config.rope_parameters["rope_theta"]}
    computed = {key for key, value in DEFAULTS[family].items() if value is None}  # from other keys, or off
    if not theirs.get("use_sliding_window", True):
        computed.add("sliding_window")  # transformers forgets it
    for key in DEFAULTS[family].keys() & theirs.keys() - computed:
        assert DEFAULTS[family][key] == theirs[key], key


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported; expected one of llama, mistral, qwen2"),
        ({"architectures": ["LlamaForCausalLM", "LlamaForTokenClassification"]}, "LlamaForTokenClassific"),
        *(({key: value}, f"{key} {value!r} is not supported; expected") for key, value in OTHER.items()),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.factor is None"),
        ({"rope_scaling": LLAMA3 | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5 is not supp"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types .* are not supported"),
        ({"num_hidden_layers": 10**5}, "parameters; expected .*, as many as are stored"),
        ({"head_dim": 2 * 10**8}, "parameters; expected .*, as many as are stored"),
        ({"num_hidden_layers": ...}, "parameters; expected .*, as many as are stored"),
        ({"num_hidden_layers": None}, "num_hidden_layers is None"),
        ({"hidden_size": 36.5}, "hidden_size is 36.5"),
        ({"head_dim": None, "num_attention_heads": 9}, r"q_proj.weight.*\[48, 36\].*\[36, 36\]"),
        *(({"rope_theta": x}, r"rope_theta is .*; expected 10 to 1e\+12: fetch") for x in (1, 1e13, 10**400)),
        *(({"rms_norm_eps": x}, "rms_norm_eps is .*; expected 1e-12 to 0.01: f") for x in (None, 3, 0, NAN)),
        ({"rope_scaling": LLAMA31}, "rope_scaling.original_max_seq_len is None"),
        ({"eos_token_id": 19}, "eos id 19 is out of range"),
        (MISTRAL | {"sliding_window": 39}, "sliding_window 39 is shorter than the context 40"),
        (MISTRAL | {"max_position_embeddings": 4097}, "sliding_window 4096 is shorter than the context 4097"),
        *(
            (WINDOW | family | {"max_window_layers": 2}, "sliding_window 7 is shorter")
            for family in (QWEN2, QWEN3, SMOLLM3)
        ),
    ],
    ids=str,
)
def test_config_is_refused_by_name(folder: Path, changed: dict[str, Any], message: str) -> None:
    change_config(folder, **changed)
    refused(folder, message)


GPTQ = {"bits": 4, "group_size": 128, "quant_method": "gptq"}
MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
NOT_OPENED: dict[str, tuple[Any, str]] = {
    "mixtral": (MixtralConfig(), "model_type 'mixtral' with experts (num_local_experts 8) is not supported"),
    "qwen2-vl": (
        Qwen2VLConfig(text_config={"rope_parameters": MROPE}),
        "model_type 'qwen2_vl' with mRoPE (mrope_section [16, 24, 24]) is not supported",
    ),
    "deepseek-v3": (DeepseekV3Config(), "{'first_k_dense_replace': 3, 'q_lora_rank': 1536"),
    "gptq": (
        Qwen3Config(quantization_config=GPTQ),
        f"quantization_config {GPTQ} is not supported; expected None",
    ),
}


@pytest.mark.parametrize("name", NOT_OPENED)
def test_a_model_that_is_another_function_is_refused_by_name(tmp_path: Path, name: str) -> None:
    config, message = NOT_OPENED[name]
    config.save_pretrained(tmp_path)
    refused(tmp_path, f"{re.escape(message)}.*or watch it instead, with helpers.recording.hf.watch")


def test_a_window_can_be_stayed_inside_of(folder: Path) -> None:
    change_config(folder, **MISTRAL, sliding_window=16)
    refused(folder, "pass max_seq_len=16 to stay inside it")
    assert load(folder, max_seq_len=16).config.max_seq_len == 16
    refused(folder, "max_seq_len is 41; expected at most max_position_embeddings, 40", max_seq_len=41)
    refused(folder, "max_seq_len is 1.5; expected a whole number", max_seq_len=1.5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"first_k_dense_replace": 3}, "{'first_k_dense_replace': 3} is not supported; expected {"),
        ({"rope_interleave": ...}, "{'rope_interleave': True} is not supported"),
        ({"kv_lora_rank": None}, "kv_lora_rank is None; expected a whole number"),
        ({"qk_rope_head_dim": 6}, "{'head_dim': 4} is not supported"),
        ({"rope_scaling": LLAMA3 | {"mscale_all_dim": 1.0}}, "mscale_all_dim 1.0 is not supported"),
    ],
    ids=str,
)
def test_a_latent_config_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    sizes = SIZES | {"n_layers": 2, "n_kv_heads": 1, "rank": 5, "rope_dim": 4}
    save(LatentTransformer(LatentConfig(**sizes)), tmp_path)
    assert read_config(tmp_path) == LatentConfig(**sizes)
    change_config(tmp_path, **changed)
    refused(tmp_path, message)


def test_a_latent_config_may_leave_out_head_dim(tmp_path: Path) -> None:
    config = LatentConfig(**SIZES | {"n_kv_heads": 1, "rank": 5, "rope_dim": 4})
    save(LatentTransformer(config), tmp_path)
    change_config(tmp_path, head_dim=...)
    assert read_config(tmp_path) == config


def test_generation_config_says_what_ends_a_reply(folder: Path) -> None:
    for message, eos_ids in (([4, 5], (4, 5)), (None, (2,)), (3, (3,))):
        (folder / GENERATION_FILE).write_text(json.dumps({"eos_token_id": message}))
        assert load(folder).config.eos_ids == eos_ids
    (folder / GENERATION_FILE).write_text('{"eos_token_id": [2, 19]}')
    refused(folder, "generation_config.json: eos id 19 is out of range; expected 0 to 18")


# Files.


def test_unreadable_files(sharded: Path) -> None:
    for file in (CONFIG_FILE, INDEX):
        whole = (sharded / file).read_bytes()
        for text in (b"", b"[1, 2]", b"\xff", b"{}"):
            (sharded / file).write_bytes(text)
            refused(sharded, f"{file}(: .*(Expecting|decode|weight_map)| holds a list)|model_type None")
        (sharded / file).write_bytes(whole)
    shard, whole = sharded / SHARDS[1], (sharded / SHARDS[1]).read_bytes()
    for share in (0.0, 0.0001, 0.5, 0.999):
        shard.write_bytes(whole[: int(len(whole) * share)])
        refused(sharded, f"{SHARDS[1]} is missing, damaged or cut off")


def test_what_else_lies_in_a_folder(folder: Path) -> None:
    for name in ("pytorch_model.bin", "other.gguf"):
        (folder / name).write_bytes(b"not even a pickle")
    load(folder)
    (folder / INDEX).write_text("{}")
    refused(folder, "holds 2 of model.safetensors and model.safetensors.index.json; expected one of the two")
    (folder / INDEX).unlink()
    (folder / WEIGHTS).unlink()
    refused(folder, r"holds 0 of model.safetensors .* a pickle \(.bin, .pt, .pth\) is not read, as it may")
    (folder / CONFIG_FILE).unlink()
    (folder / "another.gguf").touch()
    refused(folder, r"holds no config\.json; but 2 GGUF files: name one, such as '.*another\.gguf'")
    for name in ("another.gguf", "other.gguf"):
        (folder / name).unlink()
    refused(folder, r"holds no config\.json; expected the files of a Hugging Face checkpoint")
    (folder / "params.json").touch()
    refused(folder, r"holds no config\.json; but params\.json, Mistral's or Meta's own format: fetch")


def test_an_index_and_its_files(sharded: Path) -> None:
    loaded = load(sharded).state_dict()
    for name, wanted in tiny(hidden_size=36).state_dict().items():
        assert torch.equal(loaded[name], wanted)
    places = json.loads((sharded / INDEX).read_text())["weight_map"]
    (sharded / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(places, SHARDS[1])}))
    refused(sharded, "or tensors are missing; fetch")  # a file that the index does not name is not read
    (sharded / INDEX).write_text(json.dumps({"weight_map": places}))
    (sharded / SHARDS[0]).unlink()
    refused(sharded, f"{SHARDS[0]} is missing, damaged or cut off: No such file")


# Tensors.

K = "model.layers.2.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(K), r'Missing key.*"layers.2.self_attn.k_proj.weight"'),
        (lambda t: t.update({"model.layers.3.x": torch.zeros(2)}), 'Unexpected key.*"layers.3.x"'),
        (lambda t: t.update({K: torch.zeros(36, 24)}), r"k_proj.weight.*\[36, 24\].*\[24, 36\]"),
        (lambda t: t.update({K: t[K].int()}), f"{K} is torch.int32; expected a"),
        (lambda t: t[K].view(-1)[7:8].fill_(float("inf")), f"{K} holds NaN, infinity or what is over"),
    ],
)
def test_a_tensor_is_refused_by_name(folder: Path, change: Change, message: str) -> None:
    change_weights(folder, change)
    refused(folder, message)


def test_two_types_and_the_choice_of_one(folder: Path) -> None:
    change_weights(folder, lambda t: t.update({K: t[K].bfloat16()}))
    refused(folder, "expected one type: choose it, dtype=torch.float32")
    assert {x.dtype for x in load(folder, dtype=torch.float64).parameters()} == {torch.float64}
    change_weights(folder, lambda t: t["model.norm.weight"][3:4].fill_(-1e5))
    message = r"model.norm.weight holds .* over the largest torch.float16; .*choose a wider type"
    refused(folder, message, dtype=torch.float16)
    refused(folder, "expected a float type, such as torch.float32", dtype=torch.int8)


def test_the_lm_head_of_a_tied_model(tmp_path: Path) -> None:
    model = tiny(hidden_size=36, tied=True)
    save(model, tmp_path)
    copy = model.embed_tokens.weight.detach().clone()
    change_weights(tmp_path, lambda t: t.update({"lm_head.weight": copy}))
    assert load(tmp_path).config == model.config  # stored twice, as some tools do
    copy[3, 3] += 1
    change_weights(tmp_path, lambda t: t.update({"lm_head.weight": copy}))
    refused(tmp_path, "lm_head.weight is not embed_tokens.weight, though the config says")
    change_weights(tmp_path, lambda t: t.pop("model.embed_tokens.weight"))
    refused(tmp_path, 'Missing key.*"embed_tokens.weight"')


def test_weights_are_in_memory_of_their_own(folder: Path) -> None:
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    change_weights(folder, lambda t: t.update(old))  # old files hold the rotation too
    model = load(folder)
    before = model.norm.weight.detach().clone()
    with (folder / WEIGHTS).open("r+b") as file:
        file.seek(-200, 2)
        file.write(b"\0" * 200)
    assert torch.equal(model.norm.weight, before)


# Saving.


def test_an_lm_head_is_never_lost(tmp_path: Path) -> None:
    model = tiny(hidden_size=36, tied=True)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.lm_head.weight.data[-1, -1] += 1
    with pytest.raises(
        CheckpointError, match=r"lm_head.weight is not embed_tokens.weight, though the model is"
    ):
        save(model, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_scaling_is_saved_and_a_transposed_matrix(tmp_path: Path) -> None:
    model = tiny(hidden_size=36, eos_ids=(3, 7), norm_eps=2**-17, rope_scaling=SCALING, tied=True)
    weight = model.get_parameter("layers.1.mlp.up_proj.weight")
    weight.data = weight.data.T.contiguous().T
    save(model, tmp_path)
    assert load(tmp_path).config == model.config
    assert torch.equal(load(tmp_path).get_parameter("layers.1.mlp.up_proj.weight"), weight)
