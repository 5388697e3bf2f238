"""Speculative decoding: words are drafted cheaply, and one pass of the model judges all of them.

A round is: draft k words, run the newest word and the drafted ones in one pass, keep the beginning that the
model would have said too and one word of its own, and let the cache forget the rows of the others. The text
is the one that `generate` says, or, where words are drawn, one from the same distribution.

    LookUp        drafts what followed the newest words where they stood before: no model, no rows
    FirstLayers   the model's own first layers, whose rows lie in its cache already
    DraftModel    another model of the same words, with a cache of its own

Source: Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from helpers.arguments import check_whole
from helpers.model.cache import GrowingCache, KVCache, StaticCache
from helpers.model.generate import Generation, Tokens, check_as_left, check_empty, choose_from, prepared
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Sampling, accept, accept_sampled, draw, greedy


@dataclass(frozen=True)
class Draft:
    """Words that may come next.

    Args:
        tokens: their ids, d of them.
        q: the probabilities that each was drawn with, (d, V): of a word that could be no other, 1 for it.
            None where the reply is greedy: nothing is drawn there.
    """

    tokens: list[int]
    q: Any = None


NOTHING = Draft([])


class Drafter(Protocol):
    """Says what may come next. Of what was taken it is told by the text of the next round."""

    def check_fits(self, model: Transformer, cache: KVCache) -> None:
        """Raise ValueError unless it can draft for this model and cache."""

    def propose(self, text: Sequence[int], k: int, cache: KVCache, sampler: Sampler) -> Draft:
        """Return k words or fewer that may follow.

        Args:
            text: prompt and reply so far.
            k: words at most, 1 or more.
            cache: the model's, with a row of each word but the newest; to be left so.
            sampler: how the reply chooses its words.
        """


class Sampler:
    """How a reply chooses tokens: `pick` one for a draft, `judge` drafted ones."""

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        sampling.check_fits(vocab_size)
        self.sampling, self.vocab_size, self.greedy = sampling, vocab_size, sampling.temperature is None
        self.rng = np.random.default_rng(sampling.seed)

    def pick(self, logits: np.ndarray) -> tuple[int, np.ndarray | None]:
        """Choose a word from logits (V,); return it and the probabilities it was drawn with, (V,)."""
        if self.greedy:
            return greedy(logits), None
        q = self.sampling.probabilities(logits)
        return draw(q, self.rng), q

    def judge(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return the new words, 1 to d + 1, from the model's logits in the places of d drafts, (d + 1, V)."""
        if self.greedy:
            return accept(draft.tokens, logits.argmax(axis=-1).tolist())
        p = np.array([self.sampling.probabilities(row) for row in logits])
        return accept_sampled(draft.tokens, p, draft.q, self.rng)

    def check(self, draft: Draft) -> None:
        """Raise ValueError if words will be drawn and the draft's q is missing: the text would be biased."""
        wanted, got = (len(draft.tokens), self.vocab_size), np.shape(draft.q) if draft.q is not None else None
        if not self.greedy and draft.tokens and got != wanted:
            raise ValueError(
                f"the draft's q has shape {got}; expected {wanted}: the probabilities that each word was "
                "drawn with, 1 for a word that could be no other"
            )


@dataclass(frozen=True)
class LookUp:
    """Finds where the newest words stood before, and drafts what followed them there.

    Args:
        longest: words that are looked for at first; where they did not stand together, one less, down to 1.
    """

    longest: int = 3

    def check_fits(self, model: Transformer, cache: KVCache) -> None:
        """Any model and any cache will do."""
        check_whole("longest", self.longest)

    def propose(self, text: Sequence[int], k: int, cache: KVCache, sampler: Sampler) -> Draft:
        """See `Drafter.propose`."""
        tokens = follow(text, self.longest)[:k]
        if sampler.greedy:
            return Draft(tokens)
        q = np.zeros((len(tokens), sampler.vocab_size))
        q[np.arange(len(tokens)), tokens] = 1
        return Draft(tokens, q)


def follow(text: Sequence[int], longest: int) -> list[int]:
    """Return what followed the newest words where they last stood, as many of them as did; [] if none did."""
    text = list(text)
    for n in range(min(longest, len(text) - 1), 0, -1):
        newest = text[-n:]
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == newest:
                return text[start + n :]
    return []


class FirstLayers:
    """Drafts with a model's own first layers, its norm and its readout.

    The rows of those layers are in the model's cache already, so that it reads them there. Those that it
    adds it takes away again; the model's pass makes them anew, the same ones.

    Args:
        model: the one that is asked for the reply.
        n: layers, 1 or more and fewer than it has.
    """

    def __init__(self, model: Transformer, n: int) -> None:
        self.whole, self.first = model, first_layers(model, n)

    def check_fits(self, model: Transformer, cache: KVCache) -> None:
        """It needs the model it was made of, and a cache in which each layer keeps rows for itself."""
        if model is not self.whole:
            raise ValueError("these first layers are another model's; expected FirstLayers(model, n) of this")
        if not isinstance(cache, GrowingCache | StaticCache):
            raise ValueError(
                f"a {type(cache).__name__} came in; expected a GrowingCache or a StaticCache, whose layers "
                "keep their rows apart: draft with LookUp or a DraftModel"
            )

    def propose(self, text: Sequence[int], k: int, cache: KVCache, sampler: Sampler) -> Draft:
        """See `Drafter.propose`."""
        length = cache.length
        try:
            return say(self.first, text[length:], k, cache, sampler)
        finally:
            cache.truncate(length)


def first_layers(model: Transformer, n: int) -> Transformer:
    """Return a model of the first n layers, with the same norm, readout and cache; it shares all weights."""
    if n not in range(1, len(model.layers)):
        raise ValueError(f"n is {n!r}; expected 1 to {len(model.layers) - 1} of {len(model.layers)} layers")
    first = copy.copy(model)
    first._modules = {**model._modules, "layers": model.layers[:n]}
    return first


class DraftModel:
    """Drafts with another model of the same words, which keeps rows of its own.

    Before it drafts it forgets the rows of words that were not taken, and runs those it has not seen: the
    word that the model put in their place, and its own last one where all were taken.

    Args:
        model: what drafts.
        cache: its own, empty; None makes a preallocated one.

    Attributes:
        seen: the words whose rows the cache holds.

    Raises:
        ValueError: the cache is in use, or another model's.
    """

    def __init__(self, model: Transformer, cache: KVCache | None = None) -> None:
        weight = model.embed_tokens.weight
        if cache is None:
            cache = StaticCache(model.config, dtype=weight.dtype, device=weight.device)
        check_empty(model, cache, 1)
        self.model, self.cache, self.seen = model, cache, list[int]()

    def check_fits(self, model: Transformer, cache: KVCache) -> None:
        """Ids must mean the same words in both, and the caches must be two."""
        mine, theirs = self.model.config.vocab_size, model.config.vocab_size
        if mine != theirs:
            raise ValueError(f"the draft model has {mine} words, the model {theirs}; expected the same words")
        if self.cache is cache:
            raise ValueError("draft and model came with one cache; expected one for each")
        check_goes_back(self.cache)

    def propose(self, text: Sequence[int], k: int, cache: KVCache, sampler: Sampler) -> Draft:
        """See `Drafter.propose`; fewer words where its cache is nearly full."""
        text = list(text)
        self.cache.truncate(min(shared(self.seen, text), len(text) - 1))
        k = min(k, self.cache.max_len - len(text) + 1)
        if k < 1:
            return NOTHING
        draft = say(self.model, text[self.cache.length :], k, self.cache, sampler)
        self.seen = [*text, *draft.tokens[:-1]]
        return draft


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many words two texts begin with in common."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (x, y) in pairs if x != y), min(len(a), len(b)))


def say(model: Transformer, new: Sequence[int], k: int, cache: KVCache, sampler: Sampler) -> Draft:
    """Run new words, and then, one by one, those that the model says; the last of the k is not run."""
    tokens, q = list[int](), list[np.ndarray | None]()
    for _ in range(k):
        token, weights = sampler.pick(last_logits(model, new, 1, cache)[0, 0].float().cpu().numpy())
        tokens.append(token)
        q.append(weights)
        new = [token]
    return Draft(tokens, None if sampler.greedy else np.array(q))


def last_logits(model: Transformer, new: Sequence[int], n: int, cache: KVCache) -> Tensor:
    """Run new words in one pass; return the logits of the last n of them, (1, n, V)."""
    with torch.inference_mode():
        tokens = torch.tensor([new], device=model.embed_tokens.weight.device)
        return model(tokens, cache, last_only=n == 1)[:, -n:]


@dataclass(frozen=True)
class Round:
    """One pass of the model: words drafted for it, and how many of them were taken into the reply."""

    drafted: int
    accepted: int


class Speculation(Generation):
    """A reply while it is made, as `Generation`. Words come in bursts; the first of each has its seconds.

    Attributes:
        rounds: one for each pass of the model so far; the first is the prefill, without a draft.
    """

    def __init__(
        self,
        model: Transformer,
        text: list[int],
        max_new: int,
        draft: Callable[[list[int], int], Draft],
        cache: KVCache,
        ends: Collection[int],
        sampler: Sampler,
    ) -> None:
        """Take what `speculate` has checked; draft(text, room) gives words that may come next."""
        super().__init__(self._in_rounds(cache.changes))
        self.rounds: list[Round] = []
        self._model, self._cache, self._sampler, self._draft = model, cache, sampler, draft
        self._text, self._most, self._ends = text, len(text) + max_new, ends

    @property
    def passes(self) -> int:
        """Passes of the model so far, the prefill among them."""
        return len(self.rounds)

    def _in_rounds(self, changes: int) -> Iterator[tuple[int, float, str | None]]:
        """Yield (token, the seconds it took, why it was the last or None)."""
        cache, text, stop = self._cache, self._text, None
        while not stop:
            check_as_left(cache, changes)
            begun = time.perf_counter()
            # A pass runs the newest word and the drafts, and may say one word more than it was given.
            room = min(self._most, cache.max_len + 1) - len(text) - 1
            draft = self._draft(text, room) if cache.length and room > 0 else NOTHING
            said = self._verify(draft)
            text += said
            cache.truncate(len(text) - 1)  # the newest word has not been run
            changes = cache.changes
            self.rounds.append(Round(len(draft.tokens), shared(draft.tokens, said)))
            stop = self._why_over()
            seconds = [time.perf_counter() - begun] + [0.0] * (len(said) - 1)
            yield from zip(said, seconds, [None] * (len(said) - 1) + [stop], strict=True)

    def _verify(self, draft: Draft) -> list[int]:
        """Run what has not been run and a draft in one pass; return the new words, up to one that ends.

        Raises:
            ValueError: a draft without its q, or NaN or infinity in the logits; the cache is as before.
        """
        self._sampler.check(draft)
        length = self._cache.length
        new = [*self._text[length:], *draft.tokens]
        logits = last_logits(self._model, new, len(draft.tokens) + 1, self._cache)
        said: list[int] = choose_from(logits, self._cache, length, partial(self._sampler.judge, draft))
        return said[: next((n for n, token in enumerate(said, 1) if token in self._ends), len(said))]

    def _why_over(self) -> str | None:
        """Return why the newest word is the last, as `generate` says it; None if it is not."""
        reasons = {
            "eos": self._text[-1] in self._ends,
            "max_new": len(self._text) == self._most,
            "cache full": self._cache.length == self._cache.max_len,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


def speculate(
    model: Transformer,
    prompt: Tokens,
    max_new: int,
    drafter: Drafter,
    k: int = 4,
    *,
    cache: KVCache | None = None,
    eos_ids: Collection[int] | None = None,
    sampling: Sampling = GREEDY,
) -> Speculation:
    """Say what `generate` says, and leave its cache as it would, in fewer passes of the model.

    Args:
        drafter: says what may come next; one reply at a time.
        k: words drafted for a pass, at most.

    Other arguments as in `generate`. With a temperature the words are drawn from the distribution that
    `generate` draws from; the same seed draws other ones.

    Returns:
        A `Speculation`: iterate over it. Nothing has run yet.

    Raises:
        ValueError: as in `generate`; or a drafter that does not fit (another vocabulary, another model's
            layers), a k under 1, a cache that cannot go back; at once. While it runs: a draft without the
            probabilities it was drawn with.
    """
    check_whole("k", k)
    tokens, cache, ends = prepared(model, prompt, max_new, cache, eos_ids)
    sampler = Sampler(sampling, model.config.vocab_size)
    check_goes_back(cache)
    drafter.check_fits(model, cache)

    def draft(text: list[int], room: int) -> Draft:
        made = drafter.propose(text, min(k, room), cache, sampler)
        if len(made.tokens) > min(k, room):
            raise ValueError(f"{len(made.tokens)} words were drafted; expected {min(k, room)} at most")
        return made

    return Speculation(model, tokens[0].tolist(), max_new, draft, cache, ends, sampler)


def check_goes_back(cache: KVCache) -> None:
    """Raise ValueError if rows that are needed after a step back may be gone."""
    if not cache.goes_back:
        raise ValueError(
            f"a {type(cache).__name__} came in, whose rows leave or are rounded; expected one that can go "
            "back by any number of rows, such as a StaticCache"
        )
