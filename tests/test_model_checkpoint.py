"""Checkpoints that are damaged, incomplete or of another kind: each named in the message, nothing loaded."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from huggingface_hub.utils import enable_progress_bars
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from helpers.model import checkpoint
from helpers.model.checkpoint import INDEX, WEIGHTS
from helpers.model.config import Llama3Scaling
from helpers.model.config_json import CheckpointError, read_config
from tests.tiny import SCALING, tiny, tokens

torch.set_num_threads(1)

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def in_one_file(folder: Path) -> Path:
    """Make a good checkpoint of one file."""
    checkpoint.save(tiny(hidden_size=36, eos_ids=(2,)), folder)
    return folder


def in_two_files(folder: Path) -> Path:
    """Make a good checkpoint of two files and their index."""
    in_one_file(folder)
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    places = {name: SHARDS[n % 2] for n, name in enumerate(tensors)}
    for file in SHARDS:
        save_file({name: x for name, x in tensors.items() if places[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return in_one_file(tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return in_two_files(tmp_path)


def change_config(folder: Path, **changed: Any) -> None:
    """Change keys of config.json; a value of ... removes the key."""
    path = folder / "config.json"
    data = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not ...}))


def change_weights(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object], file: str = WEIGHTS
) -> None:
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file)


def change_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    data = json.loads((folder / INDEX).read_text())
    change(data["weight_map"])
    (folder / INDEX).write_text(json.dumps(data))


def refused(folder: Path, told: str, **settings: Any) -> None:
    with pytest.raises(CheckpointError, match=told):
        checkpoint.load(folder, **settings)


def test_good_ones_load(sharded: Path) -> None:
    ids = tokens(1, 5)
    with torch.no_grad():
        assert torch.equal(checkpoint.load(sharded)(ids), tiny(hidden_size=36)(ids))


@pytest.mark.parametrize("file", ["config.json", WEIGHTS])
def test_missing_file(folder: Path, file: str) -> None:
    (folder / file).unlink()
    refused(folder, re.escape(file))


def test_missing_folder(tmp_path: Path) -> None:
    refused(tmp_path / "no" / "such", "there is no folder .*expected one, or a Hub name: owner/name")


def test_a_file_is_no_folder(folder: Path) -> None:
    refused(folder / WEIGHTS, "is a file; expected the folder that holds config.json")


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.5, 0.999])
def test_truncated_weights(folder: Path, share: float) -> None:
    path = folder / WEIGHTS
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    refused(folder, "model.safetensors is damaged or cut off")


def test_corrupted_header(folder: Path) -> None:
    path = folder / WEIGHTS
    whole = bytearray(path.read_bytes())
    whole[20:40] = b"\xff" * 20
    path.write_bytes(whole)
    refused(folder, "model.safetensors is damaged or cut off")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_corrupted_numbers(folder: Path, value: float) -> None:
    change_weights(
        folder, lambda t: t["model.layers.1.mlp.up_proj.weight"].view(-1)[7:8].fill_(value) and None
    )
    refused(folder, "model.layers.1.mlp.up_proj.weight holds NaN or infinity")


def test_another_format_under_the_name(folder: Path) -> None:
    torch.save({"x": torch.zeros(3)}, folder / WEIGHTS)
    refused(folder, "model.safetensors is damaged or cut off")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pkl"])
def test_pickle_is_not_read(folder: Path, name: str) -> None:
    (folder / WEIGHTS).rename(folder / name)
    refused(folder, f"holds no model.safetensors .*{name} is a pickle, which may run code when read")


def test_pickle_beside_is_left_alone(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    checkpoint.load(folder)


def test_an_adapter_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    refused(folder, "adapter_config.json")


def test_one_file_and_an_index_are_refused(sharded: Path) -> None:
    save_file({"x": torch.zeros(1)}, sharded / WEIGHTS)
    refused(sharded, "holds model.safetensors and model.safetensors.index.json; expected one of the two")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "\udcff", '{"a": ' * 100_000])
@pytest.mark.parametrize("file", ["config.json", INDEX])
def test_unreadable_json(sharded: Path, file: str, text: str) -> None:
    (sharded / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(sharded, f"{file}.*(cannot be read|expected a JSON object)")


def test_an_index_that_names_a_missing_file(sharded: Path) -> None:
    (sharded / SHARDS[1]).unlink()
    refused(sharded, f"{SHARDS[1]} is missing")


@pytest.mark.parametrize(
    "path",
    [
        *("../model.safetensors", "/etc/model.safetensors", "a/../../m.safetensors", "sub/m.safetensors"),
        *("..\\m.safetensors", "C:\\m.safetensors", "..", "", ".safetensors", "m.bin", 7, None),
    ],
)
def test_a_path_that_climbs_out_of_the_folder(sharded: Path, path: Any) -> None:
    save_file({"model.norm.weight": torch.ones(36)}, sharded.parent / "model.safetensors")
    change_index(sharded, lambda places: places.update({"model.norm.weight": path}))
    told = f"puts model.norm.weight into {path!r}; expected a .safetensors file in the same folder"
    refused(sharded, re.escape(told))


def test_an_index_without_a_map(sharded: Path) -> None:
    for text in ("{}", '{"weight_map": {}}', '{"weight_map": []}'):
        (sharded / INDEX).write_text(text)
        refused(sharded, "has no weight_map")


def test_an_index_that_disagrees_with_a_file(sharded: Path) -> None:
    listed = json.loads((sharded / INDEX).read_text())["weight_map"]["model.norm.weight"]
    change_index(sharded, lambda places: places.pop("model.norm.weight"))
    refused(sharded, f"{listed} holds the tensor model.norm.weight, .*does not list it there")
    change_index(sharded, lambda places: places.update({"model.norm.weight": listed, "more": listed}))
    refused(sharded, f"{listed} lacks the tensor more, .*lists it there")


def test_a_damaged_file_among_several(sharded: Path) -> None:
    (sharded / SHARDS[0]).write_bytes((sharded / SHARDS[0]).read_bytes()[:-8])
    refused(sharded, f"{SHARDS[0]} is damaged or cut off")


def test_missing_tensor(folder: Path) -> None:
    change_weights(folder, lambda t: t.pop("model.layers.2.self_attn.k_proj.weight"))
    refused(folder, "model.layers.2.self_attn.k_proj.weight is missing; expected one of shape \\(24, 36\\)")


@pytest.mark.parametrize(
    "name", ["model.layers.3.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias"]
)
def test_unexpected_tensor(folder: Path, name: str) -> None:
    change_weights(folder, lambda t: t.update({name: torch.zeros(22, 36)}))
    refused(folder, f"{name} is unexpected")


def test_wrong_shape(folder: Path) -> None:
    change_weights(
        folder, lambda t: t.update({"model.layers.0.self_attn.v_proj.weight": torch.zeros(36, 24)})
    )
    refused(folder, r"v_proj.weight has shape \(36, 24\); expected \(24, 36\)")


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float8_e4m3fn])
def test_wrong_type(folder: Path, dtype: torch.dtype) -> None:
    change_weights(folder, lambda t: t.update({"model.norm.weight": torch.ones(36).to(dtype)}))
    refused(folder, "model.norm.weight is (I8|I64|F8_E4M3); expected one of F64, F32, F16, BF16")


def test_two_types_need_a_choice(folder: Path) -> None:
    change_weights(folder, lambda t: t.update({"model.norm.weight": torch.ones(36).bfloat16()}))
    refused(folder, "model.norm.weight is BF16; expected one type: choose it, dtype=torch.float32")
    assert checkpoint.load(folder, dtype=torch.float32).norm.weight.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.complex64, "float32"])
def test_a_type_that_cannot_run(folder: Path, dtype: Any) -> None:
    refused(folder, "expected a float type, such as torch.float32", dtype=dtype)


def test_the_readout_of_a_tied_model(tmp_path: Path) -> None:
    model = tiny(hidden_size=36, tied=True)
    checkpoint.save(model, tmp_path)
    copy = model.embed_tokens.weight.detach().clone()
    change_weights(tmp_path, lambda t: t.update({"lm_head.weight": copy}))
    assert checkpoint.load(tmp_path).config == model.config  # stored twice, as some tools do
    copy[3, 3] += 1
    change_weights(tmp_path, lambda t: t.update({"lm_head.weight": copy}))
    refused(tmp_path, "lm_head.weight is unexpected")


def test_a_readout_of_a_type_that_cannot_be_compared(tmp_path: Path) -> None:
    model = tiny(hidden_size=36, tied=True)
    checkpoint.save(model, tmp_path)
    narrow = model.embed_tokens.weight.detach().to(torch.float8_e4m3fn)
    change_weights(tmp_path, lambda t: t.update({"lm_head.weight": narrow}))
    refused(tmp_path, "lm_head.weight is unexpected")


def test_numbers_that_the_wanted_type_cannot_hold(folder: Path) -> None:
    change_weights(folder, lambda t: t["model.norm.weight"][3:4].fill_(-1e5) and None)
    told = r"model.norm.weight holds 1e\+05, over the largest torch.float16; expected a wider type"
    refused(folder, told, dtype=torch.float16)
    checkpoint.load(folder, dtype=torch.bfloat16)


def test_old_files_hold_the_rotation_too(folder: Path) -> None:
    change_weights(
        folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    )
    checkpoint.load(folder)


def test_weights_are_in_memory_of_their_own(folder: Path) -> None:
    model = checkpoint.load(folder)
    before = model.norm.weight.detach().clone()
    with (folder / WEIGHTS).open("r+b") as file:
        file.seek(-200, 2)
        file.write(b"\0" * 200)
    assert torch.equal(model.norm.weight, before)
    with torch.no_grad():
        assert model(tokens(1, 3)).isfinite().all()


LLAMA31 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = LLAMA31 | {"original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported; expected one of llama, mistral, qwen2"),
        ({"model_type": ...}, "model_type None is not supported"),
        ({"model_type": ["llama"]}, "is not supported"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": ["MistralForCausalLM"]}, "expected 'LlamaForCausalLM'"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type 'linear' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic' is not supported"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope type 'longrope' is not supported"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'; expected an object or null"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "low_freq_factor of rope type llama3 is miss",
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"rope_interleaved": True}, "rope_interleaved true is not supported"),
        ({"attention_bias": True}, "attention_bias true is not supported"),
        ({"mlp_bias": True}, "mlp_bias true is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantized weights are not supported"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; expected true or false"),
        ({"num_hidden_layers": ...}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 10**9}, "model.layers.3.self_attn.q_proj.weight is missing"),
        ({"num_hidden_layers": 2}, "model.layers.2.* is unexpected"),
        ({"hidden_size": "36"}, "hidden_size is '36'"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"vocab_size": 20}, r"embed_tokens.weight has shape \(19, 36\); expected \(20, 36\)"),
        ({"num_key_value_heads": 4}, "expected a multiple"),
        ({"num_key_value_heads": ...}, "k_proj.weight has shape"),
        ({"head_dim": 7}, "head_dim is 7; expected an even number"),
        (
            {"head_dim": None, "num_attention_heads": 7},
            "hidden_size 36 is no multiple of num_attention_heads 7",
        ),
        ({"rope_theta": -1.0}, "rope_theta is -1.0"),
        ({"rope_theta": None}, "rope_theta is None"),
        ({"rope_theta": 1e-300}, "rope_theta is 1e-300; expected 1 or more"),
        ({"rope_theta": 10**400}, "rope_theta is 10+.*; expected a number over 0 that fits into a float"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "rope_theta is 10+"),
        ({"rope_scaling": LLAMA3 | {"factor": 10**400}}, "config.json: factor is 10+"),
        ({"rope_scaling": LLAMA3 | {"factor": 0.5}}, "factor is 0.5; expected 1 or more"),
        ({"rope_scaling": LLAMA3 | {"factor": "8"}}, "config.json: factor is '8'"),
        (
            {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 10**400}},
            "config.json: original_max_position_embeddings is 10+",
        ),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is 10+.*; expected a number over 0 that fits into a float"),
        ({"eos_token_id": "2"}, "eos_token_id is '2'"),
        ({"eos_token_id": 19}, "eos id 19 is out of range"),
        ({"max_position_embeddings": None}, "max_position_embeddings is missing"),
    ],
)
def test_config_is_refused_by_name(folder: Path, changed: dict[str, Any], told: str) -> None:
    change_config(folder, **changed)
    refused(folder, told)


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}


@pytest.mark.parametrize(
    ("changed", "fits"),
    [
        (MISTRAL | {"sliding_window": None}, True),
        (MISTRAL | {"sliding_window": 40}, True),
        (MISTRAL | {"sliding_window": 39}, False),
        (MISTRAL | {"max_position_embeddings": 4096}, True),  # without the key a Mistral's window is 4,096
        (MISTRAL | {"max_position_embeddings": 4097}, False),
        (QWEN2 | {"sliding_window": 7, "use_sliding_window": False}, True),
        (QWEN2 | {"sliding_window": 7}, True),
        (QWEN2 | {"sliding_window": 7, "use_sliding_window": True}, False),
        ({"sliding_window": 7}, True),  # a Llama has none, whatever its config says
    ],
)
def test_a_window_shorter_than_the_context_is_refused(
    folder: Path, changed: dict[str, Any], fits: bool
) -> None:
    change_config(folder, **changed)
    if fits:
        read_config(folder)
    else:
        with pytest.raises(CheckpointError, match=r"sliding_window .* is shorter than the context"):
            read_config(folder)


def test_a_window_can_be_stayed_inside_of(folder: Path) -> None:
    change_config(folder, **MISTRAL, sliding_window=16)
    refused(folder, "pass max_seq_len=16 to stay inside it")
    assert checkpoint.load(folder, max_seq_len=16).config.max_seq_len == 16
    refused(folder, "max_seq_len is 41; expected at most max_position_embeddings, 40", max_seq_len=41)


@pytest.mark.parametrize("length", [0, "a", 1.5, True])
def test_a_context_of_no_length(folder: Path, length: Any) -> None:
    refused(folder, f"max_seq_len is {length!r}; expected a whole number", max_seq_len=length)


# What published config.json files say, as far as it matters here; then the KiB that a token takes in elements
# of two bytes, and the number of parameters that the models are known to have.
SIZES = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "intermediate_size",
)
PUBLISHED: dict[str, tuple[tuple[int, ...], dict[str, Any], float, int]] = {
    "SmolLM2-135M": (
        (30, 9, 3, 576, 1536),
        {"vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000, "eos_token_id": 0}
        | {"tie_word_embeddings": True, "rope_interleaved": False, "rope_scaling": None},
        22.5,
        134_515_008,
    ),
    "Llama-3.1-8B": (
        (32, 32, 8, 4096, 14336),
        {"vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0}
        | {"rope_scaling": LLAMA31 | {"original_max_position_embeddings": 8192}, "pretraining_tp": 1}
        | {"eos_token_id": [128001, 128008, 128009], "attention_bias": False, "mlp_bias": False},
        128,
        8_030_261_248,
    ),
    "Mistral-7B-v0.3": (
        (32, 32, 8, 4096, 14336),
        MISTRAL | {"vocab_size": 32768, "max_position_embeddings": 32768, "sliding_window": None},
        128,
        7_248_023_552,
    ),
    "Qwen2.5-7B": (
        (28, 28, 4, 3584, 18944),
        QWEN2
        | {"vocab_size": 152064, "max_position_embeddings": 131072, "rope_theta": 1000000.0}
        | {"sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28},
        56,
        7_615_616_512,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs(name: str, tmp_path: Path) -> None:
    sizes, rest, kib, n_parameters = PUBLISHED[name]
    data = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5}
    data |= dict(zip(SIZES, sizes, strict=True)) | rest
    (tmp_path / "config.json").write_text(json.dumps(data))
    config = read_config(tmp_path)
    assert config.cache_nbytes_per_token(2) / 1024 == kib
    assert config.n_parameters == n_parameters
    assert config.qkv_bias == name.startswith("Qwen")
    assert config.tied == name.startswith("Smol")
    assert (config.rope_scaling is not None) == name.startswith("Llama")


@pytest.mark.parametrize("spelling", ["old", "older", "new"])
def test_rope_is_read_in_every_spelling(folder: Path, spelling: str) -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    llama3 |= {"original_max_position_embeddings": 16}
    if spelling == "new":
        together = llama3 | {"rope_type": "llama3", "rope_theta": 500.0}
        change_config(folder, rope_theta=..., rope_scaling=..., rope_parameters=together)
    else:
        key = "rope_type" if spelling == "old" else "type"
        change_config(folder, rope_theta=500.0, rope_scaling=llama3 | {key: "llama3"})
    config = read_config(folder)
    assert config.rope_theta == 500.0
    assert (
        config.rope_scaling
        == SCALING
        == Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=16)
    )


def test_saving_what_transformers_refuses(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="hidden_size 30 is no multiple of n_heads 7"):
        checkpoint.save(tiny(n_heads=7, n_kv_heads=1), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_saving_over_several_files(sharded: Path) -> None:
    before = {path.name: path.read_bytes() for path in sharded.iterdir()}
    with pytest.raises(CheckpointError, match="belongs to another checkpoint"):
        checkpoint.save(tiny(hidden_size=36), sharded)
    assert {path.name: path.read_bytes() for path in sharded.iterdir()} == before


def test_a_failed_save_leaves_the_old_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(weights: object, path: Path, metadata: object) -> None:
        path.write_bytes(b"half a fil")
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match="no space left"):
        checkpoint.save(tiny(seed=9, hidden_size=36), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_save_that_fails_between_two_files_leaves_the_old_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Two old files are put aside, two new ones are put in place: each of the four may fail."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    replace, calls = Path.replace, iter(range(1, 100))

    def fails_once(self: Path, target: Path) -> Path:
        if next(calls) == failing:
            raise OSError("the disk is gone")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_once)
    with pytest.raises(OSError, match="the disk is gone"):
        checkpoint.save(tiny(seed=9, hidden_size=36, rope_theta=77.0), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_first_save_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def fails(self: Path, target: Path) -> Path:
        if target.name == "config.json":
            raise OSError("the disk is gone")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        in_one_file(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_save_over_another_leaves_the_two_files_alone(folder: Path) -> None:
    model = tiny(seed=9, hidden_size=36, rope_theta=77.0)
    checkpoint.save(model, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", WEIGHTS]
    assert checkpoint.load(folder).config == model.config


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_saving_where_a_folder_has_the_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
    before = {path.name: path.is_file() and path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CheckpointError, match=f"{name} is a folder; expected a file or nothing"):
        checkpoint.save(tiny(seed=9, hidden_size=36), folder)
    assert {path.name: path.is_file() and path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_saving_what_load_would_refuse(tmp_path: Path, value: float) -> None:
    model = tiny(hidden_size=36)
    with torch.no_grad():
        model.norm.weight[3] = value
    with pytest.raises(CheckpointError, match=r"model.norm.weight holds NaN or infinity"):
        checkpoint.save(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_numpy_s_sizes_are_saved_as_numbers(tmp_path: Path) -> None:
    model = tiny(hidden_size=np.int64(36), n_layers=np.int64(2))
    checkpoint.save(model, tmp_path)
    assert checkpoint.load(tmp_path).config == model.config


def test_saved_files_are_as_open_as_any_other(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "any", folder / WEIGHTS, folder / "config.json")}
    assert len(modes) == 1, "safetensors lets the owner alone read what it writes"


def test_saved_files_say_what_they_are(folder: Path) -> None:
    with safe_open(folder / WEIGHTS, framework="pt") as opened:
        assert opened.metadata() == {"format": "pt"}


def name_of(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hub does: one folder is someone/tiny; all other names are unknown or gated."""

    folder: Path
    commit = "0123456789abcdef0123456789abcdef01234567"

    def do_GET(self) -> None:
        if "someone/tiny" not in self.path:
            gated = "gated" in self.path
            return self.answer(
                403 if gated else 404, {"X-Error-Code": "GatedRepo" if gated else "RepoNotFound"}
            )
        if self.path.startswith("/api/"):
            return self.answer(200, {"Content-Type": "application/json"}, json.dumps(self.about()).encode())
        body = (self.folder / self.path.rsplit("/", 1)[1]).read_bytes()
        tag = f'"{name_of(body)}"'
        return self.answer(200, {"ETag": tag, "X-Repo-Commit": self.commit}, body)

    def about(self) -> Any:
        """What the Hub tells of a repository, or of the files in it."""
        if "/tree/" not in self.path:
            return {"id": "someone/tiny", "sha": self.commit, "private": False, "tags": [], "siblings": []}
        files = [(path.name, path.read_bytes()) for path in sorted(self.folder.iterdir())]
        return [{"type": "file", "path": name, "size": len(x), "oid": name_of(x)} for name, x in files]

    do_HEAD = do_GET  # noqa: N815

    def answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A Hub's address; downloads go to a folder of this test."""
    Hub.folder = folder
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    point_at(address, tmp_path_factory.mktemp("hub"), monkeypatch)
    yield address
    server.shutdown()
    server.server_close()


def point_at(address: str, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    changed = {"ENDPOINT": address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(kept)}
    for name, value in changed.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)


def test_by_name_from_the_hub(hub: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    enable_progress_bars()  # notebook 08, run by another test here, switches them off
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    model = checkpoint.load("someone/tiny")
    assert model.config == tiny(hidden_size=36, eos_ids=(2,)).config
    kept = Path(huggingface_hub.constants.HF_HUB_CACHE)
    assert {path.name for path in kept.glob("*/snapshots/*/*")} == {"config.json", WEIGHTS}
    assert "100%" in capfd.readouterr().err  # a progress bar


def test_unknown_and_gated_names(hub: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"'someone/tyni' is no folder here.*the Hub knows no such name"
    ):
        checkpoint.load("someone/tyni")
    with pytest.raises(CheckpointError, match=r"'someone/gated' .*accept terms first"):
        checkpoint.load("someone/gated")


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", tmp_path, monkeypatch)
    with pytest.raises(
        CheckpointError, match=r"the Hub could not be read .*: check the network, or pass a folder"
    ):
        checkpoint.load("someone/tiny")


@pytest.mark.parametrize(
    "name", ["", "..", "../tiny", "a/b/c", "someone/", "/tiny", "some one/tiny", "-/tiny", "x" * 5000]
)
def test_names_that_are_none(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"there is no folder|is missing from|is no folder"):
        checkpoint.load(name)


@pytest.mark.parametrize("source", [None, 5, b"tiny"])
def test_a_source_that_is_no_name_and_no_path(source: Any) -> None:
    with pytest.raises(CheckpointError, match=r"the source is .*; expected a folder, or a Hub name"):
        checkpoint.load(source)
