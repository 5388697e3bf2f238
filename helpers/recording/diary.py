"""A diary that the shipped model finished, recorded once: real words where there is no torch.

`tools/diary.py` makes diary.json, both runs with the attention weights of all four layers and heads, and
diary_lines.json, the logits of one pass over the whole text, as in training, other replies, and where the
head that finds names looks in other texts.
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
LINES = Path(__file__).with_name("diary_lines.json")


@dataclass(frozen=True)
class Lines:
    """What one pass over a text says at each of its tokens but the last about the token that comes next.

    Attributes:
        words: the text, T + 1 words.
        vocabulary: the words that the model knows, V.
        logits: (T, V), a line for each word but the last.
        replies: how the same prompt goes on, by how the words are chosen, all with one seed.
        looks: short texts that end with a name, each with the weights, under one head (the third of layer 1),
            of the word before that name: one for every word but the last.
    """

    words: list[str]
    vocabulary: list[str]
    logits: np.ndarray
    replies: dict[str, str]
    looks: dict[str, list[float]]

    @property
    def probabilities(self) -> list[float]:
        """The probability that each line gave to the word that does come next, T numbers."""
        targets = [self.vocabulary.index(word) for word in self.words[1:]]
        return [float(p[target]) for p, target in zip(softmax(self.logits), targets, strict=True)]


def load_diary() -> Trace:
    """Return the trace: 23 tokens of Mia's diary, and the 24 words, sampled, with which the model ends it."""
    return Trace.load(PATH)


def load_lines() -> Lines:
    """Return what one pass over the same 47 words, all but the last, says at each of them."""
    plain = json.loads(LINES.read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(plain["logits"]), "<i2") / 1000
    plain["logits"] = logits.reshape(-1, len(plain["vocabulary"]))
    return Lines(**plain)
