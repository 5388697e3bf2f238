"""Read GGUF files, which llama.cpp, Ollama and LM Studio use: metadata, and weights of 2 to 32 bits.

The header is read here and not by `gguf.GGUFReader`. For a vocabulary of 128,000 tokens, that class takes 10
seconds and 635 MiB, compared with 0.3 seconds and 39 MiB here; and if a stored length is damaged, that class
runs forever.
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
from helpers.model.load.config import checked_range, max_context
from helpers.model.load.files import CheckpointError, checkpoint_errors, unsupported_error
from helpers.model.load.weights import convert_tensor
from helpers.validate import check_whole

ARCHITECTURES: dict[str, Any] = {
    "llama": ModelConfig,
    "qwen2": ModelConfig,
    "qwen3": QKNormConfig,
    "smollm3": NoPEConfig,
}
IN_PAIRS = ("llama", "smollm3")  # architectures whose q and k rows are in the order of llama.cpp's rotation
NOPE = 4  # every fourth layer of a SmolLM3 does not rotate; no key has this number, llama.cpp assumes it
ROPE_THETA = 10_000.0  # llama.cpp's default
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
# Values with which a key changes nothing. For keys not listed here, this is 0, llama.cpp's "not set".
MULTIPLIERS = "logit_scale residual_scale embedding_scale rope.scale_linear rope.scaling.factor"
NEUTRAL: dict[str, tuple[Any, ...]] = dict.fromkeys(MULTIPLIERS.split(), (0, 1))
NEUTRAL["rope.scaling.type"] = ("linear", "none")  # "linear" scales by a factor, which must be 1
NEUTRAL |= {"rope.scaling.attn_factor": (1,), "attention.causal": (True,)}
# Keys that are read, or that do not change the model's computation.
READ = "block_count attention.head_count attention.head_count_kv attention.key_length attention.value_length "
READ += "attention.sliding_window attention.layer_norm_rms_epsilon embedding_length feed_forward_length "
READ += "context_length rope.dimension_count rope.freq_base vocab_size tensor_data_layout "
READ += "rope.scaling.original_context_length rope.scaling.finetuned"
ENDS = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]  # any of them ends a reply
ROPE_FACTORS = "rope_freqs.weight"
BEGINNINGS = (b"GGUF\3\0\0\0", b"GGUF\2\0\0\0")  # including the version, lowest byte first
# Types of a value in the metadata: numbers, with their codes in the struct module, then strings and lists.
NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))
STRING, ARRAY = 8, 9


class Gguf:
    """An open GGUF file.

    A damaged length that points beyond the end of the file raises an error at once, without using much memory
    or time.

    Attributes:
        metadata: metadata values by key. If all elements of a list that describes the model are equal, such
            as one value per layer, the list is replaced by that value.
        tensors: for each tensor, by its name in the file, a pair: the stored bytes, row by row, and the type.

    Raises:
        CheckpointError: the file is damaged, not a GGUF file, or only one of several files that form a model.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with checkpoint_errors(path, " is no GGUF file, damaged or cut off"), path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if (begins := self.unpack("8s")[0]) not in BEGINNINGS:
                raise ValueError(f"it begins with {begins!r}; expected {BEGINNINGS[0]!r}")
            n_tensors, n_keys = self.unpack("2Q")
            self.metadata = {self.read_string(): self.read_value() for _ in range(n_keys)}
            infos = {self.read_string(): self.unpack(f"{self.unpack('I')[0]}QIQ") for _ in range(n_tensors)}
            self.tensors = dict(self.place_tensors(infos))
        for key, value in self.model_metadata().items():
            if isinstance(value, list) and len({*value}) == 1:
                self.metadata[key] = value[0]
        if self.metadata.get("split.count", 1) != 1:
            raise CheckpointError(f"{path} is one of {self.metadata['split.count']} parts; expected one file")

    def unpack(self, form: str) -> tuple[Any, ...]:
        """Return the next values in the file, and advance the read position past them.

        Args:
            form: format of the values, as in the module `struct`.

        Raises:
            struct.error: the file ends before the values do.
        """
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values

    def read_string(self) -> str:
        """Return the next string in the file. Its length is stored before it."""
        return self.unpack(f"{self.unpack('Q')[0]}s")[0].decode()

    def read_value(self) -> Any:
        """Return the next metadata value: a number, a string or a list. Its type is stored before it."""
        (value_type,) = self.unpack("I")
        if value_type != ARRAY:
            return self.read_string() if value_type == STRING else self.unpack(NUMBERS[value_type])[0]
        value_type, n = self.unpack("IQ")
        if value_type == STRING:
            return [self.read_string() for _ in range(n)]
        return list(self.unpack(f"{n}{NUMBERS[value_type]}"))

    def model_metadata(self) -> dict[str, Any]:
        """Return the metadata that describe the model. Their keys begin with the architecture's name."""
        prefix = f"{self.metadata.get('general.architecture')}."
        return {key: value for key, value in self.metadata.items() if key.startswith(prefix)}

    def place_tensors(self, infos: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield (name, (stored bytes, type)) for each tensor. The bytes are arranged in rows.

        The tensors must fill the file without gaps, from here to its end, so that a damaged shape, type or
        offset is detected.

        Args:
            infos: for each tensor, by name: the shape, the code of the type, and the offset in bytes from the
                first tensor.

        Raises:
            ValueError: a tensor does not begin where the previous tensor ends, or the file is too long.
            CheckpointError: the type of a tensor is unknown.
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
        """Return the metadata value of a key, or the default if the key is missing.

        Raises:
            CheckpointError: the key is missing, and there is no default.
        """
        if key not in self.metadata and not default:
            raise CheckpointError(f"{self.path}: {key} is missing from its metadata")
        return self.metadata.get(key, *default)

    def tensor(self, name: str) -> Tensor:
        """Return a tensor, dequantized to float32. Raise CheckpointError if `gguf` cannot dequantize it."""
        with checkpoint_errors(self.path, f": the tensor {name}"):
            return torch.tensor(quants.dequantize(*self.tensors[name]))


def read_gguf(
    path: Path, dtype: torch.dtype | None, max_seq_len: int | None
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Read a GGUF file. Return the config, and the weights by their names in the model.

    Arguments and errors are those of `load`.
    """
    file, weights = Gguf(path), {}
    with checkpoint_errors(path):
        config = config_from_gguf(file, max_seq_len)
    for name in file.tensors:
        parts = [part if part.isdigit() else PARTS.get(part, "") for part in name.split(".")]
        if name == ROPE_FACTORS:
            continue
        if not all(parts):
            raise CheckpointError(f"the tensor {name} is unknown; expected names such as blk.0.attn_q.weight")
        tensor = file.tensor(name)
        if file.get("general.architecture") in IN_PAIRS and name.endswith(("attn_q.weight", "attn_k.weight")):
            tensor = rope_pairs_in_halves(tensor, config.head_dim)
        weights[".".join(parts)] = convert_tensor(name, tensor, dtype)
    return config, weights


def rope_pairs_in_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder the rows of a query or key projection for RoPE with channel pairs (i, i + D / 2).

    For a Llama or SmolLM3, llama.cpp stores these rows in the order for pairs (2i, 2i + 1), which its
    rotation needs; with that order, this package's model would generate only a few sensible words. For other
    architectures, llama.cpp leaves the order unchanged.

    Args:
        weight: matrix of the projection, of shape (heads · D, C).
        head_dim: width of a head, D.
    """
    if len(weight) % head_dim:
        return weight  # `make_model_with_weights` will reject this shape
    return weight.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)


def config_from_gguf(file: Gguf, max_seq_len: int | None) -> ModelConfig:
    """Return the config that a GGUF file's metadata describe.

    Raises:
        ValueError: the metadata describe a model that is not supported.
        CheckpointError: a metadata key is missing.
    """
    arch = file.get("general.architecture")
    if arch not in ARCHITECTURES:
        raise unsupported_error(
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
        max_seq_len=max_context(file.get(f"{arch}.context_length"), window or None, max_seq_len),
        rope_theta=checked_range("rope_theta", file.get(f"{arch}.rope.freq_base", ROPE_THETA)),
        norm_eps=checked_range("rms_norm_eps", file.get(f"{arch}.attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in file.tensors,
        qkv_bias=arch == "qwen2",
        eos_ids=tuple(dict.fromkeys(file.metadata[key] for key in ENDS if key in file.metadata)),
    )
    return replace(config, rope_scaling=rope_scaling_of(file, config))


def refuse_unsupported(file: Gguf, arch: str) -> None:
    """Raise ValueError if the model's metadata set an unknown key, or have an unsupported value.

    Args:
        file: the open GGUF file.
        arch: name of the architecture.
    """
    for key, value in file.model_metadata().items():
        name = key.removeprefix(f"{arch}.")
        if isinstance(value, list):
            got, expected = f"{key} {reprlib.repr(value)}", "the same in each layer"
            raise unsupported_error(f"{got} is not supported; expected {expected}")
        if name in READ.split():
            continue
        neutral = NEUTRAL.get(name, (0,))
        if value not in neutral:
            raise unsupported_error(
                f"{key} {value!r} is not supported; expected {neutral[-1]}, or no such key"
            )


def rope_scaling_of(file: Gguf, plain: ModelConfig) -> Llama3Scaling | None:
    """Return Llama 3.1's RoPE scaling, which a GGUF file stores as one factor per pair of channels.

    Return None if the file has no such factors. The models from Llama 3.1 to 3.3 differ only in `factor`,
    which is the stored factor of the pair that rotates most slowly.

    Args:
        file: the open GGUF file.
        plain: config of the model, without scaling.

    Raises:
        ValueError: the factors are not those of Llama 3.1's scaling.
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
