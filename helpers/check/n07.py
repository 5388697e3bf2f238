"""Exercises of notebook 07, a whole transformer: `from helpers.check import n07 as check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.model.attention import attend

Operation = Callable[[Tensor], Tensor]
C = 32  # numbers a token, in who_moves


def drawn(seed: int, *shape: int) -> Tensor:
    """Draw odd 128ths, the same each time: none is 0, and sums and means of them are exact."""
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return ((64 * numbers).floor() + 0.5) / 64


def causal_attention(x: Tensor) -> Tensor:
    """Attend with the tokens themselves as queries, keys and values."""
    x, mask = x[:, None], torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return attend(x, x, x, mask, C**-0.5)[:, 0]


def half_handed_on(x: Tensor) -> Tensor:
    """Move the first half of each token's numbers to the next token."""
    return torch.cat([F.pad(x[:, :-1, : C // 2], (0, 0, 1, 0)), x[:, :, C // 2 :]], dim=2)


def operations() -> dict[str, tuple[Operation, Tensor]]:
    """Return operations by name, each with the tokens (1, T, C) that it is tried on."""
    weight, (x3, x4, x5, x6) = drawn(9, C, C), [drawn(50 + T, 1, T, C) for T in (3, 4, 5, 6)]
    return {
        "causal attention": (causal_attention, x5),
        "a linear layer": (lambda x: x @ weight, x3),
        "RMSNorm": (lambda x: x * x.square().mean(dim=2, keepdim=True).rsqrt(), x4),
        "each token less its own mean": (lambda x: x - x.mean(dim=2, keepdim=True), x6),
        "a norm over the wrong axis": (lambda x: x * x.square().mean(dim=1, keepdim=True).rsqrt(), x5),
        "half of each token handed to the next": (half_handed_on, x4),
    }


def run_moves(function: Any, f: Operation, x: Tensor) -> Any:
    """Call a `who_moves`; it may draw random numbers, and torch's own generator is as before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return function(f, x)


def moves(
    change: Callable[[Tensor], Tensor] = lambda token: torch.randn(len(token)),
    differ: Callable[[Tensor, Tensor], Tensor] = lambda now, before: (now != before).any(dim=-1),
    fresh: bool = True,
) -> Callable[[Operation, Tensor], np.ndarray]:
    """Return a `who_moves`: how a token changes, which tokens differ, and whether x is copied each time."""

    def who(f: Operation, x: Tensor) -> np.ndarray:
        before, changed, columns = f(x), x.clone(), []
        for j in range(x.shape[1]):
            changed = x.clone() if fresh else changed
            changed[0, j] = change(changed[0, j])
            columns.append(differ(f(changed), before)[0])
        return torch.stack(columns, dim=1).numpy()

    return who


def moves_difference(got: np.ndarray, expected: np.ndarray) -> str:
    """Tell the first cell that is wrong."""
    j, i = np.argwhere((got != expected).T)[0]
    fact = f"changing token {j} {'changes' if expected[i, j] else 'does not change'} f(x) at {i}"
    return f"gives {got[i, j]} at [{i}, {j}]; expected {expected[i, j]}, as {fact}"


who_moves = Exercise(
    name="who_moves",
    todo="let who_moves change one token at a time, and return bools (T, T).",
    cases=[Case((f, x), f"who_moves on {name}, T = {x.shape[1]},") for name, (f, x) in operations().items()],
    run=run_moves,
    right=moves(),
    wrong=[
        "transposed: line i is what changed, column j what moved it.",
        lambda f, x: moves()(f, x).T,
        "upside down: True where the token changes.",
        lambda f, x: ~moves()(f, x),
        moves(differ=lambda now, before: (now == before).any(dim=-1)),
        "the changes pile up: for each j begin with a fresh copy of x.",
        moves(fresh=False),
        "the change is hidden: an operation may ignore what is added to every number, or a factor. "
        "Change a token at random, and compare number by number.",
        moves(lambda token: token + 1),
        moves(lambda token: 2 * token),
    ],
    success="3 of 6 operations are a diagonal, attention is the lower triangle, and the norm over the wrong "
    "axis mixes every token with every other.",
    difference=moves_difference,
)


def where_tokens_meet(guess: Any, model: Any) -> Guess:
    """Compare a guess with how many learned numbers stand in `attend`, in all layers."""
    learned = sum(p.numel() for layer in model.layers for p in layer.self_attn.core.parameters())
    return Guess(guess, learned, "attend has no matrix: those of attention stand before it and after it.")
