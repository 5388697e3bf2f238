"""The one loop that records a run, of the toy and of a model alike: training reference, prefill, decode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.recording.recorder import Recorder
from helpers.sampling import Chooser, softmax
from helpers.trace import Token


@dataclass(frozen=True)
class Voice:
    """How logits become tokens, and what a trace says of it.

    Args:
        text_of: the text of a token, by its number in the vocabulary.
        choose: the next one.
        how: it is chosen, in words, such as "greedy".
        ends: those that end a reply.
        n_top: candidates kept, the likeliest first; None keeps all in the vocabulary's order, and no ids.
    """

    text_of: Callable[[int], str]
    choose: Chooser
    how: str
    ends: Collection[int]
    n_top: int | None

    def token(self, chosen: int, position: int) -> Token:
        """Return a token as a trace has it."""
        return Token(self.text_of(chosen), None if self.n_top is None else chosen, position, "generated")

    def top(self, logits: np.ndarray, chosen: int | None) -> list[tuple[str, float, float]]:
        """Return the candidates (text, logit, probability), the chosen one among them."""
        best = list(range(len(logits)))
        if self.n_top is not None and chosen is not None:
            best = np.argsort(-logits, kind="stable")[: self.n_top].tolist()
            best[-1] = best[-1] if chosen in best else chosen
        p = softmax(logits.astype(float))
        return [(self.text_of(i), float(logits[i]), float(p[i])) for i in best]


def record_run(
    recorder: Recorder,
    run: Callable[[Sequence[Token], Any], np.ndarray],
    voice: Voice,
    cache: Any,
    kind: str,
    max_new_tokens: int,
    training: bool,
) -> None:
    """Record one run; a second run replays the tokens of the first, so that the two can be compared.

    Args:
        run: runs tokens with a cache, or without through one that it drops; the last one's logits, (V,).
        cache: an empty one, or None for the run without.
        kind: of cache, as the trace names it.
        max_new_tokens: tokens at most; fewer where one ends the reply, or the cache is full.
        training: begin with the training reference: every token has its successor as target.
    """
    sequence = recorder.trace.sequences[0]
    tokens, replayed = sequence.tokens[: sequence.prompt], sequence.tokens[sequence.prompt :]
    recorder.begin_run(*("uncached", "none") if cache is None else ("cached", kind))
    if training:
        recorder.open_pass("training", range(len(tokens)))
        run(tokens, None)
        recorder.close_pass()
    is_over, emitted = False, 0
    while not is_over:
        first = len(tokens) - 1 if emitted and cache is not None else 0
        recorder.open_pass("decode" if emitted else "prefill", range(first, len(tokens)), cache is not None)
        logits = run(tokens[first:], cache)
        recorder.close_pass()
        chosen = None if replayed else voice.choose(logits)
        token = replayed[emitted] if chosen is None else voice.token(chosen, tokens[-1].position + 1)
        recorder.say(voice.top(logits, token.id), token, voice.how)
        tokens.append(token)
        emitted += 1
        is_full = cache is not None and cache.length == cache.max_len
        is_over = is_full or chosen in voice.ends or emitted == (len(replayed) or max_new_tokens)
