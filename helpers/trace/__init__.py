"""Traces: what each pass of a decoder, or each step of an engine, did, counted while it ran.

`helpers.recording` writes traces, and every view reads them. `compare` finds the first difference between two
traces. `FORMAT.md` documents the format.
"""

from helpers.trace.compare import compare
from helpers.trace.document import TraceError
from helpers.trace.engine import EngineTrace, RequestTrace, Share, Step
from helpers.trace.record import (
    FULL,
    Kept,
    Model,
    Output,
    Part,
    Pass,
    Run,
    Token,
    TokenSequence,
    Trace,
    Values,
    gather,
    spread,
    weight_key,
)
from helpers.trace.spelling import join, spell
from helpers.trace.words import WordComparison, WordLogits, compare_words, read_logprobs, rounding_limit
