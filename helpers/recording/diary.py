"""A diary that the shipped model finished, recorded once: real words where there is no torch.

`.ci/record_diary.py` makes diary.json: both runs, and the attention weights of all four layers and heads.
"""

from __future__ import annotations

from pathlib import Path

from helpers.trace import Trace

PATH = Path(__file__).with_name("diary.json")


def load_diary() -> Trace:
    """Return the trace: 23 tokens of Mia's diary, and the 24 words, sampled, with which the model ends it."""
    return Trace.load(PATH)
