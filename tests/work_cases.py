"""What passes of models on cards take, by Python: tests/js/cost.test.mjs holds the page's numbers to it.

A pass reads the weights once for all of its tokens, reads the rows of the tokens before, and writes its own.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from helpers.cost.bytes import Kind, Window, cache_nbytes, users_that_fit
from helpers.cost.models import CARDS, MODELS, PublishedModel
from helpers.cost.roofline import Limits, Work, bound_by, seconds_at_least
from helpers.stepper.machines import OURS, TWO_CORES, machines

KNOWN = MODELS | {OURS.name: OURS}
ON = CARDS | {TWO_CORES.name: TWO_CORES}
PASSES = [(1, 0), (1, 42), (1, 999), (1, 99_999), (23, 0), (24, 5), (128, 200), (1000, 0), (5, 126), (300, 0)]


@dataclass(frozen=True)
class PassWork:
    """Operations (of all layers' matrices, the readout, scores and contexts) and bytes, 2 a number."""

    products: float
    readout: float
    attention: float
    weights: float
    rows_read: float
    rows_written: float

    @property
    def work(self) -> Work:
        operations = self.products + self.readout + self.attention
        return Work(operations, self.weights + self.rows_read + self.rows_written)


def work_of_pass(
    model: PublishedModel, new: int, before: int = 0, *, users: int = 1, readouts: int = 1
) -> PassWork:
    """Of each user so many new tokens, after so many whose rows lie in the cache; so many get logits."""
    table, layers = model.vocab_size * model.hidden_size, model.layers
    pairs = sum(pairs_of(layer, new, before) for layer in layers)
    used = model.n_read if model.n_active is None else model.n_active
    return PassWork(
        products=2 * users * new * (used - table),
        readout=2 * users * readouts * table,
        attention=4 * users * pairs * model.n_heads * model.head_dim,
        weights=2 * (used + weights_of_others(model, users * new)),
        rows_read=2 * users * sum(layer.row * seen_of(layer, before) for layer in layers),
        rows_written=2 * users * sum(layer.row * layer.rows(new) for layer in layers),
    )


def pairs_of(layer: Kind, new: int, before: int) -> int:
    """Pairs of a query and a key that it may see, of one head: a window sees so many at most."""
    most = layer.window if isinstance(layer, Window) else before + new
    growing = max(0, min(new, most - before))  # queries that see one more than the one before
    return growing * before + growing * (growing + 1) // 2 + (new - growing) * most


def seen_of(layer: Kind, before: int) -> int:
    """Earlier tokens whose rows a pass reads: of a window all but the new token's own place."""
    return min(before, layer.window - 1) if isinstance(layer, Window) else before


def weights_of_others(model: PublishedModel, tokens: int) -> float:
    """Numbers in experts that a pass reads beyond one token's, if each token chose at random."""
    if model.experts is None or model.n_active is None:
        return 0
    of, chosen = model.experts
    each = (model.n_read - model.n_active) / (of - chosen)
    return each * (of * (1 - (1 - chosen / of) ** tokens) - chosen)


def bound_of(work: PassWork, machine: Limits) -> str:
    """What takes longest: "arithmetic", or to read the "weights" or the "rows"."""
    if bound_by(work.work, machine) == "arithmetic":
        return "arithmetic"
    return "weights" if work.weights >= work.rows_read + work.rows_written else "rows"


def tokens_until_arithmetic(model: PublishedModel, machine: Limits, users: int = 1) -> int | None:
    """The shortest prompt whose prefill is bound by arithmetic; None if it is longer than 2^19."""
    lengths = range(1, 2**19 + 1)
    first = bisect_left(
        lengths,
        True,
        key=lambda tokens: bound_of(work_of_pass(model, tokens, users=users), machine) == "arithmetic",
    )
    return lengths[first] if first < lengths[-1] else None


def write_work(folder: Path) -> None:
    """Write work.json: models, cards, passes and users that a page may ask for, and the answers."""
    offered, cases, prompts = machines(), list[dict[str, Any]](), list[Any]()
    for model, (new, before), users in product(offered["models"], PASSES, (1, 8, 300)):
        one = KNOWN[model["name"]]
        for readouts in {1, new}:
            work = work_of_pass(one, new, before, users=users, readouts=readouts)
            bounds = {name: [bound_of(work, on), seconds_at_least(work.work, on)] for name, on in ON.items()}
            told = {"tokens": new, "before": before, "users": users, "readouts": readouts}
            cases.append({"model": model["name"], "pass": told, "work": vars(work), "bounds": bounds})
    for model, card, n in product(offered["models"], offered["cards"], (1, 100, 8192)):
        one, on = KNOWN[model["name"]], ON[card["name"]]
        fit = users_that_fit(on.memory_nbytes, one.n_parameters * 2, cache_nbytes(one.layers, n))
        until = tokens_until_arithmetic(one, on, users=n)
        prompts.append([model["name"], card["name"], n, fit, until])
    text = json.dumps({**offered, "cases": cases, "prompts": prompts})
    (folder / "work.json").write_text(text, encoding="utf-8")
