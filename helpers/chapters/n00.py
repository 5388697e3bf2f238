"""What notebook 00, start here, uses beside its views: where one head looked."""

from __future__ import annotations

from helpers.drawing.canvas import Picture
from helpers.plots.attention import name_weights
from helpers.trace import Trace


def looked_at(trace: Trace, word: str, layer: int, head: int) -> Picture:
    """Draw where one head, layer and head from 0, looked when a word ran, and the word that came out."""
    words = [token.text for token in trace.sequences[0].tokens]
    at = words.index(word)
    return name_weights(words[: at + 1], trace.attention_weights(at, layer, head), then=words[at + 1])
