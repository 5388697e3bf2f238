"""From one row of logits to the next token: softmax, greedy, temperature, top-k, top-p; drafted tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from helpers.arguments import check_whole, is_number, is_whole

Chooser = Callable[[np.ndarray], int]

# Cumulative probabilities are sums of rounded numbers: 0.5 + 0.3 may come out a hair under 0.8.
ROUNDING = 1e-9  # as a share of p, so that the largest word stays whatever p is


def softmax(scores: np.ndarray) -> np.ndarray:
    """Turn each row of scores into weights that sum to 1; a row that is all -inf gives zeros.

    Args:
        scores: any shape; rows lie along the last axis; -inf means "not to be picked".

    Returns:
        Weights of the same shape. Plain softmax divides 0 by 0 in a row of -inf and gives NaN.
    """
    peak = scores.max(axis=-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = exps.sum(axis=-1, keepdims=True)
    return np.divide(exps, total, out=np.zeros_like(exps), where=total != 0)


def greedy(logits: np.ndarray) -> int:
    """Return the index of the largest logit; of equal ones, the first.

    Args:
        logits: one number a word, (V,).

    Raises:
        ValueError: logits are not one row of numbers with at least one finite value, or hold NaN.
    """
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
    before = np.cumsum(weights) - weights  # what the words ahead of this one hold together
    best = order[before < p * (1 - ROUNDING)]
    kept = np.full_like(logits, -np.inf)
    kept[best] = logits[best]
    return kept


def next_probabilities(
    logits: np.ndarray, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> np.ndarray:
    """Return the probability of each word: temperature first, then top-k, then top-p.

    Args:
        logits: one number a word, (V,).
        temperature: over 0; below 1 sharpens, above 1 flattens.
        top_k: keep this many words, 1 to V; None keeps all.
        top_p: keep the fewest words that together have this probability, over 0 to 1; None keeps all.

    Returns:
        Probabilities, (V,), that sum to 1.

    Raises:
        ValueError: a setting is out of range, or the logits are no row of numbers.
    """
    logits = check_logits(logits)
    check_settings(len(logits), temperature, top_k, top_p)
    peak = logits[np.isfinite(logits)].max()
    with np.errstate(over="ignore"):  # a tiny temperature sends the others to -inf, as it should
        logits = (logits - peak) / temperature
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None and top_p < 1:
        logits = keep_top_p(logits, top_p)
    return softmax(logits)


def sample(
    logits: np.ndarray,
    rng: np.random.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> int:
    """Draw the index of the next word; arguments and errors as in `next_probabilities`.

    Args:
        rng: where the chance comes from: `np.random.default_rng(seed)` draws the same words each time.
    """
    return draw(next_probabilities(logits, temperature, top_k, top_p), rng)


def accept(drafted: Sequence[int], chosen: Sequence[int]) -> list[int]:
    """Keep the drafted words up to the first that a model would not have chosen, and put its own there.

    Args:
        drafted: k words.
        chosen: what the model chooses in the place of each, and after the last: k + 1 words.

    Returns:
        New words, 1 to k + 1.
    """
    a = 0
    while a < len(drafted) and drafted[a] == chosen[a]:
        a += 1
    return [*drafted[:a], chosen[a]]


def accept_or_resample(p: np.ndarray, q: np.ndarray, token: int, u: float) -> np.ndarray | None:
    """Judge a drafted word so that what stands in its place is distributed as p, whatever q is.

    Args:
        p: the model's probabilities, (V,).
        q: those that the word was drawn with, (V,).
        token: the drafted word.
        u: a random number, 0 or more and under 1.

    Returns:
        None if the word is taken. Otherwise the probabilities of the word to draw in its place, (V,).

    Source: Leviathan et al. 2022, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
    """
    if u * q[token] < p[token]:  # with a chance of min(1, p / q)
        return None
    rest = np.maximum(p - q, 0)
    return rest / rest.sum()


def accept_sampled(
    drafted: Sequence[int], p: np.ndarray, q: np.ndarray, rng: np.random.Generator
) -> list[int]:
    """Judge drafted words one after the other; return those taken, and one more that is drawn.

    Args:
        drafted: k words.
        p: the model's probabilities in the place of each, and after the last, (k + 1, V).
        q: those that each was drawn with, (k, V).

    Returns:
        New words, 1 to k + 1, distributed as if each had been drawn from the model.
    """
    for n, token in enumerate(drafted):
        rest = accept_or_resample(p[n], q[n], token, rng.random())
        if rest is not None:
            return [*drafted[:n], draw(rest, rng)]
    return [*drafted, draw(p[-1], rng)]


def draw(weights: np.ndarray, rng: np.random.Generator) -> int:
    """Draw an index with these probabilities, (V,)."""
    return int(rng.choice(len(weights), p=weights))


def chooser(
    n_words: int, temperature: float | None, top_k: int | None, top_p: float | None, seed: int
) -> Chooser:
    """Return a function from logits (V,) to an index: greedy without a temperature, else it draws.

    Raises:
        ValueError: a setting is out of range for `n_words`, or stands without a temperature.
    """
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


def say_settings(temperature: float | None, top_k: int | None, top_p: float | None) -> str:
    """Say how words are chosen: "greedy", or "sampled, temperature 0.8, top-k 5"."""
    settings = {"temperature": temperature, "top-k": top_k, "top-p": top_p}
    named = [f"{name} {value:g}" for name, value in settings.items() if value is not None]
    return ", ".join(["greedy" if temperature is None else "sampled", *named])


def check_logits(logits: np.ndarray) -> np.ndarray:
    """Return logits as a float row (V,), or raise ValueError."""
    row = np.asarray(logits, dtype=float)
    if row.ndim != 1 or row.size == 0:
        raise ValueError(
            f"logits have shape {row.shape}; expected one row (V,): pass the last position's row"
        )
    if np.isnan(row).any():
        raise ValueError(
            f"logits[{int(np.isnan(row).argmax())}] is NaN; expected numbers: look for 0/0 upstream, "
            "such as the softmax of a row that is all -inf"
        )
    if np.isposinf(row).any() or not np.isfinite(row).any():
        raise ValueError(
            "logits need at least one finite number and no +inf; every word is banned or one overflowed"
        )
    return row


def check_settings(n_words: int, temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Raise ValueError unless the sampling settings make sense for a vocabulary of `n_words`."""
    if not (is_number(temperature) and temperature > 0):
        raise ValueError(
            f"temperature is {temperature!r}; expected a number over 0: for the top word always, use greedy"
        )
    if top_k is not None and not (is_whole(top_k) and 1 <= top_k <= n_words):
        raise ValueError(
            f"top_k is {top_k}; expected a whole number from 1 to {n_words} (the vocabulary), or None"
        )
    if top_p is not None and not (is_number(top_p) and 0 < top_p <= 1):
        raise ValueError(f"top_p is {top_p!r}; expected a number over 0 and at most 1, or None")
