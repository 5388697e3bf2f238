"""Exercises of notebook 06, from rules to learned projections: `from helpers.check import n06 as check`."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise, same
from helpers.check.n05 import MASKS, tell_mask
from helpers.check.result import show
from helpers.model.attention import attend


def places(got: np.ndarray, T: int, width: int) -> str:
    """Say where the numbers of a head at one token stood in an x that counts 0, 1, 2, …"""
    if not np.isin(got, np.arange(got.max() + 1)).all():
        return f"other numbers ({show(got[:3])}, …)"
    tokens = sorted({int(number) // width % T for number in got})
    return f"numbers {show(got[:3] % width)}, … of token{'s' * (len(tokens) > 1)} {show(tokens)}"


def tell_split(got: np.ndarray, expected: np.ndarray) -> str:
    """Tell the first head and token that hold other numbers."""
    b, h, t = np.argwhere((got != expected).any(axis=-1))[0]
    _, H, T, D = expected.shape
    begin = f"gives head {h} at token {t}" + f" of sequence {b}" * bool(b)
    return f"{begin} {places(got[b, h, t], T, H * D)}; expected {places(expected[b, h, t], T, H * D)}"


split_heads = Exercise(
    name="split_heads",
    todo="let split_heads return x (B, T, H * D) as (B, H, T, D).",
    cases=[
        Case((torch.arange(float(B * T * C)).view(B, T, C), H), f"split_heads(x, {H}) with x {(B, T, C)}")
        for B, T, C, H in [(2, 5, 48, 6), (2, 5, 24, 3), (1, 4, 12, 2), (3, 2, 20, 5), (2, 3, 4, 1)]
    ],
    right=lambda x, n_heads: x.unflatten(-1, (n_heads, -1)).transpose(1, 2),
    wrong=[
        "a view without a transpose cuts the numbers as they lie, across tokens. "
        "View as (B, T, H, D) first, then swap T and H.",
        lambda x, n_heads: x.reshape(len(x), n_heads, x.shape[1], -1),
        "not transposed: H comes before T.",
        lambda x, n_heads: x.unflatten(2, (n_heads, -1)),
        "each head gets every H-th number; its D stand together: view as (B, T, H, D), not (B, T, D, H).",
        lambda x, n_heads: x.unflatten(2, (-1, n_heads)).permute(0, 3, 1, 2),
        "transposed before the view, which mixes tokens: view as (B, T, H, D), then transpose.",
        lambda x, n_heads: x.transpose(1, 2).reshape(len(x), n_heads, x.shape[1], -1),
        lambda x, n_heads: x.transpose(1, 2).view(len(x), n_heads, x.shape[1], -1),  # raises
        "n_heads is taken for the numbers of a head: there are n_heads heads of width / n_heads.",
        lambda x, n_heads: x.unflatten(2, (-1, n_heads)).transpose(1, 2),
        lambda x, n_heads: x.unflatten(2, (-1, n_heads)),
        "the last two axes are swapped: lines are tokens, columns are a head's numbers.",
        lambda x, n_heads: x.unflatten(2, (n_heads, -1)).permute(0, 2, 3, 1),
    ],
    said="(2, 5, 48) gives (2, 6, 5, 8) for the queries, (2, 5, 24) gives (2, 3, 5, 8) for keys and values.",
    tell=tell_split,
)


def bottom_right(T: int, S: int, shift: int = 0) -> Tensor:
    """Return the causal mask of the T newest of S tokens, its edge moved to the right by `shift` keys."""
    return torch.ones(T, S, dtype=torch.bool).tril(S - T + shift)


torch_mask = Exercise(
    name="torch_mask",
    todo="let torch_mask return bools (T, S), True where one of the T newest tokens may look.",
    cases=[Case(shape, wanted=f"a tensor of True and False, shape {shape}") for shape in MASKS],
    right=bottom_right,
    wrong=[
        "aligned top-left, as is_causal=True does it: query 0 stands behind S - T stored tokens.",
        lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(),
        "no mask: a query sees tokens that come after it.",
        partial(bottom_right, shift=99),
        "upside down: True is where a query may look.",
        lambda T, S: ~bottom_right(T, S),
        "shifted by one: a query sees itself too.",
        partial(bottom_right, shift=-1),
        "shifted by one: a query does not see the token after it.",
        partial(bottom_right, shift=1),
        "a square mask: there are T lines, one for each new token.",
        lambda T, S: bottom_right(S, S),
    ],
    said="visible cells: 11 in torch_mask(2, 6), 5 in torch_mask(1, 5), 10 in torch_mask(4, 4). "
    "is_causal=True would show 3, 1 and 10.",
    tell=partial(tell_mask, first=0),
)


def step(
    *rows: Tensor, scale: float = 0, seen: int | None = None, in_turns: bool = False
) -> tuple[Tensor, ...]:
    """Append k, v to K, V, attend to the keys before `seen`, and return the contexts and what is stored."""
    q, k, v, K, V = rows
    K, V = torch.cat([K, k], dim=2), torch.cat([V, v], dim=2)
    keys, values = K[:, :, :seen], V[:, :, :seen]
    if in_turns:
        keys, values = (part.repeat(1, q.shape[1] // K.shape[1], 1, 1) for part in (keys, values))
    mask = torch.ones(1, keys.shape[2], dtype=torch.bool)
    return attend(q, keys, values, mask, scale or q.shape[-1] ** -0.5), K, V


def drawn_step(B: int, H: int, Hkv: int, S: int, D: int) -> Case:
    """Draw a new token's q, k and v, and S stored rows; large values, so that differences show."""
    drawn = torch.Generator().manual_seed(S)
    q, K, V = (torch.randn(B, h, t, D, generator=drawn) for h, t in [(H, 1), (Hkv, S + 1), (Hkv, S + 1)])
    args = q, 2 * K[:, :, S:], 10 * V[:, :, S:], 2 * K[:, :, :S], 10 * V[:, :, :S]
    label = f"cached_step with B, H, Hkv, S, D = {show([B, H, Hkv, S, D])}"
    return Case(args, label, wanted=f"contexts {(B, H, 1, D)}, K and V {(B, Hkv, S + 1, D)}")


def tell_step(got: Any, expected: Any) -> str:
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
        "KV heads are dealt out in turns (repeat); query heads that stand together share one.",
        partial(step, in_turns=True),
        "the rows from before are handed back: the new row is not stored, and the next step misses it.",
        lambda *rows: (step(*rows)[0], *rows[3:]),
    ],
    said="6 query heads read 3 KV heads of 6 rows each, which is what is stored.",
    tell=tell_step,
)
