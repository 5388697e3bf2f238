"""Record a real model: watch it from outside while it decodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.model.attention import Core
from helpers.model.cache import Cache
from helpers.model.generate import as_tokens, run
from helpers.model.transformer import Transformer
from helpers.recording.loop import Voice, record_run
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, Sampling, chooser
from helpers.tokenizer import Tokenizer, bytes_of, piece_of
from helpers.trace import Model, Token, Trace, spell
from helpers.validate import check_whole


def record_model(
    model: Transformer,
    prompt: str | Sequence[int],
    tokenizer: Tokenizer | None = None,
    *,
    max_new_tokens: int = 8,
    recorded: Sequence[tuple[int, int]] | None = None,
    training: bool = True,
    uncached: bool = True,
    sampling: Sampling = GREEDY,
    name: str = "model",
) -> Trace:
    """Run a prompt with the cache, then its tokens again without, and return the record of both runs.

    Args:
        model: what runs, in float32, float64 or bfloat16.
        prompt: text, or ids where there is no tokenizer.
        tokenizer: gives the ids of a text and the text of an id.
        max_new_tokens: tokens at most; it stops earlier at `<eos>` and when the cache is full.
        recorded: (layer, head) pairs, from 0, whose attention weights are kept; None keeps all.
        training: begin each run with the training reference, as pass 0.
        uncached: run without the cache too.
        sampling: how tokens are chosen.
        name: the model's, in the trace.

    Raises:
        ValueError: a wrong prompt or setting.
    """
    check_whole("max_new_tokens", max_new_tokens)
    tokens, voice = (
        tokens_of(model.config.vocab_size, prompt, tokenizer),
        voice_of(model, tokenizer, sampling),
    )
    cache = model.new_cache()
    cache.check_capacity(len(tokens))
    recorder = Recorder(describe(model, name), tokens, recorded=recorded)
    run = partial(run_model, recorder, model)
    for one in (cache, None) if uncached else (cache,):
        record_run(recorder, run, voice, one, "growing", max_new_tokens, training)
    return recorder.trace


def run_model(
    recorder: Recorder, model: Transformer, tokens: Sequence[Token], cache: Cache | None
) -> np.ndarray:
    """Run tokens through all layers; without a cache through one that is dropped. Logits, (V,)."""
    kept = model.new_cache() if cache is None else cache

    def attended(core: Core, given: tuple[Tensor, ...], contexts: Tensor) -> None:
        q, k, v, mask = map(as_array, given)
        recorder.attention(q=q, k=k, v=v, mask=mask, scale=core.scale, output=as_array(contexts))

    with ExitStack() as hooks:
        for core in cores_of(model):
            hooks.enter_context(core.register_forward_hook(attended))
        return as_array(run(model, torch.tensor([[token.id for token in tokens]]), kept)[0])


def cores_of(model: Transformer) -> list[Core]:
    """Return the core of attention of each layer."""
    return [module for module in model.modules() if isinstance(module, Core)]


def voice_of(model: Transformer, tokenizer: Tokenizer | None, sampling: Sampling = GREEDY) -> Voice:
    """Return how a model chooses its tokens; the five likeliest are candidates."""
    choose = chooser(sampling, model.config.vocab_size)
    return Voice(partial(text_of, tokenizer), choose, str(sampling), model.config.eos_ids, n_top=5)


def as_array(x: Tensor) -> np.ndarray:
    """Return a tensor as NumPy array; NumPy has no bfloat16, so that narrow floats come out as float32."""
    wide = x.float() if x.is_floating_point() and x.element_size() < 4 else x
    return wide.detach().cpu().numpy()


def describe(model: Transformer, name: str = "model") -> Model:
    """Return the sizes of a model as a trace has them."""
    config = model.config
    return Model(
        name=name,
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        k_dim=config.k_dim,
        v_dim=config.v_dim,
        scale=cores_of(model)[0].scale,
        head_names=None,
        element_bytes=model.embed_tokens.weight.element_size(),
    )


def tokens_of(vocab_size: int, prompt: Any, tokenizer: Any) -> list[Token]:
    """Return the tokens of a prompt: text, ids, or a BatchEncoding of `transformers`, which has them.

    Raises:
        ValueError: it is empty, text without a tokenizer, an id out of range, or more than one sequence.
    """
    if isinstance(prompt, str) and tokenizer is not None:
        prompt = tokenizer.encode(prompt)
    ids = as_tokens(prompt["input_ids"] if isinstance(prompt, Mapping) else prompt, vocab_size)
    if ids.shape[0] != 1:
        raise ValueError(f"{ids.shape[0]} sequences came in; expected one: record them one at a time")
    return [Token(text_of(tokenizer, i), i, n, "prompt") for n, i in enumerate(ids[0].tolist())]


def text_of(tokenizer: Any, token: int) -> str:
    """Return what to show for a token: its text, bytes of a part of a character, or its id where it has none.

    Args:
        tokenizer: this project's, or one of `transformers`; None shows ids.
        token: its id; the model may have some that the tokenizer has not.
    """
    library = getattr(tokenizer, "library", getattr(tokenizer, "backend_tokenizer", None))
    if library is None:  # written in Python, such as mistral-common's
        text = tokenizer.decode([token]) if tokenizer else ""
    else:
        text = piece_of(library, token)
        text = spell(bytes_of(library, token)) if "\ufffd" in text else text
    return text or f"<{token}>"
