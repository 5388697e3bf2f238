"""The number of a layer's experts that are read in a pass over several tokens."""

from __future__ import annotations

from helpers.validate import check_whole


def expected_experts_read(n_experts: int, n_chosen: int, tokens: int) -> float:
    """Return the expected number of a layer's experts that are read in a pass over `tokens` tokens.

    Each token is assumed to choose `n_chosen` of the `n_experts` experts uniformly and independently. In
    practice, the tokens of one sequence tend to choose the same experts, so fewer experts are read.
    """
    if check_whole("n_chosen", n_chosen) > check_whole("n_experts", n_experts):
        raise ValueError(f"n_chosen is {n_chosen}; expected at most n_experts, {n_experts}")
    return n_experts * (1 - (1 - n_chosen / n_experts) ** check_whole("tokens", tokens, minimum=0))
