"""Record how a prompt gets a different reply in a batch: helpers/chapters/data/same_prompt.json.

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

from helpers.chapters.n21 import (
    BATCH_PROMPTS,
    RECORDED_RESULTS_FILE,
    GreedyReply,
    count_different_logits,
    first_difference_index,
    generate_batch,
)
from helpers.model import evaluate, shipped
from helpers.model.attention import Core
from helpers.model.cache import PagedCache
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer
from helpers.trace import WordLogits, compare_words
from tools.launch import argument_parser

N_DIARIES, N_TOKENS = 1000, 24


def answer_in_batches(
    model: Transformer, prompts: Sequence[Sequence[int]], n_tokens: int, batch_size: int
) -> list[GreedyReply]:
    """Return the replies to prompts, in order, from batches of `batch_size` prompts."""
    return [
        reply
        for i in range(0, len(prompts), batch_size)
        for reply in generate_batch(model, prompts[i : i + batch_size], n_tokens)
    ]


class CoreWithHiddenKeys(Core):
    """Computes attention with `n_hidden` additional keys, which are masked."""

    def __init__(self, scale: float, n_hidden: int) -> None:
        super().__init__(scale)
        self.n_hidden = n_hidden

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return contexts, (B, H, T, Dv); see `Core.forward`."""
        k, v = (torch.cat([x, x[:, :, -1:].expand(-1, -1, self.n_hidden, -1)], dim=2) for x in (k, v))
        return super().forward(q, k, v, F.pad(mask, (0, self.n_hidden)))


class LinearWithMoreRows(nn.Module):
    """Computes a product with `n_rows` additional rows in the left matrix, and drops their results."""

    def __init__(self, part: nn.Module, n_rows: int) -> None:
        super().__init__()
        self.part, self.n_rows = part, n_rows

    def forward(self, x: Tensor) -> Tensor:
        """Return the product without the additional rows: (B, T, C) → (B, T, C')."""
        rows = x.flatten(0, -2)
        others = rows[-1:].flip(-1).expand(self.n_rows, -1)
        return self.part(torch.cat([rows, others]))[: len(rows)].unflatten(0, x.shape[:-1])


def replace_modules(
    model: Transformer, module_class: type[nn.Module], make_replacement: Callable[[Any], nn.Module]
) -> Transformer:
    """Return a copy of a model in which all modules of a class are replaced."""
    copied = copy.deepcopy(model)
    for part in list(copied.modules()):
        for name, child in part.named_children():
            if isinstance(child, module_class):
                setattr(part, name, make_replacement(child))
    return copied


def with_hidden_keys(model: Transformer, n_hidden: int) -> Transformer:
    """Return a copy of a model with `n_hidden` more, masked keys in its attention, as in a padded batch."""
    return replace_modules(model, Core, lambda core: CoreWithHiddenKeys(core.scale, n_hidden))


def with_more_rows(model: Transformer, n_rows: int) -> Transformer:
    """Return a copy of a model with `n_rows` more rows in its products, as in a batch without padding."""
    return replace_modules(model, nn.Linear, lambda part: LinearWithMoreRows(part, n_rows))


def top_2_margin(logits: Tensor) -> Tensor:
    """Return the largest logit minus the second largest, (…, V) → (…,)."""
    best = logits.topk(2).values
    return best[..., 0] - best[..., 1]


class ReplyChanges(NamedTuple):
    """How replies differ between two runs with different batches.

    Attributes:
        changed_replies: number of replies that changed.
        compared_words: number of words that were compared: those of each reply up to and including the first
            difference.
        ties: number of compared words with a top-2 margin of exactly 0 in the first run.
    """

    changed_replies: int
    compared_words: int
    ties: int


def count_changes(before: Sequence[GreedyReply], after: Sequence[GreedyReply]) -> ReplyChanges:
    """Compare the words of replies up to and including the first difference of each pair.

    After the first difference, two replies continue different texts.

    Args:
        before, after: the replies to the same prompts in two runs.
    """
    texts, words, ties = 0, 0, 0
    for a, b in zip(before, after, strict=True):
        n = first_difference_index(a.tokens, b.tokens)
        same = len(a.tokens) if n is None else n + 1
        texts, words = texts + (n is not None), words + same
        ties += int((top_2_margin(a.logits[:same]) == 0).sum())
    return ReplyChanges(texts, words, ties)


class CacheWithOverwrittenValue(PagedCache):
    """A cache with a bug: after the prompt, the fourth token's value in the third layer is wrong."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return all keys and values, with one wrong value after the prompt; see `Cache.append`."""
        keys, values = super().append(layer, k, v)
        if layer == 2 and self.lengths[0]:
            values[:, :, 3] = values[:, :, 4].flip(1)
        return keys, values


@torch.inference_mode()
def run_in_transformers(model: Any, ids: Sequence[int], forced_ids: Sequence[int]) -> GreedyReply:
    """Run a prompt and then a given reply, token by token, with a model of `transformers`.

    Args:
        model: the model.
        ids: the token ids of the prompt.
        forced_ids: the token ids of the reply, which are run whatever the model predicts.

    Returns:
        The tokens that the model predicts, and their logits.
    """
    cache, steps = DynamicCache(config=model.config), []
    for input_ids in (ids, *([token] for token in forced_ids[:-1])):
        steps.append(model(torch.tensor([input_ids]), past_key_values=cache).logits[0, -1].float())
    logits = torch.stack(steps)
    return GreedyReply(logits.argmax(-1).tolist(), logits)


def compare_runs(
    tokenizer: Tokenizer, forced_ids: Sequence[int], a: GreedyReply, b: GreedyReply
) -> dict[str, Any]:
    """Return how two runs of the same words differ.

    Args:
        tokenizer: the tokenizer.
        forced_ids: the token ids of the words.
        a, b: the two runs.

    Returns:
        "largest": the largest absolute logit of the first run. "places": for each word, the most probable
        word in each run, the margin and the difference, as in `WordComparison`.
    """
    vocabulary, words = tokenizer.words([*range(a.logits.shape[1])]), tokenizer.words(forced_ids)
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


def record_suspect_pairs(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return three pairs of runs of Carla's words, each in the form of `compare_runs`.

    Two pairs compare this project's model with `transformers`, in bfloat16 and in float32. In the third pair,
    one run has a cache with a bug.

    Args:
        model: the model in float32.
        narrow: the model in bfloat16.
        tokenizer: the tokenizer.
    """
    prompt = tokenizer.encode(BATCH_PROMPTS[0])
    forced = generate_batch(model, [prompt], N_TOKENS)[0].tokens
    [plain], [short], [bug] = (
        generate_batch(variant, [prompt], N_TOKENS, forced, cache_type)
        for variant, cache_type in (
            (model, PagedCache),
            (narrow, PagedCache),
            (model, CacheWithOverwrittenValue),
        )
    )
    hf_model = AutoModelForCausalLM.from_pretrained(shipped.FOLDER, attn_implementation="eager")
    hf_models = hf_model, copy.deepcopy(hf_model).bfloat16()
    hf_plain, hf_short = (run_in_transformers(variant, prompt, forced) for variant in hf_models)
    pairs = {"A, bfloat16": (short, hf_short), "B, float32": (plain, bug), "C, float32": (plain, hf_plain)}
    return {name: compare_runs(tokenizer, forced, *pair) for name, pair in pairs.items()}


def record_carla_prompt(model: Transformer, narrow: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Answer Carla's prompt alone and in a batch, then alone with masked keys or more rows in its passes.

    Args:
        model: the model in float32.
        narrow: the model in bfloat16.
        tokenizer: the tokenizer.

    Returns:
        Both replies, the first two different words, their logits, and the counts of `count_changed_logits`.
    """
    prompts = [tokenizer.encode(text) for text in BATCH_PROMPTS]
    alone, batched = (generate_batch(narrow, batch, N_TOKENS)[0] for batch in (prompts[:1], prompts))
    other = first_difference_index(alone.tokens, batched.tokens)
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
        "apart": count_changed_logits([model, narrow], prompts, len(prompts[1]) - len(prompts[0])),
    }


def count_changed_logits(
    models: Sequence[Transformer], prompts: Sequence[Sequence[int]], n_hidden: int
) -> dict[str, dict[str, int]]:
    """Count the logits that differ from those of the first prompt run alone, for each change and dtype.

    Args:
        models: the same model in several dtypes.
        prompts: the prompts of the batch.
        n_hidden: number of masked keys.

    Returns:
        {change: {dtype: count}}.
    """
    counts: dict[str, dict[str, int]] = {}
    for model in models:
        [alone] = generate_batch(model, prompts[:1], N_TOKENS)
        ways = {
            "with 4 hidden keys": generate_batch(
                with_hidden_keys(model, n_hidden), prompts[:1], N_TOKENS, alone.tokens
            )[0],
            "with 7 more rows in each product": generate_batch(
                with_more_rows(model, 7), prompts[:1], N_TOKENS, alone.tokens
            )[0],
            "in the batch of eight": generate_batch(model, prompts, N_TOKENS, alone.tokens)[0],
        }
        dtype = str(model.embed_tokens.weight.dtype).removeprefix("torch.")
        for way, reply in ways.items():
            counts.setdefault(way, {})[dtype] = count_different_logits(reply, alone)
    return counts


def count_changed_replies(model: Transformer, prompts: list[list[int]]) -> dict[str, int]:
    """Count the replies that change when prompts are run in batches of 8 instead of alone."""
    counts = count_changes(*(answer_in_batches(model, prompts, N_TOKENS, size) for size in (1, 8)))
    return {
        "texts that changed": counts.changed_replies,
        "words up to the first other one": counts.compared_words,
        "two words exactly level": counts.ties,
    }


def main() -> None:
    """Record everything, and write the file."""
    argument_parser(__doc__).parse_args()
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        sys.exit("this processor does not support AVX2, which the record needs; nothing was written")
    torch.set_num_threads(1)
    model, tokenizer = shipped.load_shipped()
    narrow = copy.deepcopy(model).bfloat16()
    rng = random.Random(0)
    prompts = [
        tokenizer.encode(diary.text)[: rng.randrange(4, 12)]
        for diary in evaluate.held_out_diaries(N_DIARIES, seed=5)
    ]
    result = {
        "Carla": record_carla_prompt(model, narrow, tokenizer),
        "pairs": record_suspect_pairs(model, narrow, tokenizer),
        "diaries": {
            "float32": count_changed_replies(model, prompts),
            "bfloat16": count_changed_replies(narrow, prompts),
        },
    }
    RECORDED_RESULTS_FILE.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
