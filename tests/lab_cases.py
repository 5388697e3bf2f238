"""What the lab counts by helpers/stepper/lab.py: tests/js/lab.test.mjs holds the page's numbers to it."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from helpers.cost.models import MODELS
from helpers.stepper.lab import accumulated, widest
from helpers.trace import Trace

COUNTED = ("Llama-3.1-8B", "Mistral-7B v0.1", "gpt-oss-20b", "Qwen3.5-27B", "DeepSeek-V3")
LENGTHS = (1, 128, 1000, 10_000)


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
