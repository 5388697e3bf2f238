"""GGUF files, as llama.cpp, Ollama and LM Studio have them: metadata, and weights of 2 to 32 bits."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, quants
from torch import Tensor

from helpers.arguments import check_whole
from helpers.model.attention import rope_frequencies
from helpers.model.config import Llama3Scaling, ModelConfig
from helpers.model.load.config import context
from helpers.model.load.files import CheckpointError, check_file, reading
from helpers.model.load.weights import converted

# Each part of a tensor's name, and the model's name for it: blk.0.attn_q.weight is layers.0.self_attn.q_proj.
PARTS = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "blk": "layers",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Keys that make another function of the model, and the value with which they do not.
HARMLESS = {
    "rope.scaling.type": "none",
    "rope.scaling.factor": 1.0,
    "rope.scale_linear": 1.0,
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
}
# Keys that are read, or say nothing about the numbers.
READ = "block_count attention.head_count attention.head_count_kv attention.key_length attention.value_length "
READ += "attention.sliding_window attention.layer_norm_rms_epsilon embedding_length feed_forward_length "
READ += "context_length rope.dimension_count rope.freq_base vocab_size tensor_data_layout"
ENDS = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]  # any of them ends a reply
ROPE_FACTORS = "rope_freqs.weight"


class Reader(GGUFReader):
    """The library's, three times as fast: a slice of a plain array costs less than one of a mapped file."""

    def _get(self, *given: Any, **named: Any) -> Any:
        if isinstance(self.data, np.memmap):
            self.data = self.data.view(np.ndarray)  # type: ignore[assignment]
        return super()._get(*given, **named)


class Gguf:
    """An open file: its metadata by key, its tensors as they are stored."""

    def __init__(self, path: Path) -> None:
        with reading(path, " is no GGUF file, damaged or cut off"):
            reader = Reader(path)
            self.metadata = {key: field.contents() for key, field in reader.fields.items()}
        if reader.byte_order == "S":
            raise CheckpointError(f"{path} has the bytes of its numbers in the other order, not supported")
        if self.metadata.get("split.count", 1) != 1:
            raise CheckpointError(f"{path} is one of {self.metadata['split.count']} parts; expected one file")
        self.path, self.tensors = path, {tensor.name: tensor for tensor in reader.tensors}

    def get(self, key: str, *default: Any) -> Any:
        """Return a value of the metadata; CheckpointError where it is missing and there is no default."""
        if key not in self.metadata and not default:
            raise CheckpointError(f"{self.path}: {key} is missing from its metadata")
        return self.metadata.get(key, *default)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor in float32, dequantised; CheckpointError for a kind that `gguf` cannot read."""
        stored = self.tensors[name]
        try:
            return torch.tensor(quants.dequantize(stored.data, stored.tensor_type))
        except NotImplementedError:
            kind = stored.tensor_type.name
            raise CheckpointError(f"the tensor {name} is {kind}, which gguf cannot dequantise") from None


def opened(path: Path) -> Gguf:
    """Open a file; the last one opened is kept, as reading a vocabulary takes seconds."""
    about = check_file(path).stat()
    return opened_once(path.resolve(), about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=1)
def opened_once(path: Path, changed: int, nbytes: int) -> Gguf:
    return Gguf(path)


def read(
    path: Path, dtype: torch.dtype | None, max_seq_len: int | None
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Read config and weights of a file; arguments and errors as in `load`."""
    file = opened(path)
    with reading(path):
        config = config_of(file, max_seq_len)
    weights = {}
    for name in file.tensors.keys() - {ROPE_FACTORS}:
        tensor = file.tensor(name)
        if file.get("general.architecture") == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            tensor = in_halves(tensor, config.head_dim)
        weights[".".join(PARTS.get(part, part) for part in name.split("."))] = converted(name, tensor, dtype)
    return config, weights


def in_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Put the rows of a projection, (heads · D, C), back into the order of pairs (i, i + D / 2).

    llama.cpp stores those of a Llama as (2i, 2i + 1), the order that its rotation wants. Left like that the
    model is fluent for some words. Those of other architectures it leaves as they were.
    """
    rows, C = weight.shape
    if rows % head_dim:
        return weight  # of a shape that the model will refuse
    return weight.view(rows // head_dim, head_dim // 2, 2, C).transpose(1, 2).reshape(rows, C)


def config_of(file: Gguf, max_seq_len: int | None) -> ModelConfig:
    """Translate the metadata; ValueError where it makes another function of the model."""
    kind = file.get("general.architecture")
    if kind not in ("llama", "qwen2"):
        raise ValueError(f"architecture {kind!r} is not supported; expected llama or qwen2")
    refuse_unsupported(file, kind)
    n_heads = check_whole("head_count", file.get(f"{kind}.attention.head_count"))
    C = check_whole("embedding_length", file.get(f"{kind}.embedding_length"))
    head_dim = file.get(f"{kind}.attention.key_length", C // n_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (other := file.get(f"{kind}.{key}", head_dim)) != head_dim:
            raise ValueError(f"{key} is {other}; expected {head_dim}, as long as a key")
    longest = check_whole("context_length", file.get(f"{kind}.context_length"))
    tokens = file.get("tokenizer.ggml.tokens", [])
    config = ModelConfig(
        n_layers=file.get(f"{kind}.block_count"),
        n_heads=n_heads,
        n_kv_heads=file.get(f"{kind}.attention.head_count_kv", n_heads),
        head_dim=head_dim,
        hidden_size=C,
        intermediate_size=file.get(f"{kind}.feed_forward_length"),
        vocab_size=file.get(f"{kind}.vocab_size", len(tokens)),
        max_seq_len=context(longest, file.get(f"{kind}.attention.sliding_window", None), max_seq_len),
        rope_theta=file.get(f"{kind}.rope.freq_base", 10_000.0),
        norm_eps=file.get(f"{kind}.attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in file.tensors,
        qkv_bias=kind == "qwen2",
        eos_ids=tuple(dict.fromkeys(file.metadata[key] for key in ENDS if key in file.metadata)),
    )
    return replace(config, rope_scaling=scaling_of(file, config))


def refuse_unsupported(file: Gguf, kind: str) -> None:
    """Raise ValueError for metadata of the model that is not known here, or makes another function of it."""
    for key, value in file.metadata.items():
        name = key.removeprefix(f"{kind}.")
        if name != key and name not in READ.split() and HARMLESS.get(name) != value:
            raise ValueError(f"{key} {value!r} is not supported")


def scaling_of(file: Gguf, plain: ModelConfig) -> Llama3Scaling | None:
    """Return llama3 scaling, of which a file holds what it makes of each pair: a factor; None without any.

    All models of Llama 3.1 to 3.3 differ in `factor` alone, which the slowest pair shows.
    """
    if ROPE_FACTORS not in file.tensors:
        return None
    factors = file.tensor(ROPE_FACTORS)
    scaling = Llama3Scaling(
        factor=float(factors.max()), low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=8192
    )
    expected = rope_frequencies(plain) / rope_frequencies(replace(plain, rope_scaling=scaling))
    if factors.shape != expected.shape or not torch.allclose(factors, expected, rtol=1e-4):
        raise ValueError(f"{ROPE_FACTORS} is not that of Llama 3.1: this kind of rope is not supported")
    return scaling
