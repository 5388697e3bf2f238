"""What the lab counts, as if the prompt had another length: tests/js/lab.test.mjs holds js/lab.ts to it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from helpers.cost.layers import LayerType, State, Window
from helpers.cost.models import MODELS
from helpers.cost.step import attention_pairs
from helpers.trace import Pass, Run, Trace, indices_of_ranges

COUNTED = ("Llama-3.1-8B", "Mistral-7B v0.1", "gpt-oss-20b", "Qwen3.5-27B", "DeepSeek-V3")
LENGTHS = (1, 128, 1000, 10_000)


@dataclass(frozen=True)
class Counts:
    """Of one user, in one layer and of one head: tokens processed, query-key pairs, rows written and read.

    `again_tokens`, `again_pairs`: what a cache spares, or what is processed again without one.
    """

    tokens: int
    pairs: int
    written: int
    read: int
    again_tokens: int
    again_pairs: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def tokens_at(step: Pass, prompt: int, length: int) -> tuple[int, int, int]:
    """Return the tokens of a recorded pass if the prompt had `length`: processed, before them, and anew."""
    part = step.parts[0]
    recorded = part.queries[-1] + 1
    seen = recorded + length - prompt
    counts = len(part.queries), len(indices_of_ranges(part.new))
    tokens, anew = (seen if n == recorded else n for n in counts)  # as many, unless the prompt is among them
    return tokens, seen - tokens, anew


def widest(layers: Sequence[LayerType]) -> LayerType:
    """Return the kind of layer whose queries see most: full attention, or else the widest window."""

    def reach(kind: LayerType) -> float:
        return 0 if isinstance(kind, State) else kind.window if isinstance(kind, Window) else math.inf

    return max(layers, key=reach)


def counts_of(step: Pass, prompt: int, length: int, kind: LayerType, keeps: bool) -> Counts:
    """Return what one pass counts; `keeps`: its rows are kept."""
    tokens, before, anew = tokens_at(step, prompt, length)
    seen = tokens + before
    read = min(before, kind.window - 1) if isinstance(kind, Window) else before
    rows = (tokens, read) if keeps else (0, 0)
    again = seen - anew
    return Counts(
        tokens, attention_pairs(kind, before, tokens), *rows, again, attention_pairs(kind, 0, again)
    )


def accumulated(run: Run, index: int, prompt: int, length: int, kind: LayerType) -> tuple[Counts, Counts]:
    """Return the counts of a pass, and of all up to it; the training reference is in no sum."""

    def counts(step: Pass) -> Counts:
        return counts_of(step, prompt, length, kind, run.cache != "none" and step.phase != "training")

    so_far = (counts(step) for step in run.passes[: index + 1] if step.phase != "training")
    return counts(run.passes[index]), sum(so_far, Counts(0, 0, 0, 0, 0, 0))


def write_lab(folder: Path, traces: dict[str, Trace]) -> None:
    """Write lab.json: of passes at chosen lengths, the counts of each and of all so far."""
    cases: list[Any] = []
    for (name, trace), model, length in product(traces.items(), COUNTED, LENGTHS):
        kind = widest(MODELS[model].layers)
        for run in trace.runs:
            for index in {0, 1, 2, len(run.passes) - 1} & {*range(len(run.passes))}:
                both = accumulated(run, index, trace.sequences[0].prompt, length, kind)
                counts = [list(vars(one).values()) for one in both]
                cases.append([name, run.cache != "none", index, model, length, counts])
    (folder / "lab.json").write_text(json.dumps(cases), encoding="utf-8")
