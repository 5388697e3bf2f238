"""Record how the same prompt says other words beside others: helpers/chapters/data/same_prompt.json.

    python -m tools same_prompt

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
from typing import Any, NamedTuple

if sys.argv[0].endswith("tools same_prompt"):  # as a command; read when torch is imported
    os.environ |= {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, DynamicCache

from helpers.chapters.n21 import RECORDED, TEXTS, Reply, answer, differ, first_other
from helpers.model import evaluate, shipped
from helpers.model.attention import Core
from helpers.model.cache import PagedCache
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer
from helpers.trace import Said, places
from tools.launch import parser

DIARIES, WORDS = 1000, 24


def in_batches(model: Transformer, prompts: Sequence[Sequence[int]], n: int, batch: int) -> list[Reply]:
    """Answer prompts, so many at a time, in their order."""
    return [
        reply for i in range(0, len(prompts), batch) for reply in answer(model, prompts[i : i + batch], n)
    ]


class HiddenKeys(Core):
    """The core of attention, which gets keys that the mask hides."""

    def __init__(self, scale: float, hidden: int) -> None:
        super().__init__(scale)
        self.hidden = hidden

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts, (B, H, T, Dv); see `attend`."""
        k, v = (torch.cat([x, x[:, :, -1:].expand(-1, -1, self.hidden, -1)], dim=2) for x in (k, v))
        return super().forward(q, k, v, F.pad(mask, (0, self.hidden)))


class MoreRows(nn.Module):
    """A product whose left matrix gets rows of other texts, which are cut off behind it."""

    def __init__(self, part: nn.Module, n: int) -> None:
        super().__init__()
        self.part, self.n = part, n

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C')."""
        rows = x.flatten(0, -2)
        others = rows[-1:].flip(-1).expand(self.n, -1)
        return self.part(torch.cat([rows, others]))[: len(rows)].unflatten(0, x.shape[:-1])


def replaced(model: Transformer, kind: type[nn.Module], make: Callable[[Any], nn.Module]) -> Transformer:
    """Return a copy of a model with other modules in the place of one kind."""
    copied = copy.deepcopy(model)
    for part in list(copied.modules()):
        for name, child in part.named_children():
            if isinstance(child, kind):
                setattr(part, name, make(child))
    return copied


def with_hidden(model: Transformer, hidden: int) -> Transformer:
    """Return a copy of a model whose attention gets so many hidden keys, as in a padded batch."""
    return replaced(model, Core, lambda core: HiddenKeys(core.scale, hidden))


def with_rows(model: Transformer, n: int) -> Transformer:
    """Return a copy whose products get n rows more, as where texts stand end to end."""
    return replaced(model, nn.Linear, lambda part: MoreRows(part, n))


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


class Overwritten(PagedCache):
    """A cache with a bug: behind the prompt, the fourth token has another value in the third layer."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Hand out all rows, one of them wrong once the prompt has run; see `Cache.append`."""
        keys, values = super().append(layer, k, v)
        if layer == 2 and self.lengths[0]:
            values[:, :, 3] = values[:, :, 4].flip(1)
        return keys, values


@torch.inference_mode()
def in_transformers(model: Any, ids: Sequence[int], forced: Sequence[int]) -> Reply:
    """Run a prompt, and then a reply word by word, through a model of `transformers`."""
    cache, rows = DynamicCache(config=model.config), []
    for given in (ids, *([token] for token in forced[:-1])):
        rows.append(model(torch.tensor([given]), past_key_values=cache).logits[0, -1].float())
    logits = torch.stack(rows)
    return Reply(logits.argmax(-1).tolist(), logits)


def evidence(tokenizer: Tokenizer, forced: Sequence[int], a: Reply, b: Reply) -> dict[str, Any]:
    """Return what two runs of the same words say of each other: the largest logit, and each place."""
    vocabulary, words = tokenizer.words([*range(a.logits.shape[1])]), tokenizer.words(forced)
    sides = [
        [
            Said(word, dict(zip(vocabulary, row, strict=True)))
            for word, row in zip(words, one.logits.tolist(), strict=True)
        ]
        for one in (a, b)
    ]
    found = places(*sides)
    return {
        "largest": float(a.logits.abs().max()),
        "places": [[*place.words, place.margin, place.difference] for place in found],
    }


def suspects(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Run Carla's words through two engines, in two formats, and through a cache with a bug: three pairs."""
    prompt = tokenizer.encode(TEXTS[0])
    forced = answer(model, [prompt], WORDS)[0].tokens
    [plain], [short], [bug] = (
        answer(one, [prompt], WORDS, forced, kind)
        for one, kind in ((model, PagedCache), (narrow, PagedCache), (model, Overwritten))
    )
    theirs = AutoModelForCausalLM.from_pretrained(shipped.FOLDER, attn_implementation="eager")
    wide, other = (in_transformers(one, prompt, forced) for one in (theirs, copy.deepcopy(theirs).bfloat16()))
    found = {"A, bfloat16": (short, other), "B, float32": (plain, bug), "C, float32": (plain, wide)}
    return {name: evidence(tokenizer, forced, *pair) for name, pair in found.items()}


def carla(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Answer Carla alone and beside others; then alone, with hidden keys or more rows in her passes."""
    prompts = [tokenizer.encode(text) for text in TEXTS]
    alone, beside = (answer(narrow, some, WORDS)[0] for some in (prompts[:1], prompts))
    other = first_other(alone.tokens, beside.tokens)
    assert other is not None, "no word changed"
    ids = [reply.tokens[other] for reply in (alone, beside)]
    return {
        "alone": tokenizer.words(alone.tokens),
        "beside seven": tokenizer.words(beside.tokens),
        "two words": tokenizer.words(ids),
        "their logits": {
            name: [float(reply.logits[other, i]) for i in ids]
            for name, reply in {"alone": alone, "beside seven": beside}.items()
        },
        "apart": mechanisms([model, narrow], prompts, len(prompts[1]) - len(prompts[0])),
    }


def mechanisms(
    models: Sequence[Transformer], prompts: Sequence[Sequence[int]], hidden: int
) -> dict[str, dict[str, int]]:
    """Count the logits that differ from those alone, for each change and format."""
    found: dict[str, dict[str, int]] = {}
    for model in models:
        [alone] = answer(model, prompts[:1], WORDS)
        ways = {
            "with 4 hidden keys": answer(with_hidden(model, hidden), prompts[:1], WORDS, alone.tokens)[0],
            "with 7 more rows in each product": answer(with_rows(model, 7), prompts[:1], WORDS, alone.tokens)[
                0
            ],
            "in the batch of eight": answer(model, prompts, WORDS, alone.tokens)[0],
        }
        dtype = str(model.embed_tokens.weight.dtype).removeprefix("torch.")
        for way, reply in ways.items():
            found.setdefault(way, {})[dtype] = differ(reply, alone)
    return found


def count(model: Transformer, prompts: list[list[int]]) -> dict[str, int]:
    """Count the texts that change when they come in batches of 8."""
    found = changes(*(in_batches(model, prompts, WORDS, size) for size in (1, 8)))
    return {
        "texts that changed": found.texts,
        "words up to the first other one": found.words,
        "two words exactly level": found.ties,
    }


def main() -> None:
    """Record, and write what was recorded."""
    parser(__doc__).parse_args()
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        sys.exit("this processor has no AVX2; the page explains what such a one does")
    torch.set_num_threads(1)
    model, tokenizer = shipped.load()
    narrow = copy.deepcopy(model).bfloat16()
    rng = random.Random(0)
    prompts = [
        tokenizer.encode(diary.text)[: rng.randrange(4, 12)]
        for diary in evaluate.held_out_diaries(DIARIES, seed=5)
    ]
    found = {
        "Carla": carla(model, narrow, tokenizer),
        "pairs": suspects(model, narrow, tokenizer),
        "diaries": {"float32": count(model, prompts), "bfloat16": count(narrow, prompts)},
    }
    RECORDED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
