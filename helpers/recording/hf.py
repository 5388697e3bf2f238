"""Watch any model of `transformers` decode, through the interface by which its layers call attention.

    model = AutoModelForCausalLM.from_pretrained(folder)  # or a name, where the Hub can be reached
    trace = watch(model, AutoTokenizer.from_pretrained(folder), "Today weather is so")

A layer calls the attention function that is registered under the name in its config. While a model is
watched, a function stands there that calls the one before it, and shows what went in and came out. It stands
under the same name, because layers ask for that: under a new one DeepSeek-V3.2 does not choose its keys, and
without a mask function of that name every token sees the future. Neither raises anything.

Source: https://github.com/huggingface/transformers/blob/main/docs/source/en/attention_interface.md; tried
with transformers 5.23.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from IPython.utils.capture import capture_output
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM, DynamicCache

from helpers.recording.loop import Voice, record_run
from helpers.recording.model import as_array, text_of, tokens_of
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, chooser
from helpers.trace import Model, Token, Trace
from helpers.validate import check_whole

MOST = 16_000_000  # attention weights in a trace: a page of some 45 MB
KINDS = {"recurrent_states": "state", "conv_states": "convolution"}  # what a layer keeps beside rows


def in_transformers(path: Path) -> Any:
    """Return the model of a folder or a GGUF file as `transformers` reads it, in float32."""
    folder, file = (path.parent, {"gguf_file": path.name}) if path.suffix == ".gguf" else (path, {})
    with capture_output():  # its progress bars
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file)
    model.config.name_or_path = path.name
    return model


def watch(
    model: Any,
    tokenizer: Any,
    prompt: Any,
    *,
    max_new_tokens: int = 16,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    reply: Sequence[int] = (),
    uncached: bool = False,
) -> Trace:
    """Run a prompt through a decoder of `transformers`, word by word, and return the record.

    It attends in the way called "eager", no logit changes, and it is left as it was, after an error too.

    Args:
        model: a causal language model in evaluation mode, on any device, in any dtype.
        tokenizer: its own; None shows ids.
        prompt: text, or ids of one text: a list, a tensor of shape (T,) or (1, T), or a tokenizer's
            BatchEncoding.
        max_new_tokens: tokens at most; it stops earlier at the end of a text.
        layers, heads: from 0, whose attention weights are kept; None keeps all.
        reply: ids to run in place of those that it would choose, such as another run's.
        uncached: run all tokens again for each word, too.

    Raises:
        ValueError: a wrong prompt or setting; more than 16 million attention weights; more tokens than the
            model was made for, or than a window that transformers' cache has and the model has not; a model
            that cannot be watched, with the reason, such as a layer that attends twice in a pass.
    """
    vocab_size = model.config.get_text_config().vocab_size
    tokens = tokens_of(vocab_size, prompt, tokenizer)
    with refused(model):
        described, attending, states = probe(model, [tokens[0].id or 0])
    layers = attending if layers is None else layers
    heads = range(described.n_heads) if heads is None else heads
    n_new = len(reply) or check_whole("max_new_tokens", max_new_tokens)
    check_size(len(layers) * len(heads), len(tokens) + n_new)
    check_length(model, len(tokens) + n_new - 1)  # the last is not run
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = {*(ends if isinstance(ends, list) else [ends])} - {None}
    voice = Voice(partial(text_of, tokenizer), chooser(GREEDY, vocab_size), str(GREEDY), ends, n_top=5)
    recorder = Recorder(described, tokens, recorded=[(layer, head) for layer in layers for head in heads])
    recorder.trace.sequences[0].tokens += [voice.token(i, n) for n, i in enumerate(reply, len(tokens))]

    run = partial(run_watched, recorder, model, states)
    with refused(model):
        for cache in (Rows(model), None) if uncached else (Rows(model),):
            record_run(recorder, run, voice, cache, "dynamic", max_new_tokens, training=False)
    return recorder.trace


def run_watched(
    recorder: Recorder,
    model: Any,
    states: dict[int, dict[str, list[int]]],
    tokens: Sequence[Token],
    cache: Rows | None,
) -> np.ndarray:
    """Run tokens through all layers and show the recorder what each does. The last one's logits, (V,)."""
    keys: dict[int, Tensor] = {}  # of this pass, by where they are in memory

    def show(layer: int, scale: float, *given: Tensor) -> None:
        names = ("q", "k", "v", "mask", "weights", "output")
        arrays: dict[str, Any] = dict(zip(names, map(as_array, given), strict=True))
        n_kept, makes = cache.rows(layer) if cache else 0, given[1].data_ptr() not in keys
        keys[given[1].data_ptr()] = given[1]  # an earlier layer's, if it made none
        recorder.attention(**arrays, layer=layer, n_kept=n_kept, makes=makes)

    with watched(model, show):
        logits = forward(model, [token.id or 0 for token in tokens], cache)
    for layer, shapes in states.items():
        recorder.state(layer, shapes)
    return as_array(logits)


@contextmanager
def refused(model: Any) -> Iterator[None]:
    """While it is open, say of every error that this family cannot be watched, and why."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{type(model).__name__} cannot be watched: {error}") from error


class Rows:
    """What the loop and the recorder ask of a cache, of one that belongs to `transformers`."""

    max_len = math.inf

    def __init__(self, model: Any) -> None:
        self.cache = DynamicCache(config=model.config)

    @property
    def length(self) -> int:
        """Tokens seen; a layer with a window keeps fewer rows."""
        return int(self.cache.get_seq_length())

    def rows(self, layer: int) -> int:
        """Rows that one layer keeps."""
        keys = getattr(self.cache.layers[layer], "keys", None)
        return 0 if keys is None else int(keys.shape[-2])

    def states(self, layer: int) -> dict[str, list[int]]:
        """Shapes, by name, of what one layer keeps beside rows or without any."""
        kinds = {name: getattr(self.cache.layers[layer], kind, {}) for kind, name in KINDS.items()}
        kept = {name: [x for x in states.values() if x is not None] for name, states in kinds.items()}
        return {
            f"{name} {n}" if n else name: [*x.shape] for name, of in kept.items() for n, x in enumerate(of)
        }


@contextmanager
def watched(model: Any, show: Callable[..., object]) -> Iterator[None]:
    """While it is open, show each attention: layer, scale, q, k, v, who may look, weights, output."""
    if model.training:
        raise ValueError(
            "the model is in training mode, which drops numbers at random: call model.eval() first"
        )
    inner = AttentionInterface().get("eager", own_eager)

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **more: Any
    ) -> Any:
        output, weights = inner(module, query, key, value, attention_mask, **more)
        seen = attention_mask > torch.finfo(attention_mask.dtype).min / 2  # numbers to add, (B, 1, T, S)
        show(module.layer_idx, more.get("scaling"), query, key, value, seen, weights, output.transpose(1, 2))
        return output, weights

    before = model.config._attn_implementation
    AttentionInterface.register("eager", attend)
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        AttentionInterface.register("eager", inner)
        model.set_attn_implementation(before)


def own_eager(module: Any, *given: Any, **more: Any) -> Any:
    """Attend as a model's own file does: its sinks and soft caps are there."""
    return sys.modules[type(module).__module__].eager_attention_forward(module, *given, **more)


def probe(model: Any, token: Sequence[int]) -> tuple[Model, list[int], dict[int, dict[str, list[int]]]]:
    """Run one token. Return sizes, the layers that attend, and what each layer keeps beside rows.

    Raises:
        ValueError: no layer calls attention through the interface.
    """
    calls: dict[int, tuple[Any, ...]] = {}
    cache = Rows(model)
    with watched(model, lambda layer, *given: calls.setdefault(layer, given)):
        forward(model, token, cache)
    if not calls or None in calls:
        raise ValueError(
            "it does not call attention through the AttentionInterface of transformers; "
            "expected a model that does, as Llama, Qwen3, Gemma 3, gpt-oss, DeepSeek-V3, GPT-2 and most do"
        )
    config, n_layers = model.config.get_text_config(), len(cache.cache.layers)
    if wrong := [layer for layer in calls if layer not in range(n_layers)]:
        raise ValueError(
            f"attention is called with layer {wrong[0]}; expected 0 to {n_layers - 1}, once for each"
        )
    scale, q, k, v, *_ = calls[min(calls)]
    types = [kind.replace("_", " ") for kind in getattr(config, "layer_types", None) or []]
    described = Model(
        name=Path(model.config.name_or_path).name or config.model_type,
        n_layers=n_layers,
        n_heads=q.shape[1],
        n_kv_heads=k.shape[1],
        k_dim=k.shape[3],
        v_dim=v.shape[3],
        scale=scale,
        head_names=None,
        element_bytes=q.element_size(),
        layer_types=types if len({*types}) > 1 else None,
    )
    return described, sorted(calls), {layer: cache.states(layer) for layer in range(n_layers)}


def forward(model: Any, ids: Sequence[int], cache: Rows | None) -> Tensor:
    """Run ids; the last one's logits, (V,)."""
    past = {"past_key_values": cache.cache, "use_cache": True} if cache else {"use_cache": False}
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids], device=model.device), **past)
    if not hasattr(output, "logits"):
        raise ValueError(
            "it returns no logits; expected a model with a head, as AutoModelForCausalLM loads it"
        )
    return output.logits[0, -1]


def check_length(model: Any, n_tokens: int) -> None:
    """ValueError if a run is longer than the model's positions, or than a window that only the cache has.

    `transformers`' cache drops entries wherever a config has `sliding_window`, also for a family that attends
    to all tokens: what it writes with the cache and without would differ.
    """
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit and n_tokens > limit:
        raise ValueError(
            f"{n_tokens:,} tokens would run; the model was made for {limit:,} at most, by its config's "
            "max_position_embeddings: shorten the prompt, or ask for fewer with max_new_tokens"
        )
    kept = {n: getattr(layer, "sliding_window", None) for n, layer in enumerate(Rows(model).cache.layers)}
    windows = {layer: window for layer, window in kept.items() if window and window < n_tokens}
    seen: dict[int, int] = {}
    if windows:
        with watched(model, lambda layer, *given: seen.update({layer: int(given[4][0, 0, -1].sum())})):
            forward(model, [0] * (max(windows.values()) + 1), None)
    for layer, window in windows.items():
        if seen.get(layer, 0) > window:
            raise ValueError(
                f"{n_tokens:,} tokens would run; {type(model).__name__} attends to all of them, but the "
                f"cache of transformers keeps no more than {window:,}, the sliding_window of its config: set "
                f"model.config.sliding_window = None, or run {window:,} tokens at most"
            )


def check_size(n_pairs: int, n_tokens: int) -> None:
    """ValueError if a trace would hold too many attention weights: a page could not be opened."""
    weights = n_pairs * n_tokens * (n_tokens + 1) // 2
    if weights > MOST:
        raise ValueError(
            f"{n_tokens:,} tokens in {n_pairs:,} heads have {weights:,} attention weights; expected {MOST:,} "
            "at most: choose some with layers=[0, 5] and heads=[0, 1], or fewer tokens"
        )
