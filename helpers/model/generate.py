"""Generation: prefill, decode steps, and the loop of both."""

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
        cache: stores P entries a layer.

    Raises:
        ValueError: invalid ids, or a cache that they do not fit into; the cache is unchanged.
    """
    return run(model, as_tokens(prompt, model.config.vocab_size), cache)


def decode_step(model: Transformer, newest: Tokens, cache: Cache) -> Tensor:
    """Run the newest token of each sequence, (1,) or (B, 1), as `prefill` does; return logits, (B, V)."""
    tokens = as_tokens(newest, model.config.vocab_size)
    if tokens.shape[1] != 1:
        raise ValueError(f"got {tokens.shape[1]} tokens; expected one for each sequence: (B, 1)")
    return run(model, tokens, cache)


def run(model: Transformer, tokens: Tensor, cache: Cache) -> Tensor:
    """Run valid ids (B, T); return the logits of the last position, (B, V)."""
    with torch.inference_mode():  # like no_grad, but it does not track views either: a sixth faster
        logits = model(tokens.to(model.embed_tokens.weight.device), cache, last_only=True)
    return logits[:, -1].clone()  # an ordinary tensor: those of inference mode cannot be changed later


class Generation:
    """A reply that is being generated: iterate over it to get token ids as they are generated.

    Args:
        next_tokens: runs one pass, given the ids so far (at first those of the prompt); returns one or more
            new tokens.

    Attributes:
        tokens: ids so far, including `<eos>` if it was generated.
        seconds: time of each token: the pass and the sampling. If one pass returns several tokens, the first
            has all of its time.
        stop_reason: "eos", "max_new_tokens", "cache full" or "error"; None while generating.
    """

    def __init__(
        self,
        next_tokens: Callable[[list[int]], list[int]],
        *,
        prompt: list[int],
        max_new_tokens: int,
        cache: Cache,
        eos_ids: Collection[int],
    ) -> None:
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self.stop_reason: str | None = None

        def stream(changes: int) -> Iterator[int]:
            try:
                while not self.stop_reason:
                    if cache.changes != changes:
                        message = f"the cache, now of {cache.length} tokens, was used by something else"
                        raise ValueError(f"{message} during this reply; make a cache for each reply")
                    start = time.perf_counter()
                    new = next_tokens([*prompt, *self.tokens])
                    self.seconds += [time.perf_counter() - start] + [0.0] * (len(new) - 1)
                    self.tokens += new
                    changes = cache.changes
                    if new[-1] in eos_ids:
                        self.stop_reason = "eos"
                    elif len(self.tokens) == max_new_tokens:
                        self.stop_reason = "max_new_tokens"
                    elif cache.length == cache.max_len:
                        self.stop_reason = "cache full"
                    yield from new
            except (Exception, KeyboardInterrupt):  # not GeneratorExit: to stop reading is not an error
                self.stop_reason = "error"
                raise

        self._stream = stream(cache.changes)  # its value now: only the first of two replies may use the cache

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
    """Generate one token after another, until `<eos>`, `max_new_tokens`, or a full cache.

    Args:
        prompt: ids of one sequence, P of them.
        max_new_tokens: maximum number of tokens.
        cache: an empty cache; None makes a `StaticCache` of the right size. A cache of S entries allows
            S - P + 1 tokens, because the newest token has not been run.
        eos_ids: tokens that end the reply; None uses those of the config.
        sampling: how tokens are chosen.

    Returns:
        A `Generation`: iterate over it. Nothing has run yet.

    Raises:
        ValueError: immediately, for an invalid prompt, setting or cache. During generation, for NaN or
            infinity in the logits, or a cache that something else used; the failed pass is rolled back.
    """
    ids, cache, stop_ids = check_request(model, prompt, max_new_tokens, cache, eos_ids)
    choose = chooser(sampling, model.config.vocab_size)

    def next_tokens(ids: list[int]) -> list[int]:
        with rollback_on_error(cache):
            return [choose(to_numpy(run(model, torch.tensor([ids[cache.length :]]), cache)))]

    return Generation(next_tokens, prompt=ids, max_new_tokens=max_new_tokens, cache=cache, eos_ids=stop_ids)


def check_request(
    model: Transformer,
    prompt: Tokens,
    max_new_tokens: int,
    cache: Cache | None,
    eos_ids: Iterable[int] | None,
) -> tuple[list[int], Cache, frozenset[int]]:
    """Return the prompt's ids, the cache, and the ids that end the reply; errors as in `generate`."""
    tokens = as_tokens(prompt, model.config.vocab_size)
    if tokens.shape[0] != 1:
        raise ValueError(f"got {tokens.shape[0]} sequences; expected one: use prefill and decode_step")
    check_whole("max_new_tokens", max_new_tokens)
    stop_ids = check_eos(model.config.eos_ids if eos_ids is None else eos_ids, model.config.vocab_size)
    if cache is None:
        max_len = min(tokens.shape[1] + max_new_tokens - 1, model.config.max_seq_len)
        cache = model.new_cache(StaticCache, max_len=max_len)
    check_empty(model, cache, tokens.shape[1])
    return tokens[0].tolist(), cache, frozenset(stop_ids)


def check_empty(model: Transformer, cache: Cache, n_prompt: int) -> None:
    """Raise ValueError unless the cache is empty and fits the model and a prompt of `n_prompt` tokens."""
    check_cache(cache, model, 1)
    if cache.length:
        raise ValueError(f"the cache holds {cache.length} tokens; expected an empty one: reset() it")
    cache.check_capacity(n_prompt)


@contextmanager
def rollback_on_error(cache: Cache) -> Iterator[None]:
    """Restore the cache if anything raises in the block: invalid logits, a failed choice, Ctrl-C."""
    snapshot = cache.snapshot()
    try:
        yield
    except BaseException:
        cache.restore(snapshot)
        raise


def to_numpy(logits: Tensor) -> np.ndarray:
    """Return logits (1, …, V) as (…, V): the only synchronization. ValueError for NaN or infinity."""
    array = logits[0].float().cpu().numpy()
    if not np.isfinite(array).all():
        raise ValueError("the logits hold NaN or infinity; expected numbers: look for them in the weights")
    return array


def as_tokens(prompt: Tokens, vocab_size: int) -> Tensor:
    """Return ids as a tensor (B, T). ValueError unless they are integers in range."""
    ids = np.array(prompt.tolist() if isinstance(prompt, Tensor) else prompt)
    if not ids.size:
        raise ValueError("the prompt is empty; expected at least one token")
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        message = f"the prompt is {reprlib.repr(prompt)}; expected ids, (P,) or (B, P)"
        raise ValueError(f"{message}, whole numbers such as tokenizer.encode(text) returns")
    tokens = torch.from_numpy(ids.astype(np.int64)).reshape(-1, ids.shape[-1])
    check_tokens(tokens, vocab_size)
    return tokens
