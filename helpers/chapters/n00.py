"""The figure of notebook 00, start here: the attention weights of one head."""

from __future__ import annotations

from helpers.drawing.canvas import Picture
from helpers.plots.attention import attention_in_text
from helpers.trace import Trace


def attention_of_word(trace: Trace, word: str, layer: int, head: int) -> Picture:
    """Draw a head's attention weights in the step that processed a word, and the word that came next.

    Args:
        trace: the trace of one sequence, with the attention weights of this head.
        word: the text of the token whose query is drawn. If several tokens have this text, it is the first.
        layer, head: indices of the layer and of the head, from 0.
    """
    words = [token.text for token in trace.sequences[0].tokens]
    at = words.index(word)
    return attention_in_text(words[: at + 1], trace.attention_weights(at, layer, head), words[at + 1])
