"""Record how replies change when their prompts are run in a batch, for notebook 21.

    python -m tools same_prompt

This takes two minutes. It writes helpers/chapters/data/same_prompt.json, which contains

- the replies to Carla's prompt, alone and in a batch;
- three pairs of runs, for which the reader decides whether one of the two runs has a bug;
- how many replies to a thousand prompts differ between runs alone and runs in batches of 8.

The results depend on which routines PyTorch uses, and these depend on the processor. Therefore the runs use
the kernels for AVX2 (eight float32 values at a time), which newer processors also support.
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


def count_different_logits(a: GreedyReply, b: GreedyReply) -> int:
    """Return how many logits differ between two replies with equally many tokens."""
    return int((a.logits != b.logits).sum())


def answer_in_batches(
    model: Transformer, prompts: Sequence[Sequence[int]], n_tokens: int, batch_size: int
) -> list[GreedyReply]:
    """Run the prompts in batches of `batch_size`, and return one reply per prompt, in the same order."""
    return [
        reply
        for i in range(0, len(prompts), batch_size)
        for reply in generate_batch(model, prompts[i : i + batch_size], n_tokens)
    ]


class CoreWithHiddenKeys(Core):
    """An attention core that appends `n_hidden` masked keys and values, as padding does."""

    def __init__(self, scale: float, n_hidden: int) -> None:
        super().__init__(scale)
        self.n_hidden = n_hidden

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return the contexts, of shape (B, H, T, Dv); see `Core.forward`."""
        k, v = (torch.cat([x, x[:, :, -1:].expand(-1, -1, self.n_hidden, -1)], dim=2) for x in (k, v))
        return super().forward(q, k, v, F.pad(mask, (0, self.n_hidden)))


class LinearWithMoreRows(nn.Module):
    """A linear layer whose input gets `n_rows` additional rows, as in a larger batch.

    The outputs of the additional rows are dropped.
    """

    def __init__(self, part: nn.Module, n_rows: int) -> None:
        super().__init__()
        self.part, self.n_rows = part, n_rows

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output without the additional rows: (B, T, C) → (B, T, C')."""
        rows = x.flatten(0, -2)
        others = rows[-1:].flip(-1).expand(self.n_rows, -1)
        return self.part(torch.cat([rows, others]))[: len(rows)].unflatten(0, x.shape[:-1])


def replace_modules(
    model: Transformer, module_class: type[nn.Module], make_replacement: Callable[[Any], nn.Module]
) -> Transformer:
    """Return a copy of a model in which every module of class `module_class` is replaced.

    Args:
        model: the model, which is not changed.
        module_class: the class of the modules to replace.
        make_replacement: returns the new module for a given module of the copy.
    """
    copied = copy.deepcopy(model)
    for part in list(copied.modules()):
        for name, child in part.named_children():
            if isinstance(child, module_class):
                setattr(part, name, make_replacement(child))
    return copied


def with_hidden_keys(model: Transformer, n_hidden: int) -> Transformer:
    """Return a copy of a model that attends with `n_hidden` additional masked keys, as in a padded batch."""
    return replace_modules(model, Core, lambda core: CoreWithHiddenKeys(core.scale, n_hidden))


def with_more_rows(model: Transformer, n_rows: int) -> Transformer:
    """Return a copy of a model with `n_rows` additional rows in the input of each linear layer.

    A batch without padding has the same effect on the layers.
    """
    return replace_modules(model, nn.Linear, lambda part: LinearWithMoreRows(part, n_rows))


def top_2_margin(logits: Tensor) -> Tensor:
    """Return the largest logit minus the second largest. `logits` has shape (…, V), the result shape (…)."""
    best = logits.topk(2).values
    return best[..., 0] - best[..., 1]


class ReplyChanges(NamedTuple):
    """How the replies to the same prompts differ between two runs with different batch sizes.

    Attributes:
        changed_replies: number of replies that differ.
        compared_words: number of compared words. Each reply is compared up to and including its first word
            that differs.
        ties: number of compared words at which the two largest logits of the first run are equal.
    """

    changed_replies: int
    compared_words: int
    ties: int


def count_changes(before: Sequence[GreedyReply], after: Sequence[GreedyReply]) -> ReplyChanges:
    """Compare each reply in `before` with the reply to the same prompt in `after`, and count the changes.

    Two replies are compared only up to and including the first word that differs. After that word they
    continue different texts.

    Args:
        before, after: the replies in the two runs, in the same order.
    """
    texts, words, ties = 0, 0, 0
    for a, b in zip(before, after, strict=True):
        n = first_difference_index(a.tokens, b.tokens)
        same = len(a.tokens) if n is None else n + 1
        texts, words = texts + (n is not None), words + same
        ties += int((top_2_margin(a.logits[:same]) == 0).sum())
    return ReplyChanges(texts, words, ties)


class CacheWithOverwrittenValue(PagedCache):
    """A paged cache with a deliberate bug.

    In every pass after the prompt, the third layer gets a wrong value (V) for the fourth token.
    """

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values, and return all of them; see `Cache.append`.

        After the prompt, one of the values returned for the third layer is wrong.
        """
        keys, values = super().append(layer, k, v)
        if layer == 2 and self.lengths[0]:
            values[:, :, 3] = values[:, :, 4].flip(1)
        return keys, values


@torch.inference_mode()
def run_in_transformers(model: Any, ids: Sequence[int], forced_ids: Sequence[int]) -> GreedyReply:
    """Run a prompt, and then a given reply token by token, in a `transformers` model.

    Args:
        model: the `transformers` model.
        ids: the token ids of the prompt.
        forced_ids: the token ids of the reply. They are run even where the model predicts another token.

    Returns:
        The token that the model predicts at each position of the reply, and the logits.
    """
    cache, steps = DynamicCache(config=model.config), []
    for input_ids in (ids, *([token] for token in forced_ids[:-1])):
        steps.append(model(torch.tensor([input_ids]), past_key_values=cache).logits[0, -1].float())
    logits = torch.stack(steps)
    return GreedyReply(logits.argmax(-1).tolist(), logits)


def compare_runs(
    tokenizer: Tokenizer, forced_ids: Sequence[int], a: GreedyReply, b: GreedyReply
) -> dict[str, Any]:
    """Compare the logits of two runs of the same reply.

    Args:
        tokenizer: the tokenizer of both models.
        forced_ids: the token ids of the reply.
        a, b: the two runs.

    Returns:
        A dict with two keys. "largest" is the largest absolute logit in the first run. "places" is a list
        with one item per compared word of the reply: [most probable word in run a, most probable word in
        run b, margin, difference], as in `WordComparison`.
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
    """Compare three pairs of runs of the reply to Carla's prompt; see `compare_runs`.

    Two pairs compare this project's model with `transformers`, one in bfloat16 and one in float32. In the
    third pair, in float32, the second run has a cache with a bug.

    Args:
        model: the model in float32.
        narrow: the same model in bfloat16.
        tokenizer: the model's tokenizer.

    Returns:
        {name of the pair: result of `compare_runs`}.
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
    """Record the replies to Carla's prompt, alone and in a batch, and why they differ.

    Args:
        model: the model in float32.
        narrow: the same model in bfloat16, which gives the two replies.
        tokenizer: the model's tokenizer.

    Returns:
        A dict with both replies, the two words at which they first differ, the logits of these two words in
        both runs, and the result of `count_changed_logits`.
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
    """Count how many of the first prompt's logits change when the prompt is no longer run alone.

    There are three changes: masked keys are added, rows are added to each matrix product, or the prompt is
    run in a batch with the other prompts. In all these runs, the reply is the one from the run alone.

    Args:
        models: the same model in several dtypes.
        prompts: the prompts of the batch.
        n_hidden: number of masked keys.

    Returns:
        {change: {dtype: number of logits that differ}}.
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
    """Count the replies that change when prompts are run in batches of 8 instead of alone.

    The result has the three counts of `ReplyChanges`, under the names that the recorded file uses.
    """
    counts = count_changes(*(answer_in_batches(model, prompts, N_TOKENS, size) for size in (1, 8)))
    return {
        "texts that changed": counts.changed_replies,
        "words up to the first other one": counts.compared_words,
        "two words exactly level": counts.ties,
    }


def main() -> None:
    """Make all records, and write them to same_prompt.json."""
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
