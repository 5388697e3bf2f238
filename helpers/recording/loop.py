"""The loop that records a run, of the toy as of a model: a training pass for reference, prefill, decode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.recording.recorder import Recorder
from helpers.sampling import Chooser, softmax
from helpers.trace import Token


@dataclass(frozen=True)
class TokenSelection:
    """How a token is chosen from logits, and how a trace describes that.

    Args:
        text_of: returns the text of a token, given its id.
        choose: returns the id of the next token, given logits.
        method: how it is chosen, in words, such as "greedy".
        eos_ids: ids of tokens that end a reply.
        n_top: number of candidates that are recorded, most likely first; None records the whole vocabulary
            in its order, and no ids.
    """

    text_of: Callable[[int], str]
    choose: Chooser
    method: str
    eos_ids: Collection[int]
    n_top: int | None

    def token(self, chosen: int, position: int) -> Token:
        """Return a generated token in the form that a trace stores."""
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
    selection: TokenSelection,
    cache: Any,
    cache_type: str,
    max_new_tokens: int,
    training: bool,
) -> None:
    """Record one run; a second run replays the tokens of the first, so that the two can be compared.

    Args:
        run: runs tokens with a cache, or with None in a cache that it drops; returns the last logits, (V,).
        cache: an empty cache, or None for the run without a cache.
        cache_type: the name of the cache's type in the trace.
        max_new_tokens: maximum number of new tokens; fewer if one ends the reply or the cache is full.
        training: begin with a training pass, in which each token's target is the next token.
    """
    sequence = recorder.trace.sequences[0]
    tokens, replayed = sequence.tokens[: sequence.prompt], sequence.tokens[sequence.prompt :]
    recorder.begin_run(*("uncached", "none") if cache is None else ("cached", cache_type))
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
        chosen = None if replayed else selection.choose(logits)
        token = replayed[emitted] if chosen is None else selection.token(chosen, tokens[-1].position + 1)
        recorder.record_output(selection.top(logits, token.id), token, selection.method)
        tokens.append(token)
        emitted += 1
        is_full = cache is not None and cache.length == cache.max_len
        is_over = is_full or chosen in selection.eos_ids or emitted == (len(replayed) or max_new_tokens)
