"""Record a run of any decoder from `transformers` that calls attention through its `AttentionInterface`.

    model = AutoModelForCausalLM.from_pretrained(folder)  # or a name, if the Hub can be reached
    trace = watch(model, AutoTokenizer.from_pretrained(folder), "Today weather is so")

The config of a model has the name of an attention function, and its layers call the function that is
registered under this name. During a recording, that function is replaced by one that calls the original and
passes its inputs and outputs to the recorder.

The replacement must be registered under the same name. A new name would change the results without raising an
error: DeepSeek-V3.2 would not select keys, and in all models, every token would attend to later tokens unless
a mask function was registered under the new name, too.

Source: https://github.com/huggingface/transformers/blob/main/docs/source/en/attention_interface.md; tested
with transformers 5.23.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from IPython.utils.capture import capture_output
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM, DynamicCache

from helpers.recording.loop import TokenSelection, record_run
from helpers.recording.model import as_array, display_text, prompt_tokens
from helpers.recording.recorder import Recorder
from helpers.sampling import GREEDY, make_chooser
from helpers.trace import Model, Token, Trace
from helpers.validate import check_whole

MAX_WEIGHTS = 16_000_000  # maximum number of attention weights in a trace, whose page is then about 45 MB
StateShapes = dict[str, list[int]]  # shapes of a layer's states, by state name
STATE_NAMES = {"recurrent_states": "state", "conv_states": "convolution"}  # cached besides K and V


def load_hf_model(path: Path) -> Any:
    """Load a model with `transformers`, in float32.

    Args:
        path: path of the model's folder, or of a GGUF file.
    """
    folder, gguf = (path.parent, {"gguf_file": path.name}) if path.suffix == ".gguf" else (path, {})
    with capture_output():  # hides progress bars
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **gguf)
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
    """Generate a reply to a prompt with a decoder from `transformers`, and return the trace.

    The model runs with "eager" attention, and recording does not change its logits. The model's attention
    implementation is restored at the end, even after an error.

    Args:
        model: a causal language model in evaluation mode, on any device, in any dtype.
        tokenizer: the model's tokenizer. With None, the trace shows token ids instead of texts.
        prompt: the prompt as a string, or its token ids as a list, as a tensor of shape (T,) or (1, T), or as
            a tokenizer's BatchEncoding.
        max_new_tokens: maximum number of new tokens. Generation stops earlier at an end token.
        layers, heads: indices, from 0, of the layers and heads whose attention weights are recorded; None
            records all.
        reply: token ids of a given reply, for example from another run, which replaces the tokens that the
            model would choose.
        uncached: whether to record a second run without a cache, in which each pass processes all tokens.

    Raises:
        ValueError: the prompt or a setting is invalid; the trace would have more than 16 million attention
            weights; the run has more tokens than the model was made for; or the model cannot be watched, for
            example because a layer computes attention twice in a pass. The error message says why.
    """
    vocab_size = model.config.get_text_config().vocab_size
    tokens = prompt_tokens(vocab_size, prompt, tokenizer)
    with explain_watch_errors(model):
        sizes, attention_layers, states = inspect_model(model, tokens[0].id or 0)
    layers = attention_layers if layers is None else layers
    heads = range(sizes.n_heads) if heads is None else heads
    n_new = len(reply) or check_whole("max_new_tokens", max_new_tokens)
    check_trace_size(len(layers) * len(heads), len(tokens) + n_new)
    check_run_fits(model, len(tokens) + n_new - 1)  # the reply's last token is not run
    eos = getattr(model.generation_config, "eos_token_id", None)
    eos_ids = {*(eos if isinstance(eos, list) else [eos])} - {None}
    choose = make_chooser(GREEDY, vocab_size)
    selection = TokenSelection(partial(display_text, tokenizer), choose, str(GREEDY), eos_ids, n_top=5)
    recorder = Recorder(sizes, tokens, recorded=[(layer, head) for layer in layers for head in heads])
    recorder.trace.sequences[0].tokens += [
        selection.generated_token(i, n) for n, i in enumerate(reply, len(tokens))
    ]

    run = partial(run_hf_model, recorder, model, states)
    with explain_watch_errors(model):
        for cache in (HFCache(model), None) if uncached else (HFCache(model),):
            record_run(recorder, run, selection, cache, "dynamic", max_new_tokens, training=False)
    return recorder.trace


def run_hf_model(
    recorder: Recorder,
    model: Any,
    states: dict[int, StateShapes],
    tokens: Sequence[Token],
    cache: HFCache | None,
) -> np.ndarray:
    """Run one pass, record what each layer does, and return the last token's logits, of shape (V,).

    Args:
        recorder: the recorder, which has an open pass.
        model: the model to run.
        states: for each layer, the shapes of the states that it caches besides KV entries, by state name.
        tokens: the tokens to run.
        cache: the cache, which contains the earlier tokens; None runs the tokens without a cache.
    """
    keys: dict[int, Tensor] = {}  # the attention keys of this pass, by their address in memory

    def record(layer: int, scale: float, *tensors: Tensor) -> None:
        names, k = ("q", "k", "v", "mask", "weights", "output"), tensors[1]
        arrays: dict[str, Any] = dict(zip(names, map(as_array, tensors), strict=True))
        n_cached, computes_kv = cache.n_entries(layer) if cache else 0, k.data_ptr() not in keys
        keys[k.data_ptr()] = k  # if this layer does not compute keys, it uses those of an earlier layer
        recorder.record_attention(**arrays, layer=layer, n_cached=n_cached, computes_kv=computes_kv)

    with attention_hook(model, record):
        logits = last_token_logits(model, [token.id or 0 for token in tokens], cache)
    for layer, shapes in states.items():
        recorder.record_state(layer, shapes)
    return as_array(logits)


@contextmanager
def explain_watch_errors(model: Any) -> Iterator[None]:
    """Convert any error in the `with` block to a ValueError that says why the model cannot be watched."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{type(model).__name__} cannot be watched: {error}") from error


class HFCache:
    """A `transformers` cache with the interface that the recording loop and the recorder need."""

    max_len = math.inf

    def __init__(self, model: Any) -> None:
        self.cache = DynamicCache(config=model.config)

    @property
    def length(self) -> int:
        """The number of tokens processed. A layer with a sliding window may have fewer KV entries."""
        return int(self.cache.get_seq_length())

    def n_entries(self, layer: int) -> int:
        """Return the number of KV entries that one layer has in the cache."""
        keys = getattr(self.cache.layers[layer], "keys", None)
        return 0 if keys is None else int(keys.shape[-2])

    def state_shapes(self, layer: int) -> StateShapes:
        """Return the shapes of the states that one layer caches besides KV entries, by state name."""
        cached = {name: getattr(self.cache.layers[layer], key, {}) for key, name in STATE_NAMES.items()}
        states = {name: [x for x in by_index.values() if x is not None] for name, by_index in cached.items()}
        return {
            f"{name} {n}" if n else name: [*x.shape]
            for name, tensors in states.items()
            for n, x in enumerate(tensors)
        }


@contextmanager
def attention_hook(model: Any, hook: Callable[..., object]) -> Iterator[None]:
    """Call `hook` each time that a layer of the model has computed attention inside the `with` block.

    Args:
        model: the model.
        hook: a function that takes the layer's index, the scale, q, k, v, the mask, the attention weights and
            the contexts.

    Raises:
        ValueError: the model is in training mode.
    """
    if model.training:
        raise ValueError(
            "the model is in training mode, which drops numbers at random: call model.eval() first"
        )
    original = AttentionInterface().get("eager", eager_attention)

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **kwargs: Any
    ) -> Any:
        output, weights = original(module, query, key, value, attention_mask, **kwargs)
        mask = (
            attention_mask > torch.finfo(attention_mask.dtype).min / 2
        )  # the original mask is added to the scores; its shape is (B, 1, T, S)
        scale, outputs = kwargs.get("scaling"), output.transpose(1, 2)
        hook(module.layer_idx, scale, query, key, value, mask, weights, outputs)
        return output, weights

    before = model.config._attn_implementation
    AttentionInterface.register("eager", attend)
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        AttentionInterface.register("eager", original)
        model.set_attn_implementation(before)


def eager_attention(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the eager attention function in the module that defines the model.

    Unlike a general attention function, it has the model's sinks and soft caps.
    """
    return sys.modules[type(module).__module__].eager_attention_forward(module, *args, **kwargs)


class ModelInspection(NamedTuple):
    """What one pass of a model shows about its layers. Layer indices start from 0."""

    sizes: Model
    attention_layers: list[int]
    states: dict[int, StateShapes]  # by layer index; {} for a layer that caches only KV entries


def inspect_model(model: Any, token_id: int) -> ModelInspection:
    """Run a single token to find out which layers have attention and which layers cache states.

    Raises:
        ValueError: no layer calls attention through `AttentionInterface`, or a layer's index is out of range.
    """
    calls: dict[int, tuple[Any, ...]] = {}
    cache = HFCache(model)
    with attention_hook(model, lambda layer, *args: calls.setdefault(layer, args)):
        last_token_logits(model, [token_id], cache)
    if not calls or None in calls:
        raise ValueError(
            "it does not call attention through the AttentionInterface of transformers; "
            "expected a model that does, as Llama, Qwen3, Gemma 3, gpt-oss, DeepSeek-V3, GPT-2 and most do"
        )
    config, n_layers = model.config.get_text_config(), len(cache.cache.layers)
    if unknown := [layer for layer in calls if layer not in range(n_layers)]:
        raise ValueError(
            f"attention is called with layer {unknown[0]}; expected 0 to {n_layers - 1}, each once"
        )
    scale, q, k, v, *_ = calls[min(calls)]
    types = [name.replace("_", " ") for name in getattr(config, "layer_types", None) or []]
    sizes = Model(
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
    return ModelInspection(
        sizes, sorted(calls), {layer: cache.state_shapes(layer) for layer in range(n_layers)}
    )


def last_token_logits(model: Any, ids: Sequence[int], cache: HFCache | None) -> Tensor:
    """Run one pass over tokens, given by their ids, and return the last token's logits, of shape (V,).

    Raises:
        ValueError: the model does not return logits.
    """
    cache_args = {"past_key_values": cache.cache, "use_cache": True} if cache else {"use_cache": False}
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids], device=model.device), **cache_args)
    if not hasattr(output, "logits"):
        raise ValueError(
            "it returns no logits; expected a model with a head, as AutoModelForCausalLM loads it"
        )
    return output.logits[0, -1]


def check_run_fits(model: Any, n_tokens: int) -> None:
    """Raise ValueError if a run has more tokens than the maximum number in the model's config."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit and n_tokens > limit:
        raise ValueError(
            f"{n_tokens:,} tokens would run; the model was made for at most {limit:,}, by its config's "
            "max_position_embeddings: shorten the prompt, or ask for fewer with max_new_tokens"
        )


def check_trace_size(n_heads: int, n_tokens: int) -> None:
    """Raise ValueError if the trace would have too many attention weights for a browser to open its page.

    Args:
        n_heads: number of recorded heads, in total over all layers.
        n_tokens: number of tokens in the prompt and the reply together.
    """
    weights = n_heads * n_tokens * (n_tokens + 1) // 2
    if weights > MAX_WEIGHTS:
        raise ValueError(
            f"{n_tokens:,} tokens in {n_heads:,} heads have {weights:,} attention weights; expected at most "
            f"{MAX_WEIGHTS:,}: choose fewer, for example layers=[0, 5] and heads=[0, 1], or fewer tokens"
        )
