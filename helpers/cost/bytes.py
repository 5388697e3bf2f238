"""Bytes of a model: weights by part, and what a decode step reads.

Every count is exact for what is known here, and refused for the rest: a calculator that guesses misleads.
Sizes of a number, `weight_bytes` and `row_bytes`, are one of `layers.FORMATS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.arguments import check_whole
from helpers.cost.layers import cache_nbytes, layers_of, nbytes_of

if TYPE_CHECKING:
    from helpers.cost.models import PublishedModel
    from helpers.model.config import ModelConfig


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
