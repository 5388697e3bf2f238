"""Speculative decoding: tokens are drafted cheaply, and one pass of the model verifies all of them.

A round drafts k tokens, runs the newest token and the draft tokens in one pass, accepts those that the model
would have generated too, adds one of its own, and removes the entries of the others from the cache. The reply
is that of `generate`, or, if tokens are sampled, one from the same distribution.

    PromptLookup  drafts what followed the last earlier match of the newest tokens: no model, no entries
    EarlyExit     drafts with the model's own first layers, whose entries are in its cache already

Source: Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from helpers.model.cache import Cache
from helpers.model.generate import Generation, Tokens, check_request, rollback_on_error, to_numpy
from helpers.model.transformer import Transformer
from helpers.sampling import GREEDY, Draft, Sampler, Sampling
from helpers.validate import check_whole


def speculate_round(
    model: Transformer,
    text: list[int],
    k: int,
    drafter: Drafter,
    cache: Cache,
    sampler: Sampler,
    eos_ids: Collection[int] = (),
) -> tuple[Draft, list[int]]:
    """Draft, verify in one pass, accept, truncate: return the draft, and 1 to k + 1 new tokens.

    Args:
        model: verifies the draft.
        text: ids of the prompt and of the reply so far; the new tokens are not added.
        k: maximum number of draft tokens. With 0 it is a plain step, such as the prefill.
        drafter: proposes the next tokens.
        cache: the model's; afterwards it has entries of all tokens except the newest.
        sampler: how tokens are chosen.
        eos_ids: tokens that end the reply.

    Raises:
        ValueError: NaN or infinity in the logits; the cache is unchanged.
    """
    with rollback_on_error(cache):
        # Draft: quickly, maybe wrongly.
        draft = drafter.propose(text, k, cache, sampler) if k else Draft([])

        # Verify: one pass runs the newest token, or the whole prompt, followed by the draft tokens.
        new = [*text[cache.length :], *draft.tokens]
        logits = last_logits(model, new, len(draft.tokens) + 1, cache)  # (d + 1, V)

        # Accept: draft tokens that the model would choose too, and one of its own; nothing after `<eos>`.
        new_tokens = sampler.verify(draft, logits)
        n = next((n for n, token in enumerate(new_tokens, 1) if token in eos_ids), len(new_tokens))
        new_tokens = new_tokens[:n]

        # Truncate: remove the entries of rejected tokens. The newest token has none: it has not been run.
        cache.truncate(len(text) + len(new_tokens) - 1)
        return draft, new_tokens


class Round(NamedTuple):
    """One pass of the model: the number of draft tokens, and how many of them were accepted."""

    n_drafted: int
    n_accepted: int


class Speculation(Generation):
    """A reply that is being generated, as `Generation`; a pass adds up to k + 1 tokens.

    Attributes:
        rounds: one for each pass of the model so far; the first is the prefill, without a draft.
    """

    rounds: list[Round]


def speculate(
    model: Transformer,
    prompt: Tokens,
    max_new_tokens: int,
    drafter: Drafter,
    k: int = 4,
    *,
    cache: Cache | None = None,
    eos_ids: Iterable[int] | None = None,
    sampling: Sampling = GREEDY,
) -> Speculation:
    """Generate what `generate` does, and leave the cache as it would, in fewer passes of the model.

    Args:
        drafter: proposes the next tokens.
        k: maximum number of draft tokens for a pass.

    Other arguments as in `generate`. With a temperature the tokens have the same distribution as those of
    `generate`, but the same seed samples different ones.

    Returns:
        A `Speculation`: iterate over it. Nothing has run yet.

    Raises:
        ValueError: as in `generate`; or an unsuitable drafter, or a cache that cannot truncate.
    """
    check_whole("k", k)
    ids, cache, stop_ids = check_request(model, prompt, max_new_tokens, cache, eos_ids)
    sampler, max_len = Sampler(sampling, model.config.vocab_size), len(ids) + max_new_tokens
    if not cache.can_truncate:
        raise ValueError(f"a {type(cache).__name__} cannot truncate; expected a cache such as StaticCache")
    if isinstance(drafter, type) or not isinstance(drafter, Drafter):
        raise ValueError(f"the drafter is {drafter!r}; expected an object such as PromptLookup()")
    if isinstance(drafter, EarlyExit) and drafter.model is not model:
        raise ValueError("the drafter is of another model; expected EarlyExit(model, n) of this one")

    def next_tokens(ids: list[int]) -> list[int]:
        # A round may add one token more than were drafted. The prefill has no draft.
        d = min(k, max_len - len(ids) - 1, cache.max_len - len(ids)) if cache.length else 0
        draft, new = speculate_round(model, ids, d, drafter, cache, sampler, stop_ids)
        # New tokens are the accepted ones, and one of the model that differs from the draft.
        n_accepted = sum(a == b for a, b in zip(draft.tokens, new, strict=False))
        reply.rounds.append(Round(len(draft.tokens), n_accepted))
        return new

    reply = Speculation(next_tokens, prompt=ids, max_new_tokens=max_new_tokens, cache=cache, eos_ids=stop_ids)
    reply.rounds = []
    return reply


@runtime_checkable
class Drafter(Protocol):
    """Proposes the next tokens. The text of the next round shows it which ones were accepted."""

    def propose(self, text: Sequence[int], k: int, cache: Cache, sampler: Sampler) -> Draft:
        """Return at most k tokens that may follow.

        Args:
            text: ids of the prompt and of the reply so far.
            k: maximum number of tokens, 1 or more.
            cache: the model's, with entries of all tokens except the newest; must be left like this.
            sampler: how the reply chooses its tokens.
        """


@dataclass(frozen=True)
class PromptLookup:
    """Finds an earlier match of the newest tokens in the text, and drafts what followed it.

    Args:
        max_ngram_size: number of newest tokens to match first; without a match one fewer, down to 1.
    """

    max_ngram_size: int = 3

    def __post_init__(self) -> None:
        check_whole("max_ngram_size", self.max_ngram_size)

    def propose(self, text: Sequence[int], k: int, cache: object, sampler: Sampler) -> Draft:
        tokens = prompt_lookup(text, self.max_ngram_size)[:k]
        if sampler.greedy:
            return Draft(tokens)
        q = np.zeros((len(tokens), sampler.vocab_size))
        q[np.arange(len(tokens)), tokens] = 1
        return Draft(tokens, q)


def prompt_lookup(text: Sequence[int], max_ngram_size: int) -> list[int]:
    """Return what followed the last earlier match of the newest tokens; [] without a match."""
    text = list(text)
    for n in range(min(max_ngram_size, len(text) - 1), 0, -1):
        newest = text[-n:]
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == newest:
                return text[start + n :]
    return []


class EarlyExit:
    """Drafts with a model's own first layers, its norm and its LM head.

    It reads the entries of those layers in the model's cache, and truncates the ones that it adds when the
    draft is complete; the model's pass computes them again.
    """

    def __init__(self, model: Transformer, n: int) -> None:
        self.model, self.draft_model = model, first_layers(model, n)

    def propose(self, text: Sequence[int], k: int, cache: Cache, sampler: Sampler) -> Draft:
        length, ids, q = cache.length, [*text], list[np.ndarray | None]()
        for _ in range(k):
            logits = last_logits(self.draft_model, ids[cache.length :], 1, cache)[0]
            token, probabilities = sampler.sample(logits)
            ids.append(token)
            q.append(probabilities)
        cache.truncate(length)
        return Draft(ids[len(text) :], None if sampler.greedy else np.array(q))


def first_layers(model: Transformer, n: int) -> Transformer:
    """Return a model of the first n layers, with the same norm and LM head; it shares all weights."""
    if check_whole("n", n) >= len(model.layers):
        raise ValueError(f"n is {n!r}; expected 1 to {len(model.layers) - 1} of {len(model.layers)} layers")
    shallow = copy.copy(model)
    shallow._modules = {**model._modules, "layers": model.layers[:n]}
    return shallow


def last_logits(model: Transformer, new: Sequence[int], n: int, cache: Cache) -> np.ndarray:
    """Run new tokens in one pass; return the logits of the last n of them, (n, V)."""
    with torch.inference_mode():
        tokens = torch.tensor([new], device=model.embed_tokens.weight.device)
        return to_numpy(model(tokens, cache, last_only=n == 1)[:, -n:])
