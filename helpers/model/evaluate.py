"""Measure what a model has learned: its next words after a prompt, and whether it copies name and city."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import corpus
from helpers.corpus import Diary
from helpers.model.cache import Cache, GrowingCache
from helpers.model.config import ModelConfig
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

# The accuracy of guessing name and city at random.
CHANCE = 1 / (len(corpus.NAMES) * len(corpus.CITIES))


def held_out_diaries(n: int, seed: int, quiet: int | None = None) -> list[Diary]:
    """Write n diaries with (name, city) pairs that are not in training; `quiet` as in `corpus.diary`."""
    rng = random.Random(seed)
    return [corpus.diary(rng, held_out=True, quiet=quiet) for _ in range(n)]


def copy_distance(diary: Diary) -> int:
    """Return the larger distance, in tokens, from the signature back to the name and to the city."""
    last = {word: position for position, word in enumerate(diary.prompt.split())}
    return max(last["by"] + 1 - last[diary.name], last["by"] + 3 - last[diary.city])


@torch.inference_mode()
def next_words(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int = 3) -> list[tuple[str, float]]:
    """Return the n most probable words after a prompt with their probabilities, in descending order."""
    logits = model(torch.tensor([tokenizer.encode(prompt)]), last_only=True)[0, -1]  # (V,)
    p, ids = logits.softmax(-1).topk(n)
    return list(zip(tokenizer.words(ids.tolist()), p.tolist(), strict=True))


@torch.inference_mode()
def greedy_words(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int, cache: Cache) -> list[str]:
    """Generate n words after a prompt, greedily, with an empty cache.

    The last token of the prompt has a pass of its own: only then is a dropped or rounded entry noticed.
    """
    *before, newest = tokenizer.encode(prompt)
    if before:
        model(torch.tensor([before]), cache, last_only=True)
    output: list[int] = []
    for _ in range(n):
        logits = model(torch.tensor([[newest]]), cache, last_only=True)  # (1, 1, V)
        newest = int(logits.argmax())
        output.append(newest)
    return tokenizer.words(output)


def signature_accuracy(
    model: Transformer,
    tokenizer: Tokenizer,
    diaries: Sequence[Diary],
    make_cache: Callable[[ModelConfig], Cache] = GrowingCache,
) -> float:
    """Return the share of diaries, 0 to 1, that the model signs correctly; guessing gets `CHANCE`.

    Args:
        make_cache: makes an empty cache for each diary: a `WindowCache` shows the use of old entries.
    """
    n_correct = 0
    for diary in diaries:  # up to "Signed by"
        words = greedy_words(model, tokenizer, diary.prompt, 3, make_cache(model.config))
        n_correct += words == [diary.name, "from", diary.city]
    return n_correct / len(diaries)


@torch.inference_mode()
def next_word_losses(
    model: Transformer,
    tokenizer: Tokenizer,
    diaries: Sequence[Diary],
    make_cache: Callable[[ModelConfig], Cache] = GrowingCache,
) -> tuple[Tensor, Tensor]:
    """Run diaries, 16 tokens a pass, and measure each of their N next words.

    Returns:
        The loss of each word, in nats, and the probability of `<eos>` at its position, (N,) each.
    """
    losses, p_eos = [], []
    for diary in diaries:
        ids, cache = torch.tensor([tokenizer.encode(diary.text)]), make_cache(model.config)
        logits = torch.cat([model(new, cache) for new in ids[:, :-1].split(16, dim=1)], dim=1)[0]  # (T, V)
        losses.append(F.cross_entropy(logits, ids[0, 1:], reduction="none"))
        p_eos.append(logits.softmax(-1)[:, tokenizer.eos_id])
    return torch.cat(losses), torch.cat(p_eos)
