"""Record how the same prompt says other words beside others: helpers/recording/same_prompt.json.

    python .ci/record_same_prompt.py

Carla's runs, three pairs to judge, and a thousand diaries, alone and in batches of 8: two minutes.
All of it depends on the processor, which chooses the order of sums. So it is recorded with the programs for
processors that work on eight numbers at once (AVX2), which newer ones have, too.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}  # read when torch is imported

import torch  # noqa: E402

from helpers.model import evaluate, shipped  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from helpers.recording import same_prompt  # noqa: E402
from helpers.tokenizer import Tokenizer  # noqa: E402

DIARIES, WORDS = 1000, 24
EPS = {"bfloat16": 2.0**-7, "float32": 2.0**-23}  # from mark to mark, at 1


def carla(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Answer Carla alone and beside others; then alone, with hidden keys in some of her passes."""
    prompts = [tokenizer.encode(text) for text in same_prompt.TEXTS]
    alone, beside = (same_prompt.answer(narrow, some, WORDS)[0] for some in (prompts[:1], prompts))
    other = same_prompt.first_other(alone.tokens, beside.tokens)
    assert other is not None, "no word changed"
    ids = [reply.tokens[other] for reply in (alone, beside)]
    output, keys = alone.tokens, len(prompts[0])
    hidden = len(prompts[1]) - keys
    fed = same_prompt.answer(narrow, prompts, WORDS, said=output)[0]
    filled = [n for n in range(keys, keys + WORDS) if same_prompt.fills_up(n, hidden)]
    tried = [
        same_prompt.answer(same_prompt.with_hidden(narrow, hidden, where), prompts[:1], WORDS, said=output)[0]
        for where in (lambda n: n in filled, lambda n: n not in filled)
    ]
    return {
        "alone": tokenizer.words(output),
        "beside seven": tokenizer.words(beside.tokens),
        "two words": tokenizer.words(ids),
        "their logits": {
            name: [float(reply.logits[other, i]) for i in ids]
            for name, reply in {"alone": alone, "beside seven": beside}.items()
        },
        "exactly level": (same_prompt.top_2(alone.logits) == 0).tolist(),
        "logits that differ": (alone.logits != fed.logits).sum(-1).tolist(),
        "ways": same_prompt.off_by_way([model, narrow], prompts, WORDS),
        "keys": keys,
        "hidden": hidden,
        "hidden keys in": {
            "the purple passes, against beside seven": same_prompt.differ(tried[0], fed),
            "the other passes, against alone": same_prompt.differ(tried[1], alone),
        },
    }


def count(model: Transformer, prompts: list[list[int]]) -> dict[str, int]:
    """Count the texts that change when they come in batches of 8."""
    found = same_prompt.changes(*(same_prompt.in_batches(model, prompts, WORDS, size) for size in (1, 8)))
    return {
        "texts that changed": found.texts,
        "words compared": found.words,
        "two words exactly level": found.ties,
    }


def main() -> None:
    """Record, and write what was recorded."""
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        sys.exit("this processor has no AVX2; the page explains what such a one does")
    torch.set_num_threads(1)
    model, tokenizer = shipped.load()
    narrow = copy.deepcopy(model).bfloat16()
    pairs = same_prompt.three_suspects(model, tokenizer, same_prompt.TEXTS[0], WORDS)
    rng = random.Random(0)
    prompts = [
        tokenizer.encode(diary.text)[: rng.randrange(4, 12)]
        for diary in evaluate.held_out_diaries(DIARIES, seed=5)
    ]
    found = {
        "Carla": carla(model, narrow, tokenizer),
        "pairs": {
            name: same_prompt.evidence(a, b, EPS[name.split(", ")[1]]) for name, (a, b) in pairs.items()
        },
        "diaries": {"float32": count(model, prompts), "bfloat16": count(narrow, prompts)},
    }
    same_prompt.RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
