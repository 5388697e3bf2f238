"""The figure of notebook 00, start here: where one head looked."""

from __future__ import annotations

from helpers.drawing.canvas import Picture
from helpers.plots.attention import attention_in_text
from helpers.trace import Trace


def attention_of_word(trace: Trace, word: str, layer: int, head: int) -> Picture:
    """Draw one head's attention weights when a word was processed, and the word that came next.

    Args:
        trace: of one sequence, with the weights of this head.
        word: the query, the first token with this text.
        layer, head: indices, from 0.
    """
    words = [token.text for token in trace.sequences[0].tokens]
    at = words.index(word)
    return attention_in_text(words[: at + 1], trace.attention_weights(at, layer, head), words[at + 1])
