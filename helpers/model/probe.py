"""Try an operation to find out what it does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def who_moves(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Find out which tokens can change which rows of an operation's output.

    Args:
        f: the operation, (1, T, C) to (1, T, anything).
        x: numbers to try it on, (1, T, C).

    Returns:
        Bools, (T, T): True at [i, j] if other numbers in token j change row i of f(x). Random ones are put
        there: a norm would hide a change that only makes a token longer.
    """
    before, columns = f(x), []
    for j in range(x.shape[1]):
        changed = x.clone()
        changed[0, j] = torch.randn(x.shape[2])
        columns.append((f(changed) != before).any(dim=-1)[0])
    return torch.stack(columns, dim=1)
