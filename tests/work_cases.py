"""Step times of models on cards, computed with `step_time`, for tests/js/cost.test.mjs.

That test compares the step times on the page with them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from helpers.cost.config import model_of
from helpers.cost.dated import DATED
from helpers.cost.layers import cache_nbytes, nbytes_of, users_that_fit
from helpers.cost.models import CARDS, MODELS, PublishedModel
from helpers.cost.roofline import Hardware
from helpers.cost.step import StepSeconds, step_time
from helpers.stepper.machines import SHIPPED_MODEL, TWO_CORES, model_fields, models_and_cards

SPARSE = [model_of(DATED["models"][name].value) for name in ("DeepSeek-V3.2", "GLM-5.2")]
KNOWN = MODELS | {model.name: model for model in (SHIPPED_MODEL, *SPARSE)}
ON = CARDS | {TWO_CORES.name: TWO_CORES}
PASSES = [
    (1, 0),
    (1, 42),
    (3, 5000),
    (1, 99_999),
    (23, 0),
    (24, 5),
    (128, 200),
    (1000, 0),
    (5, 126),
    (300, 0),
]
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"weight_bits": 4, "kv_bits": 8, "overlap": True, "logits": None},
    {"bandwidth_reached": 0.62, "compute_reached": 0.41, "launch": 2e-4, "cards": 16, "collective": 2e-5},
    {"cards": 1, "collective": 1e-3, "logits": None},
]


MEMORY, COMPUTE, ON_TOP = ("kv_cache", "weights"), ("attention", "products"), ("launch", "collectives")


def seconds(step: StepSeconds, terms: Iterable[str]) -> float:
    return sum(getattr(step, term) for term in terms)


def counted(step: StepSeconds) -> list[str]:
    """Return the names of the terms that add up to the total time.

    Where memory access and computation overlap, only the longer of the two is included.
    """
    pairs: list[Any] = (
        [(MEMORY, COMPUTE)] if step.overlap else [((a,), (b,)) for a, b in zip(MEMORY, COMPUTE, strict=True)]
    )
    longer = [a if seconds(step, a) > seconds(step, b) else b for a, b in pairs]
    return [term for terms in (*longer, ON_TOP) for term in terms]


def sides(step: StepSeconds) -> list[float]:
    """Return the seconds that memory access and computation contribute to the total, in this order."""
    return [seconds(step, [term for term in counted(step) if term in side]) for side in (MEMORY, COMPUTE)]


def bound_of(step: StepSeconds) -> str:
    memory, compute = sides(step)
    return "memory-bound" if memory > compute else "compute-bound"


def tokens_until_compute(model: PublishedModel, machine: Hardware, users: int = 1) -> int | None:
    """Return the number of tokens in the shortest prompt whose prefill is compute-bound.

    If it would have more than 2^19 tokens, None is returned.
    """
    lengths = range(1, 2**19 + 1)
    first = bisect_left(
        lengths,
        True,
        key=lambda n: bound_of(step_time(model, machine, 0, users, new_tokens=n)) == "compute-bound",
    )
    return lengths[first] if first < lengths[-1] else None


def write_work(folder: Path) -> None:
    """Write work.json: models and cards, and for several passes and numbers of users the page's results."""
    offered, cases, prompts = models_and_cards(), list[Any](), list[Any]()
    offered["models"] += map(model_fields, SPARSE)
    for model, (new, before), users in product(KNOWN.values(), PASSES, (1, 8, 300)):
        for more, (on, card) in product(ARGUMENTS, (("two CPU cores", TWO_CORES), ("H100", CARDS["H100"]))):
            asked = {"users": users, "new_tokens": new, **more}
            step = step_time(model, card, before, **asked)
            terms = [step.kv_cache, step.weights, step.attention, step.products]
            terms += [step.launch, step.collectives, *sides(step), step.total]
            longest = max((seconds(step, [term]), term) for term in counted(step))[1]
            cases.append([model.name, on, before, asked, terms, [bound_of(step), longest]])
    for one, (card, on), n in product(KNOWN.values(), ON.items(), (1, 100, 8192)):
        until = tokens_until_compute(one, on, users=n)
        fits = []
        for bits, cards in ((16, 1), (4, 12)):
            user = cache_nbytes(one.layers, n, bits / 8, cards)
            weights = nbytes_of(one.n_parameters, bits / 8)
            fits.append([bits, cards, users_that_fit(cards * on.memory_nbytes, weights, user)])
        prompts.append([one.name, card, n, fits, until])
    text = json.dumps({**offered, "cases": cases, "prompts": prompts})
    (folder / "work.json").write_text(text, encoding="utf-8")
