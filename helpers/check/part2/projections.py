"""Checkers of notebook 05, from rules to learned projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.check.cases import Case, Mistakes, compare, tell_mask, with_reason
from helpers.check.part2.shared import alike, call, drawn, read_tensor, say
from helpers.check.result import NotRightError, exercise, same, show
from helpers.model.attention import attend

SPLIT_TODO = "let split_heads return x (B, T, H * D) as (B, H, T, D)."
VIEW_ALONE = (
    "a view without a transpose: it cuts the numbers in the order in which they lie, across tokens. "
    "View as (B, T, H, D) first, then swap T and H."
)
SPLIT_MISTAKES: Mistakes = {
    VIEW_ALONE: [lambda x, n: x.reshape(len(x), n, x.shape[1], -1)],
    "each head gets every H-th number; its D stand together: view as (B, T, H, D), not (B, T, D, H).": [
        lambda x, n: x.unflatten(2, (-1, n)).permute(0, 3, 1, 2)
    ],
    "transposed before the view, which mixes tokens: view as (B, T, H, D), then transpose.": [
        lambda x, n: x.transpose(1, 2).reshape(len(x), n, x.shape[1], -1),
    ],
    "the heads are in the wrong order.": [
        lambda x, n: _split_right(x, n).flip(1),
    ],
}
SPLIT_ERRORS = {
    "float": "sizes are whole numbers: width // n_heads, as / gives a float.",
    "is invalid for input of size": (
        "these sizes are not those of x: read them from x.shape; D is width / n_heads."
    ),
    "view size is not compatible": (
        "after a transpose the numbers no longer lie in order, so view refuses: view first, then transpose."
    ),
}


def _split_right(x: Tensor, n_heads: int) -> Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def _split_cases() -> list[Case]:
    """Inputs in which every number says where it stands; q, then k of the same model, then others."""
    sizes = [(2, 5, 6, 8), (2, 5, 3, 8), (1, 4, 2, 3), (3, 2, 5, 4), (2, 3, 1, 4)]  # B, T, H, D
    return [
        Case(
            f"split_heads(x, {H}) with x {(B, T, H * D)}",
            (torch.arange(B * T * H * D).reshape(B, T, H * D).float(), H),
        )
        for B, T, H, D in sizes
    ]


def _split_once(function: Any, case: Case) -> Tensor:
    x, H = case.args
    B, T, D = x.shape[0], x.shape[1], x.shape[2] // H
    hints = {
        (
            B,
            T,
            D,
            H,
        ): "n_heads is taken for the numbers of a head: there are n_heads heads of width / n_heads.",
        (
            B,
            D,
            T,
            H,
        ): "n_heads is taken for the numbers of a head: there are n_heads heads of width / n_heads.",
        (B, T, H, D): "not transposed: attention needs a (T, D) matrix for each head, so H comes before T.",
        (B, H, D, T): "the last two are swapped: rows are tokens, columns are a head's numbers.",
        (H, B, T, D): "the heads come first; the batch does.",
        (H, T, D): "the batch is lost: each of the B sequences has its heads.",
        (B * H, T, D): "batch and heads are put together; keep both.",
    }
    try:
        value = call(function, case, SPLIT_TODO)
    except NotRightError as stop:
        raise with_reason(stop, SPLIT_ERRORS) from None
    return read_tensor(value, case.label, (B, H, T, D), hints)


def _tell_split(got: Any, expected: Any) -> str:
    """Say which numbers of which token a head holds, for the first head and token that are wrong."""
    b, h, t = np.argwhere(np.any(np.asarray(got) != np.asarray(expected), axis=-1))[0]
    _, H, T, D = expected.shape
    row = f"gives head {h} in row {t}" + f" of sequence {b}" * bool(b)
    return f"{row} {_places(got[b, h, t], H * D, T)}; expected {_places(expected[b, h, t], H * D, T)}"


def _places(row: Tensor, width: int, T: int) -> str:
    """Say where these numbers of x stand."""
    if any(number != int(number) for number in row.tolist()) or len(set(row.tolist())) < len(row):
        return f"other numbers ({show(row.tolist()[:3])} …)"
    tokens = {int(number) // width % T for number in row.tolist()}
    numbers = [int(number) % width for number in row.tolist()]
    if len(tokens) > 1:
        return f"numbers of tokens {show(sorted(tokens))}"
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"numbers {numbers[0]} to {numbers[-1]} of token {min(tokens)}"
    some = show(numbers[:3]) + (", …" if len(numbers) > 3 else "")
    return f"numbers {some} of token {min(tokens)}"


@exercise
def split_heads(answer: Any) -> str:
    """05: `split_heads(x, n_heads)` turns x (B, T, H * D) into (B, H, T, D)."""
    compare(
        answer,
        _split_cases(),
        attempt=_split_once,
        right=_split_right,
        mistakes=SPLIT_MISTAKES,
        tell=_tell_split,
    )
    return "(2, 5, 48) gives (2, 6, 5, 8) for the queries, (2, 5, 24) gives (2, 3, 5, 8) for keys and values."


MASK_TODO = "let torch_mask return bools (T, S), True where one of the T newest tokens may look."


def _mask_right(T: int, S: int) -> Tensor:
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


MASK_MISTAKES: Mistakes = {
    "aligned top-left, as is_causal=True does it: query 0 stands behind S - T stored tokens.": [
        lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()
    ],
    "right for one new token alone; several are aligned top-left, as if nothing were stored.": [
        lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T if T == 1 else 0)
    ],
    "a new token sees the new ones before it too.": [
        lambda T, S: (torch.arange(S) < S - T) | (torch.arange(S) == torch.arange(S - T, S)[:, None])
    ],
    "the stored tokens alone; a query sees itself and the new ones before it too.": [
        lambda T, S: (torch.arange(S) < S - T).expand(T, S)
    ],
    "no mask: a query sees tokens that come after it.": [lambda T, S: torch.ones(T, S, dtype=torch.bool)],
    "upside down: True is where a query may look (nn.MultiheadAttention hides what is True).": [
        lambda T, S: ~_mask_right(T, S)
    ],
    "upside down, True where the query may not look, and aligned top-left.": [
        lambda T, S: torch.ones(T, S, dtype=torch.bool).triu(1)
    ],
    "mirrored: a query sees itself and what comes before, not what comes after.": [
        lambda T, S: torch.ones(T, S, dtype=torch.bool).triu(S - T),
        lambda T, S: torch.ones(T, S, dtype=torch.bool).triu(),
    ],
    "shifted by one: a query sees itself too.": [
        lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T - 1)
    ],
    "shifted by one: a query does not see the token after it.": [
        lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T + 1)
    ],
    "the stored tokens are hidden; a new token sees all of them.": [
        lambda T, S: _mask_right(T, S) & (torch.arange(S) >= S - T)
    ],
    "each query sees itself alone; it sees what came before too.": [
        lambda T, S: torch.arange(S) == torch.arange(S - T, S)[:, None]
    ],
}


def _mask_once(function: Any, case: Case) -> np.ndarray:
    T, S = case.args
    value = call(function, case, MASK_TODO)
    hints = {
        (S, T): "transposed: rows are queries, columns are keys.",
        (S, S): "a square mask, for a pass without a cache: there are T rows, one for each new token.",
        (1, 1, T, S): "that would broadcast too; here the two axes alone are asked for.",
    }
    if isinstance(value, np.ndarray) and value.dtype == bool:
        message = f"{case.label} gives {say(value)}; expected a tensor of shape {(T, S)}."
        raise NotRightError(message, "NumPy: here the mask goes into torch, so make it with torch.")
    table = read_tensor(value, case.label, (T, S), hints if T != S else None)
    if table.dtype != torch.bool:
        kind = str(table.dtype).removeprefix("torch.")
        raise NotRightError(
            f"{case.label} gives numbers ({kind}); expected True and False.",
            "numbers in a mask are added to the scores; True and False say where to look.",
        )
    return table.numpy()


@exercise
def torch_mask(answer: Any) -> str:
    """05: `torch_mask(T, S)` is a tensor (T, S), True where one of the T newest of S tokens may look."""
    shapes = [(2, 6), (1, 5), (4, 4), (3, 7), (1, 1)]
    expected = compare(
        answer,
        [Case(f"torch_mask{shape}", shape) for shape in shapes],
        attempt=_mask_once,
        right=lambda T, S: _mask_right(T, S).numpy(),
        mistakes=MASK_MISTAKES,
        tell=lambda got, expected: tell_mask(got, expected, first=0),
    )
    seen = [f"{int(table.sum())} in torch_mask{shape}" for shape, table in zip(shapes, expected, strict=True)]
    return f"visible cells: {', '.join(seen[:3])}. is_causal=True would show 3, 1 and 10."


STEP_TODO = "let cached_step append k and v, attend, and return the contexts, the new K and the new V."
Rows = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # q, k, v of the new token, stored K and V


def _joined(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], dim=2)


def _contexts(q: Tensor, K: Tensor, V: Tensor, scale: float | None = None, seen: int | None = None) -> Tensor:
    """Attend with one query; `seen` keys are visible, from the first on."""
    mask = torch.arange(K.shape[2])[None] < (K.shape[2] if seen is None else seen)
    return attend(q, K, V, mask, q.shape[-1] ** -0.5 if scale is None else scale)


def _step_right(q: Tensor, k: Tensor, v: Tensor, K: Tensor, V: Tensor) -> Tensor:
    return _contexts(q, _joined(K, k), _joined(V, v))


def _weighted(q: Tensor, K: Tensor, V: Tensor, weights: Callable[[Tensor], Tensor]) -> Tensor:
    """Attend with these weights of the scaled scores (B, H, 1, S) instead of their softmax."""
    K, V = (rows.repeat_interleave(q.shape[1] // rows.shape[1], dim=1) for rows in (K, V))
    return weights(q @ K.transpose(2, 3) * q.shape[-1] ** -0.5) @ V


def _in_turns(q: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Give query heads 0, 1, 2, … the KV heads 0, 1, …, 0, 1, …, which is wrong."""
    return _joined(old, new).repeat(1, q.shape[1] // new.shape[1], 1, 1)


def _with_scale(scale: Callable[[int], float]) -> Callable[..., Tensor]:
    return lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), scale(q.shape[-1]))


STEP_MISTAKES: Mistakes = {
    "attended before appending: the new token has to see its own row too.": [
        lambda q, k, v, K, V: _contexts(q, K, V),
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), seen=K.shape[2]),
    ],
    "scale forgotten: the scores are multiplied by 1 / √D before the softmax.": [_with_scale(lambda D: 1.0)],
    "the scale is 1 / √D, and this one is 1 / D: the root is missing.": [_with_scale(lambda D: 1 / D)],
    "the scale is 1 / √D; the scores were multiplied by √D instead.": [_with_scale(lambda D: D**0.5)],
    "the scale is 1 / √D; the scores were multiplied by D instead.": [_with_scale(float)],
    "the scale is 1 / √D, and D is the last axis of q; another was taken.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), q.shape[0] ** -0.5),
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), q.shape[1] ** -0.5),
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), K.shape[1] ** -0.5),
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), K.shape[2] ** -0.5),
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), (K.shape[2] + 1) ** -0.5),
    ],
    "the scale is 1 / √D with the D numbers of one head, not the H · D of all.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), (q.shape[1] * q.shape[-1]) ** -0.5)
    ],
    "the new token attends to its own row alone; it sees all stored rows too.": [
        lambda q, k, v, K, V: _contexts(q, k, v)
    ],
    "the mask is aligned top-left: one query then sees key 0 alone. The newest token sees every key.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(V, v), seen=1)
    ],
    "k and v are mixed up: k goes behind K, v behind V.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K, v), _joined(V, k)),
        lambda q, k, v, K, V: _contexts(q, _joined(V, v), _joined(K, k)),
    ],
    "the new row of K is in front of the stored ones, that of V behind them: row j of both is token j.": [
        lambda q, k, v, K, V: _contexts(q, _joined(k, K), _joined(V, v)),
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(v, V)),
    ],
    "KV heads are dealt out in turns (repeat); query heads that stand together share one.": [
        lambda q, k, v, K, V: _contexts(q, _in_turns(q, K, k), _in_turns(q, V, v))
    ],
    "the first KV head alone is read; H / Hkv query heads share each.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K, k)[:, :1], _joined(V, v)[:, :1])
    ],
    "the softmax is missing: the weights of a query are over 0 and add up to 1.": [
        lambda q, k, v, K, V: _weighted(q, _joined(K, k), _joined(V, v), lambda scores: scores)
    ],
    "the softmax runs over the keys, the last axis.": [
        lambda q, k, v, K, V: _weighted(q, _joined(K, k), _joined(V, v), lambda scores: scores.softmax(1)),
        lambda q, k, v, K, V: _weighted(q, _joined(K, k), _joined(V, v), lambda scores: scores.softmax(2)),
    ],
    "the keys are averaged; keys say where to look, values are what is taken.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K, k), _joined(K, k))
    ],
    "the oldest row was dropped; the new token sees all of them.": [
        lambda q, k, v, K, V: _contexts(q, _joined(K[:, :, 1:], k), _joined(V[:, :, 1:], v))
    ],
    "nothing is visible: True in the mask is where a query may look.": [
        lambda q, k, v, K, V: torch.zeros_like(q)
    ],
}
STEP_ERRORS = {
    "Sizes of tensors must match": "the wrong axis: new rows go behind the others along S, dim=2.",
    "at non-singleton dimension 3": "K, V and the mask all have S + 1 keys: the stored ones and the new one.",
    "doesn't match the broadcast shape": "one new token is one query: the mask has one row, (1, S + 1).",
    "at non-singleton dimension 1": "fewer KV heads than query heads: `attend` lets them be shared.",
}


def _step_cases() -> list[Case]:
    sizes = [(2, 6, 3, 5, 8), (1, 4, 1, 3, 6), (2, 2, 2, 4, 4), (1, 6, 2, 1, 16)]  # B, H, Hkv, S, D
    return [
        Case(
            f"cached_step with B, H, Hkv, S, D = {', '.join(map(str, size))}",
            _step_rows(seed, *size),
        )
        for seed, size in enumerate(sizes)
    ]


def _step_rows(seed: int, B: int, H: int, Hkv: int, S: int, D: int) -> Rows:
    """Draw a new token's q, k and v, and the stored K and V; large values, so that differences show."""
    q, rows = drawn(seed, B, H, 1, D), drawn(seed + 10, 2, B, Hkv, S + 1, D)
    K, V = 2 * rows[0], 10 * rows[1]
    return q, K[:, :, S:], V[:, :, S:], K[:, :, :S], V[:, :, :S]


def _step_parts(function: Any, case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Run the reader's step, and return its contexts, K and V; those two are not looked at yet."""
    try:
        value = call(function, case, STEP_TODO)
    except NotRightError as stop:
        raise with_reason(stop, STEP_ERRORS) from None
    if not isinstance(value, list | tuple) or len(value) != 3:
        reason = "K and V go back to the caller, who hands them in at the next step." * isinstance(
            value, Tensor
        )
        raise NotRightError(f"{case.label} gives {say(value)}; expected the contexts, K and V.", reason)
    q, _, _, K, _ = case.args
    hints = {
        (*q.shape[:2], K.shape[2] + 1, q.shape[-1]): "a row for each key; there is one query, so one row.",
        (*K.shape[:2], K.shape[2] + 1, K.shape[3]): "the contexts come first, then K and V.",
        tuple(q.flatten(1, 2).shape): "the axis T is lost: one new token is T = 1.",
    }
    return read_tensor(value[0], case.label, tuple(q.shape), hints, "contexts"), value[1], value[2]


def _tell_step(got: Any, expected: Any) -> str:
    """Show the numbers of the first head that is wrong."""
    b, h = np.argwhere(~np.isclose(got, expected, atol=0.01).all(axis=(2, 3)))[0]
    begin = f"gives head {h} of sequence {b} the contexts {show(got[b, h, 0, :3].tolist())}, …"
    return f"{begin}; expected {show(expected[b, h, 0, :3].tolist())}, …"


def _check_stored(
    name: str, got: Any, stored: dict[str, tuple[Tensor, Tensor]], group: int, label: str
) -> None:
    """Raise unless the reader's new K or V holds the old rows, and the new one behind them.

    Args:
        name: "K" or "V".
        stored: the old rows and the new one of each.
        group: query heads that share a KV head.
    """
    old, new = stored[name]
    B, Hkv, S, D = old.shape
    hints: dict[tuple[int, ...], str] = {
        (B, Hkv, 1, D): "the new row alone: the next step needs all of them.",
        (B, Hkv, S, D): "the rows from before: the new row is not stored, and the next step will miss it.",
        (
            B,
            Hkv * group,
            S + 1,
            D,
        ): f"expanded heads are stored: {group} times the bytes for the same numbers.",
    }
    rows = read_tensor(got, label, (B, Hkv, S + 1, D), hints, f"a new {name}")
    if alike(rows, _joined(old, new)):
        return
    reason = ""
    if alike(rows, _joined(new, old)):
        reason = "the new row is in front; behind the others it keeps row j the row of token j."
    elif any(alike(rows, _joined(*other)) for other in stored.values()):
        reason = "K and V are swapped: return the contexts, then K, then V."
    expected = "expected the stored rows and the new one behind them"
    raise NotRightError(f"{label} gives a new {name} that holds other numbers; {expected}.", reason)


def _check_step_rows(function: Any, case: Case) -> None:
    """Raise unless two steps, one on what the other returned, are right in what they give and store."""
    q, k, v, K, V = case.args
    for n in (1, 2):
        label = case.label if n == 1 else f"step 2 of {case.label}"
        got, new_K, new_V = _step_parts(function, Case(label, (q, k, v, K, V)))
        wanted = _step_right(q, k, v, K, V)
        if not same(got, wanted):
            raise NotRightError(f"{label} {_tell_step(got, wanted)}.")
        stored = {"K": (K, k), "V": (V, v)}
        _check_stored("K", new_K, stored, q.shape[1] // k.shape[1], label)
        _check_stored("V", new_V, stored, q.shape[1] // k.shape[1], label)
        K, V = new_K, new_V
        q, k, v = q.flip(0, 1) + 1, k.flip(1) - 1, v.flip(1) + 3


@exercise
def cached_step(answer: Any) -> str:
    """05: `cached_step(q, k, v, K, V)` appends a token's k and v, attends, and returns contexts, K and V."""
    step_cases = _step_cases()
    compare(
        answer,
        step_cases,
        attempt=lambda function, case: _step_parts(function, case)[0],
        right=_step_right,
        mistakes=STEP_MISTAKES,
        tell=_tell_step,
    )
    for case in step_cases:
        _check_step_rows(answer, case)
    return (
        "6 query heads read 3 KV heads of 6 rows each, which is what is stored; the next step is right too."
    )
