"""What each type of layer caches per sequence, the size of this cache, and the number of users that fit.

BYTES_PER_NUMBER lists the possible sizes of one value. The scales that 8-bit and 4-bit formats store in
addition are not counted.
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
BYTES_PER_NUMBER = (4, 2, 1, 0.5)  # bytes per value: float32, 16 bits, 8 bits, 4 bits


@dataclass(frozen=True)
class LayerType:
    """The base class of layer types, which describe what a layer caches for one sequence.

    Raises:
        ValueError: a field is not a whole number of at least 1.
    """

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            check_whole(f"{type(self).__name__}.{name}", size)

    @property
    def entry_size(self) -> int:
        """The number of values in one cache entry.

        An entry is a token's keys and values in this layer, its latent, or the state of a whole sequence.
        """
        raise NotImplementedError

    def n_entries(self, tokens: int) -> int:
        """Return the number of entries that the layer stores for a sequence of `tokens` tokens."""
        return tokens

    def n_copies(self, cards: int) -> float:
        """Return the number of copies of an entry that `cards` cards with tensor parallelism store in total.

        It is 1 if each entry is divided among the cards. It need not be a whole number, because some KV heads
        may be stored on more cards than others.
        """
        return 1

    def n_stored(self, tokens: int, cards: int = 1) -> float:
        """Return the number of values that `cards` cards store for a sequence of `tokens` tokens."""
        return self.n_entries(tokens) * self.entry_size * self.n_copies(cards)

    def n_attended(self, tokens: int) -> int:
        """Return the number of entries that a query attends to, among those of `tokens` tokens."""
        return self.n_entries(tokens)

    def n_read(self, cached: int, new: int = 1, cards: int = 1) -> float:
        """Return the number of values that `cards` cards read of `cached` cached tokens.

        Args:
            cached: number of tokens in the cache.
            new: number of new tokens in the pass: 1 in a decode step.
            cards: number of cards, as in `n_copies`.
        """
        return self.n_stored(cached, cards)


@dataclass(frozen=True)
class Full(LayerType):
    """A layer that caches one key and one value per KV head for every token.

    MHA, GQA and MQA differ only in `n_kv_heads`.
    """

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
    """A layer that caches one key and one value per KV head, but only for the newest `window` tokens."""

    window: int

    def n_entries(self, tokens: int) -> int:
        return min(tokens, self.window)


@dataclass(frozen=True)
class Latent(LayerType):
    """A layer that caches one vector per token, from which all heads compute K and V (MLA).

    The vector has `rank` channels without position information, and `rope_dim` channels that RoPE rotates.

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
class Indexer(LayerType):
    """The part of a layer that selects tokens: it caches one key per token, which all of its heads share."""

    n_heads: int
    k_dim: int

    @property
    def entry_size(self) -> int:
        return self.k_dim

    def n_copies(self, cards: int) -> float:
        return cards  # each card has to know which tokens are selected


@dataclass(frozen=True)
class Selected(LayerType):
    """A layer that caches an entry for every token, of which each query reads a selection (sparse attention).

    Source: DeepSeek-AI 2025, arXiv:2512.02556.

    Args:
        entry: what the layer caches for a token, apart from the indexer's key.
        n_chosen: maximum number of entries that a query reads.
        indexer: the indexer, whose keys a query reads all; None if the layer uses the selection of an earlier
            layer.
    """

    entry: Full | Latent
    n_chosen: int
    indexer: Indexer | None

    def __post_init__(self) -> None:
        check_whole("Selected.n_chosen", self.n_chosen)

    @property
    def entry_size(self) -> int:
        return self.entry.entry_size + (self.indexer.entry_size if self.indexer else 0)

    def n_stored(self, tokens: int, cards: int = 1) -> float:
        keys = self.indexer.n_stored(tokens, cards) if self.indexer else 0
        return self.entry.n_stored(tokens, cards) + keys

    def n_attended(self, tokens: int) -> int:
        return min(tokens, self.n_chosen)

    def n_read(self, cached: int, new: int = 1, cards: int = 1) -> float:
        """Return the number of values read, as if no two of the new tokens chose the same entry."""
        keys = self.indexer.n_stored(cached, cards) if self.indexer else 0
        return self.entry.n_stored(min(cached, new * self.n_chosen), cards) + keys


@dataclass(frozen=True)
class State(LayerType):
    """A layer that keeps one state per sequence, which every token updates (recurrent or linear attention).

    `numbers` is the number of values in the state.
    """

    numbers: int

    @property
    def entry_size(self) -> int:
        return self.numbers

    def n_entries(self, tokens: int) -> int:
        return 1


def cache_nbytes(
    layers: Sequence[LayerType], tokens: int, bytes_per_number: float = 2, cards: int = 1
) -> int:
    """Return the size in bytes of the KV cache for one sequence of `tokens` tokens.

    Args:
        layers: the type of each layer.
        tokens: number of tokens in the sequence.
        bytes_per_number: bytes per value, one of BYTES_PER_NUMBER.
        cards: number of cards that share each layer (tensor parallelism). The result is the total over all
            cards, including copies.
    """
    check_whole("tokens", tokens, minimum=0)
    check_whole("cards", cards)
    return nbytes_of(sum(layer.n_stored(tokens, cards) for layer in layers), bytes_per_number)


def nbytes_of(numbers: float, bytes_per_number: float = 2) -> int:
    """Return the size in bytes of `numbers` stored values.

    Raises:
        ValueError: `bytes_per_number` is not in BYTES_PER_NUMBER.
    """
    if bytes_per_number not in BYTES_PER_NUMBER:
        expected = ", ".join(map(str, BYTES_PER_NUMBER))
        raise ValueError(f"got {bytes_per_number!r} bytes per number; expected one of {expected}")
    return math.ceil(numbers * bytes_per_number)


def users_that_fit(memory_nbytes: float, weights_nbytes: float, user_nbytes: float) -> int:
    """Return the number of users whose KV entries fit in memory together with the weights.

    It is 0 if the weights do not fit.
    """
    return max(0, math.floor((memory_nbytes - weights_nbytes) / user_nbytes))


def layer_types_of(model: ModelConfig | PublishedModel) -> Sequence[LayerType]:
    """Return the type of each layer of a model, described by a `PublishedModel` or a `ModelConfig`."""
    if hasattr(model, "layers"):
        return model.layers
    if hasattr(model, "rank"):
        return [Latent(model.rank, model.rope_dim)] * model.n_layers  # type: ignore[attr-defined]
    full, state_layers = Full(model.n_kv_heads, model.k_dim, model.v_dim), getattr(model, "state_layers", ())
    state = State(model.n_heads * model.k_dim * model.v_dim)
    return [state if layer in state_layers else full for layer in range(model.n_layers)]
