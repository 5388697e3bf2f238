"""Watch a head turn to the name in training: `python .ci/record_training.py` (two minutes).

Trains the shipped model as train.py does, stops after the last batch of LOOKS, and writes
helpers/weights/training.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from train import STEPS  # noqa: E402

from helpers.model import evaluate, shipped  # noqa: E402
from helpers.model.train import batches, train  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from helpers.recording.model import record_model  # noqa: E402
from helpers.tokenizer import Tokenizer  # noqa: E402

LOOKS = (100, 200, 300, 400, 500, 600)


class SeenEnoughError(Exception):
    """No batch after the last look is needed."""


def look(model: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return how much `by` looks at the name, the name's probability, and how many of 50 names are right."""
    diary = evaluate.held_out_diaries(1, seed=3, quiet=12)[0]
    read, diaries = diary.prompt.split(), evaluate.held_out_diaries(50, seed=5, quiet=12)
    run = record_model(model, diary.prompt, tokenizer, max_new=1, training=False, uncached=False)
    weights = run.attention_weights(len(read) - 1, *shipped.FINDS_NAMES)
    with torch.no_grad():
        p = model(torch.tensor([tokenizer.encode(diary.prompt)]), last_only=True)[0, -1].softmax(-1)
    output = [evaluate.next_words(model, tokenizer, one.prompt, 1)[0][0] for one in diaries]
    return {
        "weight": round(float(sum(weights[n] for n, word in enumerate(read) if word == diary.name)), 3),
        "probability": round(p[tokenizer.encode(diary.name)[0]].item(), 3),
        "right": sum(word == one.name for word, one in zip(output, diaries, strict=True)),
    }


def main() -> None:
    """Train, look on the way, and write what was seen."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer, model, seen = Tokenizer.of_words(shipped.VOCABULARY), Transformer(shipped.CONFIG), []

    def watched() -> Iterator[Tensor]:
        for n, texts in enumerate(batches(tokenizer, 0)):
            if n in LOOKS:
                model.eval()
                seen.append({"batches": n} | look(model, tokenizer))
                model.train()
                print(seen[-1])
            if n == LOOKS[-1]:
                raise SeenEnoughError
            yield texts

    with suppress(SeenEnoughError):
        train(model, watched(), STEPS, bar=False)
    shipped.WATCHED.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
