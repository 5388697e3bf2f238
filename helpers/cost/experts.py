"""Experts that a pass over several tokens reads."""

from __future__ import annotations

from helpers.validate import check_whole


def experts_read(n_experts: int, n_chosen: int, tokens: int) -> float:
    """Return how many experts of a layer a pass over so many tokens reads, on average.

    Each token chooses `n_chosen` of them, all equally likely and whatever the others choose. Those of words
    that stand in one text are more alike, so fewer are read.
    """
    if check_whole("n_chosen", n_chosen) > check_whole("n_experts", n_experts):
        raise ValueError(f"n_chosen is {n_chosen}; expected at most n_experts, {n_experts}")
    return n_experts * (1 - (1 - n_chosen / n_experts) ** check_whole("tokens", tokens, minimum=0))
