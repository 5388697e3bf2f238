"""What each type of layer caches for a sequence, the size of the cache in bytes, and how many users fit.

FORMATS has the possible sizes of a number. The scales that 8-bit and 4-bit formats add are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.validate import check_whole

if TYPE_CHECKING:
    from helpers.cost.models import PublishedModel
    from helpers.model.config import ModelConfig

GIB = 2**30
BYTES_PER_NUMBER = (4, 2, 1, 0.5)  # bytes per number: float32, 16 bits, 8 bits, 4 bits


@dataclass(frozen=True)
class LayerType:
    """What a layer caches for one sequence.

    Raises:
        ValueError: a size is not a whole number of at least 1.
    """

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            check_whole(f"{type(self).__name__}.{name}", size)

    @property
    def entry_size(self) -> int:
        """How many numbers one KV entry has. Each token has an entry; a state is one entry per sequence."""
        raise NotImplementedError

    def n_entries(self, tokens: int) -> int:
        """Return how many entries the layer stores for a sequence of `tokens` tokens."""
        return tokens

    def n_copies(self, cards: int) -> float:
        """Return how many copies of an entry are stored in total when `cards` cards share each layer."""
        return 1


@dataclass(frozen=True)
class Full(LayerType):
    """Stores a key and a value per KV head for every token. MHA, GQA and MQA differ only in `n_kv_heads`."""

    n_kv_heads: int
    k_dim: int
    v_dim: int

    @property
    def entry_size(self) -> int:
        return self.n_kv_heads * (self.k_dim + self.v_dim)

    def n_copies(self, cards: int) -> float:
        return max(1, cards / self.n_kv_heads)  # a card has at least one KV head


@dataclass(frozen=True)
class Window(Full):
    """Stores a key and a value per KV head, but only for the newest `window` tokens."""

    window: int

    def n_entries(self, tokens: int) -> int:
        return min(tokens, self.window)


@dataclass(frozen=True)
class Latent(LayerType):
    """Stores one vector per token, from which all heads compute K and V (MLA).

    The vector has `rank` numbers, and `rope_dim` more to which the rotation is applied.

    Source: DeepSeek-AI 2024, arXiv:2405.04434.
    """

    rank: int
    rope_dim: int

    @property
    def entry_size(self) -> int:
        return self.rank + self.rope_dim

    def n_copies(self, cards: int) -> float:
        return cards  # each card has other query heads, and all of them read the whole entry


@dataclass(frozen=True)
class State(LayerType):
    """Stores one state of `numbers` numbers, which each token updates (recurrent and linear attention)."""

    numbers: int

    @property
    def entry_size(self) -> int:
        return self.numbers

    def n_entries(self, tokens: int) -> int:
        return 1


def cache_nbytes(
    layers: Sequence[LayerType], tokens: int, bytes_per_number: float = 2, cards: int = 1
) -> int:
    """Return the size, in bytes, of the KV cache of one sequence of `tokens` tokens.

    Args:
        layers: the type of each layer.
        bytes_per_number: one of FORMATS.
        cards: how many cards share each layer (tensor parallelism). The result is their total, including
            copies.
    """
    check_whole("tokens", tokens, minimum=0)
    check_whole("cards", cards)
    numbers = sum(layer.n_entries(tokens) * layer.entry_size * layer.n_copies(cards) for layer in layers)
    return nbytes_of(numbers, bytes_per_number)


def nbytes_of(numbers: float, bytes_per_number: float = 2) -> int:
    """Return the size of `numbers` numbers in bytes.

    Raises:
        ValueError: `bytes_per_number` is not in FORMATS.
    """
    if bytes_per_number not in BYTES_PER_NUMBER:
        expected = ", ".join(map(str, BYTES_PER_NUMBER))
        raise ValueError(f"got {bytes_per_number!r} bytes per number; expected one of {expected}")
    return math.ceil(numbers * bytes_per_number)


def users_that_fit(memory_nbytes: float, weights_nbytes: float, user_nbytes: float) -> int:
    """Return how many users' KV entries fit in memory next to the weights; 0 if not even the weights fit."""
    return max(0, math.floor((memory_nbytes - weights_nbytes) / user_nbytes))


def layer_types_of(model: ModelConfig | PublishedModel) -> Sequence[LayerType]:
    """Return the layer types of a `PublishedModel` or a `ModelConfig`."""
    if hasattr(model, "layers"):
        return model.layers
    if hasattr(model, "rank"):
        return [Latent(model.rank, model.rope_dim)] * model.n_layers  # type: ignore[attr-defined]
    full, state_layers = Full(model.n_kv_heads, model.k_dim, model.v_dim), getattr(model, "state_layers", ())
    state = State(model.n_heads * model.k_dim * model.v_dim)
    return [state if layer in state_layers else full for layer in range(model.n_layers)]
