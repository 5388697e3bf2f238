"""Configs for decoders of the Llama family.

A `ModelConfig` describes models with MHA, GQA or MQA, which differ in `n_kv_heads`. Subclasses describe
models with other attention layers.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from helpers.validate import check_whole, is_number, is_whole

LARGEST = 3.4e38  # largest float32; RoPE is computed in float32, whatever the model's dtype
SIZES = "n_layers n_heads n_kv_heads head_dim hidden_size intermediate_size vocab_size max_seq_len".split()


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """The settings with which Llama 3.1 scales the low RoPE frequencies.

    Attributes:
        factor: divisor of the low frequencies.
        low_freq_factor: a frequency that makes at most this many full turns over the original context counts
            as low.
        high_freq_factor: a frequency that makes at least this many full turns over the original context is
            left unchanged.
        original_max_seq_len: length of the original context, in tokens.
    """

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
    """The dimensions and settings that define a model.

    Args:
        n_layers: number of blocks, L.
        n_heads: number of query heads, H.
        n_kv_heads: number of KV heads, Hkv; must divide H.
        head_dim: width of one head's query, key or value, D; must be even, because RoPE rotates pairs of
            channels.
        hidden_size: width of the residual stream, C.
        intermediate_size: width of the MLP, F.
        vocab_size: number of tokens in the vocabulary, V.
        max_seq_len: maximum number of tokens in a sequence.
        rope_theta: base of the RoPE frequencies.
        rope_scaling: Llama 3.1's scaling of these frequencies, or None.
        norm_eps: constant that RMSNorm adds to the mean square.
        tied: whether the LM head shares the embedding's matrix.
        qkv_bias: whether the projections to Q, K and V have biases, as in Qwen2.
        eos_ids: ids of the tokens that end a reply.

    Raises:
        ValueError: a value is out of range, or two values are inconsistent.
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
            raise ValueError(
                f"{message}; expected a multiple of it: each serves the same number of query heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; expected an even number: RoPE rotates pairs")
        object.__setattr__(self, "eos_ids", check_eos(self.eos_ids, self.vocab_size))

    @property
    def k_dim(self) -> int:
        """The width of one head's key in the cache."""
        return self.head_dim

    @property
    def v_dim(self) -> int:
        """The width of one head's value in the cache."""
        return self.head_dim

    @property
    def n_parameters(self) -> int:
        """The number of parameters. A matrix that the embedding and the LM head share is counted once."""
        C = self.hidden_size
        block = self.attention_parameters + 3 * C * self.intermediate_size + 2 * C
        return (1 if self.tied else 2) * self.vocab_size * C + self.n_layers * block + C

    @property
    def attention_parameters(self) -> int:
        """The number of parameters in one layer's attention."""
        C, D, H, Hkv = self.hidden_size, self.head_dim, self.n_heads, self.n_kv_heads
        return 2 * C * H * D + 2 * C * Hkv * D + self.qkv_bias * (H + 2 * Hkv) * D

    def cache_nbytes_per_token(self, element_bytes: int = 4) -> int:
        """Return the number of bytes that the cache needs per token, over all layers.

        This is n_layers · n_kv_heads · (k_dim + v_dim) · element_bytes, where element_bytes is the number of
        bytes per element, such as 4 for float32.
        """
        return self.n_layers * self.n_kv_heads * (self.k_dim + self.v_dim) * element_bytes


@dataclass(frozen=True, kw_only=True)
class LatentConfig(ModelConfig):
    """The config of a model with latent attention (MLA), without query compression.

    `head_dim` is the width of a value. It is also the number of channels in a query or key that are not
    rotated. The cache has one KV head. The key that it stores for a token is the token's latent, followed by
    the rotated channels of its key. The stored values have width 0, because the model computes values from
    the latents.

    Args:
        rank: width of the latent, from which the keys and values of all heads are computed.
        rope_dim: number of rotated channels in a key, which are the same for all heads; must be even.

    Raises:
        ValueError: as in `ModelConfig`.

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
            raise ValueError(f"rope_dim is {self.rope_dim}; expected an even number: RoPE rotates pairs")

    @property
    def k_dim(self) -> int:
        """The width of a cache entry: the latent, followed by the rotated channels of the key."""
        return self.rank + self.rope_dim

    @property
    def v_dim(self) -> int:
        """The width of a stored value, which is always 0, because values are computed from the latent."""
        return 0

    @property
    def attention_parameters(self) -> int:
        """The number of parameters in one layer's attention, including the latent's norm."""
        C, D, H, rank = self.hidden_size, self.head_dim, self.n_heads, self.rank
        queries, latents = C * H * (D + self.rope_dim), C * self.k_dim + rank
        return queries + latents + rank * H * 2 * D + H * D * C


@dataclass(frozen=True, kw_only=True)
class StateConfig(ModelConfig):
    """The config of a model in which some layers keep a state instead of KV entries.

    Args:
        state_layers: indices of the layers that keep a state, from 0, in ascending order.

    Raises:
        ValueError: as in `ModelConfig`.

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
        """The number of parameters. Each layer that keeps a state adds one decay per head, and a norm."""
        return super().n_parameters + len(self.state_layers) * (self.n_heads + self.head_dim)

    def cache_nbytes_per_token(self, element_bytes: int = 4) -> int:
        """Return the number of bytes that the cache needs per token, over all layers that keep entries."""
        n_layers = self.n_layers - len(self.state_layers)
        return n_layers * super().cache_nbytes_per_token(element_bytes) // self.n_layers


@dataclass(frozen=True, kw_only=True)
class QKNormConfig(ModelConfig):
    """The config of a model that normalizes the query and key of each head, as in Qwen3.

    Raises:
        ValueError: as in `ModelConfig`.

    Source: QK norm, Dehghani et al. 2023, arXiv:2302.05442.
    """

    @property
    def attention_parameters(self) -> int:
        """The number of parameters in one layer's attention, including the norms of queries and of keys."""
        return super().attention_parameters + 2 * self.head_dim


@dataclass(frozen=True, kw_only=True)
class NoPEConfig(ModelConfig):
    """The config of a model in which some layers do not rotate queries and keys, as in SmolLM3.

    Args:
        nope_layers: indices of the layers without rotation, from 0, in ascending order.

    Raises:
        ValueError: as in `ModelConfig`.

    Source: RoPE combined with NoPE, Yang et al. 2025, arXiv:2501.18795.
    """

    nope_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nope_layers", check_layers("nope_layers", self.nope_layers, self.n_layers))


def check_layers(name: str, layers: Collection[int], n_layers: int) -> tuple[int, ...]:
    """Return layer indices as a tuple.

    Raises:
        ValueError: the indices are not in ascending order, or not from 0 to n_layers - 1.
    """
    layers = tuple(check_whole(name, layer, minimum=0) for layer in layers)
    if layers != tuple(sorted({*layers})) or max(layers, default=0) >= n_layers:
        raise ValueError(f"{name} is {layers}; expected some of 0 to {n_layers - 1}, in order")
    return layers


def check_positive(name: str, value: object) -> None:
    """Raise ValueError unless the value is a number greater than 0 that fits into float32."""
    if not is_number(value) or not 0 < value <= LARGEST:  # type: ignore[operator]
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected a number over 0 that fits into float32")


def check_eos(ids: Iterable[int], vocab_size: int) -> tuple[int, ...]:
    """Return the ids that end a reply as a tuple. Raise ValueError unless all are in the vocabulary."""
    ids = tuple(ids)
    for token in ids:
        if not is_whole(token) or not 0 <= token < vocab_size:
            raise ValueError(f"eos id {reprlib.repr(token)} is out of range; expected 0 to {vocab_size - 1}")
    return tuple(map(int, ids))
