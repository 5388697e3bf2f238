"""Choosing the next token from logits, greedily or by sampling, and verifying draft tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from helpers.validate import check_whole, is_number

Chooser = Callable[[np.ndarray], int]

# Cumulative probabilities are sums of rounded numbers: 0.5 + 0.3 may be slightly less than 0.8.
ROUNDING = 1e-9  # relative to p, so that the largest token is kept for any p


@dataclass(frozen=True)
class Sampling:
    """Settings for choosing a reply's tokens: greedily, or by sampling if a temperature is set.

    Args:
        temperature, top_k, top_p: as in `next_probabilities`, except that temperature None means greedy.
        seed: seed of the random number generator; the same seed samples the same tokens.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        T, k, p = self.temperature, self.top_k, self.top_p
        if T is None and not (k is None and p is None):
            raise ValueError("top_k or top_p is set without a temperature; expected one, such as 1.0")
        if T is not None and not (is_number(T) and T > 0):
            raise ValueError(f"temperature is {T!r}; expected a number over 0, or None for the top token")
        if p is not None and not (is_number(p) and 0 < p <= 1):
            raise ValueError(f"top_p is {p!r}; expected a number over 0 and at most 1, or None")
        if k is not None:
            check_whole("top_k", k)
        check_whole("seed", self.seed, minimum=0)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the probability of each token, of shape (V,).

        If greedy, this is the softmax of the logits.
        """
        return next_probabilities(logits, self.temperature or 1.0, self.top_k, self.top_p)

    def __str__(self) -> str:
        """Return the settings as text, such as "greedy" or "sampled, temperature 0.8, top-k 5"."""
        settings = {"temperature": self.temperature, "top-k": self.top_k, "top-p": self.top_p}
        named = [f"{name} {value:g}" for name, value in settings.items() if value is not None]
        return ", ".join(["greedy" if self.temperature is None else "sampled", *named])


GREEDY = Sampling()


def check_sampling(sampling: Sampling, vocab_size: int) -> Sampling:
    """Return the settings unchanged if they are valid.

    Raises:
        ValueError: `sampling` is not a `Sampling`, or its top_k is over `vocab_size`.
    """
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling is {sampling!r}; expected settings such as Sampling(temperature=0.8)")
    if sampling.top_k is not None and sampling.top_k > vocab_size:
        raise ValueError(f"top_k is {sampling.top_k}; expected at most {vocab_size}, the vocabulary, or None")
    return sampling


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax of scores along the last axis: weights that sum to 1, with 0 for a score of -inf.

    A row in which every score is -inf gets only zeros. Plain softmax would divide 0 by 0 and return NaN.
    """
    peak = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = exps.sum(axis=-1, keepdims=True)
    return np.divide(exps, total, out=np.zeros_like(exps), where=total != 0)


def greedy(logits: np.ndarray) -> int:
    """Return the index of the largest logit, or the lowest such index in a tie.

    Logits have shape (V,).
    """
    return int(np.argmax(check_logits(logits)))


def keep_top_k(logits: np.ndarray, k: int) -> np.ndarray:
    """Return logits with all but the k largest set to -inf.

    Logits have shape (V,). Among equal logits, those with the lowest indices are kept.
    """
    best = np.argsort(-logits, kind="stable")[:k]
    kept = np.full_like(logits, -np.inf)
    kept[best] = logits[best]
    return kept


def keep_top_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Return logits with all but the nucleus set to -inf.

    The nucleus is the smallest set of most probable tokens whose probabilities sum to at least p. Logits have
    shape (V,).
    """
    order = np.argsort(-logits, kind="stable")
    weights = softmax(logits)[order]
    before = np.cumsum(weights) - weights  # the sum over the more probable tokens
    best = order[before < p * (1 - ROUNDING)]
    kept = np.full_like(logits, -np.inf)
    kept[best] = logits[best]
    return kept


def next_probabilities(
    logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """Return the probability of each token, of shape (V,), after temperature, top-k and top-p, in this order.

    Args:
        logits: one logit per token, of shape (V,).
        temperature: a number over 0; below 1 it sharpens the distribution, above 1 it flattens it.
        top_k: number of most probable tokens to keep, 1 to V; None keeps all.
        top_p: cumulative probability, over 0 and at most 1. The smallest set of most probable tokens that
            reaches it is kept; None keeps all.

    Raises:
        ValueError: a setting is out of range, or the logits are invalid (see `check_logits`).
    """
    logits = check_logits(logits)
    check_sampling(Sampling(temperature, top_k, top_p), len(logits))
    peak = logits[np.isfinite(logits)].max()
    with np.errstate(over="ignore"):  # a tiny temperature sends the others to -inf, as it should
        logits = (logits - peak) / temperature
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None and top_p < 1:
        logits = keep_top_p(logits, top_p)
    return softmax(logits)


def accept(drafted: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """Return the draft tokens before the first that differs from the model's choice, then that choice.

    If no draft token differs, return all k of them, then the model's choice for the next position.

    Args:
        drafted: k draft tokens.
        chosen: k + 1 tokens: the model's choice at the position of each draft token and at the next position.
    """
    a = 0
    while a < len(drafted) and drafted[a] == chosen[a]:
        a += 1
    return [*drafted[:a], chosen[a]]


def accept_or_resample(p: np.ndarray, q: np.ndarray, token: int, u: float) -> np.ndarray | None:
    """Accept or reject a draft token, such that the resulting token has the distribution p, whatever q is.

    Args:
        p: the model's probabilities, of shape (V,).
        q: the probabilities from which the draft token was sampled, of shape (V,).
        token: the draft token.
        u: a uniform random number, at least 0 and under 1.

    Returns:
        None if the token is accepted; otherwise the probabilities from which to sample its replacement, of
        shape (V,).

    Source: Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
    """
    if u * q[token] < p[token]:  # with a probability of min(1, p / q)
        return None
    rest = np.maximum(p - q, 0)
    return rest / rest.sum()


def accept_sampled(
    drafted: Sequence[int], p: np.ndarray, q: np.ndarray, rng: np.random.Generator
) -> list[int]:
    """Verify draft tokens in order. Return the accepted tokens, then one sampled token.

    The sampled token replaces the first rejected draft token. If all are accepted, it follows the last.

    Args:
        drafted: k draft tokens.
        p: the model's probabilities at the position of each draft token and at the next position, of shape (k
            + 1, V).
        q: the probabilities from which each draft token was sampled, of shape (k, V).
        rng: source of random numbers.
    """
    for n, token in enumerate(drafted):
        residual = accept_or_resample(p[n], q[n], token, rng.random())
        if residual is not None:
            return [*drafted[:n], sample_index(residual, rng)]
    return [*drafted, sample_index(p[-1], rng)]


def sample_index(weights: np.ndarray, rng: np.random.Generator) -> int:
    """Return an index sampled with the given probabilities, which have shape (V,) and sum to 1."""
    return int(rng.choice(len(weights), p=weights))


def make_chooser(sampling: Sampling, vocab_size: int) -> Chooser:
    """Return a function that maps logits, of shape (V,), to the id of the chosen token.

    Raises:
        ValueError: as in `check_sampling`.
    """
    check_sampling(sampling, vocab_size)
    if sampling.temperature is None:
        return greedy
    rng = np.random.default_rng(sampling.seed)
    return lambda logits: sample_index(sampling.probabilities(logits), rng)


def check_logits(logits: np.ndarray) -> np.ndarray:
    """Return logits as a float array, of shape (V,).

    Raises:
        ValueError: the logits do not have shape (V,), a logit is NaN or +inf, or every logit is -inf.
    """
    array = np.asarray(logits, dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"logits have shape {array.shape}; expected (V,): pass those of the last position")
    if np.isnan(array).any():
        message = f"logits[{np.isnan(array).argmax()}] is NaN; expected numbers"
        raise ValueError(f"{message}: look for 0/0, as in a softmax of -inf only")
    if np.isposinf(array).any() or not np.isfinite(array).any():
        raise ValueError("logits need a finite number and no +inf; every token is banned or one overflowed")
    return array


class Draft(NamedTuple):
    """Draft tokens for the model to verify."""

    tokens: list[int]  # d ids
    probabilities: np.ndarray | None = None  # from which each was sampled, (d, V); None if greedy


class Sampler:
    """An object that chooses the tokens of a reply.

    `sample` chooses a draft token. `verify` accepts draft tokens or replaces them.

    Args:
        sampling: the settings.
        vocab_size: V, the number of tokens in the vocabulary.
    """

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        self.sampling = check_sampling(sampling, vocab_size)
        self.vocab_size, self.greedy = vocab_size, sampling.temperature is None
        self.rng = np.random.default_rng(sampling.seed)

    def sample(self, logits: np.ndarray) -> tuple[int, np.ndarray | None]:
        """Choose a token, given logits of shape (V,).

        Returns:
            The token's id, and the probabilities from which it was sampled, of shape (V,). If greedy, None
            instead of the probabilities.
        """
        if self.greedy:
            return greedy(logits), None
        q = self.sampling.probabilities(logits)
        return sample_index(q, self.rng), q

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return 1 to d + 1 new tokens: the accepted draft tokens, then one token that the model chooses.

        Args:
            draft: d draft tokens, with their probabilities unless greedy.
            logits: the model's logits at the position of each draft token and at the next position, of shape
                (d + 1, V).
        """
        if self.greedy:
            return accept(draft.tokens, logits.argmax(axis=-1).tolist())
        p = np.array([self.sampling.probabilities(row) for row in logits])
        q: Any = draft.probabilities  # None only if there are no draft tokens
        return accept_sampled(draft.tokens, p, q, self.rng)
