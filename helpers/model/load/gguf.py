"""GGUF files, as llama.cpp, Ollama and LM Studio use them: metadata, and weights of 2 to 32 bits.

The header is read here, not by `gguf.GGUFReader`: for a vocabulary of 128,000 that takes 10 seconds and
635 MiB, instead of 0.3 and 39, and a damaged length keeps it running without end.
"""

from __future__ import annotations

import math
import mmap
import reprlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from torch import Tensor

from helpers.model.attention import rope_frequencies
from helpers.model.config import Llama3Scaling, ModelConfig, NoPEConfig, QKNormConfig
from helpers.model.load.config import context, in_range
from helpers.model.load.files import CheckpointError, reading, unsupported
from helpers.model.load.weights import converted
from helpers.validate import check_whole

ARCHITECTURES: dict[str, Any] = {
    "llama": ModelConfig,
    "qwen2": ModelConfig,
    "qwen3": QKNormConfig,
    "smollm3": NoPEConfig,
}
IN_PAIRS = ("llama", "smollm3")  # architectures with rows of q and k in the order of llama.cpp's rotation
NOPE = 4  # every fourth layer of a SmolLM3 does not rotate: no key says so, llama.cpp takes it for granted
ROPE_THETA = 10_000.0  # llama.cpp's for a file without one
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
# Values with which a key changes nothing: 0 (llama.cpp's for "not set") unless it is here.
MULTIPLIERS = "logit_scale residual_scale embedding_scale rope.scale_linear rope.scaling.factor"
NEUTRAL: dict[str, tuple[Any, ...]] = dict.fromkeys(MULTIPLIERS.split(), (0, 1))
NEUTRAL["rope.scaling.type"] = ("linear", "none")  # linear by a factor, which has to be 1
NEUTRAL |= {"rope.scaling.attn_factor": (1,), "attention.causal": (True,)}
# Keys that are read, or that do not change the model's computation.
READ = "block_count attention.head_count attention.head_count_kv attention.key_length attention.value_length "
READ += "attention.sliding_window attention.layer_norm_rms_epsilon embedding_length feed_forward_length "
READ += "context_length rope.dimension_count rope.freq_base vocab_size tensor_data_layout "
READ += "rope.scaling.original_context_length rope.scaling.finetuned"
ENDS = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]  # any of them ends a reply
ROPE_FACTORS = "rope_freqs.weight"
BEGINNINGS = (b"GGUF\3\0\0\0", b"GGUF\2\0\0\0")  # with the version, lowest byte first
# Types of a value: numbers, with their codes in the struct module, and two more that are not.
NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
STRING, ARRAY = 8, 9


class Gguf:
    """An open file: its metadata by key, its tensors as they are stored.

    An array of equal values that describes the model, one for each layer, is read as that value. No length is
    believed beyond the end of the file: a damaged one costs neither memory nor time.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with reading(path, " is no GGUF file, damaged or cut off"), path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if (begins := self.take("8s")[0]) not in BEGINNINGS:
                raise ValueError(f"it begins with {begins!r}; expected {BEGINNINGS[0]!r}")
            n_tensors, n_keys = self.take("2Q")
            self.metadata = {self.text(): self.value() for _ in range(n_keys)}
            infos = {self.text(): self.take(f"{self.take('I')[0]}QIQ") for _ in range(n_tensors)}
            self.tensors = dict(self.placed(infos))
        for key, value in self.model_metadata().items():
            if isinstance(value, list) and len({*value}) == 1:
                self.metadata[key] = value[0]
        if self.metadata.get("split.count", 1) != 1:
            raise CheckpointError(f"{path} is one of {self.metadata['split.count']} parts; expected one file")

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next values, in a form of the struct module's; its error where the file ends first."""
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def text(self) -> str:
        """Return the next string, which follows its length."""
        return self.take(f"{self.take('Q')[0]}s")[0].decode()

    def value(self) -> Any:
        """Return the next value of the metadata, which follows its type: a number, a text or a list."""
        (value_type,) = self.take("I")
        if value_type != ARRAY:
            return self.text() if value_type == STRING else self.take(NUMBERS[value_type])[0]
        value_type, n = self.take("IQ")
        if value_type == STRING:
            return [self.text() for _ in range(n)]
        return list(self.take(f"{n}{NUMBERS[value_type]}"))

    def model_metadata(self) -> dict[str, Any]:
        """Return the metadata that begin with the architecture: those of the model itself."""
        prefix = f"{self.metadata.get('general.architecture')}."
        return {key: value for key, value in self.metadata.items() if key.startswith(prefix)}

    def placed(self, infos: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield each tensor: its name, its bytes row by row, and their type.

        They fill the file, one after another, so a damaged shape, type or offset shows: ValueError.
        """
        alignment = self.get("general.alignment", 32)
        at = start = self.at + -self.at % alignment
        for name, (*shape, number, begins) in infos.items():
            if begins != at - start:
                raise ValueError(f"the tensor {name} begins at {begins:,}; expected {at - start:,}")
            if number not in GGML_QUANT_SIZES:
                raise CheckpointError(f"the tensor {name} is of type {number}, which gguf does not know")
            dtype = GGMLQuantizationType(number)
            rows = quants.quant_shape_to_byte_shape(shape[::-1], dtype)
            yield name, (np.frombuffer(self.data, np.uint8, math.prod(rows), at).reshape(rows), dtype)
            at += math.prod(rows) + -math.prod(rows) % alignment
        if len(self.data) > at:
            raise ValueError(f"it has {len(self.data):,} bytes; expected {at:,}, where its last tensor ends")

    def get(self, key: str, *default: Any) -> Any:
        """Return a value of the metadata; CheckpointError where it is missing and there is no default."""
        if key not in self.metadata and not default:
            raise CheckpointError(f"{self.path}: {key} is missing from its metadata")
        return self.metadata.get(key, *default)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor in float32, dequantised; CheckpointError for a type that `gguf` cannot read."""
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

    llama.cpp stores those of a Llama or SmolLM3 as (2i, 2i + 1), the order that its rotation needs. In that
    order our model would be fluent for a few words only. Other architectures it stores as they were.
    """
    if len(weight) % head_dim:
        return weight  # of a shape that the model will refuse
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def config_of(file: Gguf, max_seq_len: int | None) -> ModelConfig:
    """Translate the metadata; ValueError where they change the model's computation."""
    arch = file.get("general.architecture")
    if arch not in ARCHITECTURES:
        raise unsupported(
            f"architecture {arch!r} is not supported; expected one of {', '.join(ARCHITECTURES)}"
        )
    refuse_unsupported(file, arch)
    n_heads = check_whole("head_count", file.get(f"{arch}.attention.head_count"))
    C = check_whole("embedding_length", file.get(f"{arch}.embedding_length"))
    head_dim = file.get(f"{arch}.attention.key_length", C // n_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (other := file.get(f"{arch}.{key}", head_dim)) != head_dim:
            raise ValueError(f"{key} is {other}; expected {head_dim}, as long as a key")
    tokens, window = file.get("tokenizer.ggml.tokens", []), file.get(f"{arch}.attention.sliding_window", 0)
    n_layers = check_whole("block_count", file.get(f"{arch}.block_count"))
    more = {"nope_layers": tuple(range(n_layers)[NOPE - 1 :: NOPE])} if arch == "smollm3" else {}
    config = ARCHITECTURES[arch](
        **more,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=file.get(f"{arch}.attention.head_count_kv", n_heads),
        head_dim=head_dim,
        hidden_size=C,
        intermediate_size=file.get(f"{arch}.feed_forward_length"),
        vocab_size=file.get(f"{arch}.vocab_size", len(tokens)),
        max_seq_len=context(file.get(f"{arch}.context_length"), window or None, max_seq_len),
        rope_theta=in_range("rope_theta", file.get(f"{arch}.rope.freq_base", ROPE_THETA)),
        norm_eps=in_range("rms_norm_eps", file.get(f"{arch}.attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in file.tensors,
        qkv_bias=arch == "qwen2",
        eos_ids=tuple(dict.fromkeys(file.metadata[key] for key in ENDS if key in file.metadata)),
    )
    return replace(config, rope_scaling=scaling_of(file, config))


def refuse_unsupported(file: Gguf, arch: str) -> None:
    """Raise ValueError for metadata that are unknown here, or change the model's computation."""
    for key, value in file.model_metadata().items():
        name = key.removeprefix(f"{arch}.")
        if isinstance(value, list):
            got, expected = f"{key} {reprlib.repr(value)}", "the same in each layer"
            raise unsupported(f"{got} is not supported; expected {expected}")
        if name in READ.split():
            continue
        neutral = NEUTRAL.get(name, (0,))
        if value not in neutral:
            raise unsupported(f"{key} {value!r} is not supported; expected {neutral[-1]}, or no such key")


def scaling_of(file: Gguf, plain: ModelConfig) -> Llama3Scaling | None:
    """Return the llama3 scaling that a file stores as one factor for each pair; None for a file without.

    All models of Llama 3.1 to 3.3 differ in `factor` alone, which is that of the slowest pair.
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
