"""Configs of decoders of the Llama family: MHA, GQA and MQA differ in `n_kv_heads`, others in more."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from helpers.validate import check_whole, is_number, is_whole

LARGEST = 3.4e38  # of float32, in which RoPE is computed whatever the model's dtype
SIZES = "n_layers n_heads n_kv_heads head_dim hidden_size intermediate_size vocab_size max_seq_len".split()


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """Llama 3.1's scaling of the low frequencies of RoPE; names as in its config.json."""

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
    """The sizes and settings that define a model. ValueError if they are inconsistent.

    Args:
        n_layers: blocks, L.
        n_heads: query heads, H.
        n_kv_heads: heads of keys and values, Hkv; H is a multiple of it.
        head_dim: width of a query, key or value of one head, D; even, because RoPE rotates pairs.
        hidden_size: width of the residual stream, C.
        intermediate_size: width of the MLP, F.
        vocab_size: number of tokens, V.
        max_seq_len: maximum number of tokens in a sequence.
        rope_theta: base of the wavelengths of RoPE.
        rope_scaling: Llama 3.1's scaling of them, or None.
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
            raise ValueError(
                f"{message}; expected a multiple of it: each serves the same number of query heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; expected an even number: RoPE rotates pairs")
        object.__setattr__(self, "eos_ids", check_eos(self.eos_ids, self.vocab_size))

    @property
    def k_dim(self) -> int:
        """Width of a key of one head."""
        return self.head_dim

    @property
    def v_dim(self) -> int:
        """Width of a value of one head."""
        return self.head_dim

    @property
    def n_parameters(self) -> int:
        """The number of parameters; a tied matrix counts once."""
        C = self.hidden_size
        block = self.attention_parameters + 3 * C * self.intermediate_size + 2 * C
        return (1 if self.tied else 2) * self.vocab_size * C + self.n_layers * block + C

    @property
    def attention_parameters(self) -> int:
        """The number of parameters in the attention of one layer."""
        C, D, H, Hkv = self.hidden_size, self.head_dim, self.n_heads, self.n_kv_heads
        return 2 * C * H * D + 2 * C * Hkv * D + self.qkv_bias * (H + 2 * Hkv) * D

    def cache_nbytes_per_token(self, element_bytes: int = 4) -> int:
        """Bytes of one token's keys and values in all layers: L · Hkv · (Dk + Dv) · element_bytes."""
        return self.n_layers * self.n_kv_heads * (self.k_dim + self.v_dim) * element_bytes


@dataclass(frozen=True, kw_only=True)
class LatentConfig(ModelConfig):
    """Sizes of a model with latent attention (MLA), without query compression. Errors as in `ModelConfig`.

    `head_dim` is the width of a value, and of the part of a query or key that is not rotated. The cache has
    one KV head, whose keys are the latents; values have width 0, because they are computed from the latents.

    Args:
        rank: width of the latent, from which the keys and values of all heads are computed.
        rope_dim: width of the rotated part of the key, which all heads share; even.

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
        """Width of an entry: the latent, then the rotated part of the key."""
        return self.rank + self.rope_dim

    @property
    def v_dim(self) -> int:
        """0: values are computed from the first `rank` numbers of an entry."""
        return 0

    @property
    def attention_parameters(self) -> int:
        """The number of parameters in the attention of one layer, including the norm of the latent."""
        C, D, H, rank = self.hidden_size, self.head_dim, self.n_heads, self.rank
        queries, latents = C * H * (D + self.rope_dim), C * self.k_dim + rank
        return queries + latents + rank * H * 2 * D + H * D * C


@dataclass(frozen=True, kw_only=True)
class StateConfig(ModelConfig):
    """Sizes of a model in which some layers keep a state instead of entries. Errors as in `ModelConfig`.

    Args:
        state_layers: indices of these layers, from 0, in order. The others keep entries.

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
        """The number of parameters; a layer with a state also has a decay for each head, and a norm."""
        return super().n_parameters + len(self.state_layers) * (self.n_heads + self.head_dim)

    def cache_nbytes_per_token(self, element_bytes: int = 4) -> int:
        """Bytes of one token's keys and values, in the layers that keep entries."""
        n_layers = self.n_layers - len(self.state_layers)
        return n_layers * super().cache_nbytes_per_token(element_bytes) // self.n_layers


@dataclass(frozen=True, kw_only=True)
class QKNormConfig(ModelConfig):
    """Sizes of a model that norms each head's query and key (Qwen3). Errors as in `ModelConfig`.

    Source: QK norm, Dehghani et al. 2023, arXiv:2302.05442.
    """

    @property
    def attention_parameters(self) -> int:
        """The number of parameters in the attention of one layer, including both norms."""
        return super().attention_parameters + 2 * self.head_dim


@dataclass(frozen=True, kw_only=True)
class NoPEConfig(ModelConfig):
    """Sizes of a model in which some layers do not rotate (SmolLM3). Errors as in `ModelConfig`.

    Args:
        nope_layers: indices of these layers, from 0, in order. The others rotate.

    Source: RoPE combined with NoPE, Yang et al. 2025, arXiv:2501.18795.
    """

    nope_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nope_layers", check_layers("nope_layers", self.nope_layers, self.n_layers))


def check_layers(name: str, layers: Collection[int], n_layers: int) -> tuple[int, ...]:
    """Return these layers. ValueError unless the model has all of them and they are in order."""
    layers = tuple(check_whole(name, layer, minimum=0) for layer in layers)
    if layers != tuple(sorted({*layers})) or max(layers, default=0) >= n_layers:
        raise ValueError(f"{name} is {layers}; expected some of 0 to {n_layers - 1}, in order")
    return layers


def check_positive(name: str, value: object) -> None:
    """Raise ValueError unless value is a number over 0 that fits into float32."""
    if not is_number(value) or not 0 < value <= LARGEST:  # type: ignore[operator]
        raise ValueError(f"{name} is {reprlib.repr(value)}; expected a number over 0 that fits into float32")


def check_eos(ids: Iterable[int], vocab_size: int) -> tuple[int, ...]:
    """Return ids as a tuple. ValueError unless all are in the vocabulary."""
    ids = tuple(ids)
    for token in ids:
        if not is_whole(token) or not 0 <= token < vocab_size:
            raise ValueError(f"eos id {reprlib.repr(token)} is out of range; expected 0 to {vocab_size - 1}")
    return tuple(map(int, ids))
