"""A diary that the shipped model completed. It was recorded in advance, so it can be read without PyTorch.

`tools/diary.py` writes two files. diary.json has a run with the cache and one without it, with the attention
weights of all heads of all four layers. name_head.json has the attention weights, in other texts, of the head
that finds names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from helpers.trace import Trace

TRACE_PATH = Path(__file__).with_name("diary.json")
NAME_HEAD_PATH = Path(__file__).with_name("name_head.json")


@dataclass(frozen=True)
class NameHead:
    """Attention weights of the head that finds names (the third of layer 1), in a few texts.

    Attributes:
        vocabulary: the V words that the model knows.
        weights: maps each text, which ends with a name, to the attention weights of the word before that
            name: one weight per word, without the name.
    """

    vocabulary: list[str]
    weights: dict[str, list[float]]


def load_diary() -> Trace:
    """Return the trace of Mia's diary: a prompt of 23 tokens, and the model's reply of 24 sampled words."""
    return Trace.load(TRACE_PATH)


def load_name_head() -> NameHead:
    """Return the recorded attention weights of the head that finds names."""
    return NameHead(**json.loads(NAME_HEAD_PATH.read_text(encoding="utf-8")))
