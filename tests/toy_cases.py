"""Prompts of the toy with Python's results, for tests/js/toy.test.mjs and tests/js/what_if.test.mjs."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from helpers import toy
from helpers.sampling import greedy, softmax
from helpers.stepper import WhatIf

Token = tuple[str, float]
WORDS = ["Today", "weather", "is", "so", "nice"]


def says(contexts: np.ndarray) -> dict[str, Any]:
    logits = toy.lm_head(contexts)
    return {"logits": logits.tolist(), "probabilities": softmax(logits).tolist(), "choice": greedy(logits)}


def numbers_of(kind: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `size` random values for tokens.

    `kind` is 0 for the values of known words, 1 for integers, 2 for fractions, 3 for large values, and 4 for
    values that lead to equal logits.
    """
    known = np.array(list(toy.NUMBERS.values()), float)
    small = rng.integers(-20, 21, size).astype(float)
    first = np.arange(size) == 0  # where the first is 0, nice and warm are equal
    ties = np.where(first, 0.0, small * (rng.random() < 0.9))
    large = np.clip(rng.normal(size=size) * 10.0 ** rng.integers(3, 9), -1e9, 1e9)
    return [rng.choice(known, size), small, rng.normal(size=size) * 10, large, ties][kind]


def prompts(many: int) -> list[dict[str, Any]]:
    """Return test cases with prompts of 1 to 64 tokens, each run in one layer and in two.

    All prompts of the same length are run at once, because their attention weights are equal.
    """
    rng = np.random.default_rng(0)
    cases = []
    for size in range(1, 65):
        q, k, _ = toy.make_qkv(np.arange(1, size + 1), np.zeros(size))
        numbers = np.stack([numbers_of(n % 5, size, rng) for n in range(-(-many // 128))], axis=1)  # (T, N)
        v = numbers
        for layers in (1, 2):
            contexts = toy.attention(q, k, v, toy.causal_mask(size))  # (N, T, H)
            for n, row in enumerate(contexts[:, -1]):
                case = {"layers": layers, "numbers": numbers[:, n].tolist(), "v": v[:, n].tolist()}
                cases.append({**case, "contexts": row.tolist(), **says(row)})
            v = contexts.mean(axis=-1).T
    alone = toy.run_pass(cases[-1]["numbers"], n_layers=2)[-1]
    assert np.allclose(alone, cases[-1]["contexts"], rtol=1e-12), "not what the toy makes of it"
    return cases


def changed(before: list[Token], rng: np.random.Generator) -> list[Token]:
    """Return the prompt after up to four random edits.

    An edit changes the value of a token, changes its word, inserts a token or removes one.
    """
    now = list(before)
    for kind in rng.integers(0, 4, rng.integers(0, 5)):
        at = int(rng.integers(len(now)))
        word, number = str(rng.choice([*WORDS, "Oslo"])), float(rng.integers(-3, 4))
        same = now[at][1] if rng.random() < 0.5 else number  # a word may change while its number stays
        edits = [[(now[at][0], number)], [(word, same)], [(word, number), now[at]], []]
        now[at : at + 1] = edits[kind] if edits[kind] or len(now) > 1 else [now[at]]
    return now


def cost(before: list[Token], now: list[Token]) -> int:
    """Return the minimum cost of edits that turn one prompt into the other.

    It costs 2 to change a value, 3 to change a word (with or without its value), and 2 to insert or remove a
    token.
    """
    line = [2 * j for j in range(len(now) + 1)]
    for i, old in enumerate(before, 1):
        above, line = line, [2 * i]
        for j, new in enumerate(now, 1):
            exchange = 3 if old[0] != new[0] else 2 if old[1] != new[1] else 0
            line.append(min(above[j] + 2, line[-1] + 2, above[j - 1] + exchange))
    return line[-1]


def run(tokens: list[Token]) -> tuple[toy.KVCache, dict[str, Any]]:
    cache = toy.KVCache(2)
    contexts = toy.run_pass([number for _, number in tokens], cache, n_layers=2)
    rows = [{"k": k.tolist(), "v": v.tolist()} for k, v in zip(cache.k, cache.v, strict=True)]
    return cache, {
        "tokens": [{"word": w, "number": x} for w, x in tokens],
        "rows": rows,
        **says(contexts[-1]),
    }


def what_ifs(many: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    cases = []
    for _ in range(many):
        before = [(str(rng.choice(WORDS)), float(rng.integers(-3, 4))) for _ in range(rng.integers(1, 9))]
        now = changed(before, rng)
        (old, first), (new, second) = run(before), run(now)
        case = {"before": first, "now": second, "cost": cost(before, now), "mended": None}
        if len(before) == len(now):  # layer 1's rows new, layer 2's old, and the last token is processed
            new.v[1] = old.v[1]
            new.truncate(len(now) - 1)
            case["mended"] = says(toy.run_pass([now[-1][1]], new, n_layers=2)[-1])
        same = takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False))
        cases.append({**case, "kept": len(list(same))})
    return cases


def write_cases(folder: Path) -> None:
    """Write the test cases for the JavaScript tests: toy_cases.json and what_if_cases.json."""
    constants = json.loads(WhatIf().data)["toy"]
    for name, cases in (("toy", prompts(2000)), ("what_if", what_ifs(300))):
        (folder / f"{name}_cases.json").write_text(
            json.dumps({"toy": constants, "cases": cases}), encoding="utf-8"
        )
