"""Watch a real model decode: run it with a recorder and get the trace that every view reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from helpers import trace
from helpers.arguments import check_whole
from helpers.model.cache import GrowingCache, KVCache
from helpers.model.generate import Chooser, as_tokens, chooser, decode_step, prefill, run
from helpers.model.transformer import Transformer
from helpers.sampling import softmax
from helpers.tokenizer import Tokenizer
from helpers.trace import Recorder, Token, Trace


def watch(
    model: Transformer,
    prompt: str | Sequence[int],
    tokenizer: Tokenizer | None = None,
    *,
    max_new: int = 8,
    recorded: Sequence[tuple[int, int]] | None = None,
    cache: KVCache | None = None,
    training: bool = True,
    uncached: bool = True,
    n_top: int = 5,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    name: str = "model",
) -> Trace:
    """Run a prompt with the cache, then its tokens again without, and return the record of both runs.

    Args:
        model: what runs, in float32, float64 or bfloat16.
        prompt: text, or ids where there is no tokenizer.
        tokenizer: gives the ids of a text and the text of an id.
        max_new: tokens at most; it stops earlier at `<eos>` and when the cache is full.
        recorded: (layer, head) pairs, from 0, whose attention weights are kept; None keeps all.
        cache: an empty one to run with; None makes a growing one.
        training: begin each run with the training reference, as pass 0.
        uncached: run without the cache too.
        n_top: candidates kept of each row of logits, the chosen one among them.
        temperature: sample, with top_k, top_p and seed as in `sampling`; None is greedy.
        name: the model's, in the trace.

    Raises:
        ValueError: a wrong prompt or setting, or a cache that is in use or does not fit. A cache that came in
            keeps the passes that ran before an error: reset() it.
    """
    check_whole("max_new", max_new)
    check_whole("n_top", n_top)
    ids = ids_of(prompt, tokenizer)
    choose = chooser(model.config.vocab_size, temperature, top_k, top_p, seed)
    cache = empty(cache, model)
    check_recorded(model, recorded)
    tokens = [Token(text_of(tokenizer, i), i, n, "prompt") for n, i in enumerate(ids)]
    recorder = Recorder(describe(model, name), tokens, recorded=recorded)
    watched = Watched(model, recorder, tokenizer, n_top, choose, rule(temperature, top_k, top_p))
    watched.record_run(ids, cache, max_new, training)
    if uncached:
        watched.record_run(ids, None, max_new, training)
    return recorder.finish()


def empty(cache: KVCache | None, model: Transformer) -> KVCache:
    """Return the cache, or a growing one where there is none. ValueError if it holds tokens."""
    if cache is None:
        weight = model.embed_tokens.weight
        return GrowingCache(model.config, dtype=weight.dtype, device=weight.device)
    if cache.length:
        raise ValueError(f"the cache holds {cache.length} tokens; expected an empty one: reset() it")
    return cache


def rule(temperature: float | None, top_k: int | None, top_p: float | None) -> str:
    """Say how tokens are chosen: "greedy", or "sampled, temperature 0.8, top-k 5"."""
    settings = {"temperature": temperature, "top-k": top_k, "top-p": top_p}
    named = [f"{key} {value:g}" for key, value in settings.items() if value is not None]
    return ", ".join(["greedy" if temperature is None else "sampled", *named])


@dataclass
class Arrays:
    """Stands between a model and a recorder: tensors in, NumPy arrays out."""

    recorder: Recorder

    def append(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Pass on new rows, (B, Hkv, T, D)."""
        self.recorder.append(layer, as_array(k), as_array(v))

    def attention(self, layer: int, **what: Any) -> None:
        """Pass on what one layer's attention took and gave; see `Recorder.attention`."""
        arrays = {key: as_array(x) if isinstance(x, Tensor) else x for key, x in what.items()}
        self.recorder.attention(layer, **arrays)  # type: ignore[arg-type]


@dataclass
class Watched:
    """A model, its recorder, and how it chooses; runs a prompt once with each kind of cache."""

    model: Transformer
    recorder: Recorder
    tokenizer: Tokenizer | None
    n_top: int
    choose: Chooser
    how: str

    def record_run(self, prompt: list[int], cache: KVCache | None, max_new: int, training: bool) -> None:
        """One run: the training reference, prefill, decode steps; a second run replays the first's tokens."""
        replayed = [token.id for token in self.recorder.tokens[len(prompt) :]]
        self.recorder.begin_run(*("cached", kind_of(cache)) if cache is not None else ("uncached", "none"))
        if training:
            self.record_training(prompt)
        ids = list(prompt)
        for emitted in range(len(replayed) or max_new):
            logits = self.record_pass(ids, emitted, cache)
            chosen = replayed[emitted] if replayed else self.choose(logits)
            assert chosen is not None  # a model's tokens have ids
            token = Token(text_of(self.tokenizer, chosen), chosen, len(ids), "generated")
            self.recorder.close_pass(self.top(logits, chosen), token, self.how)
            ids.append(chosen)
            full = cache is not None and cache.length == cache.max_len
            if full or chosen in self.model.config.eos_ids:
                return

    def record_training(self, prompt: list[int]) -> None:
        """The prompt as training runs it: every row has a target."""
        self.recorder.open_pass("training", range(len(prompt)), target=list(range(1, len(prompt) + 1)))
        self.run_alone(prompt)
        self.recorder.close_pass()

    def record_pass(self, ids: list[int], emitted: int, cache: KVCache | None) -> np.ndarray:
        """Open a pass and run it: the newest token, or all where there is no cache; logits, (V,)."""
        first = len(ids) - 1 if emitted and cache is not None else 0
        self.recorder.open_pass("decode" if emitted else "prefill", range(first, len(ids)), cache)
        if cache is None:
            logits = self.run_alone(ids)
        else:
            step = decode_step if emitted else prefill
            logits = step(self.model, ids[first:], cache, recorder=Arrays(self.recorder))
        return as_array(logits[0])

    def run_alone(self, ids: list[int]) -> Tensor:
        """Run all tokens through a cache that is dropped afterwards; logits, (1, V)."""
        weight = self.model.embed_tokens.weight
        dropped = GrowingCache(self.model.config, dtype=weight.dtype, device=weight.device)
        return run(self.model, as_tokens(ids), dropped, Arrays(self.recorder))

    def top(self, logits: np.ndarray, chosen: int) -> list[tuple[str, float, float]]:
        """The likeliest tokens (text, logit, probability), the chosen one among them."""
        best = [int(i) for i in np.argsort(-logits, kind="stable")[: self.n_top]]
        if chosen not in best:
            best[-1] = chosen
        p = softmax(logits.astype(float))
        return [(text_of(self.tokenizer, i), float(logits[i]), float(p[i])) for i in best]


def as_array(x: Tensor) -> np.ndarray:
    """Return a tensor as NumPy array; NumPy has no bfloat16, so that narrow floats come out as float32."""
    wide = x.float() if x.is_floating_point() and x.element_size() < 4 else x
    return wide.detach().cpu().numpy()


def describe(model: Transformer, name: str) -> trace.Model:
    """Return the sizes of a model as a trace has them."""
    config = model.config
    return trace.Model(
        name=name,
        n_layers=config.n_layers,
        n_heads=config.n_heads,
        n_kv_heads=config.n_kv_heads,
        k_dim=config.head_dim,
        v_dim=config.head_dim,
        scale=config.head_dim**-0.5,
        head_names=None,
        element_bytes=model.embed_tokens.weight.element_size(),
    )


def kind_of(cache: KVCache) -> str:
    """GrowingCache → "growing"."""
    return type(cache).__name__.removesuffix("Cache").lower()


def ids_of(prompt: str | Sequence[int], tokenizer: Tokenizer | None) -> list[int]:
    """Return the ids of a prompt. ValueError if there are none, or it is text and there is no tokenizer."""
    encode = isinstance(prompt, str) and tokenizer is not None
    tokens = as_tokens(tokenizer.encode(prompt) if encode else prompt)  # type: ignore[arg-type, union-attr]
    if tokens.shape[0] != 1:
        raise ValueError(f"{tokens.shape[0]} sequences came in; expected one: watch them one at a time")
    return tokens[0].tolist()


def text_of(tokenizer: Tokenizer | None, token: int) -> str:
    """Return what to show for a token: its text, or its id where it has none of its own."""
    if tokenizer is None or token >= tokenizer.vocab_size:
        return f"<{token}>"
    text = tokenizer.decode([token])
    # Some tokens are part of a character: they decode to the sign for a damaged one.
    return f"<{token}>" if not text or "\ufffd" in text else text


def check_recorded(model: Transformer, recorded: Sequence[tuple[int, int]] | None) -> None:
    """Raise ValueError if a (layer, head) pair is not in the model, or stands twice."""
    L, H = model.config.n_layers, model.config.n_heads
    for n, (layer, head) in enumerate(recorded or []):
        if not (0 <= layer < L and 0 <= head < H) or (layer, head) in list(recorded or [])[:n]:
            raise ValueError(
                f"recorded has {(layer, head)}; expected each pair once, layers 0 to {L - 1}, "
                f"heads 0 to {H - 1}"
            )
