"""Right answers to the exercises, written otherwise than their checkers and their notebooks write them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from statistics import linear_regression
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers import toy
from helpers.cost.bytes import GIB, cache_nbytes, users_that_fit
from helpers.sampling import softmax
from helpers.serve.pages import PageManager


def generate_by_recursion(step: Callable[[Any], np.ndarray], prompt: list[str], max_new: int) -> list[str]:
    """Say one word, and let the same function say the others."""
    word = toy.VOCABULARY[int(np.argmax(step(prompt)))]
    over = word == toy.EOS or max_new == 1
    return [word] if over else [word, *generate_by_recursion(step, [*prompt, word], max_new - 1)]


def decode_and_advance_first(cache: toy.KVCache, number: float) -> np.ndarray:
    """Advance before attending, and attend without a mask."""
    q, k, v = toy.make_qkv(np.array([cache.length + 1]), np.array([number]))
    cache.append(0, k, v)
    cache.advance(1)
    return toy.attention(q, cache.k[0], cache.v[0], np.ones((1, cache.length), dtype=bool)).squeeze()


def step_by_hand(q: Tensor, k: Tensor, v: Tensor, K: Tensor, V: Tensor) -> list[Tensor]:
    """Attend with plain products over expanded heads, and store what was not expanded."""
    K, V = torch.concatenate([K, k], -2), torch.concatenate([V, v], -2)
    group = q.shape[1] // K.shape[1]
    scores = q @ K.repeat_interleave(group, 1).mT / q.shape[-1] ** 0.5
    return [scores.softmax(-1) @ V.repeat_interleave(group, 1), K, V]


def who_by_negating(f: Callable[[Tensor], Tensor], x: Tensor) -> list[list[bool]]:
    """Turn a token around, compare with a tolerance, and give lists."""
    columns = []
    for j in range(x.shape[1]):
        changed = x.clone()
        changed[:, j] = -changed[:, j].flip(-1)
        columns.append(~np.isclose(f(changed)[0], f(x)[0], atol=1e-6).all(axis=1))
    return np.array(columns).T.tolist()


def who_by_jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Ask for the derivative of every number with respect to every other."""
    derivatives: Any = torch.autograd.functional.jacobian(f, x)  # (1, T, C, 1, T, C)
    return derivatives[0, :, :, 0].abs().sum(dim=(1, 3)) > 0


def append_by_copying(cache: Any, layer: int, k: Tensor, v: Tensor) -> list[Tensor]:
    """Refuse with a kind of ValueError, and copy into views."""
    S = cache.length + k.shape[2]
    if S > cache.k.shape[3]:
        raise UnicodeError(S)
    views = [buffer[layer].narrow(2, 0, S) for buffer in (cache.k, cache.v)]
    for view, new in zip(views, (k, v), strict=True):
        view[:, :, cache.length :].copy_(new)
    return views


def bytes_by_cases(config: dict[str, Any]) -> int:
    """Ask for each key whether it is there."""
    head_dim = config.get("head_dim")
    head_dim = config["hidden_size"] / config["num_attention_heads"] if head_dim is None else head_dim
    n_kv_heads = config.get("num_key_value_heads", config["num_attention_heads"])
    return int(4 * config["num_hidden_layers"] * n_kv_heads * head_dim)


def first_by_allclose(a: list[Tensor], b: list[Tensor], tolerance: float) -> int | None:
    """Let torch compare; NaN is close to nothing."""
    apart = [not torch.allclose(x, y, rtol=0, atol=tolerance) for x, y in zip(a, b, strict=True)]
    return apart.index(True) if any(apart) else None


def ragged_by_loops(lengths: list[int]) -> tuple[list[list[int]], Tensor]:
    """Number the tokens of each sequence, and give padding -1 and nothing to look at."""
    T = max(lengths)
    positions = [[*[-1] * (T - n), *range(n)] for n in lengths]
    mask = [[[0 <= key <= query for key in row] for query in row] for row in positions]
    return positions, torch.tensor(mask)


def shared_by_pages(old: list[int], new: list[int], size: int) -> int:
    """Let the pool's own bookkeeping say it."""
    pages = PageManager(len(old) // size + 1, size)
    pages.written([*range(len(old) // size)], old, 0, len(old))
    return len(pages.find(new))


def accept_by_takewhile(drafted: list[int], chosen: list[int]) -> np.ndarray:
    """Take pairs while they agree."""
    taken = [x for x, _ in takewhile(lambda pair: pair[0] == pair[1], zip(drafted, chosen, strict=False))]
    return np.array([*taken, chosen[len(taken)]])


def rounding_to_the_nearest(x: Tensor, bits: int, dim: int) -> list[Tensor]:
    """Look for the nearest of all levels, line by line."""
    lines = x if dim == -1 else x.T
    low, high = lines.min(1, keepdim=True).values, lines.max(1, keepdim=True).values
    step = (high - low) / (2**bits - 1)
    places = low + step * torch.arange(2**bits)  # (lines, levels)
    levels = (lines[..., None] - places[:, None]).abs().argmin(-1)
    return [part if dim == -1 else part.T for part in (levels, low, step)]


# By the name that the notebook's tags have.
RIGHT: dict[str, list[Any]] = {
    "pick_even": [lambda visible: np.array(round(float(np.mean([*visible[1::2]] or [0])), 2))],
    "table": [
        {
            "Today": (0, 10, 10, 10),
            "weather": [20.0, 20, 10, 15],
            "is": [20, 1, 10, np.float64(10.333)],
            "so": [12.5, 5, 10, 9],
        }
    ],
    "attend": [
        lambda scores, values: [softmax(row[: t + 1]) @ values[: t + 1] for t, row in enumerate(scores)]
    ],
    "order_prefill": ["dgbefa", ("D ", "G", "B", "E", "F", "A")],
    "change_future": [
        lambda f: [*np.flatnonzero((f([10, 20, 1, 5]) != f([10, 20, 1, 500])).any(axis=1))] == [3],
        lambda prefill: np.array_equal(prefill([10, 20, 1, 5]), prefill([10, 20, 1, 5, 14])[:4]),
    ],
    "generate": [generate_by_recursion],
    "count_work": [(60.0, np.int64(276))],
    "decode_step": [decode_and_advance_first],
    "stale": [lambda layer, j, n: {j} if layer == 1 else range(n, j - 1, -1)],
    "even_at_so": [np.float64(5.5)],
    "reusable": [lambda old, new: next(n for n in range(len(new), -1, -1) if old[:n] == new[:n])],
    "mask": [lambda T, S: [[k <= q for k in range(S)] for q in range(S - T, S)]],
    "split_heads": [lambda x, n_heads: torch.stack(x.chunk(n_heads, dim=-1), dim=1)],
    "torch_mask": [lambda T, S: torch.tensor([[k <= q for k in range(S)] for q in range(S - T, S)])],
    "cached_step": [step_by_hand],
    "who_moves": [who_by_negating, who_by_jacobian],
    "shift_targets": [lambda tokens: torch.stack([tokens[..., :-1].int(), tokens[..., 1:].int()])],
    "count_parameters": [
        lambda config: sum(
            [
                (2 - config.tied) * config.vocab_size * config.hidden_size + config.hidden_size,
                config.n_layers * config.hidden_size * (2 + 3 * config.intermediate_size),
                config.n_layers * config.hidden_size * 2 * config.n_heads * config.head_dim,
                config.n_layers * config.hidden_size * 2 * config.n_kv_heads * config.head_dim,
            ]
        )
    ],
    "append": [append_by_copying],
    "may_differ": [
        lambda a, b: [bool(row[-1] - row[-2] <= 2 * (a - b).abs().max()) for row in a.sort(dim=1).values]
    ],
    "predict_tpot": [lambda x, y, context: (fit := linear_regression(x, y)).slope * context + fit.intercept],
    "bytes_per_token": [bytes_by_cases],
    "first_difference": [first_by_allclose],
    "longest_context": [
        lambda ram, weights, row, most: float(max(0, min(most, int((ram * 1024**3 - weights) / row))))
    ],
    "cache_bytes": [cache_nbytes],
    "users_that_fit": [lambda gib, weights, user: users_that_fit(gib * GIB, weights, user)],
    "fit_log": [lambda readings: linear_regression(*zip(*readings, strict=True))[::-1]],
    "intensity": [lambda T, C, F, each: np.float64(2 / each / (1 / T + 1 / C + 1 / F))],
    "bound_by": [
        lambda operations, nbytes, m: (
            "memory" if nbytes / m.bytes_per_second > operations / m.flops_per_second else "arithmetic"
        )
    ],
    "predict_step": [lambda *args: torch.tensor(args[0] * args[1] + args[2] / args[3], dtype=torch.float64)],
    "batch_at_ridge": [lambda m, each: -int(-m.flops_per_second * each // (2 * m.bytes_per_second))],
    "kept_rows": [lambda length, window, sinks: sorted({*range(length)[-window:], *range(length)[:sinks]})],
    "quantize": [rounding_to_the_nearest],
    "best_under": [
        lambda budget, all: min(
            [(-n, loss, b, name) for name, b, n, loss in all if b <= budget], default=[None]
        )[-1]
    ],
    "absorb": [lambda q, to_k, latents: q @ (latents @ to_k.T).T / q.shape[1] ** 0.5],
    "ragged": [ragged_by_loops],
    "next_step": [
        lambda waiting, n, budget: [
            max(0, min(m, budget - n - sum(waiting[:i]))) for i, m in enumerate(waiting)
        ]
    ],
    "shared_pages": [shared_by_pages],
    "idle": [
        lambda replies, slots: sum(
            max(replies[n // slots * slots :][:slots]) - reply
            for n, reply in enumerate([*replies, *[0] * (-len(replies) % slots)])
        )
    ],
    "accept": [accept_by_takewhile],
    "rows_to_drop": [lambda k, a: [k - a, k - a - 1]],
    "times_as_fast": [
        lambda alpha, k, draft, verify: (1 + sum(np.cumprod([alpha] * k))) / (verify(1 + k) + draft * k)
    ],
    "accept_or_resample": [
        lambda p, q, token, u: (
            None if u < min(1, p[token] / q[token]) else (p - np.minimum(p, q)) / (1 - np.minimum(p, q).sum())
        )
    ],
    "bytes_to_send": [lambda model, n_prompt, each: n_prompt * cache_nbytes(model.layers, 1, each)],
    "heads_of": [
        lambda rank, world, H, Hkv: (
            [h for h in range(H) if h * world // H == rank],
            [*dict.fromkeys(h * Hkv // H for h in range(H) if h * world // H == rank)],
        )
    ],
    "merge": [lambda o1, lse1, o2, lse2: o2 + (lse1 - lse2).sigmoid()[:, None] * (o1 - o2)],
    "machines_needed": [
        lambda n, prompt, reply, a, b, load: [-(-n * prompt // (a * load)), -(-n * (reply - 1) // (b * load))]
    ],
}
