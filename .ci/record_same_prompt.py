"""Count how often a text changes when seven others come with it: helpers/recording/same_prompt.json.

    python .ci/record_same_prompt.py

A thousand diaries, 24 words each, alone and in batches of 8, in two formats: some minutes. What is counted
depends on the processor and on PyTorch, which choose the order of sums.
"""

from __future__ import annotations

import copy
import json
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from helpers.model import evaluate, shipped  # noqa: E402
from helpers.recording.same_prompt import COUNTED, changes, in_batches  # noqa: E402

DIARIES, WORDS = 1000, 24


def main() -> None:
    """Count, and write what was counted."""
    torch.set_num_threads(1)
    model, tokenizer = shipped.load()
    rng = random.Random(0)
    prompts = [
        tokenizer.encode(diary.text)[: rng.randrange(4, 12)]
        for diary in evaluate.held_out_diaries(DIARIES, seed=5)
    ]
    counted = {}
    for name, one in {"float32": model, "bfloat16": copy.deepcopy(model).bfloat16()}.items():
        found = changes(in_batches(one, prompts, WORDS, 1), in_batches(one, prompts, WORDS, 8))
        counted[name] = {
            "texts that changed": found.texts,
            "words compared": found.words,
            "two words exactly level": found.ties,
            "largest top-2 margin at a change": max(found.margin, default=0.0),
        }
        print(name, counted[name])
    COUNTED.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
