"""Generation: the prefill, the decode step, and the loop that runs one prefill and then decode steps."""

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
from helpers.sampling import GREEDY, Sampling, make_chooser
from helpers.validate import check_whole

Tokens = Sequence[int] | Sequence[Sequence[int]] | np.ndarray | Tensor


def prefill(model: Transformer, prompt: Tokens, cache: Cache) -> Tensor:
    """Run all prompt tokens in one pass. Return the logits for the first generated token, of shape (B, V).

    Args:
        prompt: token ids, of shape (P,) or (B, P).
        cache: receives the KV entries of all P prompt tokens per sequence, in every layer.

    Raises:
        ValueError: the ids are invalid or do not fit into the cache, which is then unchanged.
    """
    return next_token_logits(model, as_tokens(prompt, model.config.vocab_size), cache)


def decode_step(model: Transformer, newest: Tokens, cache: Cache) -> Tensor:
    """Run the newest token of each sequence. Return the logits for the next token, of shape (B, V).

    Args:
        newest: token ids, (1,) or (B, 1).
        cache: has the KV entries of all earlier tokens, and receives those of the newest token.

    Raises:
        ValueError: as in `prefill`, or a sequence has more than one new token.
    """
    tokens = as_tokens(newest, model.config.vocab_size)
    if tokens.shape[1] != 1:
        raise ValueError(f"got {tokens.shape[1]} tokens; expected one for each sequence: (B, 1)")
    return next_token_logits(model, tokens, cache)


def next_token_logits(model: Transformer, tokens: Tensor, cache: Cache) -> Tensor:
    """Run token ids that have already been checked. Return the logits at the last position.

    The ids have shape (B, T), the logits (B, V).
    """
    with torch.inference_mode():  # a sixth faster than no_grad, because views are not tracked either
        logits = model(tokens.to(model.embed_tokens.weight.device), cache, last_only=True)
    return logits[:, -1].clone()  # an ordinary tensor, which can be changed later, unlike the original


class Generation:
    """A reply in progress: iterate over it to receive token ids as they are generated.

    Args:
        next_tokens: function that runs one pass and returns the ids of one or more new tokens. Its argument
            is the list of all ids so far: those of the prompt, then those of the reply.
        prompt: token ids of the prompt.
        max_new_tokens: maximum number of tokens in the reply.
        cache: the cache that `next_tokens` uses.
        eos_ids: ids of the tokens that end the reply.

    Attributes:
        tokens: ids of the reply so far, including `<eos>` if it was generated.
        seconds: time per token, in seconds, including sampling. If one pass returns several tokens, the first
            token gets the time of the whole pass, and the others get 0.
        stop_reason: "eos", "max_new_tokens", "cache full" or "error"; None while the reply is in progress.
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
                    if cache.change_count != changes:
                        message = f"the cache, now of {cache.length} tokens, was used by something else"
                        raise ValueError(f"{message} during this reply; make a cache for each reply")
                    start = time.perf_counter()
                    new = next_tokens([*prompt, *self.tokens])
                    self.seconds += [time.perf_counter() - start] + [0.0] * (len(new) - 1)
                    self.tokens += new
                    changes = cache.change_count
                    if new[-1] in eos_ids:
                        self.stop_reason = "eos"
                    elif len(self.tokens) == max_new_tokens:
                        self.stop_reason = "max_new_tokens"
                    elif cache.length == cache.max_len:
                        self.stop_reason = "cache full"
                    yield from new
            except (Exception, KeyboardInterrupt):  # not GeneratorExit: to stop iterating is not an error
                self.stop_reason = "error"
                raise

        # The counter is read now, so that of two replies only the first to start can use the cache.
        self._stream = stream(cache.change_count)

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
    """Generate a reply token by token until `<eos>`, `max_new_tokens`, or a full cache ends it.

    Args:
        prompt: token ids of one sequence, of shape (P,) or (1, P).
        max_new_tokens: maximum number of tokens in the reply.
        cache: an empty cache; None makes a `StaticCache` of the required length. A cache for S tokens allows
            a reply of S - P + 1 tokens, because the last token of a reply is never run.
        eos_ids: ids of the tokens that end the reply; None uses those of the config.
        sampling: how tokens are chosen.

    Returns:
        A `Generation`: iterate over it to generate the reply. No pass has been run yet.

    Raises:
        ValueError: immediately, if the prompt, a setting or the cache is invalid. During generation, if the
            logits contain NaN or infinity, or if something else used the cache; the failed pass is rolled
            back.
    """
    ids, cache, stop_ids = check_request(model, prompt, max_new_tokens, cache, eos_ids)
    choose = make_chooser(sampling, model.config.vocab_size)

    def next_tokens(ids: list[int]) -> list[int]:
        with rollback_on_error(cache):
            return [choose(to_numpy(next_token_logits(model, torch.tensor([ids[cache.length :]]), cache)))]

    return Generation(next_tokens, prompt=ids, max_new_tokens=max_new_tokens, cache=cache, eos_ids=stop_ids)


def check_request(
    model: Transformer,
    prompt: Tokens,
    max_new_tokens: int,
    cache: Cache | None,
    eos_ids: Iterable[int] | None,
) -> tuple[list[int], Cache, frozenset[int]]:
    """Check the arguments of `generate`, and replace each None by the default.

    Returns:
        The ids of the prompt, the cache, and the ids that end the reply.

    Raises:
        ValueError: an argument is invalid; see `generate`.
    """
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
    """Raise ValueError unless the cache is empty, fits the model, and has room for `n_prompt` tokens."""
    check_cache(cache, model, 1)
    if cache.length:
        raise ValueError(f"the cache holds {cache.length} tokens; expected an empty one: reset() it")
    cache.check_capacity(n_prompt)


@contextmanager
def rollback_on_error(cache: Cache) -> Iterator[None]:
    """Restore the cache if the `with` block raises any exception, including the one from Ctrl-C."""
    snapshot = cache.snapshot()
    try:
        yield
    except BaseException:
        cache.restore(snapshot)
        raise


def to_numpy(logits: Tensor) -> np.ndarray:
    """Return the logits of one sequence as a NumPy array in float32.

    The logits have shape (1, …, V), the array (…, V). This is the only point at which a step waits for the
    GPU.

    Raises:
        ValueError: the logits contain NaN or infinity.
    """
    array = logits[0].float().cpu().numpy()
    if not np.isfinite(array).all():
        raise ValueError("the logits hold NaN or infinity; expected numbers: look for them in the weights")
    return array


def as_tokens(prompt: Tokens, vocab_size: int) -> Tensor:
    """Return token ids of shape (P,) or (B, P) as a tensor of shape (B, P). B is 1 for shape (P,).

    Raises:
        ValueError: there are no ids, or they are not integers from 0 to vocab_size - 1.
    """
    ids = np.array(prompt.tolist() if isinstance(prompt, Tensor) else prompt)
    if not ids.size:
        raise ValueError("the prompt is empty; expected at least one token")
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        message = f"the prompt is {reprlib.repr(prompt)}; expected ids, (P,) or (B, P)"
        raise ValueError(f"{message}, whole numbers such as tokenizer.encode(text) returns")
    tokens = torch.from_numpy(ids.astype(np.int64)).reshape(-1, ids.shape[-1])
    check_tokens(tokens, vocab_size)
    return tokens
