"""The one loop that records a run, of the toy and of a model alike: training reference, prefill, decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from helpers.recording.recorder import Recorder
from helpers.trace import Token


class Decoder(Protocol):
    """What the loop asks of a decoder; `ToyDecoder` and `ModelDecoder` say what each does."""

    how: str  # how it chooses, in words, such as "greedy"

    def run(self, tokens: Sequence[Token], cache: Any) -> np.ndarray: ...
    def next_token(self, logits: np.ndarray, position: int) -> Token: ...
    def top(self, logits: np.ndarray, chosen: Token) -> list[tuple[str, float, float]]: ...
    def is_over(self, token: Token, cache: Any) -> bool: ...


def record_run(
    recorder: Recorder, decoder: Decoder, cache: Any, kind: str, max_new: int, training: bool
) -> None:
    """Record one run; a second run replays the tokens of the first, so that the two can be compared.

    Args:
        cache: an empty one, or None for the run without.
        kind: of cache, as the trace names it.
        max_new: tokens at most.
        training: begin with the training reference: every token has its successor as target.
    """
    sequence = recorder.trace.sequences[0]
    tokens, replayed = sequence.tokens[: sequence.prompt], sequence.tokens[sequence.prompt :]
    recorder.begin_run(*("uncached", "none") if cache is None else ("cached", kind))
    if training:
        recorder.open_pass("training", {0: range(len(tokens))}, target=list(range(1, len(tokens) + 1)))
        decoder.run(tokens, None)
        recorder.close_pass()
    for emitted in range(len(replayed) or max_new):
        first = len(tokens) - 1 if emitted and cache is not None else 0
        recorder.open_pass("decode" if emitted else "prefill", {0: range(first, len(tokens))}, cache)
        logits = decoder.run(tokens[first:], cache)
        token = replayed[emitted] if replayed else decoder.next_token(logits, tokens[-1].position + 1)
        recorder.close_pass()
        recorder.say(decoder.top(logits, token), token, decoder.how)
        tokens.append(token)
        if decoder.is_over(token, cache):
            return


class Watched:
    """A cache that tells a recorder what is appended to it; all else is the cache's own."""

    def __init__(self, cache: Any, recorder: Recorder) -> None:
        self.cache, self.recorder = cache, recorder

    def append(self, layer: int, k: Any, v: Any) -> Any:
        """Append to the cache, and tell; rows of k are (…, T, D)."""
        self.recorder.append(layer, k.shape[-2])
        return self.cache.append(layer, k, v)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)
