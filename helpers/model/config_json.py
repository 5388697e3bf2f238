"""config.json of Hugging Face checkpoints: read into a `ModelConfig`, written from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from helpers.arguments import check_whole, is_whole
from helpers.model.config import Llama3Scaling, ModelConfig, check_positive

CONFIG = "config.json"
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


class CheckpointError(ValueError):
    """A checkpoint that is damaged, incomplete, or of a kind that this model cannot run right."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing from {path.parent}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}; expected a JSON object")
    return data


def read_config(folder: str | Path, max_seq_len: int | None = None) -> ModelConfig:
    """Read config.json; arguments and errors as in `load`."""
    path = Path(folder) / CONFIG
    data = read_json(path)
    try:
        refuse_unsupported(data)
        config = config_from_json(data, max_seq_len)
        refuse_window(data, config)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return config


def config_from_json(data: dict[str, Any], max_seq_len: int | None = None) -> ModelConfig:
    """Translate the keys of config.json; ValueError if one is missing or wrong."""
    n_heads, C = whole(data, "num_attention_heads"), whole(data, "hidden_size")
    if data.get("head_dim") is None and C % n_heads:
        raise ValueError(
            f"hidden_size {C} is no multiple of num_attention_heads {n_heads}; expected a head_dim"
        )
    longest = whole(data, "max_position_embeddings")
    max_seq_len = longest if max_seq_len is None else max_seq_len
    check_whole("max_seq_len", max_seq_len)
    if max_seq_len > longest:
        raise ValueError(f"max_seq_len is {max_seq_len}; expected at most max_position_embeddings, {longest}")
    llama = data["model_type"] == "llama"
    rope, norm_eps = rope_of(data), data.get("rms_norm_eps", 1e-6)
    check_positive("rms_norm_eps", norm_eps)
    return ModelConfig(
        n_layers=whole(data, "num_hidden_layers"),
        n_heads=n_heads,
        n_kv_heads=whole(data, "num_key_value_heads", n_heads if llama else None),
        head_dim=whole(data, "head_dim", C // n_heads),
        hidden_size=C,
        intermediate_size=whole(data, "intermediate_size"),
        vocab_size=whole(data, "vocab_size"),
        max_seq_len=max_seq_len,
        rope_theta=rope["rope_theta"],
        rope_scaling=scaling_of(rope),
        norm_eps=norm_eps,
        tied=flag(data, "tie_word_embeddings"),
        qkv_bias=data["model_type"] == "qwen2",
        eos_ids=eos_of(data.get("eos_token_id")),
    )


def config_to_json(config: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return config.json for a model; errors as in `save`."""
    if config.hidden_size % config.n_heads:
        raise CheckpointError(
            f"hidden_size {config.hidden_size} is no multiple of n_heads {config.n_heads}; "
            "expected one: transformers refuses such a Llama"
        )
    kind, scaling = "qwen2" if config.qkv_bias else "llama", config.rope_scaling
    return {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_seq_len,
        "rope_theta": config.rope_theta,
        "rope_scaling": None if scaling is None else scaling_to_json(scaling),
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "eos_token_id": list(config.eos_ids) or None,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }


def scaling_to_json(scaling: Llama3Scaling) -> dict[str, Any]:
    """Return rope_scaling as config.json spells it."""
    known = {name: value for name, value in vars(scaling).items() if name != "original_max_seq_len"}
    return {
        "rope_type": "llama3",
        **known,
        "original_max_position_embeddings": scaling.original_max_seq_len,
    }


def whole(data: dict[str, Any], key: str, default: int | None = None) -> int:
    """Return a whole number over 0 of config.json; ValueError if it is missing or something else."""
    value = default if data.get(key) is None else data[key]
    if value is None:
        raise ValueError(f"{key} is missing")
    return check_whole(key, value)


def flag(data: dict[str, Any], key: str) -> bool:
    """Return a yes or no of config.json, no where it is missing."""
    value = data.get(key)
    if not isinstance(value, bool | None):
        raise ValueError(f"{key} is {value!r}; expected true or false")
    return bool(value)


def eos_of(value: object) -> tuple[int, ...]:
    """Return the ids that end a reply: config.json has one, a list of them, or null."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        if not is_whole(token):
            raise ValueError(f"eos_token_id is {value!r}; expected a whole number or a list of them")
    return tuple(ids)


def rope_of(data: dict[str, Any]) -> dict[str, Any]:
    """Return theta and scaling of RoPE, which old and new files spell differently."""
    found: dict[str, Any] = {"rope_theta": data.get("rope_theta", 10_000.0), "rope_type": "default"}
    for key in ("rope_scaling", "rope_parameters"):
        given = data.get(key)
        if given is None:
            continue
        if not isinstance(given, dict):
            raise ValueError(f"{key} is {given!r}; expected an object or null")
        if nested := [name for name, value in given.items() if isinstance(value, dict)]:
            raise ValueError(f"{key} differs by kind of layer ({nested[0]}), which is not supported")
        found |= ({"rope_type": given["type"]} if "type" in given else {}) | given
    if found["rope_type"] not in ("default", "llama3"):
        raise ValueError(f"rope type {found['rope_type']!r} is not supported; expected default or llama3")
    share = found.get("partial_rotary_factor", data.get("partial_rotary_factor", 1.0))
    if share != 1.0:
        raise ValueError(f"partial_rotary_factor {share} is not supported; expected 1.0")
    return found


def scaling_of(rope: dict[str, Any]) -> Llama3Scaling | None:
    """Return llama3 scaling, or None for plain RoPE."""
    if rope["rope_type"] == "default":
        return None
    theirs = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    for key in theirs:
        if key not in rope:
            raise ValueError(f"{key} of rope type llama3 is missing")
        check_positive(key, rope[key])
    return Llama3Scaling(**{key: rope[key] for key in theirs[:3]}, original_max_seq_len=rope[theirs[3]])


def refuse_unsupported(data: dict[str, Any]) -> None:
    """Raise ValueError, and name it, where the model would be another function than ours."""
    kind, told = data.get("model_type"), data.get("architectures") or []
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise ValueError(f"model_type {kind!r} is not supported; expected one of {', '.join(ARCHITECTURES)}")
    if not isinstance(told, list) or any(name != ARCHITECTURES[kind] for name in told):
        raise ValueError(f"architectures {told!r} are not supported; expected {ARCHITECTURES[kind]!r}")
    if data.get("quantization_config") is not None:
        raise ValueError("quantization_config: quantized weights are not supported; expected plain ones")
    if data.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act {data['hidden_act']!r} is not supported; expected 'silu'")
    for key in ("attention_bias", "mlp_bias", "rope_interleaved"):
        if flag(data, key):
            raise ValueError(f"{key} true is not supported; expected false")


def refuse_window(data: dict[str, Any], config: ModelConfig) -> None:
    """Raise ValueError where a layer sees less than the whole context: a sliding window."""
    kind, window = data["model_type"], data.get("sliding_window")
    if kind == "mistral" and "sliding_window" not in data:
        window = 4096  # what transformers takes for a Mistral that does not say
    elif kind == "qwen2" and not flag(data, "use_sliding_window"):
        window = None
    if kind == "llama" or window is None:
        return
    if whole({"sliding_window": window}, "sliding_window") < config.max_seq_len:
        raise ValueError(
            f"sliding_window {window} is shorter than the context {config.max_seq_len}, which is not "
            f"supported; pass max_seq_len={window} to stay inside it"
        )
