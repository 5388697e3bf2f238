"""From logits to the next token: softmax, greedy, temperature, top-k, top-p; verification of draft tokens."""

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
    """How a reply chooses its tokens: greedily, or sampled if there is a temperature.

    Args:
        temperature, top_k, top_p: as in `next_probabilities`; temperature None means greedy.
        seed: of the random numbers: the same seed samples the same tokens.
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
        """Return the probability of each token, (V,); if greedy, the model's own probabilities."""
        return next_probabilities(logits, self.temperature or 1.0, self.top_k, self.top_p)

    def __str__(self) -> str:
        """Return the settings as text: "greedy", or "sampled, temperature 0.8, top-k 5"."""
        settings = {"temperature": self.temperature, "top-k": self.top_k, "top-p": self.top_p}
        named = [f"{name} {value:g}" for name, value in settings.items() if value is not None]
        return ", ".join(["greedy" if self.temperature is None else "sampled", *named])


GREEDY = Sampling()


def check_sampling(sampling: Sampling, vocab_size: int) -> Sampling:
    """Return the settings. ValueError unless they are a `Sampling` whose top_k is at most `vocab_size`."""
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling is {sampling!r}; expected settings such as Sampling(temperature=0.8)")
    if sampling.top_k is not None and sampling.top_k > vocab_size:
        raise ValueError(f"top_k is {sampling.top_k}; expected at most {vocab_size}, the vocabulary, or None")
    return sampling


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return softmax of scores along the last axis: weights that sum to 1, and 0 for a score of -inf.

    A row of -inf only gives zeros: plain softmax would divide 0 by 0 and give NaN.
    """
    peak = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = exps.sum(axis=-1, keepdims=True)
    return np.divide(exps, total, out=np.zeros_like(exps), where=total != 0)


def greedy(logits: np.ndarray) -> int:
    """Return the index of the largest of (V,) logits; the first in a tie."""
    return int(np.argmax(check_logits(logits)))


def keep_top_k(logits: np.ndarray, k: int) -> np.ndarray:
    """Set all but the k largest of (V,) logits to -inf; in a tie the first are kept."""
    best = np.argsort(-logits, kind="stable")[:k]
    kept = np.full_like(logits, -np.inf)
    kept[best] = logits[best]
    return kept


def keep_top_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Keep the smallest set of the largest (V,) logits whose probabilities sum to p; set others to -inf."""
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
    """Return the probability of each token: temperature first, then top-k, then top-p.

    Args:
        logits: one number per token, (V,).
        temperature: over 0; below 1 sharpens, above 1 flattens the distribution.
        top_k: number of tokens to keep, 1 to V; None keeps all.
        top_p: probability of the smallest set of tokens to keep, over 0 to 1; None keeps all.

    Returns:
        Probabilities, (V,), that sum to 1. ValueError for a setting out of range, or invalid logits.
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
    """Accept draft tokens up to the first that the model would not choose, and replace that one.

    Args:
        drafted: k tokens.
        chosen: the model's choice at the position of each, and after the last: k + 1 tokens.
    """
    a = 0
    while a < len(drafted) and drafted[a] == chosen[a]:
        a += 1
    return [*drafted[:a], chosen[a]]


def accept_or_resample(p: np.ndarray, q: np.ndarray, token: int, u: float) -> np.ndarray | None:
    """Verify a draft token so that the resulting token is distributed as p, whatever q is.

    Args:
        p: the model's probabilities, (V,).
        q: the probabilities that the token was sampled with, (V,).
        token: the draft token.
        u: a random number, 0 or more and under 1.

    Returns:
        None if the token is accepted. Otherwise the probabilities to sample its replacement with, (V,).

    Source: Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
    """
    if u * q[token] < p[token]:  # with a probability of min(1, p / q)
        return None
    rest = np.maximum(p - q, 0)
    return rest / rest.sum()


def accept_sampled(
    drafted: Sequence[int], p: np.ndarray, q: np.ndarray, rng: np.random.Generator
) -> list[int]:
    """Verify draft tokens one after the other; return those accepted, and one more that is sampled.

    Args:
        drafted: k tokens.
        p: the model's probabilities at the position of each, and after the last, (k + 1, V).
        q: the probabilities that each was sampled with, (k, V).
    """
    for n, token in enumerate(drafted):
        residual = accept_or_resample(p[n], q[n], token, rng.random())
        if residual is not None:
            return [*drafted[:n], draw(residual, rng)]
    return [*drafted, draw(p[-1], rng)]


def draw(weights: np.ndarray, rng: np.random.Generator) -> int:
    """Sample an index with these probabilities, (V,)."""
    return int(rng.choice(len(weights), p=weights))


def chooser(sampling: Sampling, vocab_size: int) -> Chooser:
    """Return a function from logits (V,) to an index. ValueError if top_k is over `vocab_size`."""
    check_sampling(sampling, vocab_size)
    if sampling.temperature is None:
        return greedy
    rng = np.random.default_rng(sampling.seed)
    return lambda logits: draw(sampling.probabilities(logits), rng)


def check_logits(logits: np.ndarray) -> np.ndarray:
    """Return logits as a float array (V,). ValueError for another shape, NaN, +inf, or -inf only."""
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
    """Draft tokens, to be verified by the model."""

    tokens: list[int]  # d ids
    q: Any = None  # the probabilities that each was sampled with, (d, V); one-hot if certain; None if greedy


class Sampler:
    """Chooses the tokens of a reply: `sample` one for a draft, `verify` draft tokens."""

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        self.sampling = check_sampling(sampling, vocab_size)
        self.vocab_size, self.greedy = vocab_size, sampling.temperature is None
        self.rng = np.random.default_rng(sampling.seed)

    def sample(self, logits: np.ndarray) -> tuple[int, np.ndarray | None]:
        """Return a token chosen from logits (V,), and the probabilities that it was sampled with, (V,)."""
        if self.greedy:
            return greedy(logits), None
        q = self.sampling.probabilities(logits)
        return draw(q, self.rng), q

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return 1 to d + 1 new tokens; logits of the draft's positions and the next, (d + 1, V)."""
        if self.greedy:
            return accept(draft.tokens, logits.argmax(axis=-1).tolist())
        p = np.array([self.sampling.probabilities(row) for row in logits])
        return accept_sampled(draft.tokens, p, draft.q, self.rng)
