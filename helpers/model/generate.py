"""Generation: prefill, decode steps, and the loop made of the two."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.arguments import check_whole, is_whole
from helpers.model.attention import RunRecorder
from helpers.model.cache import KVCache, StaticCache
from helpers.model.config import check_eos
from helpers.model.transformer import Transformer, check_tokens
from helpers.sampling import check_settings, greedy, sample

Prompt = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor
Chooser = Callable[[np.ndarray], int]


def prefill(
    model: Transformer, prompt: Prompt, cache: KVCache, *, recorder: RunRecorder | None = None
) -> Tensor:
    """Run all prompt tokens in one pass; return the logits of the first generated token, (B, V).

    Args:
        model: what runs.
        prompt: ids, (P,) or (B, P).
        cache: takes the P rows.
        recorder: is told of the pass.

    Raises:
        ValueError: an empty prompt, sequences of unequal length, an id out of range, no room in the cache,
            a cache of another model, or NaN or infinity in the logits; the cache is as before.
    """
    return run(model, as_tokens(prompt), cache, recorder)


def decode_step(
    model: Transformer, newest: Prompt, cache: KVCache, *, recorder: RunRecorder | None = None
) -> Tensor:
    """Run the newest token of each sequence; return the logits of the next one, (B, V).

    Args:
        newest: ids, (1,) or (B, 1).

    Other arguments and errors as in `prefill`.
    """
    tokens = as_tokens(newest)
    if tokens.shape[1] != 1:
        raise ValueError(f"{tokens.shape[1]} tokens came in; expected one for each sequence: (B, 1)")
    return run(model, tokens, cache, recorder)


@torch.no_grad()
def run(model: Transformer, tokens: Tensor, cache: KVCache, recorder: RunRecorder | None) -> Tensor:
    """One pass; the last position's logits, (B, V). After any error the cache is as before."""
    length = cache.length
    tokens = tokens.to(model.embed_tokens.weight.device)
    with torch.inference_mode():  # no_grad that keeps no record of views either: a sixth faster
        logits = model(tokens, cache, recorder=recorder, last_only=True)
    if not logits.isfinite().all():
        cache.truncate(length)
        raise ValueError("the logits hold NaN or infinity; expected numbers: look for them in the weights")
    return logits[:, -1].clone()  # a tensor like any other: those made in inference mode refuse changes


class Generation:
    """A reply while it is made: iterate to get token ids as they come.

    Attributes:
        tokens: ids so far; `<eos>` among them if it came.
        seconds: what each took: the pass and the choice, not what you do in between.
        stop_reason: "eos", "max_new", "cache full" or "error"; None until it has stopped.
    """

    def __init__(self, steps: Iterator[tuple[int, float, str | None]]) -> None:
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self.stop_reason: str | None = None
        self._steps = steps

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> int:
        try:
            token, seconds, self.stop_reason = next(self._steps)
        except StopIteration:
            raise
        except BaseException:  # Ctrl-C too: a generator that was left by an error does not go on
            self.stop_reason = "error"
            raise
        self.tokens.append(token)
        self.seconds.append(seconds)
        return token

    @property
    def ttft_seconds(self) -> float | None:
        """Time to first token: the prefill. None before it came."""
        return self.seconds[0] if self.seconds else None

    @property
    def tpot_seconds(self) -> float | None:
        """Time per output token after the first: the mean of the decode steps. None before the second."""
        return sum(self.seconds[1:]) / (len(self.seconds) - 1) if len(self.seconds) > 1 else None

    def __repr__(self) -> str:
        return f"Generation({len(self.tokens)} tokens, {self.stop_reason or 'going on'})"


def generate(
    model: Transformer,
    prompt: Sequence[int] | np.ndarray | Tensor,
    max_new: int,
    *,
    cache: KVCache | None = None,
    eos_ids: Collection[int] | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Generation:
    """Say token after token, until `<eos>`, `max_new` tokens, or a full cache.

    Args:
        model: what runs.
        prompt: ids of one sequence, P of them.
        max_new: tokens at most.
        cache: an empty one; None makes a preallocated one of the right size. S rows allow S - P + 1 tokens,
            because the newest token has not been run.
        eos_ids: tokens that end the reply; None takes the config's.
        temperature: over 0 samples, with top_k, top_p and seed as in `sampling`; None is greedy.

    Returns:
        A `Generation`: iterate over it. Nothing has run yet.

    Raises:
        ValueError: a wrong prompt, maximum or setting, or a cache that is in use or does not fit; at once.
            While it runs: NaN in the logits, or a cache that something else has used or reset since the last
            token; the cache is as before that pass.
    """
    tokens = as_tokens(prompt)
    if tokens.shape[0] != 1:
        raise ValueError(f"{tokens.shape[0]} sequences came in; expected one: use prefill and decode_step")
    check_whole("max_new", max_new)
    choose = chooser(model.config.vocab_size, temperature, top_k, top_p, seed)
    weight = model.embed_tokens.weight
    if cache is None:
        rows = min(tokens.shape[1] + max_new - 1, model.config.max_seq_len)
        cache = StaticCache(model.config, max_len=rows, dtype=weight.dtype, device=weight.device)
    if cache.length:
        raise ValueError(f"the cache holds {cache.length} tokens; expected an empty one: reset() it")
    cache.check_fits(model.config, 1, weight.dtype, weight.device)
    check_tokens(tokens, model.config.vocab_size)
    cache.check_room(tokens.shape[1])
    ends = model.config.eos_ids if eos_ids is None else eos_ids
    check_eos(ends, model.config.vocab_size)
    return Generation(steps(model, tokens, max_new, cache, frozenset(ends), choose))


def steps(
    model: Transformer, tokens: Tensor, max_new: int, cache: KVCache, ends: Collection[int], choose: Chooser
) -> Iterator[tuple[int, float, str | None]]:
    """Yield (token, the seconds it took, why it was the last or None)."""
    stop, left = None, 0  # rows that this reply left in the cache
    for emitted in range(1, max_new + 1):
        check_untouched(cache, left)
        begun = time.perf_counter()
        logits = decode_step(model, tokens, cache) if emitted > 1 else prefill(model, tokens, cache)
        token = choose(logits[0].float().cpu().numpy())
        seconds = time.perf_counter() - begun
        if token in ends:
            stop = "eos"
        elif emitted == max_new:
            stop = "max_new"
        elif cache.length == cache.max_len:
            stop = "cache full"
        left = cache.length
        yield token, seconds, stop
        if stop:
            return
        tokens = torch.tensor([[token]])


def check_untouched(cache: KVCache, left: int) -> None:
    """Raise ValueError if the cache holds other rows than this reply left there."""
    if cache.length != left:
        raise ValueError(
            f"the cache holds {cache.length} tokens; expected {left}, as this reply left it: something else "
            "has used or reset it. Make a cache for each reply"
        )


def chooser(
    n_words: int, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> Chooser:
    """Return a function from logits (V,) to a token id. ValueError if a setting is out of range."""
    check_whole("seed", seed, least=0)
    if temperature is None:
        if top_k is not None or top_p is not None:
            raise ValueError(
                "top_k or top_p came without a temperature; expected one: pass temperature=1.0 to sample"
            )
        return greedy
    check_settings(n_words, temperature, top_k, top_p)
    rng = np.random.default_rng(seed)
    return lambda logits: sample(logits, rng, temperature, top_k, top_p)


def as_tokens(prompt: Prompt) -> Tensor:
    """Return ids as a tensor (B, T). ValueError if they are no ids, or sequences differ in length."""
    if isinstance(prompt, Tensor) and prompt.ndim:
        return prompt[None] if prompt.ndim == 1 else prompt
    if isinstance(prompt, str | bytes):
        raise ValueError(f"the prompt is text, {prompt[:20]!r}; expected ids: tokenizer.encode(prompt)")
    listed: Any = prompt.tolist() if isinstance(prompt, np.ndarray) else prompt
    if not isinstance(listed, Sequence):
        raise ValueError(f"the prompt is {reprlib.repr(prompt)}; expected ids, (P,) or (B, P)")
    sequences = listed if listed and isinstance(listed[0], list | tuple | range) else [listed]
    for sequence in sequences:
        check_ids(sequence)
    lengths = [len(sequence) for sequence in sequences]
    if len(set(lengths)) > 1:
        raise ValueError(f"sequences of {lengths} tokens came in; expected equal lengths in a batch")
    if lengths[0] == 0:
        raise ValueError("the prompt is empty; expected at least one token")
    return torch.tensor(sequences)


def check_ids(sequence: object) -> None:
    """Raise ValueError unless this is a sequence of whole numbers that a tensor can hold."""
    if not isinstance(sequence, Sequence):
        raise ValueError(f"{reprlib.repr(sequence)} came in beside sequences; expected one kind or the other")
    for token in sequence:
        if not is_whole(token) or not -(2**63) <= token < 2**63:
            raise ValueError(
                f"token id {reprlib.repr(token)} came in; expected whole numbers below the size of the "
                "vocabulary, such as tokenizer.encode(text) gives"
            )
