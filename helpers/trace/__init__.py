"""Traces: records of what a decoder did in each pass, or an engine in each step.

`helpers.recording` records traces while a decoder or an engine runs, and all views read them. `compare` finds
the first difference between two traces. `FORMAT.md` documents the format.
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
