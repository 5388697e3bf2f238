"""Write a model to a GGUF file, as llama.cpp's converter does. Tests and llama.cpp read these files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from helpers.model.config import ModelConfig, NoPEConfig, QKNormConfig
from helpers.model.transformer import Transformer

NAMES = {
    "embed_tokens": "token_embd",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "o_proj": "attn_output",
} | {f"{x}_proj": f"attn_{x}" for x in "qkv"}
NAMES |= {f"{x}_norm": f"attn_{x}_norm" for x in "qk"}
ARCHITECTURES = {
    QKNormConfig: "qwen3",
    NoPEConfig: "smollm3",
}  # of the last, each fourth layer is a NoPE layer

KEYS = {
    "block_count": "n_layers",
    "context_length": "max_seq_len",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "n_heads",
    "attention.head_count_kv": "n_kv_heads",
    "attention.layer_norm_rms_epsilon": "norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
} | dict.fromkeys(["attention.key_length", "attention.value_length", "rope.dimension_count"], "head_dim")


def name_in_gguf(name: str) -> str:
    """Return the name that a tensor of this project's models has in a GGUF file."""
    if name == "norm.weight":
        return "output_norm.weight"
    parts = [part for part in name.split(".") if part not in ("self_attn", "mlp")]
    parts = [NAMES.get(part, part.replace("layers", "blk")) for part in parts]
    return ".".join(f"ffn_{x.removesuffix('_proj')}" if x.endswith("_proj") else x for x in parts)


def in_pairs(weight: np.ndarray, n_heads: int) -> np.ndarray:
    """Permute the rows of a query or key projection as llama.cpp's converter does for Llama and SmolLM3.

    After the permutation, the two channels that RoPE rotates together are adjacent.
    """
    split = weight.reshape(n_heads, 2, len(weight) // n_heads // 2, *weight.shape[1:])
    return split.swapaxes(1, 2).reshape(weight.shape)


def write(
    path: Path,
    model: Transformer,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, Any] | None = None,
) -> Path:
    """Write a model to a GGUF file as llama.cpp's converter does, and return the path.

    Args:
        path: the file to write.
        model: the model.
        kind: the quantization type of the matrices.
        metadata: values that replace the file's metadata or are added to it. `...` removes a value.
        tensors: tensors that replace those of the model or are added to them. Each is an array, or a pair of
            raw bytes and their quantization type. None removes a tensor.
    """
    config: ModelConfig = model.config
    arch = ARCHITECTURES.get(type(config), "qwen2" if config.qkv_bias else "llama")
    stored: dict[str, Any] = {name_in_gguf(k): x.numpy() for k, x in model.state_dict().items()}
    if config.tied:
        del stored["output.weight"]
    for name, weight in stored.items():
        if arch in ("llama", "smollm3") and re.search(r"attn_[qk]\.", name):
            n_heads = config.n_heads if "attn_q" in name else config.n_kv_heads
            stored[name] = in_pairs(weight, n_heads)
    writer = GGUFWriter(path, arch)
    writer.data_alignment = (metadata or {}).get("general.alignment", 32)
    known: dict[str, Any] = {f"{arch}.{key}": getattr(config, name) for key, name in KEYS.items()}
    known |= metadata or {}
    for key, value in known.items():
        if value is not ...:
            add: dict[type, Any] = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
            add |= {str: writer.add_string, list: writer.add_array, np.int32: writer.add_int32}
            add[type(value)](key, value)
    for name, weight in (stored | (tensors or {})).items():
        if isinstance(weight, tuple):
            writer.add_tensor(name, weight[0], raw_dtype=weight[1])
        elif weight is not None:
            quantised = weight.ndim == 2 and weight.dtype == np.float32
            raw = gguf.quantize(weight, kind) if quantised else weight
            writer.add_tensor(name, raw, raw_dtype=kind if quantised else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
