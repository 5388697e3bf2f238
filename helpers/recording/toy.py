"""Record what the toy, a decoder with four heads, does while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from helpers import toy
from helpers.recording.loop import TokenSelection, record_run
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, Sampling, make_chooser
from helpers.toy import EOS, HEADS, NUMBERS, PROMPT, SINK, VOCABULARY, KVCache
from helpers.trace import Model, Token, Trace
from helpers.validate import check_whole


def record_toy(
    tokens: Sequence[str] = PROMPT,
    numbers: Sequence[float] | None = None,
    *,
    n_layers: int = 1,
    max_new_tokens: int = 8,
    ban_eos: bool = False,
    training: bool = True,
    sampling: Sampling = GREEDY,
) -> Trace:
    """Generate a reply with a cache, run the same tokens without a cache, and return the trace of both runs.

    Args:
        tokens: texts of the prompt's tokens, 1 to 512 of them.
        numbers: the number that each token of the prompt carries, which is its value in the first layer's
            attention. With None, these are looked up in NUMBERS.
        n_layers: number of layers of the toy.
        max_new_tokens: maximum number of new tokens. Generation stops earlier at `<eos>`.
        ban_eos: whether to never choose `<eos>`, so that the reply has `max_new_tokens` tokens.
        training: whether each run begins with a training pass, pass 0, for comparison.
        sampling: how words are chosen.

    Raises:
        ValueError: the prompt (see `toy.check_prompt`) or a setting is invalid.
    """
    words, carried = toy.check_prompt(tokens, numbers)
    n_layers = check_whole("n_layers", n_layers)
    max_new_tokens = check_whole("max_new_tokens", max_new_tokens)
    cache = KVCache(n_layers)
    cache.positions(len(words) + max_new_tokens - 1)  # raises before the run if they do not fit
    prompt = [Token(word, None, n, "prompt") for n, word in enumerate(words, 1)]
    model = Model("toy", n_layers, len(HEADS), 1, 2, 1, 1.0, list(HEADS), 8)
    recorder = Recorder(model, prompt, values=True)
    run = partial(run_toy, recorder, carried)
    for run_cache in (cache, None):
        record_run(
            recorder,
            run,
            toy_token_selection(sampling, ban_eos),
            run_cache,
            "growing",
            max_new_tokens,
            training,
        )
    return recorder.trace


def toy_token_selection(sampling: Sampling, ban_eos: bool) -> TokenSelection:
    """Return a `TokenSelection` for the toy, which records all four words of its vocabulary as candidates.

    Args:
        sampling: how words are chosen.
        ban_eos: whether to never choose `<eos>`.
    """
    choose, eos_id = make_chooser(sampling, len(VOCABULARY)), VOCABULARY.index(EOS)
    banned = np.where(ban_eos & (np.arange(len(VOCABULARY)) == eos_id), -np.inf, 0)
    method = str(sampling) + (f", {EOS} banned" if ban_eos else "")
    return TokenSelection(
        VOCABULARY.__getitem__, lambda logits: choose(logits + banned), method, {eos_id}, None
    )


def run_toy(
    recorder: Recorder, prompt_numbers: np.ndarray, tokens: Sequence[Token], cache: KVCache | None
) -> np.ndarray:
    """Run one pass, record what each layer does, and return the last token's logits, of shape (V,).

    Args:
        recorder: the recorder, which has an open pass.
        prompt_numbers: the number that each token of the prompt carries, of shape (P,).
        tokens: the tokens to run.
        cache: the cache, which contains the earlier tokens. With None, the tokens run with a temporary cache.
    """
    n_layers, P = recorder.trace.model.n_layers, len(prompt_numbers)
    numbers = [prompt_numbers[t.position - 1] if t.position <= P else NUMBERS[t.text] for t in tokens]
    used_cache = KVCache(n_layers, len(tokens)) if cache is None else cache
    core = partial(attend_and_record, recorder)
    return toy.lm_head(toy.run_pass(numbers, used_cache, n_layers=n_layers, attention=core)[-1])


def attend_and_record(
    recorder: Recorder, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """Compute the toy's attention; pass the inputs and outputs to the recorder as a batch of one sequence."""
    contexts = toy.attention(q, k, v, mask)
    output, values = contexts.T[None, ..., None], v[None, None, :, None]  # (T, H) → (1, H, T, 1)
    recorder.record_attention(
        q=q[None], k=k[None, None], v=values, mask=mask, sink=np.array([*SINK.values()]), output=output
    )
    return contexts
