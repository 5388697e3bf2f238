"""A diary that the shipped model finished, recorded in advance, so that reading it does not need PyTorch.

`tools/diary.py` writes two files. diary.json has a run with the cache and one without it, with the attention
weights of all heads of all four layers. diary_lines.json has the logits of one pass over the whole text, as
in training; other replies to the same prompt; and the attention weights on names, in other texts, of the head
that finds names.
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
    """The logits of one pass over the diary, and other results for its prompt.

    Attributes:
        words: the text, T + 1 words.
        vocabulary: the V words that the model knows.
        logits: an array of shape (T, V), with one row for each word except the last.
        replies: replies to the same prompt, by how their words were chosen, all with the same seed.
        name_head_weights: short texts that end with a name, each with the attention weights of the word
            before that name in the head that finds names (the third of layer 1): one weight for each word
            except the last.
    """

    words: list[str]
    vocabulary: list[str]
    logits: np.ndarray
    replies: dict[str, str]
    name_head_weights: dict[str, list[float]]

    @property
    def probabilities(self) -> list[float]:
        """The T probabilities that the rows of `logits` give to the word that follows."""
        targets = [self.vocabulary.index(word) for word in self.words[1:]]
        return [float(p[target]) for p, target in zip(softmax(self.logits), targets, strict=True)]


def load_diary() -> Trace:
    """Return the trace of Mia's diary: 23 tokens, and 24 sampled words with which the model ends the text."""
    return Trace.load(TRACE_PATH)


def load_diary_logits() -> DiaryLogits:
    """Return the logits of one pass over the 47 words of the diary, except the last."""
    fields = json.loads(LOGITS_PATH.read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(fields["logits"]), "<i2") / 1000
    fields["logits"] = logits.reshape(-1, len(fields["vocabulary"]))
    return DiaryLogits(**fields)
