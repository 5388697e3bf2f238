"""Speculative decoding: tokens are drafted cheaply, and one pass of the model verifies all of them.

A round drafts up to k tokens, runs the newest token and the draft tokens in one pass of the model, and
accepts the draft tokens that the model would have generated too. It then adds one token that the model
chooses, and removes the entries of the rejected tokens from the cache. The reply is the same as that of
`generate`. With a temperature, it is a different sample from the same distribution. There are two drafters:

    PromptLookup  drafts what followed an earlier match of the newest tokens, without a model
    EarlyExit     drafts with the first layers of the model, whose entries are already in its cache

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


class DraftRound(NamedTuple):
    """The result of one round of speculative decoding: the draft, and the tokens added to the sequence."""

    draft: Draft
    new_tokens: list[int]  # 1 to k + 1


def speculate_round(
    model: Transformer,
    text: list[int],
    k: int,
    drafter: Drafter,
    cache: Cache,
    sampler: Sampler,
    eos_ids: Collection[int] = (),
) -> DraftRound:
    """Run one round: draft, verify the draft in one pass, accept tokens, and truncate the cache.

    Args:
        model: the model that verifies the draft.
        text: ids of the prompt and of the reply so far; this list is not changed.
        k: maximum number of draft tokens. 0 makes the round a plain step, such as the prefill.
        drafter: proposes the draft tokens.
        cache: the model's cache. After the round it has the entries of all tokens except the newest.
        sampler: chooses the tokens.
        eos_ids: tokens that end the reply.

    Returns:
        The draft and the new tokens: the accepted draft tokens, then one that the model chose. The new tokens
        end earlier if one of them ends the reply.

    Raises:
        ValueError: the logits contain NaN or infinity; the cache is unchanged.
    """
    with rollback_on_error(cache):
        # Draft: propose tokens quickly; some may be wrong.
        draft = drafter.propose(text, k, cache, sampler) if k else Draft([])

        # Verify: one pass runs the newest token, or the whole prompt, followed by the draft tokens.
        new = [*text[cache.length :], *draft.tokens]
        logits = last_logits(model, new, len(draft.tokens) + 1, cache)  # (d + 1, V)

        # Accept: keep draft tokens that the model would choose too, add one that it chooses, end at `<eos>`.
        new_tokens = sampler.verify(draft, logits)
        n = next((n for n, token in enumerate(new_tokens, 1) if token in eos_ids), len(new_tokens))
        new_tokens = new_tokens[:n]

        # Truncate: remove the entries of rejected tokens. The newest token has none: it has not been run.
        cache.truncate(len(text) + len(new_tokens) - 1)
        return DraftRound(draft, new_tokens)


class SpeculationRound(NamedTuple):
    """The counts of one round: the number of draft tokens, and the number of accepted draft tokens."""

    n_drafted: int
    n_accepted: int


class Speculation(Generation):
    """A reply in progress, used like a `Generation`; each pass adds up to k + 1 tokens.

    Attributes:
        rounds: one `SpeculationRound` per pass of the model so far. The first round is the prefill, which has
            no draft.
    """

    rounds: list[SpeculationRound]


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
    """Generate the same reply as `generate`, usually in fewer passes of the model.

    With a temperature, replies have the same distribution as those of `generate`, but the same seed gives a
    different reply. The cache is left as `generate` would leave it.

    Args:
        drafter: proposes the draft tokens.
        k: maximum number of draft tokens per pass.

    The other arguments are those of `generate`.

    Returns:
        A `Speculation`: iterate over it to generate the reply. No pass has been run yet.

    Raises:
        ValueError: as in `generate`, or the drafter is unsuitable, or the cache cannot truncate.
    """
    check_whole("k", k)
    ids, cache, stop_ids = check_request(model, prompt, max_new_tokens, cache, eos_ids)
    sampler, max_len = Sampler(sampling, model.config.vocab_size), len(ids) + max_new_tokens
    if not cache.can_truncate:
        raise ValueError(f"a {type(cache).__name__} cannot truncate; expected a cache such as StaticCache")
    if isinstance(drafter, type) or not isinstance(drafter, Drafter):
        raise ValueError(f"the drafter is {drafter!r}; expected an object such as PromptLookup()")
    if isinstance(drafter, EarlyExit) and drafter.model is not model:
        raise ValueError("the drafter is of another model; expected EarlyExit(model, n_layers) of this one")

    def next_tokens(ids: list[int]) -> list[int]:
        # A round may add one token more than it drafts. The prefill has no draft.
        d = min(k, max_len - len(ids) - 1, cache.max_len - len(ids)) if cache.length else 0
        draft, new = speculate_round(model, ids, d, drafter, cache, sampler, stop_ids)
        # The new tokens are the accepted draft tokens, then one that the model chose instead of the draft's.
        n_accepted = sum(a == b for a, b in zip(draft.tokens, new, strict=False))
        reply.rounds.append(SpeculationRound(len(draft.tokens), n_accepted))
        return new

    reply = Speculation(next_tokens, prompt=ids, max_new_tokens=max_new_tokens, cache=cache, eos_ids=stop_ids)
    reply.rounds = []
    return reply


@runtime_checkable
class Drafter(Protocol):
    """An object that proposes draft tokens.

    It is not told which draft tokens were accepted, but the text of the next round ends with them and with
    the token that the model chose.
    """

    def propose(self, text: Sequence[int], k: int, cache: Cache, sampler: Sampler) -> Draft:
        """Return a draft of at most k tokens that may follow the text.

        Args:
            text: ids of the prompt and of the reply so far.
            k: maximum number of draft tokens, 1 or more.
            cache: the model's cache, with the entries of all tokens except the newest. A drafter that runs
                tokens with this cache must restore it.
            sampler: chooses the tokens of the reply.
        """


@dataclass(frozen=True)
class PromptLookup:
    """A drafter that finds an earlier match of the newest tokens, and drafts the tokens that followed it.

    Args:
        max_ngram_size: number of newest tokens to match. If these have no earlier match in the text, fewer
            are tried, down to 1.
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
    """Return all tokens after the most recent earlier match of the newest tokens, or [] without a match.

    Args:
        text: ids of the prompt and of the reply so far.
        max_ngram_size: as in `PromptLookup`.
    """
    text = list(text)
    for n in range(min(max_ngram_size, len(text) - 1), 0, -1):
        newest = text[-n:]
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == newest:
                return text[start + n :]
    return []


class EarlyExit:
    """A drafter that runs the first `n_layers` layers of the model, then its final norm and LM head.

    It reads the entries of those layers from the model's cache. The entries that it adds are truncated when
    the draft is complete; the verifying pass computes them again.
    """

    def __init__(self, model: Transformer, n_layers: int) -> None:
        self.model, self.draft_model = model, first_layers(model, n_layers)

    def propose(self, text: Sequence[int], k: int, cache: Cache, sampler: Sampler) -> Draft:
        length, ids, q = cache.length, [*text], list[np.ndarray | None]()
        for _ in range(k):
            logits = last_logits(self.draft_model, ids[cache.length :], 1, cache)[0]
            token, probabilities = sampler.sample(logits)
            ids.append(token)
            q.append(probabilities)
        cache.truncate(length)
        return Draft(ids[len(text) :], None if sampler.greedy else np.array(q))


def first_layers(model: Transformer, n_layers: int) -> Transformer:
    """Return a model with only the first layers. It shares all weights, including final norm and LM head."""
    if check_whole("n_layers", n_layers) >= len(model.layers):
        raise ValueError(
            f"n_layers is {n_layers!r}; expected 1 to {len(model.layers) - 1}, of {len(model.layers)} layers"
        )
    shallow = copy.copy(model)
    shallow._modules = {**model._modules, "layers": model.layers[:n_layers]}
    return shallow


def last_logits(model: Transformer, new_tokens: Sequence[int], n_positions: int, cache: Cache) -> np.ndarray:
    """Run the new tokens in one pass. Return the logits at the last positions, of shape (n_positions, V)."""
    with torch.inference_mode():
        tokens = torch.tensor([new_tokens], device=model.embed_tokens.weight.device)
        return to_numpy(model(tokens, cache, last_only=n_positions == 1)[:, -n_positions:])
