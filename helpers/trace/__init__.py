"""The record of a run: what every pass of a decoder did, or every step of an engine, counted while it ran.

`helpers.recording` makes one; every view reads it. `compare` finds the first place where
two of them part. `FORMAT.md` is the page on how they are written.
"""

from helpers.trace.compare import compare
from helpers.trace.document import TraceError
from helpers.trace.engine import EngineTrace, RequestTrace, Share, Step
from helpers.trace.places import Place, Said, logprobs, places, rounding
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
