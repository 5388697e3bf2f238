"""Sizes of a decoder of the Llama family, frozen: MHA, GQA, MQA differ by `n_kv_heads`, others by more."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from helpers.validate import check_whole, is_number, is_whole

LARGEST = 3.4e38  # of float32, in which positions are turned whatever the model's dtype
SIZES = "n_layers n_heads n_kv_heads head_dim hidden_size intermediate_size vocab_size max_seq_len".split()


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """How Llama 3.1 stretches the slow rotations of RoPE; names as in its config.json."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_seq_len: int

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor", "original_max_seq_len"):
            check_positive(f"rope_scaling.{name}", getattr(self, name))
        if not self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"rope_scaling.low_freq_factor is {self.low_freq_factor}; "
                f"expected less than high_freq_factor, {self.high_freq_factor}"
            )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """All that shapes a model. ValueError if the sizes do not fit each other.

    Args:
        n_layers: blocks, L.
        n_heads: query heads, H.
        n_kv_heads: heads of keys and values, Hkv; H is a multiple of it.
        head_dim: numbers in a query, key or value of one head, D; even, as RoPE turns pairs.
        hidden_size: numbers a token carries from block to block, C.
        intermediate_size: width of the MLP, F.
        vocab_size: tokens there are, V.
        max_seq_len: tokens in a sequence at most.
        rope_theta: base of the rotation's wavelengths.
        rope_scaling: Llama 3.1's stretching of them, or None.
        norm_eps: added to the mean square in RMSNorm.
        tied: the LM head uses the embedding's matrix.
        qkv_bias: biases on the projections to Q, K and V, as in Qwen2.
        eos_ids: tokens that end a reply.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_seq_len: int
    rope_theta: float = 10_000.0
    rope_scaling: Llama3Scaling | None = None
    norm_eps: float = 1e-5
    tied: bool = False
    qkv_bias: bool = False
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in SIZES:
            object.__setattr__(self, name, check_whole(name, getattr(self, name)))
        check_positive("rope_theta", self.rope_theta)
        check_positive("norm_eps", self.norm_eps)
        if self.n_heads % self.n_kv_heads:
            message = f"n_heads is {self.n_heads}, n_kv_heads {self.n_kv_heads}"
            raise ValueError(f"{message}; expected a multiple of it: each serves equally many query heads")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; expected an even number: RoPE turns pairs")
        object.__setattr__(self, "eos_ids", check_eos(self.eos_ids, self.vocab_size))

    @property
    def k_dim(self) -> int:
        """Width of a row of keys, of one head."""
        return self.head_dim

    @property
    def v_dim(self) -> int:
        """Width of a row of values, of one head."""
        return self.head_dim

    @property
    def n_parameters(self) -> int:
        """Numbers to learn; a tied matrix counts once."""
        C = self.hidden_size
        block = self.attention_parameters + 3 * C * self.intermediate_size + 2 * C
        return (1 if self.tied else 2) * self.vocab_size * C + self.n_layers * block + C

    @property
    def attention_parameters(self) -> int:
        """Numbers to learn in the attention of one layer."""
        C, D, H, Hkv = self.hidden_size, self.head_dim, self.n_heads, self.n_kv_heads
        return 2 * C * H * D + 2 * C * Hkv * D + self.qkv_bias * (H + 2 * Hkv) * D

    def cache_nbytes_per_token(self, element_bytes: int = 4) -> int:
        """Bytes that one token's keys and values take: L · Hkv · (Dk + Dv) · bytes an element."""
        return self.n_layers * self.n_kv_heads * (self.k_dim + self.v_dim) * element_bytes


@dataclass(frozen=True, kw_only=True)
class LatentConfig(ModelConfig):
    """Sizes of a model with latent attention (MLA), without query compression. Errors as in `ModelConfig`.

    `head_dim` is the width of a value, and of the part of a query or key that is not rotated. For the cache
    there is one KV head, whose keys are the rows; values have no width, as they are made of the same rows.

    Args:
        rank: numbers of a row of which the keys and values of every head are made.
        rope_dim: rotated numbers of a row, a piece of key that all heads share; even.

    Source: DeepSeek-AI 2024, arXiv:2405.04434.
    """

    n_kv_heads: int = 1
    rank: int
    rope_dim: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rank", "rope_dim"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name)))
        if self.rope_dim % 2:
            raise ValueError(f"rope_dim is {self.rope_dim}; expected an even number: RoPE turns pairs")

    @property
    def k_dim(self) -> int:
        """Width of a row: the latent, then the rotated piece."""
        return self.rank + self.rope_dim

    @property
    def v_dim(self) -> int:
        """0: values are made of the first `rank` numbers of the rows."""
        return 0

    @property
    def attention_parameters(self) -> int:
        """Numbers to learn in the attention of one layer, the norm of the latent among them."""
        C, D, H, rank = self.hidden_size, self.head_dim, self.n_heads, self.rank
        queries, rows = C * H * (D + self.rope_dim), C * self.k_dim + rank
        return queries + rows + rank * H * 2 * D + H * D * C


@dataclass(frozen=True, kw_only=True)
class StateConfig(ModelConfig):
    """Sizes of a model in which some layers keep a state instead of rows. Errors as in `ModelConfig`.

    Args:
        state_layers: those layers, from 0, in order. The others keep rows.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236.
    """

    state_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "state_layers", check_layers("state_layers", self.state_layers, self.n_layers)
        )

    @property
    def n_parameters(self) -> int:
        """Numbers to learn; a layer with a state has a share a head and a norm besides."""
        return super().n_parameters + len(self.state_layers) * (self.n_heads + self.head_dim)

    def cache_nbytes_per_token(self, element_bytes: int = 4) -> int:
        """Bytes that one token's keys and values take, in the layers that keep rows."""
        rows = self.n_layers - len(self.state_layers)
        return rows * super().cache_nbytes_per_token(element_bytes) // self.n_layers


@dataclass(frozen=True, kw_only=True)
class QKNormConfig(ModelConfig):
    """Sizes of a model that norms each head's query and key (Qwen3). Errors as in `ModelConfig`.

    Source: QK norm, Dehghani et al. 2023, arXiv:2302.05442.
    """

    @property
    def attention_parameters(self) -> int:
        """Numbers to learn in the attention of one layer, both norms among them."""
        return super().attention_parameters + 2 * self.head_dim


@dataclass(frozen=True, kw_only=True)
class NoPEConfig(ModelConfig):
    """Sizes of a model in which some layers do not rotate (SmolLM3). Errors as in `ModelConfig`.

    Args:
        nope_layers: those layers, from 0, in order: they see no positions. The others rotate.

    Source: RoPE beside NoPE, Yang et al. 2025, arXiv:2501.18795.
    """

    nope_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nope_layers", check_layers("nope_layers", self.nope_layers, self.n_layers))


def check_layers(name: str, layers: Collection[int], n_layers: int) -> tuple[int, ...]:
    """Return these layers; ValueError unless the model has them all and they are in order."""
    layers = tuple(check_whole(name, layer, minimum=0) for layer in layers)
    if layers != tuple(sorted({*layers})) or max(layers, default=0) >= n_layers:
        raise ValueError(f"{name} is {layers}; expected some of 0 to {n_layers - 1}, in order")
    return layers


def check_positive(name: str, value: object) -> None:
    """Raise ValueError unless value is a number over 0 that fits into float32."""
    if not is_number(value) or not 0 < value <= LARGEST:  # type: ignore[operator]
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected a number over 0 that fits into float32")


def check_eos(ids: Iterable[int], vocab_size: int) -> tuple[int, ...]:
    """Return ids as a tuple, which can be read again and again. ValueError unless the vocabulary has them."""
    ids = tuple(ids)
    for token in ids:
        if not is_whole(token) or not 0 <= token < vocab_size:
            message = reprlib.repr(token)
            raise ValueError(f"eos id {message} is out of range; expected 0 to {vocab_size - 1}")
    return tuple(map(int, ids))
