"""A diary that the shipped model completed. It was recorded in advance, so it can be read without PyTorch.

`tools/diary.py` writes two files. diary.json has the trace of a run with a cache and a run without one, with
the attention weights of all heads in all four layers. diary_lines.json has the logits of one pass over the
whole diary, as in training. It also has other replies to the same prompt, and attention weights in short
texts that end with a name, for the head that finds names.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.sampling import softmax
from helpers.trace import Trace

TRACE_PATH = Path(__file__).with_name("diary.json")
LOGITS_PATH = Path(__file__).with_name("diary_lines.json")


@dataclass(frozen=True)
class DiaryLogits:
    """The logits of one pass over the diary, other replies to the same prompt, and weights of one head.

    Attributes:
        words: the T + 1 words of the diary.
        vocabulary: the V words that the model knows.
        logits: logits of shape (T, V), with one row for each word of the diary except the last.
        replies: replies to the diary's prompt, by the method with which their words were chosen. All sampled
            replies have the same seed.
        name_head_weights: attention weights by text, for several short texts that end with a name. The head
            is the one that finds names, the third in layer 1. The query is the word before the final name,
            and there is one weight for each word of the text except that name.
    """

    words: list[str]
    vocabulary: list[str]
    logits: np.ndarray
    replies: dict[str, str]
    name_head_weights: dict[str, list[float]]

    @property
    def probabilities(self) -> list[float]:
        """The probability that the model gives to each word of the diary except the first.

        There are T probabilities. Each is computed from the logits at the preceding word.
        """
        targets = [self.vocabulary.index(word) for word in self.words[1:]]
        return [float(p[target]) for p, target in zip(softmax(self.logits), targets, strict=True)]


def load_diary() -> Trace:
    """Return the trace of Mia's diary: a prompt of 23 tokens, and the model's reply of 24 sampled words."""
    return Trace.load(TRACE_PATH)


def load_diary_logits() -> DiaryLogits:
    """Return the logits of one pass over the first 46 of the diary's 47 words, and related results."""
    fields = json.loads(LOGITS_PATH.read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(fields["logits"]), "<i2") / 1000
    fields["logits"] = logits.reshape(-1, len(fields["vocabulary"]))
    return DiaryLogits(**fields)
