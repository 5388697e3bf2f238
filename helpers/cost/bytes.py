"""Bytes: rows as a sum over layers by kind, weights by part, what a decode step reads, users that fit.

Every count is exact for what is known here, and refused for the rest: a calculator that guesses misleads.
Sizes of a number, `weight_bytes` and `row_bytes`, are one of FORMATS; the scales that formats of 8 and 4 bits
add are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.arguments import check_whole

if TYPE_CHECKING:
    from helpers.cost.models import PublishedModel
    from helpers.model.config import ModelConfig

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


@dataclass(frozen=True)
class Full(Kind):
    """Keeps every token's row, a key and a value a KV head: MHA, GQA, MQA differ in `n_kv_heads` alone."""

    n_kv_heads: int
    k_dim: int
    v_dim: int

    @property
    def row(self) -> int:
        return self.n_kv_heads * (self.k_dim + self.v_dim)


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


@dataclass(frozen=True)
class State(Kind):
    """One state of `numbers` numbers, which every token overwrites (recurrent and linear layers)."""

    numbers: int

    @property
    def row(self) -> int:
        return self.numbers

    def rows(self, tokens: int) -> int:
        return 1


def cache_nbytes(layers: Sequence[Kind], tokens: int, row_bytes: float = 2) -> int:
    """Return the bytes that the rows of a sequence of `tokens` tokens need."""
    check_whole("tokens", tokens, least=0)
    return nbytes_of(sum(layer.rows(tokens) * layer.row for layer in layers), row_bytes)


def nbytes_of(numbers: int, each: float = 2) -> int:
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


def weights_by_part(model: ModelConfig | PublishedModel) -> dict[str, int]:
    """Return the numbers in each part of a dense model of the Llama family; a tied LM head has none.

    Raises:
        ValueError: the parts do not add up to `n_parameters`, so the model is of another kind (a mixture of
            experts, or GPT-2 with its learned positions).
    """
    L, H, Hkv, D, C = model.n_layers, model.n_heads, model.n_kv_heads, model.head_dim, model.hidden_size
    table = model.vocab_size * C
    parts = {
        "embedding": table,
        "attention": L * (2 * C * H * D + 2 * C * Hkv * D + model.qkv_bias * (H + 2 * Hkv) * D),
        "MLP": L * 3 * C * model.intermediate_size,
        "norms": (2 * L + 1) * C,
        "LM head": 0 if model.tied else table,
    }
    if sum(parts.values()) != model.n_parameters:
        raise ValueError(
            f"{getattr(model, 'name', 'this model')} has {model.n_parameters:,} parameters, and as a dense "
            f"model of the Llama family it would have {sum(parts.values()):,}; the parts of "
            "others are not known here"
        )
    return parts


def read_by_step(
    model: ModelConfig | PublishedModel,
    tokens: int,
    *,
    users: int = 1,
    weight_bytes: float = 2,
    row_bytes: float = 2,
) -> dict[str, int]:
    """Return the bytes that one decode step reads, by part, and those of the new rows that it writes.

    Args:
        model: a dense model of the Llama family.
        tokens: tokens that each user's newest one sees, itself among them.
        users: sequences in the step: the weights are read once for all, rows for each.
        weight_bytes, row_bytes: size of a number.

    Returns:
        Bytes, in the order of a step; of the embedding one row a user, of the LM head the whole matrix, tied
        or not.

    Raises:
        ValueError: the parts of this model are not known.
    """
    numbers = weights_by_part(model) | {
        "embedding": users * model.hidden_size,
        "LM head": model.vocab_size * model.hidden_size,
    }
    layers = layers_of(model)
    read = {part: nbytes_of(n, weight_bytes) for part, n in numbers.items()}
    read["rows"] = users * cache_nbytes(layers, tokens, row_bytes)
    read["new rows"] = users * cache_nbytes(layers, 1, row_bytes)
    return read


def experts_read(n_experts: int, n_chosen: int, tokens: int) -> float:
    """Return how many experts of a layer a pass over so many tokens reads, on average.

    Each token chooses `n_chosen` of them, all equally likely and whatever the others choose. Those of words
    that stand in one text are more alike, so fewer are read.
    """
    if check_whole("n_chosen", n_chosen) > check_whole("n_experts", n_experts):
        raise ValueError(f"n_chosen is {n_chosen}; expected at most n_experts, {n_experts}")
    return n_experts * (1 - (1 - n_chosen / n_experts) ** check_whole("tokens", tokens, least=0))
