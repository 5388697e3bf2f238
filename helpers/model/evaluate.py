"""Measure what a model has learned: which words it predicts, and whether it copies a name and a city."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import corpus
from helpers.corpus import Diary
from helpers.model.cache import Cache, GrowingCache
from helpers.model.config import ModelConfig
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer

# The expected accuracy if name and city are guessed at random.
CHANCE = 1 / (len(corpus.NAMES) * len(corpus.CITIES))


def held_out_diaries(n: int, seed: int, min_quiet_words: int | None = None) -> list[Diary]:
    """Return n random diaries with held-out (name, city) pairs.

    `seed` is the seed for the random choices. `min_quiet_words` is as in `random_diary`.
    """
    rng = random.Random(seed)
    return [corpus.random_diary(rng, held_out=True, min_quiet_words=min_quiet_words) for _ in range(n)]


def copy_distance(diary: Diary) -> int:
    """Return the distance, in tokens, over which the model must copy the name and the city.

    This is the larger of two distances: from the name in the signature to its previous mention, and from the
    city in the signature to its previous mention.
    """
    last = {word: position for position, word in enumerate(diary.prompt.split())}
    return max(last["by"] + 1 - last[diary.name], last["by"] + 3 - last[diary.city])


@torch.inference_mode()
def next_words(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int = 3) -> list[tuple[str, float]]:
    """Return the n most probable next words after a prompt and their probabilities, most probable first."""
    logits = model(torch.tensor([tokenizer.encode(prompt)]), last_only=True)[0, -1]  # (V,)
    p, ids = logits.softmax(-1).topk(n)
    return list(zip(tokenizer.words(ids.tolist()), p.tolist(), strict=True))


@torch.inference_mode()
def greedy_words(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int, cache: Cache) -> list[str]:
    """Generate n words after a prompt with greedy decoding.

    Args:
        cache: an empty cache. The last token of the prompt runs in a separate pass. The pass that stores
            entries still sees all of them in full precision; only later passes see what the cache has kept.
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
    """Return the fraction of diaries, 0 to 1, that the model signs correctly; guessing gives `CHANCE`.

    Args:
        make_cache: function that makes an empty cache for each diary, given the config. A `WindowCache` shows
            how much the accuracy depends on old entries.
    """
    n_correct = 0
    for diary in diaries:  # the prompt ends with "Signed by"
        words = greedy_words(model, tokenizer, diary.prompt, 3, make_cache(model.config))
        n_correct += words == [diary.name, "from", diary.city]
    return n_correct / len(diaries)


class WordLosses(NamedTuple):
    """How well a model predicts N words, which are all words of some diaries except each first word."""

    losses: Tensor  # cross-entropy of each word, in nats, (N,)
    p_eos: Tensor  # probability of `<eos>` at the position of each word, (N,)


@torch.inference_mode()
def next_word_losses(
    model: Transformer,
    tokenizer: Tokenizer,
    diaries: Sequence[Diary],
    make_cache: Callable[[ModelConfig], Cache] = GrowingCache,
) -> WordLosses:
    """Measure how well a model predicts each word of some diaries. The model runs 16 tokens per pass."""
    losses, p_eos = [], []
    for diary in diaries:
        ids, cache = torch.tensor([tokenizer.encode(diary.text)]), make_cache(model.config)
        logits = torch.cat([model(new, cache) for new in ids[:, :-1].split(16, dim=1)], dim=1)[0]  # (T, V)
        losses.append(F.cross_entropy(logits, ids[0, 1:], reduction="none"))
        p_eos.append(logits.softmax(-1)[:, tokenizer.eos_id])
    return WordLosses(torch.cat(losses), torch.cat(p_eos))
