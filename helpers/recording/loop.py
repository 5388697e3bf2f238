"""The loop that records a run of the toy or of a model.

A run is an optional training pass, followed by prefill and decode steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.recording.recorder import Recorder
from helpers.sampling import Chooser, softmax
from helpers.trace import Candidate, Token


@dataclass(frozen=True)
class TokenSelection:
    """How tokens are chosen from logits, and what a trace records about the choice.

    Args:
        text_of: a function that takes a token's id and returns its text.
        choose: a function that takes logits and returns the id of the next token.
        method: description of how tokens are chosen, such as "greedy".
        eos_ids: ids of the tokens that end a reply.
        n_top: number of candidates to record, in order of decreasing probability. None records the whole
            vocabulary, in the vocabulary's order; in this case, the ids of generated tokens are not recorded.
    """

    text_of: Callable[[int], str]
    choose: Chooser
    method: str
    eos_ids: Collection[int]
    n_top: int | None

    def generated_token(self, token_id: int, position: int) -> Token:
        """Return a generated token as a `Token`, the form in which a trace stores it."""
        return Token(self.text_of(token_id), None if self.n_top is None else token_id, position, "generated")

    def top_candidates(self, logits: np.ndarray, chosen: int | None) -> list[Candidate]:
        """Return the candidates for the next token, which always include the chosen token.

        Args:
            logits: logits of shape (V,).
            chosen: id of the chosen token; None returns the whole vocabulary.
        """
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
    """Record one run.

    If the trace already has tokens after the prompt, from an earlier run or a given reply, they are replayed.
    No other tokens are chosen, so that two runs can be compared.

    Args:
        recorder: the recorder, whose trace already has the prompt.
        run: a function that takes tokens and a cache, runs one pass, and returns the logits of the last
            token, of shape (V,). With None as the cache, the tokens run without earlier KV entries.
        selection: how tokens are chosen.
        cache: an empty cache; None records a run without a cache.
        cache_type: type of the cache in the trace, such as "growing".
        max_new_tokens: maximum number of new tokens. The run stops earlier at an end token, or when the cache
            is full.
        training: whether to begin with a training pass, in which each token's target is the next token.
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
        token = (
            replayed[emitted]
            if chosen is None
            else selection.generated_token(chosen, tokens[-1].position + 1)
        )
        recorder.record_output(selection.top_candidates(logits, token.id), token, selection.method)
        tokens.append(token)
        emitted += 1
        is_full = cache is not None and cache.length == cache.max_len
        is_over = is_full or chosen in selection.eos_ids or emitted == (len(replayed) or max_new_tokens)
