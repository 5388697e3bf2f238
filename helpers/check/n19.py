"""Exercises of notebook 19, two machines: `from helpers.check import n19 as check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from helpers.check.exercise import Case, Exercise
from helpers.cost.models import MODELS
from helpers.parallel.heads import heads_of_rank as shared


def row_bytes(model: Any, n_prompt: int, each: int, heads: str = "n_kv_heads", of: float = 2) -> float:
    """Return the bytes of so many rows of these heads, `of` lists each."""
    return n_prompt * of * model.n_layers * getattr(model, heads) * model.head_dim * each


bytes_to_send = Exercise(
    name="bytes_to_send",
    todo="let bytes_to_send return the bytes of the rows that travel.",
    cases=[
        Case((MODELS[name], n, each), f"bytes_to_send for {name}, {n:,} tokens, {each} bytes a number")
        for name, n, each in [("Llama-3.1-8B", 10, 2), ("Llama-3.1-8B", 1000, 2), ("SmolLM2-135M", 17, 4)]
    ],
    right=row_bytes,
    wrong=[
        "query heads: only KV heads have rows.",
        partial(row_bytes, heads="n_heads"),
        "K or V alone: a row is both.",
        partial(row_bytes, of=1),
        "a row too many: the first word of the reply has been chosen, and has not run.",
        lambda model, n_prompt, each: row_bytes(model, n_prompt + 1, each),
        "numbers, not bytes.",
        lambda model, n_prompt, each: row_bytes(model, n_prompt, 1),
        "one layer: each layer has rows of its own.",
        lambda model, n_prompt, each: row_bytes(model, n_prompt, each) / model.n_layers,
        "one row: each token of the prompt has one.",
        lambda model, _, each: row_bytes(model, 1, each),
    ],
    said="131,072,000 for 1,000 tokens of Llama-3.1-8B: 128 KiB a token.",
)


def with_kv(kv_of: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `heads_of` whose query heads are right."""
    return lambda rank, world, H, Hkv: (shared(rank, world, H, Hkv)[0], [*kv_of(rank, world, H, Hkv)])


def dealt(rank: int, world: int, n_heads: int, n_kv_heads: int) -> tuple[list[int], ...]:
    """Deal the query heads out one by one; the KV heads are those that they need."""
    queries = [*range(rank, n_heads, world)]
    return queries, sorted({head // (n_heads // n_kv_heads) for head in queries})


def as_lists(answer: Callable[..., Any], *args: int) -> Any:
    """Run a `heads_of`; a set or a range is as good as a list."""
    given = answer(*args)
    parts = given if isinstance(given, tuple | list) else ()
    return tuple(sorted(part) if isinstance(part, set | range) else part for part in parts) or given


heads_of = Exercise(
    name="heads_of",
    todo="let heads_of return two lists: query heads and KV heads.",
    cases=[(0, 2, 4, 2), (1, 2, 8, 4), (3, 4, 4, 2), (2, 8, 32, 8), (5, 16, 32, 8)],
    right=shared,
    run=as_lists,
    wrong=[
        "dealt out one by one: heads that lie side by side share a KV head, so they stay together.",
        dealt,
        lambda rank, world, H, Hkv: (dealt(rank, world, H, Hkv)[0], [*range(rank, Hkv, world)]),
        "with more ranks than KV heads a rank's part of them comes out as none; it needs a whole one.",
        with_kv(lambda rank, world, H, Hkv: range(rank * (Hkv // world), (rank + 1) * (Hkv // world))),
        "the rank's number is taken for that of a KV head: with more ranks than KV heads there is none.",
        with_kv(lambda rank, world, H, Hkv: range(rank * (n := max(1, Hkv // world)), rank * n + n)),
        "all KV heads: a rank needs those that serve its query heads.",
        with_kv(lambda rank, world, H, Hkv: range(Hkv)),
        "query head h is served by KV head h // (n_heads / n_kv_heads), not by the rest of a division.",
        with_kv(lambda rank, world, H, Hkv: sorted({h % Hkv for h in shared(rank, world, H, Hkv)[0]})),
        "a KV head for each query head: several query heads share one.",
        with_kv(lambda rank, world, H, Hkv: [h // (H // Hkv) for h in shared(rank, world, H, Hkv)[0]]),
    ],
    said="rank 5 of 16 has query heads 10 and 11, and KV head 2, which rank 4 holds as well.",
)


def found(scores: list[float]) -> tuple[Tensor, Tensor]:
    """Return the context of one head over rows of these scores, and the log of the sum of exponentials."""
    s = torch.tensor(scores, dtype=torch.float64)
    rows = torch.tensor([[10.0, 1], [20, 2], [1, 3], [5, 4]], dtype=torch.float64)[: len(s)]
    return (s.softmax(-1) @ rows)[None], s.logsumexp(-1)[None]


def merge_case(label: str, one: list[float], two: list[float], trap: str = "") -> Case:
    """Return two parts of the rows, by their scores."""
    return Case((*found(one), *found(two)), f"merge for {label}", trap)


def weighing(weights: Callable[[Tensor, Tensor], Any]) -> Callable[..., Any]:
    """Return a `merge` with such weights, from both lse."""
    return lambda o1, a, o2, b: sum(w[:, None] * o for w, o in zip(weights(a, b), (o1, o2), strict=True))


OVERFLOW = "e to the power of 1,000 is infinite: take the larger lse off both first, as softmax does."
merge = Exercise(
    name="merge",
    todo="let merge return the contexts over the rows of both, (H, D).",
    cases=[
        merge_case("2 and 2 rows", [1.0, 3.0], [2.0, 0.0]),
        merge_case("3 rows and none", [0.5, 1.0, 2.0], [], "lse -inf is a weight of 0."),
        merge_case("1 row and 4", [0.5], [1.0, 1.0, 1.0, 1.0]),
        merge_case("negative scores", [-4.0, -2.0, -3.0], [-5.0, -1.0]),
        merge_case("scores around 1,000", [1000.0, 1001.0], [1002.0], OVERFLOW),
    ],
    right=weighing(lambda a, b: torch.stack([a, b]).softmax(0)),
    wrong=[
        "averaged: the part with the larger scores counts for more.",
        weighing(lambda a, b: (torch.full_like(a, 0.5), torch.full_like(b, 0.5))),
        "lse is a logarithm: the weights are its exponentials.",
        weighing(lambda a, b: (a / (a + b), b / (a + b))),
        "the weights do not sum to 1: divide by the sum of both.",
        weighing(lambda a, b: (a.exp(), b.exp())),
        "the weights are the wrong way round.",
        weighing(lambda a, b: torch.stack([b, a]).softmax(0)),
        OVERFLOW,
        weighing(lambda a, b: (a.exp() / (a.exp() + b.exp()), b.exp() / (a.exp() + b.exp()))),
    ],
    said="the context over all rows, as if they had lain together.",
)


def needed(*numbers: float, rounded: Callable[[float], float] = math.ceil) -> tuple[float, float]:
    """Return the machines for prompts, and for replies without their first words."""
    requests, prompt, reply, prefill_rate, decode_rate, load = numbers
    work = requests * prompt / prefill_rate, requests * (reply - 1) / decode_rate
    return rounded(work[0] / load), rounded(work[1] / load)


machines_needed = Exercise(
    name="machines_needed",
    todo="let machines_needed return two whole numbers: machines for prefill, and for decode.",
    cases=[
        (10, 1000, 201, 20_000, 2_000, 0.5),
        (7, 500, 101, 3_000, 650, 0.8),
        (20, 999, 501, 10_000, 1_000, 0.7),
    ],
    right=needed,
    wrong=[
        "rounded down or not at all: a part of a machine cannot be had.",
        *[partial(needed, rounded=rounded) for rounded in (math.floor, float, round)],
        "the first word of each reply comes from prefill: decode says one word less.",
        lambda requests, prompt, reply, *others: needed(requests, prompt, reply + 1, *others),
        "a machine that is busy for half of the time runs half of its rate: divide by load.",
        lambda *numbers: needed(*numbers[:-1], 1),
        lambda *numbers: needed(*numbers[:-1], 1 / numbers[-1]),
        "the two rates are swapped.",
        lambda requests, prompt, reply, a, b, load: needed(requests, prompt, reply, b, a, load),
        "the machines of one request a second: there are more.",
        lambda requests, *others: needed(1, *others),
        "rounded up for one request, and then multiplied: machines serve several at a time.",
        lambda requests, *others: tuple(requests * n for n in needed(1, *others)),
    ],
    said="10 requests a second need 1 and 2, and 20 with longer replies need 3 and 15.",
)
