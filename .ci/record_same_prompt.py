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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":  # read when torch is imported
    os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

from helpers.model import evaluate, shipped  # noqa: E402
from helpers.model.attention import Core  # noqa: E402
from helpers.model.cache import GrowingCache  # noqa: E402
from helpers.model.one_shape import in_one_shape  # noqa: E402
from helpers.model.transformer import Transformer  # noqa: E402
from helpers.recording.model import record_model  # noqa: E402
from helpers.recording.same_prompt import (  # noqa: E402
    AT_ONCE,
    RECORDED,
    TEXTS,
    Reply,
    answer,
    differ,
    first_other,
    off_by_way,
)
from helpers.tokenizer import Tokenizer  # noqa: E402
from helpers.trace import Trace  # noqa: E402

DIARIES, WORDS = 1000, 24
EPS = {"bfloat16": 2.0**-7, "float32": 2.0**-23}  # from mark to mark, at 1


def in_batches(model: Transformer, prompts: Sequence[Sequence[int]], n: int, batch: int) -> list[Reply]:
    """Answer prompts, so many at a time, in their order."""
    return [
        reply for i in range(0, len(prompts), batch) for reply in answer(model, prompts[i : i + batch], n)
    ]


class HiddenKeys(Core):
    """The core of attention, which some passes give keys that the mask hides."""

    def __init__(self, scale: float, hidden: int, where: Callable[[int], bool]) -> None:
        super().__init__(scale)
        self.hidden, self.where = hidden, where

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts, (B, H, T, Dv); see `attend`."""
        if self.where(k.shape[2]):
            k, v = (torch.cat([x, x[:, :, -1:].expand(-1, -1, self.hidden, -1)], dim=2) for x in (k, v))
            mask = F.pad(mask, (0, self.hidden))
        return super().forward(q, k, v, mask)


def with_hidden(model: Transformer, hidden: int, where: Callable[[int], bool]) -> Transformer:
    """Return a copy of a model whose attention gets so many hidden keys where a pass has so many keys."""
    copied = copy.deepcopy(model)
    for part in list(copied.modules()):
        for name, child in part.named_children():
            if isinstance(child, Core):
                setattr(part, name, HiddenKeys(child.scale, hidden, where))
    return copied


def fills_up(keys: int, hidden: int) -> bool:
    """Return whether hidden keys make one more full group of keys that are worked on at once."""
    return keys % AT_ONCE + hidden >= AT_ONCE


def top_2(logits: Tensor) -> Tensor:
    """Return by how much the likeliest word leads the second, (…,): the top-2 margin of (…, V)."""
    best = logits.topk(2).values
    return best[..., 0] - best[..., 1]


class Changes(NamedTuple):
    """What became of replies when they were made again in other company.

    Attributes:
        texts: how many say something else.
        words: words up to the first other one, of all replies.
        ties: how many of them were chosen between two that were exactly equal.
    """

    texts: int
    words: int
    ties: int


def changes(before: Sequence[Reply], after: Sequence[Reply]) -> Changes:
    """Compare replies up to the first word that is another: behind it they answer different texts."""
    texts, words, ties = 0, 0, 0
    for a, b in zip(before, after, strict=True):
        n = first_other(a.tokens, b.tokens)
        same = len(a.tokens) if n is None else n + 1
        texts, words = texts + (n is not None), words + same
        ties += int((top_2(a.logits[:same]) == 0).sum())
    return Changes(texts, words, ties)


class Overwritten(GrowingCache):
    """A cache with a bug: behind the prompt, the fourth token has another value in the third layer."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Hand out all rows, one of them wrong once the prompt has run; see `Cache.append`."""
        keys, values = super().append(layer, k, v)
        if layer == 2 and self.length:
            self.v[layer][:, :, 3] = self.v[layer][:, :, 4].flip(1)
        return keys, values


def three_suspects(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int) -> dict[str, list[Trace]]:
    """Record a prompt twice, three times over: which of the pairs differ by rounding, which by a bug?"""
    narrow = copy.deepcopy(model).bfloat16()
    pairs: dict[str, list[tuple[Transformer, GrowingCache | None]]] = {
        "A, bfloat16": [(narrow, None), (in_one_shape(narrow), None)],
        "B, float32": [(model, None), (model, Overwritten(model.config))],
        "C, float32": [(model, None), (in_one_shape(model), None)],
    }
    return {
        name: [
            record_model(one, prompt, tokenizer, max_new=n, cache=cache, training=False, uncached=False)
            for one, cache in pair
        ]
        for name, pair in pairs.items()
    }


def evidence(a: Trace, b: Trace, eps: float) -> tuple[str, float, float, float]:
    """Return what two replies say of a bug, up to their first other word.

    Args:
        eps: from one mark of their format to the next, at 1.

    Returns:
        The first other word or "none"; the largest logit; from one mark to the next there, at most; the
        largest difference of a logit that both have recorded.
    """
    outs = [[event.parts[0].out[0] for event in trace.runs[0].passes] for trace in (a, b)]
    words = [[t.sequences[0].tokens[out.chosen].text for out in o] for t, o in zip((a, b), outs, strict=True)]
    n = first_other(*words)
    largest, difference = 0.0, 0.0
    for x, y in zip(*(each[: None if n is None else n + 1] for each in outs), strict=True):
        logits = {word: logit for word, logit, _ in y.top}
        both = [(logit, logits[word]) for word, logit, _ in x.top if word in logits]
        largest = max(largest, *(abs(logit) for logit, _ in both))
        difference = max(difference, *(abs(p - q) for p, q in both))
    message = "none" if n is None else f"{words[0][n]} → {words[1][n]}"
    return message, largest, eps * largest, difference


def carla(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Answer Carla alone and beside others; then alone, with hidden keys in some of her passes."""
    prompts = [tokenizer.encode(text) for text in TEXTS]
    alone, beside = (answer(narrow, some, WORDS)[0] for some in (prompts[:1], prompts))
    other = first_other(alone.tokens, beside.tokens)
    assert other is not None, "no word changed"
    ids = [reply.tokens[other] for reply in (alone, beside)]
    output, keys = alone.tokens, len(prompts[0])
    hidden = len(prompts[1]) - keys
    fed = answer(narrow, prompts, WORDS, forced=output)[0]
    filled = [n for n in range(keys, keys + WORDS) if fills_up(n, hidden)]
    tried = [
        answer(with_hidden(narrow, hidden, where), prompts[:1], WORDS, forced=output)[0]
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
        "exactly level": (top_2(alone.logits) == 0).tolist(),
        "logits that differ": (alone.logits != fed.logits).sum(-1).tolist(),
        "ways": off_by_way([model, narrow], prompts, WORDS),
        "keys": keys,
        "hidden": hidden,
        "hidden keys in": {
            "the purple passes, against beside seven": differ(tried[0], fed),
            "the other passes, against alone": differ(tried[1], alone),
        },
    }


def count(model: Transformer, prompts: list[list[int]]) -> dict[str, int]:
    """Count the texts that change when they come in batches of 8."""
    found = changes(*(in_batches(model, prompts, WORDS, size) for size in (1, 8)))
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
    pairs = three_suspects(model, tokenizer, TEXTS[0], WORDS)
    rng = random.Random(0)
    prompts = [
        tokenizer.encode(diary.text)[: rng.randrange(4, 12)]
        for diary in evaluate.held_out_diaries(DIARIES, seed=5)
    ]
    found = {
        "Carla": carla(model, narrow, tokenizer),
        "pairs": {name: evidence(a, b, EPS[name.split(", ")[1]]) for name, (a, b) in pairs.items()},
        "diaries": {"float32": count(model, prompts), "bfloat16": count(narrow, prompts)},
    }
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
