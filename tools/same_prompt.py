"""Record how a prompt gets another reply when it is in a batch: helpers/chapters/data/same_prompt.json.

    python -m tools same_prompt

Records the runs for Carla's prompt, three pairs of runs for the reader to judge, and the replies to a
thousand diaries, alone and in batches of 8. This takes two minutes. The results depend on the order of sums,
which depends on the processor. Therefore they are recorded with the kernels for AVX2 (eight numbers at a
time), which newer processors also support.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

if sys.argv[0].endswith("tools same_prompt"):  # run as a command; torch reads these when it is imported
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
from helpers.trace import WordLogits, compare_words
from tools.launch import parser

DIARIES, WORDS = 1000, 24


def in_batches(model: Transformer, prompts: Sequence[Sequence[int]], n: int, batch: int) -> list[Reply]:
    """Return the replies of `n` tokens to prompts, in order. The prompts are run in batches of `batch`."""
    return [
        reply for i in range(0, len(prompts), batch) for reply in answer(model, prompts[i : i + batch], n)
    ]


class HiddenKeys(Core):
    """Computes attention with `hidden` additional keys, which are masked."""

    def __init__(self, scale: float, hidden: int) -> None:
        super().__init__(scale)
        self.hidden = hidden

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts, (B, H, T, Dv), as `Core.forward` does."""
        k, v = (torch.cat([x, x[:, :, -1:].expand(-1, -1, self.hidden, -1)], dim=2) for x in (k, v))
        return super().forward(q, k, v, F.pad(mask, (0, self.hidden)))


class MoreRows(nn.Module):
    """Computes a product whose left matrix has n additional rows. Their results are dropped."""

    def __init__(self, part: nn.Module, n: int) -> None:
        super().__init__()
        self.part, self.n = part, n

    def forward(self, x: Tensor) -> Tensor:
        """Return the product without the additional rows: (B, T, C) → (B, T, C')."""
        rows = x.flatten(0, -2)
        others = rows[-1:].flip(-1).expand(self.n, -1)
        return self.part(torch.cat([rows, others]))[: len(rows)].unflatten(0, x.shape[:-1])


def replaced(model: Transformer, kind: type[nn.Module], make: Callable[[Any], nn.Module]) -> Transformer:
    """Return a copy of a model in which modules of one type are replaced by what `make` returns for them."""
    copied = copy.deepcopy(model)
    for part in list(copied.modules()):
        for name, child in part.named_children():
            if isinstance(child, kind):
                setattr(part, name, make(child))
    return copied


def with_hidden(model: Transformer, hidden: int) -> Transformer:
    """Return a copy of a model whose attention has `hidden` more keys, masked, as in a padded batch."""
    return replaced(model, Core, lambda core: HiddenKeys(core.scale, hidden))


def with_rows(model: Transformer, n: int) -> Transformer:
    """Return a copy of a model whose products have n more rows, as in a batch of concatenated requests."""
    return replaced(model, nn.Linear, lambda part: MoreRows(part, n))


def top_2(logits: Tensor) -> Tensor:
    """Return the top-2 margin of logits: the largest minus the second largest, (…, V) → (…,)."""
    best = logits.topk(2).values
    return best[..., 0] - best[..., 1]


class Changes(NamedTuple):
    """How replies differ between two runs with different batches.

    Attributes:
        texts: how many replies changed.
        words: how many words were compared: in each reply, those up to and including the first that differs.
        ties: how many of these words had a top-2 margin of exactly 0 in the first run.
    """

    texts: int
    words: int
    ties: int


def changes(before: Sequence[Reply], after: Sequence[Reply]) -> Changes:
    """Compare replies, each up to and including the first word that differs.

    After that word, the two replies continue different texts.

    Args:
        before, after: the replies to the same prompts in two runs.
    """
    texts, words, ties = 0, 0, 0
    for a, b in zip(before, after, strict=True):
        n = first_other(a.tokens, b.tokens)
        same = len(a.tokens) if n is None else n + 1
        texts, words = texts + (n is not None), words + same
        ties += int((top_2(a.logits[:same]) == 0).sum())
    return Changes(texts, words, ties)


class Overwritten(PagedCache):
    """A cache with a bug: after the prompt, the fourth token's value in the third layer is wrong."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return all keys and values. After the prompt, one token's value is wrong. See `Cache.append`."""
        keys, values = super().append(layer, k, v)
        if layer == 2 and self.lengths[0]:
            values[:, :, 3] = values[:, :, 4].flip(1)
        return keys, values


@torch.inference_mode()
def in_transformers(model: Any, ids: Sequence[int], forced: Sequence[int]) -> Reply:
    """Run a prompt and then a given reply, word by word, through a model of `transformers`.

    Args:
        ids: the prompt.
        forced: the reply that is run, whatever the model predicts.

    Returns:
        The tokens that the model predicts, and their logits.
    """
    cache, steps = DynamicCache(config=model.config), []
    for input_ids in (ids, *([token] for token in forced[:-1])):
        steps.append(model(torch.tensor([input_ids]), past_key_values=cache).logits[0, -1].float())
    logits = torch.stack(steps)
    return Reply(logits.argmax(-1).tolist(), logits)


def evidence(tokenizer: Tokenizer, forced: Sequence[int], a: Reply, b: Reply) -> dict[str, Any]:
    """Return how two runs of the same words differ.

    Args:
        forced: the words.
        a, b: the two runs.

    Returns:
        "largest": the largest absolute logit of the first run. "places": for each word, the most probable
        word in each run, the margin and the difference, as in `WordComparison`.
    """
    vocabulary, words = tokenizer.words([*range(a.logits.shape[1])]), tokenizer.words(forced)
    sides = [
        [
            WordLogits(word, dict(zip(vocabulary, row, strict=True)))
            for word, row in zip(words, reply.logits.tolist(), strict=True)
        ]
        for reply in (a, b)
    ]
    return {
        "largest": float(a.logits.abs().max()),
        "places": [[*place.words, place.margin, place.difference] for place in compare_words(*sides)],
    }


def suspects(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return three pairs of runs of Carla's words, each as `evidence` returns it.

    Two pairs compare this project's engine with that of `transformers`, in bfloat16 and in float32; in the
    third, one run has a cache with a bug.

    Args:
        narrow: the model in bfloat16.
    """
    prompt = tokenizer.encode(TEXTS[0])
    forced = answer(model, [prompt], WORDS)[0].tokens
    [plain], [short], [bug] = (
        answer(variant, [prompt], WORDS, forced, cache_type)
        for variant, cache_type in ((model, PagedCache), (narrow, PagedCache), (model, Overwritten))
    )
    hf_model = AutoModelForCausalLM.from_pretrained(shipped.FOLDER, attn_implementation="eager")
    hf_models = hf_model, copy.deepcopy(hf_model).bfloat16()
    hf_plain, hf_short = (in_transformers(variant, prompt, forced) for variant in hf_models)
    pairs = {"A, bfloat16": (short, hf_short), "B, float32": (plain, bug), "C, float32": (plain, hf_plain)}
    return {name: evidence(tokenizer, forced, *pair) for name, pair in pairs.items()}


def carla(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Answer Carla's prompt alone and in a batch, then alone with masked keys or more rows in its passes.

    Args:
        narrow: the model in bfloat16.

    Returns:
        Both replies, the two words that differ first, their logits, and the counts of `mechanisms`.
    """
    prompts = [tokenizer.encode(text) for text in TEXTS]
    alone, batched = (answer(narrow, batch, WORDS)[0] for batch in (prompts[:1], prompts))
    other = first_other(alone.tokens, batched.tokens)
    assert other is not None, "no word changed"
    ids = [reply.tokens[other] for reply in (alone, batched)]
    return {
        "alone": tokenizer.words(alone.tokens),
        "beside seven": tokenizer.words(batched.tokens),
        "two words": tokenizer.words(ids),
        "their logits": {
            name: [float(reply.logits[other, i]) for i in ids]
            for name, reply in {"alone": alone, "beside seven": batched}.items()
        },
        "apart": mechanisms([model, narrow], prompts, len(prompts[1]) - len(prompts[0])),
    }


def mechanisms(
    models: Sequence[Transformer], prompts: Sequence[Sequence[int]], hidden: int
) -> dict[str, dict[str, int]]:
    """Count the logits that differ from those of the first prompt run alone, for each change and dtype.

    Args:
        models: the same model in several dtypes.
        prompts: the prompts of the batch.
        hidden: number of masked keys.

    Returns:
        {change: {dtype: count}}.
    """
    counts: dict[str, dict[str, int]] = {}
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
            counts.setdefault(way, {})[dtype] = differ(reply, alone)
    return counts


def count(model: Transformer, prompts: list[list[int]]) -> dict[str, int]:
    """Count the replies that change when prompts are run in batches of 8 instead of alone."""
    counts = changes(*(in_batches(model, prompts, WORDS, size) for size in (1, 8)))
    return {
        "texts that changed": counts.texts,
        "words up to the first other one": counts.words,
        "two words exactly level": counts.ties,
    }


def main() -> None:
    """Record everything, and write the file."""
    parser(__doc__).parse_args()
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        sys.exit("this processor does not support AVX2, which the record needs; nothing was written")
    torch.set_num_threads(1)
    model, tokenizer = shipped.load()
    narrow = copy.deepcopy(model).bfloat16()
    rng = random.Random(0)
    prompts = [
        tokenizer.encode(diary.text)[: rng.randrange(4, 12)]
        for diary in evaluate.held_out_diaries(DIARIES, seed=5)
    ]
    result = {
        "Carla": carla(model, narrow, tokenizer),
        "pairs": suspects(model, narrow, tokenizer),
        "diaries": {"float32": count(model, prompts), "bfloat16": count(narrow, prompts)},
    }
    RECORDED.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
