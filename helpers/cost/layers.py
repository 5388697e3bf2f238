"""What a layer keeps of a sequence, by kind; the bytes of rows as a sum over layers, and users that fit.

Sizes of a number are one of FORMATS; the scales that formats of 8 and 4 bits add are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers.validate import check_whole

GIB = 2**30
FORMATS = (4, 2, 1, 0.5)  # bytes a number: float32, 16 bits, 8 bits, 4 bits


@dataclass(frozen=True)
class Kind:
    """What a layer keeps of a sequence; ValueError for a size that is no whole number over 0."""

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            check_whole(f"{type(self).__name__}.{name}", size)

    @property
    def row(self) -> int:
        """Numbers in a row."""
        raise NotImplementedError

    def rows(self, tokens: int) -> int:
        """Rows kept of so many tokens."""
        return tokens

    def copies(self, cards: int) -> float:
        """Return how many copies of a row so many cards keep, all together, if they share each layer."""
        return 1


@dataclass(frozen=True)
class Full(Kind):
    """Keeps every token's row, a key and a value a KV head: MHA, GQA, MQA differ in `n_kv_heads` alone."""

    n_kv_heads: int
    k_dim: int
    v_dim: int

    @property
    def row(self) -> int:
        return self.n_kv_heads * (self.k_dim + self.v_dim)

    def copies(self, cards: int) -> float:
        return max(1, cards / self.n_kv_heads)  # a card has at least one KV head


@dataclass(frozen=True)
class Window(Full):
    """Needs such rows of the newest `window` tokens alone."""

    window: int

    def rows(self, tokens: int) -> int:
        return min(tokens, self.window)


@dataclass(frozen=True)
class Latent(Kind):
    """One list for K, V and all heads: a row is `rank` numbers and `rope_dim` rotated ones (MLA).

    Source: DeepSeek-AI 2024, arXiv:2405.04434.
    """

    rank: int
    rope_dim: int

    @property
    def row(self) -> int:
        return self.rank + self.rope_dim

    def copies(self, cards: int) -> float:
        return cards  # each has other query heads, and all of them read the whole row


@dataclass(frozen=True)
class State(Kind):
    """One state of `numbers` numbers, which every token overwrites (recurrent and linear layers)."""

    numbers: int

    @property
    def row(self) -> int:
        return self.numbers

    def rows(self, tokens: int) -> int:
        return 1


def cache_nbytes(layers: Sequence[Kind], tokens: int, row_bytes: float = 2, cards: int = 1) -> int:
    """Return the bytes that the KV entries of a sequence of `tokens` tokens need.

    Args:
        cards: that share each layer (tensor parallel); the bytes are those of all of them, copies included.
    """
    check_whole("tokens", tokens, minimum=0)
    check_whole("cards", cards)
    return nbytes_of(sum(one.rows(tokens) * one.row * one.copies(cards) for one in layers), row_bytes)


def nbytes_of(numbers: float, each: float = 2) -> int:
    """Return the bytes of so many numbers. ValueError unless `each` is one of FORMATS."""
    if each not in FORMATS:
        raise ValueError(f"a number of {each!r} bytes; expected one of {', '.join(map(str, FORMATS))}")
    return math.ceil(numbers * each)


def users_that_fit(memory_nbytes: float, weights_nbytes: float, user_nbytes: float) -> int:
    """Return how many users' rows fit beside the weights; 0 where the weights alone do not."""
    return max(0, math.floor((memory_nbytes - weights_nbytes) / user_nbytes))


def layers_of(model: Any) -> Sequence[Kind]:
    """Return the kind of each layer: `model.layers`; of a `ModelConfig`, latent, state or full attention."""
    if hasattr(model, "layers"):
        return model.layers
    if hasattr(model, "rank"):
        return [Latent(model.rank, model.rope_dim)] * model.n_layers
    rows, states = Full(model.n_kv_heads, model.k_dim, model.v_dim), getattr(model, "state_layers", ())
    state = State(model.n_heads * model.k_dim * model.v_dim)
    return [state if layer in states else rows for layer in range(model.n_layers)]
