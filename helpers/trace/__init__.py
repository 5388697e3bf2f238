"""Traces: what each pass of a decoder, or each step of an engine, did, counted while it ran.

`helpers.recording` writes traces, and every view reads them. `compare` finds the first difference between two
traces. `FORMAT.md` documents the format.
"""

from helpers.trace.compare import compare
from helpers.trace.document import TraceError
from helpers.trace.engine import EngineTrace, RequestTrace, Share, Step
from helpers.trace.record import (
    WEIGHT_SCALE,
    Candidate,
    Kept,
    LayerHead,
    Model,
    Output,
    Part,
    Pass,
    Run,
    Token,
    TokenSequence,
    Trace,
    Values,
    indices_of_ranges,
    ranges_of_indices,
    weight_key,
)
from helpers.trace.spelling import join_token_texts, text_of_bytes
from helpers.trace.words import WordComparison, WordLogits, compare_words, read_logprobs, rounding_limit
