"""config.json of Hugging Face checkpoints: read into a `ModelConfig`, written from one."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from helpers.arguments import check_whole, is_number
from helpers.model.config import (
    LatentConfig,
    Llama3Scaling,
    ModelConfig,
    NoPEConfig,
    QKNormConfig,
    StateConfig,
)
from helpers.model.load.files import read_json, reading, unsupported

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
ORIGINAL = "original_max_position_embeddings"  # of llama3 scaling
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "watch_it_decode": "StateTransformer",  # of this project: no other opens it
}
ROWS, STATE = "full_attention", "linear_attention"  # what layer_types calls a layer
SIZES = {  # a key of config.json, and our name for it
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "head_dim": "head_dim",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_seq_len",
}
LATENT_SIZES = {key: name for key, name in SIZES.items() if name not in ("n_kv_heads", "head_dim")}
LATENT_SIZES |= {"kv_lora_rank": "rank", "qk_rope_head_dim": "rope_dim", "qk_nope_head_dim": "head_dim"}
KINDS: dict[str, tuple[type[ModelConfig], dict[str, str]]] = {
    "qwen3": (QKNormConfig, SIZES),
    "smollm3": (NoPEConfig, SIZES),
    "deepseek_v3": (LatentConfig, LATENT_SIZES),
    "watch_it_decode": (StateConfig, SIZES),
}
# The lowest and highest value of a key without a usual one: outside of them no model was trained.
RANGES = {"rope_theta": (10, 1e12), "rms_norm_eps": (1e-12, 0.01)}
# What `transformers` takes for a key that is missing; sizes and what has a range must be in the file.
DEFAULTS: dict[str, Any] = dict.fromkeys([*SIZES, *LATENT_SIZES]) | {
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": None,
}
DEFAULTS_OF: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "qwen2": {"sliding_window": 4096},
    "qwen3": {"sliding_window": 4096, "head_dim": 128},
    "smollm3": {"tie_word_embeddings": True},
}
# Keys that make another function of the model, and the values with which they do not.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "is_causal": (True,),
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1.0, None),
    "mscale_all_dim": (0, None),
    "quantization_config": (None,),
    "compression_config": (None,),
    "per_layer_config": (None,),
}
# Keys of models that are not opened, and what such a model has.
REASONS = dict.fromkeys(["num_local_experts", "num_experts", "n_routed_experts"], "experts")
REASONS |= dict.fromkeys(["attn_logit_softcapping", "final_logit_softcapping"], "soft caps")
REASONS |= dict.fromkeys(["quantization_config", "compression_config"], "quantised weights")
REASONS |= {"mrope_section": "mRoPE"}


def read_config(folder: str | Path, max_seq_len: int | None = None) -> ModelConfig:
    """Read config.json, and what generation_config.json says of ends; arguments and errors as in `load`."""
    path, ends = Path(folder) / CONFIG_FILE, Path(folder) / GENERATION_FILE
    with reading(path):
        config = config_from_json(read_json(path), max_seq_len)
    with reading(ends):
        message = eos_of(read_json(ends)) if ends.exists() else ()
        return replace(config, eos_ids=message) if message else config


def config_from_json(data: dict[str, Any], max_seq_len: int | None = None) -> ModelConfig:
    """Translate the keys of config.json; ValueError if one is wrong, or makes another function."""
    refuse_unsupported(data)
    kind = data["model_type"]
    data = DEFAULTS | DEFAULTS_OF.get(kind, {}) | data
    heads, C = size(data, "num_attention_heads"), size(data, "hidden_size")
    implied = {"num_key_value_heads": heads, "head_dim": C // heads}  # where there is null
    kind_of_config, keys = KINDS.get(kind, (ModelConfig, SIZES))
    sizes = {ours: size(data, theirs, implied.get(theirs)) for theirs, ours in keys.items()}
    sizes["max_seq_len"] = context(sizes["max_seq_len"], window_of(data), max_seq_len)
    rope, kept = rope_of(data), dict[str, Any]()
    scaling: Any = {key: rope.get(key) for key in ("factor", "low_freq_factor", "high_freq_factor")}
    scaling["original_max_seq_len"] = rope.get(ORIGINAL)
    if kind == "watch_it_decode":
        kinds = enumerate(data["layer_types"])
        kept["state_layers"] = tuple(layer for layer, kind in kinds if kind == STATE)
    if kind == "smollm3":
        turning = [data["no_rope_layers"][layer] for layer in range(sizes["n_layers"])]  # 1 where it rotates
        kept["nope_layers"] = tuple(layer for layer, turns in enumerate(turning) if not turns)
    config = kind_of_config(
        **sizes,
        **kept,
        rope_theta=in_range("rope_theta", rope["rope_theta"]),
        rope_scaling=Llama3Scaling(**scaling) if rope["rope_type"] == "llama3" else None,
        norm_eps=in_range("rms_norm_eps", data.get("rms_norm_eps")),
        tied=data["tie_word_embeddings"],
        qkv_bias=kind == "qwen2",
        eos_ids=eos_of(data),
    )
    fixed = fixed_by(config) if isinstance(config, LatentConfig) else {}
    if wrong := {key: data.get(key, "missing") for key in fixed if data.get(key, "missing") != fixed[key]}:
        raise unsupported(
            f"{wrong} is not supported; expected {fixed}: no mixture of experts, queries not compressed, "
            "values as wide as keys, RoPE's pairs as in Llama"
        )
    return config


def config_to_json(config: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return config.json for a model."""
    kinds, rope = {of: kind for kind, (of, _) in KINDS.items()}, None
    more, layers = dict[str, Any](), range(config.n_layers)
    kind = kinds.get(type(config), "qwen2" if config.qkv_bias else "llama")
    _, keys = KINDS.get(kind, (ModelConfig, SIZES))
    if config.rope_scaling is not None:
        rope = {"rope_type": "llama3"} | vars(config.rope_scaling)
        rope[ORIGINAL] = rope.pop("original_max_seq_len")
    if isinstance(config, LatentConfig):
        more = fixed_by(config)
    if isinstance(config, StateConfig):
        more["layer_types"] = [STATE if layer in config.state_layers else ROWS for layer in layers]
    if isinstance(config, NoPEConfig):
        more["no_rope_layers"] = [int(layer not in config.nope_layers) for layer in layers]
    return {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        **{theirs: getattr(config, ours) for theirs, ours in keys.items()},
        **more,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "pad_token_id": None,
        "eos_token_id": list(config.eos_ids) or None,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }


def fixed_by(config: LatentConfig) -> dict[str, Any]:
    """Return the keys with which a DeepSeek-V3 of these sizes is the function of ours, and no other."""
    return {
        "first_k_dense_replace": config.n_layers,  # no experts in any
        "q_lora_rank": None,  # queries are not compressed
        "rope_interleave": False,  # pairs as in Llama
        "v_head_dim": config.head_dim,
        "num_key_value_heads": config.n_heads,
        "head_dim": config.rope_dim,
    }


def size(data: dict[str, Any], key: str, default: int | None = None) -> int:
    """Return a whole number over 0 of config.json; `default` in place of null."""
    return check_whole(key, default if data[key] is None else data[key])


def in_range(key: str, value: Any) -> float:
    """Return the value of a key; ValueError where it is missing, or no model was trained with it."""
    low, high = RANGES[key]
    if not is_number(value) or not low <= value <= high:
        got = "missing" if value is None else reprlib.repr(value)
        raise ValueError(f"{key} is {got}; expected {low:g} to {high:g}: fetch the file again or correct it")
    return value


def eos_of(data: dict[str, Any]) -> tuple[int, ...]:
    """Return the tokens that end a reply: one, a list or none."""
    eos = data.get("eos_token_id")
    return tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)


def rope_of(data: dict[str, Any]) -> dict[str, Any]:
    """Return theta and scaling of RoPE, which files spell differently; where two disagree, as `transformers`.

    Old files have rope_theta and rope_scaling, new ones rope_parameters.
    """
    key = "rope_scaling" if data.get("rope_scaling") else "rope_parameters"
    given = data.get(key) or {}
    rope = {"rope_type": given.get("type", "default"), "rope_theta": data.get("rope_theta")} | given
    if rope["rope_type"] not in ("default", "llama3"):
        raise unsupported(f"rope type {rope['rope_type']!r} is not supported; expected default or llama3")
    refuse_other(given)
    return rope | {key: data[key] for key in (ORIGINAL,) if key in data}


def refuse_unsupported(data: dict[str, Any]) -> None:
    """Raise ValueError, and name it, where the model would be another function than ours."""
    kind, message = data.get("model_type"), data.get("architectures") or []
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        because = ", ".join(f"{reason} ({key})" for reason, key in reasons(data).items())
        got = f"model_type {kind!r}" + (because and f" with {because}")
        raise unsupported(f"{got} is not supported; expected one of {', '.join(ARCHITECTURES)}")
    if any(name != ARCHITECTURES[kind] for name in message):
        raise unsupported(f"architectures {message!r} are not supported; expected {ARCHITECTURES[kind]!r}")
    kinds = {*(data.get("layer_types") or [])} - ({STATE} if kind == "watch_it_decode" else set())
    if kinds - {ROWS, "sliding_attention"}:
        raise unsupported(f"layer_types {sorted(kinds)} are not supported; expected {ROWS}")
    refuse_other(data)


def refuse_other(data: dict[str, Any]) -> None:
    """Raise ValueError for a key that makes another function of the model."""
    for key in HARMLESS.keys() & data.keys():
        if data[key] not in HARMLESS[key]:
            got = f"{key} {reprlib.repr(data[key])}"
            raise unsupported(f"{got} is not supported; expected {HARMLESS[key][0]!r}")


def reasons(data: dict[str, Any]) -> dict[str, str]:
    """Return what a model has and ours has not, each with the key, however deep, that says so."""
    found: dict[str, str] = {}
    for key, value in data.items():
        if key in REASONS and value:
            found[REASONS[key]] = f"{key} {reprlib.repr(value)}"
        elif isinstance(value, dict):
            found |= reasons(value)
    return found


def window_of(data: dict[str, Any]) -> int | None:
    """Return how many tokens a layer with a sliding window sees; None where no layer is said to have one."""
    if data["model_type"] != "mistral" and not data["use_sliding_window"]:
        return None
    return None if data["sliding_window"] is None else size(data, "sliding_window")


def context(longest: int, window: int | None, wanted: int | None) -> int:
    """Return how long a sequence may be; ValueError if that is over the longest, or over a sliding window."""
    length = longest if wanted is None else check_whole("max_seq_len", wanted)
    if length > longest:
        raise ValueError(f"max_seq_len is {length}; expected at most max_position_embeddings, {longest}")
    if window is not None and window < length:
        raise ValueError(
            f"sliding_window {window} is shorter than the context {length}, which is not "
            f"supported; pass max_seq_len={window} to stay inside it"
        )
    return length
