"""Exercises of notebook 18, speculative decoding: `from helpers.check import n18 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import sampling
from helpers.check.exercise import Case, Exercise


def agreeing(drafted: Sequence[int], chosen: Sequence[int]) -> int:
    """Count the drafted words up to the first that the model would not have chosen."""
    return len(sampling.accept(drafted, chosen)) - 1


accept = Exercise(
    name="accept",
    todo="let accept return the new words: drafted ones that are accepted, and one of the model's own.",
    cases=[
        *[([5, 6, 7, 8], [5, 6, 1, 9, 2]), ([5, 6, 7], [5, 1, 7, 3])],
        Case(
            ([5, 6], [5, 6, 7]), trap="where every draft is accepted, the model's word comes after the last."
        ),
        *[([5, 6], [4, 6, 7]), ([5, 6], [6, 5, 7])],
        Case(([], [3]), trap="without a draft the model's own word is all there is."),
    ],
    right=sampling.accept,
    wrong=[
        "the model's own word is missing: the pass has chosen it too, behind the last that agrees.",
        lambda d, c: d[: agreeing(d, c)],
        "words behind the first that differs are no use: they were chosen after another text.",
        lambda d, c: [x for x, y in zip(d, c, strict=False) if x == y] + [c[agreeing(d, c)]],
        lambda d, c: [x for x, y in zip(d, c, strict=False) if x == y] + [c[-1]],
        "the rejected draft was kept: the model's own word stands in its place.",
        lambda d, c: [*d[: agreeing(d, c) + 1], c[agreeing(d, c)]],
        lambda d, c: d[: agreeing(d, c) + 1],
        "all drafts accepted is the best case: k words, and one more behind them.",
        lambda d, c: [*d[: agreeing(d, c)], *c[agreeing(d, c) : len(d)][:1]],
        lambda d, c: [*d[: -(len(d) - agreeing(d, c))], c[agreeing(d, c)]],
    ],
    success="of 4 drafts the first two agree: 3 new words. All of k accepted: k + 1.",
)


def rest(p: Any, q: Any) -> Any:
    """Return what p has over q, unscaled."""
    return np.maximum(p - q, 0)


def refusing(instead: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a rule that takes a word with min(1, p / q), and otherwise gives what `instead` says."""
    return lambda p, q, token, u: None if u * q[token] < p[token] else instead(p, q)


def taking(takes: Callable[[Any, Any, int, float], bool]) -> Callable[..., Any]:
    """Return a rule that takes a word by another test, and otherwise gives the scaled rest."""
    return lambda p, q, token, u: None if takes(p, q, token, u) else rest(p, q) / rest(p, q).sum()


accept_or_resample = Exercise(
    name="accept_or_resample",
    todo="let accept_or_resample return None, or the probabilities of the word to draw instead.",
    cases=[
        Case((np.array(p), np.array(q), token, u), f"p = {p}, q = {q}, token {token}, u = {u}")
        for p, q, token, u in [
            *[([0.1, 0.6, 0.3], [0.5, 0.25, 0.25], *drawn) for drawn in [(0, 0.6), (0, 0.15), (2, 0.99)]],
            *[([0.5, 0.2, 0.3], [0.0, 1.0, 0.0], 1, 0.5), ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 2, 0.15)],
            ([0.7, 0.0, 0.3], [0.4, 0.6, 0.0], 1, 0.0),
        ]
    ],
    right=sampling.accept_or_resample,
    wrong=[
        "no residual: drawing from p again gives words that were drafted often another chance.",
        refusing(lambda p, q: p),
        "the residual is not scaled: probabilities sum to 1.",
        refusing(rest),
        "upside down: a word that p likes more than q is always accepted, min(1, p / q).",
        taking(lambda p, q, token, u: u * p[token] < q[token]),
        "comparing with the best word of p is right for greedy replies; a drawn one gets biased.",
        taking(lambda p, q, token, u: token == p.argmax()),
        lambda p, q, token, u: None if token == p.argmax() else p,
    ],
    success="a word that p likes more is always accepted; one at p / q = 0.2 is at u = 0.15, and at 0.6 not.",
)
