"""Generation: prefill, decode steps, and the loop made of the two."""

from __future__ import annotations

import reprlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from helpers.model.cache import Cache, StaticCache
from helpers.model.config import check_eos
from helpers.model.transformer import Transformer, check_cache, check_tokens
from helpers.sampling import GREEDY, Sampling, chooser
from helpers.validate import check_whole

Tokens = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor


def prefill(model: Transformer, prompt: Tokens, cache: Cache) -> Tensor:
    """Run all prompt tokens in one pass; return the logits of the first generated token, (B, V).

    Args:
        prompt: ids, (P,) or (B, P).
        cache: takes the P rows.

    Raises:
        ValueError: a prompt that is no such ids, or a cache that it does not fit into; it is as before.
    """
    return run(model, as_tokens(prompt, model.config.vocab_size), cache)


def decode_step(model: Transformer, newest: Tokens, cache: Cache) -> Tensor:
    """Run the newest token of each sequence, (1,) or (B, 1), as `prefill` does; return logits, (B, V)."""
    tokens = as_tokens(newest, model.config.vocab_size)
    if tokens.shape[1] != 1:
        raise ValueError(f"{tokens.shape[1]} tokens came in; expected one for each sequence: (B, 1)")
    return run(model, tokens, cache)


def run(model: Transformer, tokens: Tensor, cache: Cache) -> Tensor:
    """Run ids (B, T) that are known to be right; return the last position's logits, (B, V)."""
    with torch.inference_mode():  # no_grad that keeps no record of views either: a sixth faster
        logits = model(tokens.to(model.embed_tokens.weight.device), cache, last_only=True)
    return logits[:, -1].clone()  # a tensor like any other: those made in inference mode refuse changes


class Generation:
    """A reply in the making: iterate over it to get token ids as they come.

    Args:
        next_tokens: runs a pass on the ids so far, the prompt's in the first; returns one new token or more.

    Attributes:
        tokens: ids so far; `<eos>` among them if it came.
        seconds: what each took: the pass and the choice. Of tokens from one pass the first has all of it.
        stop_reason: "eos", "max_new_tokens", "cache full" or "error"; None while it goes on.
    """

    def __init__(
        self,
        next_tokens: Callable[[list[int]], list[int]],
        *,
        prompt: list[int],
        max_new_tokens: int,
        cache: Cache,
        ends: Collection[int],
    ) -> None:
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self.stop_reason: str | None = None

        def stream(changes: int) -> Iterator[int]:
            try:
                while not self.stop_reason:
                    if cache.changes != changes:
                        message = f"the cache, with {cache.length} tokens now, is not as this reply left it"
                        raise ValueError(f"{message}; make a cache for each reply")
                    begun = time.perf_counter()
                    new = next_tokens([*prompt, *self.tokens])
                    self.seconds += [time.perf_counter() - begun] + [0.0] * (len(new) - 1)
                    self.tokens += new
                    changes = cache.changes
                    if new[-1] in ends:
                        self.stop_reason = "eos"
                    elif len(self.tokens) == max_new_tokens:
                        self.stop_reason = "max_new_tokens"
                    elif cache.length == cache.max_len:
                        self.stop_reason = "cache full"
                    yield from new
            except (Exception, KeyboardInterrupt):  # not GeneratorExit: to read no further is no error
                self.stop_reason = "error"
                raise

        self._stream = stream(cache.changes)  # as it is now: only the first of two replies may have it

    def __iter__(self) -> Iterator[int]:
        return self._stream

    def __next__(self) -> int:
        return next(self._stream)


def generate(
    model: Transformer,
    prompt: Tokens,
    max_new_tokens: int,
    *,
    cache: Cache | None = None,
    eos_ids: Iterable[int] | None = None,
    sampling: Sampling = GREEDY,
) -> Generation:
    """Generate token after token, until `<eos>`, `max_new_tokens` tokens, or a full cache.

    Args:
        prompt: ids of one sequence, P of them.
        max_new_tokens: tokens at most.
        cache: an empty one; None makes a preallocated one of the right size. S rows allow S - P + 1 tokens,
            because the newest token has not been run.
        eos_ids: tokens that end the reply; None takes the config's.
        sampling: how tokens are chosen.

    Returns:
        A `Generation`: iterate over it. Nothing has run yet.

    Raises:
        ValueError: a wrong prompt, setting or cache, at once. While it runs: NaN or infinity in the logits,
            or a cache that something else has used since the last token; the cache is as before that pass.
    """
    ids, cache, ends = check_request(model, prompt, max_new_tokens, cache, eos_ids)
    choose = chooser(sampling, model.config.vocab_size)

    def next_tokens(ids: list[int]) -> list[int]:
        with rollback_on_error(cache):
            return [choose(to_numpy(run(model, torch.tensor([ids[cache.length :]]), cache)))]

    return Generation(next_tokens, prompt=ids, max_new_tokens=max_new_tokens, cache=cache, ends=ends)


def check_request(
    model: Transformer,
    prompt: Tokens,
    max_new_tokens: int,
    cache: Cache | None,
    eos_ids: Iterable[int] | None,
) -> tuple[list[int], Cache, frozenset[int]]:
    """Return the prompt's ids, the reply's cache and what ends it; arguments and errors as in `generate`."""
    tokens = as_tokens(prompt, model.config.vocab_size)
    if tokens.shape[0] != 1:
        raise ValueError(f"{tokens.shape[0]} sequences came in; expected one: use prefill and decode_step")
    check_whole("max_new_tokens", max_new_tokens)
    ends = check_eos(model.config.eos_ids if eos_ids is None else eos_ids, model.config.vocab_size)
    if cache is None:
        rows = min(tokens.shape[1] + max_new_tokens - 1, model.config.max_seq_len)
        cache = model.new_cache(StaticCache, max_len=rows)
    check_empty(model, cache, tokens.shape[1])
    return tokens[0].tolist(), cache, frozenset(ends)


def check_empty(model: Transformer, cache: Cache, n_prompt: int) -> None:
    """Raise ValueError unless the cache is empty and fits the model and a prompt of so many tokens."""
    check_cache(cache, model, 1)
    if cache.length:
        raise ValueError(f"the cache holds {cache.length} tokens; expected an empty one: reset() it")
    cache.check_capacity(n_prompt)


@contextmanager
def rollback_on_error(cache: Cache) -> Iterator[None]:
    """Take back what was run within, if anything raises there: wrong numbers, a wrong choice, Ctrl-C."""
    before = cache.snapshot()
    try:
        yield
    except BaseException:
        cache.restore(before)
        raise


def to_numpy(logits: Tensor) -> np.ndarray:
    """Return logits (1, …, V) as (…, V): the one wait for the device. ValueError if they are no numbers."""
    row = logits[0].float().cpu().numpy()
    if not np.isfinite(row).all():
        raise ValueError("the logits hold NaN or infinity; expected numbers: look for them in the weights")
    return row


def as_tokens(prompt: Tokens, vocab_size: int) -> Tensor:
    """Return ids as a tensor (B, T), each in range. ValueError if they are no such ids."""
    ids = np.array(prompt.tolist() if isinstance(prompt, Tensor) else prompt)
    if not ids.size:
        raise ValueError("the prompt is empty; expected at least one token")
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        message = f"the prompt is {reprlib.repr(prompt)}; expected ids, (P,) or (B, P)"
        raise ValueError(f"{message}, whole numbers such as tokenizer.encode(text) gives")
    tokens = torch.from_numpy(ids.astype(np.int64)).reshape(-1, ids.shape[-1])
    check_tokens(tokens, vocab_size)
    return tokens
