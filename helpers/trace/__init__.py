"""The record of a run: what every pass of a decoder did, counted while it ran.

`helpers.recording` runs a decoder and makes one; every view reads it. `compare` finds the first place where
two of them part.
"""

from helpers.trace.compare import compare
from helpers.trace.record import (
    Drop,
    Model,
    Other,
    Output,
    Part,
    Pass,
    Run,
    Token,
    TokenSequence,
    Trace,
    TraceError,
    Values,
    gather,
    spread,
    weight_key,
    write_whole,
)

__all__ = [
    "Drop",
    "Model",
    "Other",
    "Output",
    "Part",
    "Pass",
    "Run",
    "Token",
    "TokenSequence",
    "Trace",
    "TraceError",
    "Values",
    "compare",
    "gather",
    "spread",
    "weight_key",
    "write_whole",
]
