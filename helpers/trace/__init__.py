"""The record of a run: what every pass of a decoder did, counted while it ran.

A `Recorder` is handed to a model, which calls it at two places: where new rows enter the cache, and
where attention is worked out. A `Trace` comes out; every view reads it. `compare` finds the first
place where two of them part.
"""

from helpers.trace.compare import Comparison, compare
from helpers.trace.format import validate
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
    is_utf8,
    spread,
    weight_key,
    write_whole,
)
from helpers.trace.recorder import Recorder, attention_weights

__all__ = [
    "Comparison",
    "Drop",
    "Model",
    "Other",
    "Output",
    "Part",
    "Pass",
    "Recorder",
    "Run",
    "Token",
    "TokenSequence",
    "Trace",
    "TraceError",
    "Values",
    "attention_weights",
    "compare",
    "gather",
    "is_utf8",
    "spread",
    "validate",
    "weight_key",
    "write_whole",
]
