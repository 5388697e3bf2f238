"""Checkers of notebooks 05 to 08; positions, heads and layers count from 0 in what they say."""

from helpers.check.part2.prefill_decode import append, may_differ, predict_tpot
from helpers.check.part2.projections import cached_step, split_heads, torch_mask
from helpers.check.part2.transformer import count_parameters, shift_targets, who_moves
from helpers.check.part2.your_model import (
    bytes_per_token,
    first_difference,
    hidden_states,
    longest_context,
    misread,
)

__all__ = [
    "append",
    "bytes_per_token",
    "cached_step",
    "count_parameters",
    "first_difference",
    "hidden_states",
    "longest_context",
    "may_differ",
    "misread",
    "predict_tpot",
    "shift_targets",
    "split_heads",
    "torch_mask",
    "who_moves",
]
