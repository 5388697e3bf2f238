"""Exercises of notebook 06, learned heads: `from helpers.check import n06 as check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers import corpus
from helpers.check.exercise import Case, Exercise, same
from helpers.check.guess import Guess
from helpers.check.result import show
from helpers.model.attention import attend


def step(*rows: Tensor, scale: float = 0, seen: int | None = None) -> tuple[Tensor, ...]:
    """Append k, v to K, V, attend to the keys before `seen`, and return the contexts and what is stored."""
    q, k, v, K, V = rows
    K, V = torch.cat([K, k], dim=2), torch.cat([V, v], dim=2)
    keys, values = K[:, :, :seen], V[:, :, :seen]
    mask = torch.ones(1, keys.shape[2], dtype=torch.bool)
    return attend(q, keys, values, mask, scale or q.shape[-1] ** -0.5), K, V


def drawn_step(B: int, H: int, Hkv: int, S: int, D: int) -> Case:
    """Draw a new token's q, k and v, and S stored rows; large values, so that differences show."""
    drawn = torch.Generator().manual_seed(S)
    q, K, V = (torch.randn(B, h, t, D, generator=drawn) for h, t in [(H, 1), (Hkv, S + 1), (Hkv, S + 1)])
    args = q, 2 * K[:, :, S:], 10 * V[:, :, S:], 2 * K[:, :, :S], 10 * V[:, :, :S]
    label = f"cached_step with B, H, Hkv, S, D = {show([B, H, Hkv, S, D])}"
    return Case(args, label, wanted=f"contexts {(B, H, 1, D)}, K and V {(B, Hkv, S + 1, D)}")


def step_difference(got: Any, expected: Any) -> str:
    """Tell the first context, key or value that is another one."""
    parts = zip(("contexts", "K", "V"), got, expected, strict=True)
    name, found, wanted = next(part for part in parts if not same(*part[1:]))
    b, h, t = np.argwhere(~np.isclose(found, wanted, atol=0.01).all(axis=-1))[0]
    is_now, should = (show(part[b, h, t, :3]) for part in (found, wanted))
    return f"gives {name}[{b}, {h}, {t}] as {is_now}, …; expected {should}, …"


cached_step = Exercise(
    name="cached_step",
    todo="let cached_step append k and v, attend, and return the contexts, the new K and the new V.",
    cases=starmap(drawn_step, [(2, 6, 3, 5, 8), (1, 4, 1, 3, 6), (2, 2, 2, 4, 4), (1, 6, 2, 1, 16)]),
    right=step,
    wrong=[
        "the new token does not see its own row: append before you attend.",
        partial(step, seen=-1),
        "scale forgotten: scores are multiplied by 1 / √D before the softmax.",
        partial(step, scale=1.0),
        "the scale is 1 / √D, and this one is 1 / D.",
        lambda q, *rows: step(q, *rows, scale=1 / q.shape[-1]),
        "the query sees key 0 alone, as under a mask aligned top-left.",
        partial(step, seen=1),
    ],
    success="6 query heads read 3 KV heads of 6 rows each, which is what is stored.",
    difference=step_difference,
)


def names_found(guess: Any, best: Sequence[str]) -> Guess:
    """Compare a guess with how many of the 50 words that fit best are names."""
    names = sum(word in corpus.NAMES for word in best[:50])
    return Guess(guess, names, "Every name comes before every other word.")
