"""Exercises of notebook 08, trained here: `from helpers.check import n08 as check`."""

from __future__ import annotations

from typing import Any

import torch

from helpers.check.exercise import Case, Exercise
from helpers.check.result import is_tensor, show


def shift_difference(got: Any, expected: Any) -> str:
    """Tell the first sequence that is cut otherwise."""
    b = int((got != expected).any(axis=(0, 2)).argmax())
    pairs = [" with ".join(show(part[b]) for part in parts) for parts in (got, expected)]
    return f"pairs {pairs[0]}; expected {pairs[1]}"


shift_targets = Exercise(
    name="shift_targets",
    todo="let shift_targets return inputs and targets, (B, T) each.",
    cases=[
        Case((ids,), f"shift_targets on ids {(B, T)}", wanted=f"inputs and targets {(B, T - 1)}")
        for B, T in [(2, 6), (3, 4), (1, 9), (4, 2)]
        for ids in [torch.randperm(B * T, generator=torch.Generator().manual_seed(B)).view(B, T)]
    ],
    run=lambda function, ids: [*two] if is_tensor(two := function(ids)) and two.ndim == 3 else two,  # stacked
    right=lambda tokens: (tokens[:, :-1], tokens[:, 1:]),
    wrong=[
        "not shifted: the model is asked for the token that it is given. "
        "One that only repeats it gets a loss near 0.",
        lambda tokens: (tokens[:, :-1], tokens[:, :-1]),
        lambda tokens: (tokens[:, 1:], tokens[:, 1:]),
        "swapped: inputs come first.",
        lambda tokens: (tokens[:, 1:], tokens[:, :-1]),
        "shifted twice: a target is the very next token.",
        lambda tokens: (tokens[:, :-2], tokens[:, 2:]),
        lambda tokens: (tokens[:, :-1], tokens[:, 2:]),
        "the wrong axis: shift tokens, not sequences.",
        lambda tokens: (tokens[:-1], tokens[1:]),
    ],
    success="(2, 6) gives (2, 5) twice, and a model that only repeats its input is wrong at every position.",
    difference=shift_difference,
)
