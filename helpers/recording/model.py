"""Record what a `Transformer`, the decoder of this project, does while it runs. This uses hooks."""

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
from helpers.model.generate import as_tokens, next_token_logits
from helpers.model.transformer import Transformer
from helpers.recording.loop import TokenSelection, record_run
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, Sampling, make_chooser
from helpers.tokenizer import Tokenizer, token_bytes, token_text
from helpers.trace import LayerHead, Model, Token, Trace, text_of_bytes
from helpers.validate import check_whole


def record_model(
    model: Transformer,
    prompt: str | Sequence[int],
    tokenizer: Tokenizer | None = None,
    *,
    max_new_tokens: int = 8,
    recorded: Sequence[LayerHead] | None = None,
    training: bool = True,
    uncached: bool = True,
    sampling: Sampling = GREEDY,
    name: str = "model",
) -> Trace:
    """Generate a reply with a cache, run the same tokens without a cache, and return the trace of both runs.

    Args:
        model: a model in float32, float64 or bfloat16.
        prompt: the prompt as a string, which needs a tokenizer, or its token ids.
        tokenizer: converts between text and token ids. With None, the trace shows token ids instead of texts.
        max_new_tokens: maximum number of new tokens. Generation stops earlier at `<eos>`, or when the cache
            is full.
        recorded: pairs (layer, head), with indices from 0, of the heads whose attention weights are recorded;
            None records all.
        training: whether each run begins with a training pass, pass 0, for comparison.
        uncached: whether to record the second run, without a cache.
        sampling: how tokens are chosen.
        name: name of the model in the trace.

    Raises:
        ValueError: the prompt or a setting is invalid.
    """
    check_whole("max_new_tokens", max_new_tokens)
    tokens = prompt_tokens(model.config.vocab_size, prompt, tokenizer)
    selection = token_selection(model, tokenizer, sampling)
    cache = model.new_cache()
    cache.check_capacity(len(tokens))
    recorder = Recorder(trace_model_info(model, name), tokens, recorded=recorded)
    run = partial(run_model, recorder, model)
    for run_cache in (cache, None) if uncached else (cache,):
        record_run(recorder, run, selection, run_cache, "growing", max_new_tokens, training)
    return recorder.trace


def run_model(
    recorder: Recorder, model: Transformer, tokens: Sequence[Token], cache: Cache | None
) -> np.ndarray:
    """Run one pass, record what each layer does, and return the last token's logits, of shape (V,).

    If `cache` is None, the tokens run with a temporary cache, which is empty before the pass.
    """
    used_cache = model.new_cache() if cache is None else cache

    def hook(core: Core, args: tuple[Tensor, ...], contexts: Tensor) -> None:
        q, k, v, mask = map(as_array, args)
        recorder.record_attention(q=q, k=k, v=v, mask=mask, scale=core.scale, output=as_array(contexts))

    with ExitStack() as hooks:
        for core in attention_cores(model):
            hooks.enter_context(core.register_forward_hook(hook))
        return as_array(
            next_token_logits(model, torch.tensor([[token.id for token in tokens]]), used_cache)[0]
        )


def attention_cores(model: Transformer) -> list[Core]:
    """Return the `Core` of each layer, which is the module that computes attention."""
    return [module for module in model.modules() if isinstance(module, Core)]


def token_selection(
    model: Transformer, tokenizer: Tokenizer | None, sampling: Sampling = GREEDY
) -> TokenSelection:
    """Return a `TokenSelection` for a model, which records the five most probable tokens as candidates.

    Args:
        model: the model, whose config has the tokens that end a reply.
        tokenizer: converts token ids to text. With None, the trace shows token ids.
        sampling: how tokens are chosen.
    """
    choose = make_chooser(sampling, model.config.vocab_size)
    return TokenSelection(
        partial(display_text, tokenizer), choose, str(sampling), model.config.eos_ids, n_top=5
    )


def as_array(x: Tensor) -> np.ndarray:
    """Convert a tensor to a NumPy array.

    Floats with fewer than 32 bits are converted to float32, because NumPy does not support bfloat16.
    """
    widened = x.float() if x.is_floating_point() and x.element_size() < 4 else x
    return widened.detach().cpu().numpy()


def trace_model_info(model: Transformer, name: str = "model") -> Model:
    """Return the dimensions of a `Transformer` as a `Model`, the form in which a trace stores them."""
    config = model.config
    return Model(
        name=name,
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        k_dim=config.k_dim,
        v_dim=config.v_dim,
        scale=attention_cores(model)[0].scale,
        head_names=None,
        element_bytes=model.embed_tokens.weight.element_size(),
    )


def prompt_tokens(vocab_size: int, prompt: Any, tokenizer: Any) -> list[Token]:
    """Return the tokens of a prompt in the form in which a trace stores them.

    Args:
        vocab_size: number of tokens in the model's vocabulary.
        prompt: the prompt as a string, its token ids, or a `transformers` BatchEncoding.
        tokenizer: a tokenizer of this project or of `transformers`. With None, the trace shows token ids.

    Raises:
        ValueError: the prompt is empty, is a string although there is no tokenizer, has a token id that is
            out of range, or has more than one sequence.
    """
    if isinstance(prompt, str) and tokenizer is not None:
        prompt = tokenizer.encode(prompt)
    ids = as_tokens(prompt["input_ids"] if isinstance(prompt, Mapping) else prompt, vocab_size)
    if ids.shape[0] != 1:
        raise ValueError(f"got {ids.shape[0]} sequences; expected one: record them one at a time")
    return [Token(display_text(tokenizer, i), i, n, "prompt") for n, i in enumerate(ids[0].tolist())]


def display_text(tokenizer: Any, token_id: int) -> str:
    """Return the text to show for a token.

    This is the text of the token, in which the bytes of an incomplete character are written like `<0xF0>`. A
    token without text is shown by its id, like `<7>`.

    Args:
        tokenizer: a tokenizer of this project or of `transformers`; None shows all tokens by their ids.
        token_id: the token's id. It may be unknown to the tokenizer, because a model's vocabulary can be
            larger than its tokenizer's.
    """
    library = getattr(tokenizer, "library", getattr(tokenizer, "backend_tokenizer", None))
    if library is None:  # a tokenizer written in Python, such as mistral-common's
        text = tokenizer.decode([token_id]) if tokenizer else ""
    else:
        text = token_text(library, token_id)
        text = text_of_bytes(token_bytes(library, token_id)) if "\ufffd" in text else text
    return text or f"<{token_id}>"
