"""Convert the config.json of a Hugging Face checkpoint to a `ModelConfig`, and back."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from helpers.model.config import (
    LatentConfig,
    Llama3Scaling,
    ModelConfig,
    NoPEConfig,
    QKNormConfig,
    StateConfig,
)
from helpers.model.load.files import CheckpointError, checkpoint_errors, read_json, unsupported_error
from helpers.validate import check_whole, is_number

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
ORIGINAL = "original_max_position_embeddings"  # of llama3 scaling
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "watch_it_decode": "StateTransformer",  # made by this project; no other program can load it
}
FULL, SLIDING, STATE = "full_attention", "sliding_attention", "linear_attention"  # in layer_types
SIZES = {  # the field of `ModelConfig` for each key of config.json
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
CLASSES: dict[str, tuple[type[ModelConfig], dict[str, str]]] = {
    "qwen3": (QKNormConfig, SIZES),
    "smollm3": (NoPEConfig, SIZES),
    "deepseek_v3": (LatentConfig, LATENT_SIZES),
    "watch_it_decode": (StateConfig, SIZES),
}
# The lowest and highest accepted value of some keys; no model was trained with values outside these ranges.
RANGES = {"rope_theta": (10, 1e12), "rms_norm_eps": (1e-12, 0.01)}
# The defaults of `transformers` for missing keys: first those of all families, then those of each family.
COMMON = {"rope_theta": 10_000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "eos_token_id": None}
COMMON |= {"use_sliding_window": False, "sliding_window": None}
LLAMA = {"eos_token_id": 2}
QWEN = {"sliding_window": 4096, "max_window_layers": 28}
SMOLLM3: dict[str, Any] = {"rope_theta": 2e6, "tie_word_embeddings": True, "eos_token_id": 128001}
SMOLLM3 |= {"no_rope_layers": None, "no_rope_layer_interval": 4}
DEEPSEEK = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
DEEPSEEK |= {"v_head_dim": 128, "first_k_dense_replace": 3, "rope_interleave": True, "eos_token_id": 1}
DEFAULTS: dict[str, dict[str, Any]] = {
    family: COMMON | dict(zip(SIZES, sizes, strict=True)) | more
    for family, sizes, more in (
        ("llama", (32, 32, None, None, 4096, 11008, 32000, 2048), LLAMA),
        ("mistral", (32, 32, 8, None, 4096, 14336, 32000, 2**17), LLAMA | {"sliding_window": 4096}),
        ("qwen2", (32, 32, 32, None, 4096, 22016, 151936, 2**15), QWEN),
        ("qwen3", (32, 32, 32, 128, 4096, 22016, 151936, 2**15), QWEN),
        ("smollm3", (36, 16, 4, None, 2048, 11008, 128256, 2**15), SMOLLM3),
        ("deepseek_v3", (61, 128, 128, None, 7168, 18432, 129280, 4096), DEEPSEEK),
        ("watch_it_decode", [None] * 8, {"rope_theta": None, "rms_norm_eps": None}),
    )
}
# Keys that can change the model's computation, and the values with which they do not.
NEUTRAL: dict[str, tuple[Any, ...]] = {
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
# Keys that only unsupported models have, and the feature that each key shows.
FEATURES = dict.fromkeys(["num_local_experts", "num_experts", "n_routed_experts"], "experts")
FEATURES |= dict.fromkeys(["attn_logit_softcapping", "final_logit_softcapping"], "soft caps")
FEATURES |= dict.fromkeys(["quantization_config", "compression_config"], "quantised weights")
FEATURES |= {"mrope_section": "mRoPE"}


def read_config(folder: str | Path, max_seq_len: int | None = None) -> ModelConfig:
    """Return the config of a checkpoint, from config.json.

    The tokens that end a reply are read from generation_config.json if that file names any.

    Args:
        folder: folder of the checkpoint.
        max_seq_len: as in `load`.

    Raises:
        CheckpointError: one of the two files is missing or damaged, or the model is not supported.
    """
    path, generation = Path(folder) / CONFIG_FILE, Path(folder) / GENERATION_FILE
    check_config_exists(path)
    with checkpoint_errors(path):
        config = config_from_json(read_json(path), max_seq_len)
    with checkpoint_errors(generation):
        eos_ids = read_eos_ids(read_json(generation)) if generation.exists() else ()
        return replace(config, eos_ids=eos_ids) if eos_ids else config


def check_config_exists(path: Path) -> None:
    """Raise CheckpointError if config.json does not exist; the message names what the folder has instead.

    Args:
        path: path of config.json.
    """
    if path.exists():
        return
    folder, files = path.parent, sorted(path.parent.glob("*.gguf"))
    if files:
        instead = f"but {len(files)} GGUF files: name one, such as {str(files[0])!r}"
    elif (folder / "params.json").exists():
        instead = "but params.json, Mistral's or Meta's own format: fetch the model's other files, too"
    else:
        instead = "expected the files of a Hugging Face checkpoint, or the path of a .gguf file"
    raise CheckpointError(f"{folder} holds no {CONFIG_FILE}; {instead}")


def config_from_json(data: dict[str, Any], max_seq_len: int | None = None) -> ModelConfig:
    """Return the config that the content of config.json describes.

    A missing config key gets the default that `transformers` has for the model's class.

    Args:
        data: content of config.json.
        max_seq_len: as in `load`.

    Raises:
        ValueError: the value of a config key is invalid, or the computation that it requires is not
            supported.
    """
    refuse_unsupported(data)
    family = data["model_type"]
    data = DEFAULTS[family] | data
    heads, C = read_size(data, "num_attention_heads"), read_size(data, "hidden_size")
    implied = {"num_key_value_heads": heads, "head_dim": C // heads}  # used if the key or its default is null
    if family == "deepseek_v3":
        implied["head_dim"] = read_size(data, "qk_rope_head_dim")
    data |= {key: value for key, value in implied.items() if data[key] is None}
    config_class, keys = CLASSES.get(family, (ModelConfig, SIZES))
    sizes = {ours: read_size(data, theirs) for theirs, ours in keys.items()}
    sizes["max_seq_len"] = max_context(sizes["max_seq_len"], sliding_window_of(data), max_seq_len)
    rope, more = read_rope(data), dict[str, Any]()
    scaling: Any = {key: rope.get(key) for key in ("factor", "low_freq_factor", "high_freq_factor")}
    scaling["original_max_seq_len"] = rope.get(ORIGINAL)
    if family == "watch_it_decode":
        layers = enumerate(data["layer_types"])
        more["state_layers"] = tuple(layer for layer, layer_type in layers if layer_type == STATE)
    if family == "smollm3":
        interval, n_layers = read_size(data, "no_rope_layer_interval"), sizes["n_layers"]
        rotated = data["no_rope_layers"]  # for each layer, 1 if it rotates and 0 if not
        if rotated is None:
            rotated = [(layer + 1) % interval for layer in range(n_layers)]
        more["nope_layers"] = tuple(layer for layer in range(n_layers) if not rotated[layer])
    config = config_class(
        **sizes,
        **more,
        rope_theta=checked_range("rope_theta", rope["rope_theta"]),
        rope_scaling=Llama3Scaling(**scaling) if rope["rope_type"] == "llama3" else None,
        norm_eps=checked_range("rms_norm_eps", data["rms_norm_eps"]),
        tied=data["tie_word_embeddings"],
        qkv_bias=family == "qwen2",
        eos_ids=read_eos_ids(data),
    )
    fixed = required_values(config) if isinstance(config, LatentConfig) else {}
    if wrong := {key: data[key] for key in fixed if data[key] != fixed[key]}:
        raise unsupported_error(
            f"{wrong} is not supported; expected {fixed}: no mixture of experts, queries not compressed, "
            "values as wide as keys, RoPE's pairs as in Llama"
        )
    return config


def config_to_json(config: ModelConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return the content of config.json for a model with this config and weights of this dtype."""
    families, rope = {config_class: family for family, (config_class, _) in CLASSES.items()}, None
    more, layers = dict[str, Any](), range(config.n_layers)
    family = families.get(type(config), "qwen2" if config.qkv_bias else "llama")
    _, keys = CLASSES.get(family, (ModelConfig, SIZES))
    if config.rope_scaling is not None:
        rope = {"rope_type": "llama3"} | vars(config.rope_scaling)
        rope[ORIGINAL] = rope.pop("original_max_seq_len")
    if isinstance(config, LatentConfig):
        more = required_values(config)
    if isinstance(config, StateConfig):
        more["layer_types"] = [STATE if layer in config.state_layers else FULL for layer in layers]
    if isinstance(config, NoPEConfig):
        more["no_rope_layers"] = [int(layer not in config.nope_layers) for layer in layers]
    return {
        "architectures": [ARCHITECTURES[family]],
        "model_type": family,
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


def required_values(config: LatentConfig) -> dict[str, Any]:
    """Return the values, by config key, with which this package can run a DeepSeek-V3 checkpoint."""
    return {
        "first_k_dense_replace": config.n_layers,  # no layer has experts
        "q_lora_rank": None,  # queries are not compressed
        "rope_interleave": False,  # pairs as in Llama
        "v_head_dim": config.head_dim,
        "num_key_value_heads": config.n_heads,
        "head_dim": config.rope_dim,
    }


def read_size(data: dict[str, Any], key: str) -> int:
    """Return the value of a key in config.json. Raise ValueError unless it is a whole number over 0."""
    return check_whole(key, data[key])


def checked_range(key: str, value: Any) -> float:
    """Return the value of a config key. Raise ValueError if it is outside the key's range in `RANGES`."""
    low, high = RANGES[key]
    if not is_number(value) or not low <= value <= high:
        got = reprlib.repr(value)
        raise ValueError(f"{key} is {got}; expected {low:g} to {high:g}: fetch the file again or correct it")
    return value


def read_eos_ids(data: dict[str, Any]) -> tuple[int, ...]:
    """Return the ids of the tokens that end a reply, from the content of a config file.

    The file may have a single id, a list of ids, or no such key.
    """
    eos = data.get("eos_token_id")
    return tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,)


def read_rope(data: dict[str, Any]) -> dict[str, Any]:
    """Return the RoPE settings, by config key: rope_theta, rope_type, and the settings of the scaling.

    Old config files have the keys rope_theta and rope_scaling, new ones have rope_parameters. If a file has
    all of them, the same values are used as in `transformers`.

    Raises:
        ValueError: the scaling type is not supported.
    """
    key = "rope_scaling" if data.get("rope_scaling") else "rope_parameters"
    given = data.get(key) or {}
    rope = {"rope_type": given.get("type", "default"), "rope_theta": data["rope_theta"]} | given
    if rope["rope_type"] == "linear" and rope.get("factor") == 1:
        rope["rope_type"] = "default"
    if rope["rope_type"] not in ("default", "llama3"):
        raise unsupported_error(
            f"rope type {rope['rope_type']!r} is not supported; expected default or llama3"
        )
    refuse_unsupported_values(given)
    return rope | {key: data[key] for key in (ORIGINAL,) if key in data}


def refuse_unsupported(data: dict[str, Any]) -> None:
    """Raise ValueError if the model has a feature that is not supported; the message names the feature."""
    family, architectures = data.get("model_type"), data.get("architectures") or []
    if not isinstance(family, str) or family not in ARCHITECTURES:
        because = ", ".join(f"{name} ({key})" for name, key in unsupported_features(data).items())
        got = f"model_type {family!r}" + (because and f" with {because}")
        raise unsupported_error(f"{got} is not supported; expected one of {', '.join(ARCHITECTURES)}")
    if any(name != ARCHITECTURES[family] for name in architectures):
        expected = ARCHITECTURES[family]
        raise unsupported_error(f"architectures {architectures!r} are not supported; expected {expected!r}")
    types = {*(data.get("layer_types") or [])} - ({STATE} if family == "watch_it_decode" else set())
    if types - {FULL, SLIDING}:
        raise unsupported_error(f"layer_types {sorted(types)} are not supported; expected {FULL}")
    refuse_unsupported_values(data)


def refuse_unsupported_values(data: dict[str, Any]) -> None:
    """Raise ValueError if a config key has a value that requires an unsupported computation."""
    for key in NEUTRAL.keys() & data.keys():
        if data[key] not in NEUTRAL[key]:
            got = f"{key} {reprlib.repr(data[key])}"
            raise unsupported_error(f"{got} is not supported; expected {NEUTRAL[key][0]!r}")


def unsupported_features(data: dict[str, Any]) -> dict[str, str]:
    """Return the unsupported features of a model, by name, each with the config key and value that show it.

    Nested dictionaries are searched too.

    Args:
        data: content of config.json.
    """
    found: dict[str, str] = {}
    for key, value in data.items():
        if key in FEATURES and value:
            found[FEATURES[key]] = f"{key} {reprlib.repr(value)}"
        elif isinstance(value, dict):
            found |= unsupported_features(value)
    return found


def sliding_window_of(data: dict[str, Any]) -> int | None:
    """Return the length of the sliding window, in tokens, or None if no layer has a window.

    The result is the same as in `transformers`: a Llama or a DeepSeek-V3 never has windows, even if its
    config.json has the key.
    """
    family, types = data["model_type"], data.get("layer_types")
    windows = family in ("qwen2", "qwen3", "smollm3") and data["use_sliding_window"]
    if windows and types is not None:
        windows = SLIDING in types
    elif windows and family != "smollm3":
        windows = data["num_hidden_layers"] > data["max_window_layers"]
    if data["sliding_window"] is None or not (windows or family == "mistral"):
        return None
    return read_size(data, "sliding_window")


def max_context(checkpoint_max: int, window: int | None, requested: int | None) -> int:
    """Return the maximum sequence length, in tokens.

    Args:
        checkpoint_max: maximum sequence length in the checkpoint's config.
        window: length of the sliding window; None without a window.
        requested: maximum sequence length that the caller asks for; None uses `checkpoint_max`.

    Raises:
        ValueError: the result would exceed `checkpoint_max` or the sliding window.
    """
    length = checkpoint_max if requested is None else check_whole("max_seq_len", requested)
    if length > checkpoint_max:
        raise ValueError(
            f"max_seq_len is {length}; expected at most max_position_embeddings, {checkpoint_max}"
        )
    if window is not None and window < length:
        raise ValueError(
            f"sliding_window {window} is shorter than the context {length}, which is not "
            f"supported; pass max_seq_len={window} to stay inside it"
        )
    return length
