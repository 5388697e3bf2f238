"""The counts that the lab must show if the prompt had another length.

tests/js/lab.test.mjs compares the counts of js/lab.ts with them.
"""

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
    """Counts of one user's tokens, query-key pairs and KV entries in one head of one layer.

    Attributes:
        tokens: number of tokens processed.
        pairs: number of query-key pairs scored.
        written, read: number of KV entries written to the cache and read from it.
        again_tokens, again_pairs: number of tokens and pairs that are processed again without a cache. With a
            cache, they are saved.
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
    """Return three token counts of a recorded pass, as if the prompt had `length` tokens.

    Args:
        step: the recorded pass.
        prompt: number of tokens in the recorded prompt.
        length: number of tokens in the assumed prompt.

    Returns:
        The number of tokens that the pass processes, the number of tokens before these, and the number of
        tokens that no earlier pass has processed.
    """
    part = step.parts[0]
    recorded = part.queries[-1] + 1
    seen = recorded + length - prompt
    counts = len(part.queries), len(indices_of_ranges(part.new))
    tokens, anew = (seen if n == recorded else n for n in counts)  # as many, unless the prompt is among them
    return tokens, seen - tokens, anew


def widest(layers: Sequence[LayerType]) -> LayerType:
    """Return the layer type whose queries see most keys: full attention, or else the widest window."""

    def reach(kind: LayerType) -> float:
        return 0 if isinstance(kind, State) else kind.window if isinstance(kind, Window) else math.inf

    return max(layers, key=reach)


def counts_of(step: Pass, prompt: int, length: int, kind: LayerType, keeps: bool) -> Counts:
    """Return the counts of one pass in a layer of type `kind`, as if the prompt had `length` tokens.

    `keeps` is whether the pass writes its KV entries to a cache.
    """
    tokens, before, anew = tokens_at(step, prompt, length)
    seen = tokens + before
    read = min(before, kind.window - 1) if isinstance(kind, Window) else before
    rows = (tokens, read) if keeps else (0, 0)
    again = seen - anew
    return Counts(
        tokens, attention_pairs(kind, before, tokens), *rows, again, attention_pairs(kind, 0, again)
    )


def accumulated(run: Run, index: int, prompt: int, length: int, kind: LayerType) -> tuple[Counts, Counts]:
    """Return the counts of the pass at `index`, and the sum over all passes up to and including it.

    The sum does not include the training pass.
    """

    def counts(step: Pass) -> Counts:
        return counts_of(step, prompt, length, kind, run.cache != "none" and step.phase != "training")

    so_far = (counts(step) for step in run.passes[: index + 1] if step.phase != "training")
    return counts(run.passes[index]), sum(so_far, Counts(0, 0, 0, 0, 0, 0))


def write_lab(folder: Path, traces: dict[str, Trace]) -> None:
    """Write lab.json, with the two results of `accumulated` for several passes, models and prompt lengths."""
    cases: list[Any] = []
    for (name, trace), model, length in product(traces.items(), COUNTED, LENGTHS):
        kind = widest(MODELS[model].layers)
        for run in trace.runs:
            for index in {0, 1, 2, len(run.passes) - 1} & {*range(len(run.passes))}:
                both = accumulated(run, index, trace.sequences[0].prompt, length, kind)
                counts = [list(vars(one).values()) for one in both]
                cases.append([name, run.cache != "none", index, model, length, counts])
    (folder / "lab.json").write_text(json.dumps(cases), encoding="utf-8")
