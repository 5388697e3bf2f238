"""A diary that the shipped model finished, recorded once: a real text that needs no PyTorch.

`tools/diary.py` writes two files. diary.json has both runs with the attention weights of all four layers and
heads. diary_lines.json has the logits of one pass over the whole text, as in training, other replies to the
same prompt, and the attention weights that the head that finds names gives in other texts.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.sampling import softmax
from helpers.trace import Trace

PATH = Path(__file__).with_name("diary.json")
LOGITS_PATH = Path(__file__).with_name("diary_lines.json")


@dataclass(frozen=True)
class DiaryLogits:
    """The logits of one pass over the diary, and what else was computed for its prompt.

    Attributes:
        words: the text, T + 1 words.
        vocabulary: the words that the model knows, V.
        logits: (T, V), a row for each word except the last.
        replies: replies to the same prompt, by how their words were chosen, all with the same seed.
        looks: short texts that end with a name, each with the attention weights, in one head (the third of
            layer 1), of the word before that name: one weight for each word except the last.
    """

    words: list[str]
    vocabulary: list[str]
    logits: np.ndarray
    replies: dict[str, str]
    looks: dict[str, list[float]]

    @property
    def probabilities(self) -> list[float]:
        """The probability that each row gives to the word that does come next, T numbers."""
        targets = [self.vocabulary.index(word) for word in self.words[1:]]
        return [float(p[target]) for p, target in zip(softmax(self.logits), targets, strict=True)]


def load_diary() -> Trace:
    """Return the trace of 23 tokens of Mia's diary and the 24 sampled words with which the model ends it."""
    return Trace.load(PATH)


def load_diary_logits() -> DiaryLogits:
    """Return the logits of one pass over the same 47 words, except the last."""
    fields = json.loads(LOGITS_PATH.read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(fields["logits"]), "<i2") / 1000
    fields["logits"] = logits.reshape(-1, len(fields["vocabulary"]))
    return DiaryLogits(**fields)
