"""GGUF files, as llama.cpp, Ollama and LM Studio have them: metadata, and weights of 2 to 32 bits."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from torch import Tensor

from helpers.arguments import check_whole
from helpers.model.attention import rope_frequencies
from helpers.model.config import Llama3Scaling, ModelConfig, NoPEConfig, QKNormConfig
from helpers.model.load.config import context, in_range
from helpers.model.load.files import CheckpointError, reading, unsupported
from helpers.model.load.weights import converted

ARCHITECTURES: dict[str, Any] = {
    "llama": ModelConfig,
    "qwen2": ModelConfig,
    "qwen3": QKNormConfig,
    "smollm3": NoPEConfig,
}
IN_PAIRS = ("llama", "smollm3")  # whose rows of q and k stand in the order of llama.cpp's rotation
NOPE = 4  # every fourth layer of a SmolLM3 does not rotate: no key says so, llama.cpp takes it for granted
# Each part of a tensor's name, and the model's name for it: blk.0.attn_q.weight is layers.0.self_attn.q_proj.
PARTS = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "blk": "layers",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "weight": "weight",
    "bias": "bias",
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
BEGINNINGS = (b"GGUF\3\0\0\0", b"GGUF\2\0\0\0")  # with the version, lowest byte first
# Kinds of a value: numbers, with their codes in the struct module, and two more.
KINDS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
STRING, ARRAY = 8, 9


class Gguf:
    """An open file: its metadata by key, its tensors as they are stored.

    A length in it is believed only as far as the file goes: a damaged one costs neither memory nor time.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with reading(path, " is no GGUF file, damaged or cut off"), path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if (begins := self.take("8s")[0]) not in BEGINNINGS:
                raise ValueError(f"it begins with {begins!r}; expected {BEGINNINGS[0]!r}")
            n_tensors, n_keys = self.take("2Q")
            self.metadata = {self.text(): self.value() for _ in range(n_keys)}
            message = {self.text(): self.take(f"{self.take('I')[0]}QIQ") for _ in range(n_tensors)}
            self.tensors = dict(self.placed(message))
        if self.metadata.get("split.count", 1) != 1:
            raise CheckpointError(f"{path} is one of {self.metadata['split.count']} parts; expected one file")

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next values, in a form of the struct module's; its error where the file ends first."""
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def text(self) -> str:
        """Return the next string, which stands behind its length."""
        return self.take(f"{self.take('Q')[0]}s")[0].decode()

    def value(self) -> Any:
        """Return the next value of the metadata, which stands behind its kind: a number, a text or a list."""
        (kind,) = self.take("I")
        if kind != ARRAY:
            return self.text() if kind == STRING else self.take(KINDS[kind])[0]
        kind, n = self.take("IQ")
        return [self.text() for _ in range(n)] if kind == STRING else list(self.take(f"{n}{KINDS[kind]}"))

    def placed(self, message: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield each tensor: its name, its bytes row by row, and their kind.

        They fill the file, one after another, so a damaged shape, kind or beginning shows: ValueError.
        """
        alignment = self.get("general.alignment", 32)
        at = start = self.at + -self.at % alignment
        for name, (*shape, number, begins) in message.items():
            if begins != at - start:
                raise ValueError(f"the tensor {name} begins at {begins:,}; expected {at - start:,}")
            if number not in GGML_QUANT_SIZES:
                raise CheckpointError(f"the tensor {name} is of kind {number}, which gguf does not know")
            kind = GGMLQuantizationType(number)
            rows = quants.quant_shape_to_byte_shape(shape[::-1], kind)
            yield name, (np.frombuffer(self.data, np.uint8, math.prod(rows), at).reshape(rows), kind)
            at += math.prod(rows) + -math.prod(rows) % alignment
        if len(self.data) > at:
            raise ValueError(f"it has {len(self.data):,} bytes; expected {at:,}, where its last tensor ends")

    def get(self, key: str, *default: Any) -> Any:
        """Return a value of the metadata; CheckpointError where it is missing and there is no default."""
        if key not in self.metadata and not default:
            raise CheckpointError(f"{self.path}: {key} is missing from its metadata")
        return self.metadata.get(key, *default)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor in float32, dequantised; CheckpointError for a kind that `gguf` cannot read."""
        with reading(self.path, f": the tensor {name}"):
            return torch.tensor(quants.dequantize(*self.tensors[name]))


def read(
    path: Path, dtype: torch.dtype | None, max_seq_len: int | None
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Read config and weights of a file; arguments and errors as in `load`."""
    file, weights = Gguf(path), {}
    with reading(path):
        config = config_of(file, max_seq_len)
    for name in file.tensors:
        parts = [part if part.isdigit() else PARTS.get(part, "") for part in name.split(".")]
        if name == ROPE_FACTORS:
            continue
        if not all(parts):
            raise CheckpointError(f"the tensor {name} is unknown; expected names such as blk.0.attn_q.weight")
        tensor = file.tensor(name)
        if file.get("general.architecture") in IN_PAIRS and name.endswith(("attn_q.weight", "attn_k.weight")):
            tensor = rope_pairs_in_halves(tensor, config.head_dim)
        weights[".".join(parts)] = converted(name, tensor, dtype)
    return config, weights


def rope_pairs_in_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Put the rows of a projection, (heads · D, C), back into the order of pairs (i, i + D / 2).

    llama.cpp stores those of a Llama or SmolLM3 as (2i, 2i + 1), the order that its rotation wants. Left
    like that the model is fluent for some words. Those of other architectures it leaves as they were.
    """
    if len(weight) % head_dim:
        return weight  # of a shape that the model will refuse
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def config_of(file: Gguf, max_seq_len: int | None) -> ModelConfig:
    """Translate the metadata; ValueError where it makes another function of the model."""
    kind = file.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise unsupported(
            f"architecture {kind!r} is not supported; expected one of {', '.join(ARCHITECTURES)}"
        )
    refuse_unsupported(file, kind)
    n_heads = check_whole("head_count", file.get(f"{kind}.attention.head_count"))
    C = check_whole("embedding_length", file.get(f"{kind}.embedding_length"))
    head_dim = file.get(f"{kind}.attention.key_length", C // n_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (other := file.get(f"{kind}.{key}", head_dim)) != head_dim:
            raise ValueError(f"{key} is {other}; expected {head_dim}, as long as a key")
    tokens, window = file.get("tokenizer.ggml.tokens", []), file.get(f"{kind}.attention.sliding_window", None)
    n_layers = check_whole("block_count", file.get(f"{kind}.block_count"))
    kept = {"nope_layers": tuple(range(n_layers)[NOPE - 1 :: NOPE])} if kind == "smollm3" else {}
    config = ARCHITECTURES[kind](
        **kept,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=file.get(f"{kind}.attention.head_count_kv", n_heads),
        head_dim=head_dim,
        hidden_size=C,
        intermediate_size=file.get(f"{kind}.feed_forward_length"),
        vocab_size=file.get(f"{kind}.vocab_size", len(tokens)),
        max_seq_len=context(file.get(f"{kind}.context_length"), window, max_seq_len),
        rope_theta=in_range("rope_theta", file.get(f"{kind}.rope.freq_base")),
        norm_eps=in_range("rms_norm_eps", file.get(f"{kind}.attention.layer_norm_rms_epsilon")),
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
            raise unsupported(
                f"{key} {value!r} is not supported; expected {HARMLESS.get(name, 'no such key')}"
            )


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
    if len(factors) == plain.head_dim // 2:
        expected = rope_frequencies(plain) / rope_frequencies(replace(plain, rope_scaling=scaling))
        if torch.allclose(factors, expected, rtol=1e-4):
            return scaling
    raise ValueError(f"{ROPE_FACTORS} is not that of Llama 3.1: this kind of rope is not supported")
