"""What a model has learned: the next word after a prompt, and whether it copies name and city to the end."""

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

# The share of diaries that a guess of name and city gets right.
CHANCE = 1 / (len(corpus.NAMES) * len(corpus.CITIES))


def held_out_diaries(n: int, seed: int, quiet: int | None = None) -> list[Diary]:
    """Write n diaries with (name, city) pairs that training never saw; `quiet` as in `corpus.diary`."""
    rng = random.Random(seed)
    return [corpus.diary(rng, held_out=True, quiet=quiet) for _ in range(n)]


def tokens_back(diary: Diary) -> int:
    """Return how many tokens back name and city last stand where they are due: the larger number."""
    last = {word: at for at, word in enumerate(diary.prompt.split())}
    return max(last["by"] + 1 - last[diary.name], last["by"] + 3 - last[diary.city])


@torch.inference_mode()
def next_words(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int = 3) -> list[tuple[str, float]]:
    """Return the n likeliest words after a prompt with their probabilities, the likeliest first."""
    logits = model(torch.tensor([tokenizer.encode(prompt)]), last_only=True)[0, -1]  # (V,)
    p, ids = logits.softmax(-1).topk(n)
    return list(zip(tokenizer.words(ids.tolist()), p.tolist(), strict=True))


@torch.inference_mode()
def greedy_words(model: Transformer, tokenizer: Tokenizer, prompt: str, n: int, cache: Cache) -> list[str]:
    """Return the n words that a model generates after a prompt, greedily, through an empty cache.

    The prompt's last token is a pass of its own: what a cache has dropped or rounded shows only later.
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


def share_signed_right(
    model: Transformer,
    tokenizer: Tokenizer,
    diaries: Sequence[Diary],
    make_cache: Callable[[ModelConfig], Cache] = GrowingCache,
) -> float:
    """Return the share of diaries, 0 to 1, that the model signs right; `CHANCE` is what guessing gets.

    Args:
        make_cache: makes an empty cache for each diary: a `WindowCache` shows what the old rows are for.
    """
    right = 0
    for diary in diaries:  # up to "Signed by"
        words = greedy_words(model, tokenizer, diary.prompt, 3, make_cache(model.config))
        right += words == [diary.name, "from", diary.city]
    return right / len(diaries)


@torch.inference_mode()
def each_next_word(
    model: Transformer,
    tokenizer: Tokenizer,
    diaries: Sequence[Diary],
    make_cache: Callable[[ModelConfig], Cache] = GrowingCache,
) -> tuple[Tensor, Tensor]:
    """Read diaries, 16 tokens a pass; return what each of their N next words got.

    Returns:
        The loss of the word, in nats, and the probability of `<eos>` in its place, (N,) each.
    """
    losses, p_eos = [], []
    for diary in diaries:
        ids, cache = torch.tensor([tokenizer.encode(diary.text)]), make_cache(model.config)
        logits = torch.cat([model(new, cache) for new in ids[:, :-1].split(16, dim=1)], dim=1)[0]  # (T, V)
        losses.append(F.cross_entropy(logits, ids[0, 1:], reduction="none"))
        p_eos.append(logits.softmax(-1)[:, tokenizer.eos_id])
    return torch.cat(losses), torch.cat(p_eos)
