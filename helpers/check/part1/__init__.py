"""Checkers of notebooks 01 to 04; positions, rows and layers count from 1 in what they say."""

from helpers.check.part1.decode import count_work, generate
from helpers.check.part1.four_heads import attend, pick_even, table
from helpers.check.part1.kv_cache import decode_step, mask, reuse_rows, stale
from helpers.check.part1.prefill import change_future, order_prefill, prefill_lines

__all__ = [
    "attend",
    "change_future",
    "count_work",
    "decode_step",
    "generate",
    "mask",
    "order_prefill",
    "pick_even",
    "prefill_lines",
    "reuse_rows",
    "stale",
    "table",
]
