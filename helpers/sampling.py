"""From one row of logits to the next token: softmax, greedy, temperature, top-k, top-p; drafted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from helpers.validate import check_whole, is_number

Chooser = Callable[[np.ndarray], int]

# Cumulative probabilities are sums of rounded numbers: 0.5 + 0.3 may come out a hair under 0.8.
ROUNDING = 1e-9  # as a share of p, so that the largest stays whatever p is


@dataclass(frozen=True)
class Sampling:
    """How a reply chooses its tokens: the likeliest without a temperature (greedy), else they are drawn.

    Args:
        temperature, top_k, top_p: as in `next_probabilities`; None for the temperature is greedy.
        seed: of the draws: the same one draws the same tokens again.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        T, k, p = self.temperature, self.top_k, self.top_p
        if T is None and not (k is None and p is None):
            raise ValueError("top_k or top_p came without a temperature; expected one, such as 1.0")
        if T is not None and not (is_number(T) and T > 0):
            raise ValueError(f"temperature is {T!r}; expected a number over 0, or None for the top token")
        if p is not None and not (is_number(p) and 0 < p <= 1):
            raise ValueError(f"top_p is {p!r}; expected a number over 0 and at most 1, or None")
        if k is not None:
            check_whole("top_k", k)
        check_whole("seed", self.seed, minimum=0)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return the probability of each token, (V,); where it is greedy, the model's own."""
        return next_probabilities(logits, self.temperature or 1.0, self.top_k, self.top_p)

    def __str__(self) -> str:
        """In words: "greedy", or "sampled, temperature 0.8, top-k 5"."""
        settings = {"temperature": self.temperature, "top-k": self.top_k, "top-p": self.top_p}
        named = [f"{name} {value:g}" for name, value in settings.items() if value is not None]
        return ", ".join(["greedy" if self.temperature is None else "sampled", *named])


GREEDY = Sampling()


def check_sampling(sampling: Sampling, vocab_size: int) -> Sampling:
    """Return the settings, or raise ValueError unless they are a `Sampling` that this vocabulary can fill."""
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling is {sampling!r}; expected settings such as Sampling(temperature=0.8)")
    if sampling.top_k is not None and sampling.top_k > vocab_size:
        raise ValueError(f"top_k is {sampling.top_k}; expected at most {vocab_size}, the vocabulary, or None")
    return sampling


def softmax(scores: np.ndarray) -> np.ndarray:
    """Turn rows of scores, along the last axis, into weights that sum to 1; -inf means "not to be picked".

    A row that is all -inf gives zeros: plain softmax divides 0 by 0 there and gives NaN.
    """
    peak = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = exps.sum(axis=-1, keepdims=True)
    return np.divide(exps, total, out=np.zeros_like(exps), where=total != 0)


def greedy(logits: np.ndarray) -> int:
    """Return the index of the largest of (V,) logits; of equal ones, the first."""
    return int(np.argmax(check_logits(logits)))


def keep_top_k(logits: np.ndarray, k: int) -> np.ndarray:
    """Set all but the k largest of (V,) logits to -inf; of equal ones the first are kept."""
    best = np.argsort(-logits, kind="stable")[:k]
    kept = np.full_like(logits, -np.inf)
    kept[best] = logits[best]
    return kept


def keep_top_p(logits: np.ndarray, p: float) -> np.ndarray:
    """Keep the fewest of (V,) logits, from the largest down, whose probabilities reach p."""
    order = np.argsort(-logits, kind="stable")
    weights = softmax(logits)[order]
    before = np.cumsum(weights) - weights  # what those ahead of this one hold together
    best = order[before < p * (1 - ROUNDING)]
    kept = np.full_like(logits, -np.inf)
    kept[best] = logits[best]
    return kept


def next_probabilities(
    logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """Return the probability of each token: temperature first, then top-k, then top-p.

    Args:
        logits: one number a token, (V,).
        temperature: over 0; below 1 sharpens, above 1 flattens.
        top_k: keep this many tokens, 1 to V; None keeps all.
        top_p: keep the fewest tokens that together have this probability, over 0 to 1; None keeps all.

    Returns:
        Probabilities, (V,), that sum to 1. ValueError if a setting is out of range, or logits are no numbers.
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
    """Keep the drafted tokens up to the first that a model would not have chosen, and put its own there.

    Args:
        drafted: k tokens.
        chosen: what the model chooses in the place of each, and after the last: k + 1 tokens.
    """
    a = 0
    while a < len(drafted) and drafted[a] == chosen[a]:
        a += 1
    return [*drafted[:a], chosen[a]]


def accept_or_resample(p: np.ndarray, q: np.ndarray, token: int, u: float) -> np.ndarray | None:
    """Verify a drafted token so that what stands in its place is distributed as p, whatever q is.

    Args:
        p: the model's probabilities, (V,).
        q: those that the token was drawn with, (V,).
        token: the drafted one.
        u: a random number, 0 or more and under 1.

    Returns:
        None if the token is accepted. Otherwise the probabilities of the one to draw in its place, (V,).

    Source: Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
    """
    if u * q[token] < p[token]:  # with a probability of min(1, p / q)
        return None
    rest = np.maximum(p - q, 0)
    return rest / rest.sum()


def accept_sampled(
    drafted: Sequence[int], p: np.ndarray, q: np.ndarray, rng: np.random.Generator
) -> list[int]:
    """Verify drafted tokens one after the other; return those accepted, and one more that is drawn.

    Args:
        drafted: k tokens.
        p: the model's probabilities in the place of each, and after the last, (k + 1, V).
        q: those that each was drawn with, (k, V).
    """
    for n, token in enumerate(drafted):
        rest = accept_or_resample(p[n], q[n], token, rng.random())
        if rest is not None:
            return [*drafted[:n], draw(rest, rng)]
    return [*drafted, draw(p[-1], rng)]


def draw(weights: np.ndarray, rng: np.random.Generator) -> int:
    """Draw an index with these probabilities, (V,)."""
    return int(rng.choice(len(weights), p=weights))


def chooser(sampling: Sampling, vocab_size: int) -> Chooser:
    """Return a function from logits (V,) to an index. ValueError if top_k is over `vocab_size`."""
    check_sampling(sampling, vocab_size)
    if sampling.temperature is None:
        return greedy
    rng = np.random.default_rng(sampling.seed)
    return lambda logits: draw(sampling.probabilities(logits), rng)


def check_logits(logits: np.ndarray) -> np.ndarray:
    """Return logits as a float row (V,), or raise ValueError."""
    row = np.asarray(logits, dtype=float)
    if row.ndim != 1 or row.size == 0:
        raise ValueError(f"logits have shape {row.shape}; expected one row (V,): pass the last position's")
    if np.isnan(row).any():
        message = f"logits[{np.isnan(row).argmax()}] is NaN; expected numbers"
        raise ValueError(f"{message}: look for 0/0, as in a softmax of -inf only")
    if np.isposinf(row).any() or not np.isfinite(row).any():
        raise ValueError("logits need a finite number and no +inf; every token is banned or one overflowed")
    return row


class Draft(NamedTuple):
    """Tokens that may come next."""

    tokens: list[int]  # their ids, d of them
    q: Any = None  # what each was drawn with, (d, V): 1 for one that could be no other; None where greedy


class Sampler:
    """How a reply chooses tokens: `pick` one for a draft, `verify` drafted ones."""

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        self.sampling = check_sampling(sampling, vocab_size)
        self.vocab_size, self.greedy = vocab_size, sampling.temperature is None
        self.rng = np.random.default_rng(sampling.seed)

    def pick(self, logits: np.ndarray) -> tuple[int, np.ndarray | None]:
        """Choose a token from logits (V,); return it and the probabilities it was drawn with, (V,)."""
        if self.greedy:
            return greedy(logits), None
        q = self.sampling.probabilities(logits)
        return draw(q, self.rng), q

    def verify(self, draft: Draft, logits: np.ndarray) -> list[int]:
        """Return 1 to d + 1 new tokens. Logits, (d + 1, V): the model's of each drafted one and the next."""
        if self.greedy:
            return accept(draft.tokens, logits.argmax(axis=-1).tolist())
        p = np.array([self.sampling.probabilities(row) for row in logits])
        return accept_sampled(draft.tokens, p, draft.q, self.rng)
