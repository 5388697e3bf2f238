"""One prompt, run in several ways: alone, beside others, in chunks."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from helpers.measure.timing import Task
from helpers.model.cache import GrowingCache, RaggedCache
from helpers.model.generate import run
from helpers.model.one_shape import in_one_shape
from helpers.model.transformer import Transformer
from helpers.recording.clock import fastest
from helpers.recording.model import record_model
from helpers.tables import Table
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace

COUNTED = Path(__file__).parent / "same_prompt.json"


@dataclass(frozen=True)
class Reply:
    """Words that a model said, always the likeliest.

    Attributes:
        tokens: their ids, n of them.
        logits: what each was chosen from, (n, V), in float32.
    """

    tokens: list[int]
    logits: Tensor


def cache_for(model: Transformer, prompts: Sequence[Sequence[int]], n: int) -> RaggedCache:
    """Return an empty cache with room for these prompts and replies of n tokens."""
    most = max(map(len, prompts)) + n
    return RaggedCache(model.config, len(prompts), most, dtype=model.embed_tokens.weight.dtype)


def answer(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    n: int,
    cache: RaggedCache | None = None,
    said: Sequence[int] = (),
) -> list[Reply]:
    """Answer prompts of any lengths in one batch, n tokens each; `<eos>` ends none.

    Args:
        cache: rows of their beginnings; None has none.
        said: what the first is made to say, so that its logits can be compared behind the same words.
    """
    cache = cache or cache_for(model, prompts, n)
    new = [prompt[length:] for prompt, length in zip(prompts, cache.lengths, strict=True)]
    T = max(map(len, new))
    cache.expect([*map(len, new)])
    ids, rows = torch.tensor([[0] * (T - len(part)) + [*part] for part in new]), []
    for at in range(n):
        rows.append(run(model, ids, cache).float())  # (B, V)
        ids = rows[-1].argmax(-1, keepdim=True)
        ids[0] = said[at] if said else ids[0]
    logits = torch.stack(rows, dim=1)  # (B, n, V)
    return [Reply(one.argmax(-1).tolist(), one) for one in logits]


def in_batches(model: Transformer, prompts: Sequence[Sequence[int]], n: int, batch: int) -> list[Reply]:
    """Answer prompts, so many at a time, in their order."""
    return [
        reply for i in range(0, len(prompts), batch) for reply in answer(model, prompts[i : i + batch], n)
    ]


def in_three_ways(
    model: Transformer, prompt: Sequence[int], others: Sequence[Sequence[int]], n: int
) -> dict[str, Reply]:
    """Answer a prompt alone, beside others and in chunks of 4; each way is fed what was said alone."""
    [alone], chunked = answer(model, [prompt], n), cache_for(model, [prompt], n)
    for i in range(0, len(prompt) - 4, 4):
        run(model, torch.tensor([prompt[i : i + 4]]), chunked)
    return {
        "alone": alone,
        "beside seven others": answer(model, [prompt, *others], n, said=alone.tokens)[0],
        "in chunks of 4": answer(model, [prompt], n, chunked, alone.tokens)[0],
    }


def off_by_way(models: Mapping[str, Transformer], prompts: Sequence[Sequence[int]], n: int) -> Table:
    """Count for each way the logits that differ from those alone, and say by how much at most.

    Args:
        models: by what they compute in, such as "float32".
        prompts: the one that is answered, and those beside it.
    """
    runs = [in_three_ways(model, prompts[0], prompts[1:], n) for model in models.values()]
    ways, total = [*runs[0]][1:], runs[0]["alone"].logits.numel()
    off = [[(run[way].logits - run["alone"].logits).abs() for run in runs] for way in ways]
    lines = [[x for d in line for x in (int((d > 0).sum()), f"{float(d.max()):.1g}")] for line in off]
    heads = [head for name in models for head in (f"{name}: differ, of {total:,}", "largest")]
    return Table(lines, ways, heads, corner="against alone")


def first_other(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Return the first place where two replies differ, from 0; None if they say the same."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def marked(tokenizer: Tokenizer, replies: Mapping[str, Reply]) -> list[str]:
    """Return two replies by name as lines of text around their first other word, which stands in brackets."""
    other, lines = first_other(*(reply.tokens for reply in replies.values())), []
    for name, reply in replies.items():
        words = tokenizer.words(reply.tokens)
        if other is not None:
            words = [
                "…",
                *words[max(other - 1, 0) : other],
                f"[{words[other]}]",
                *words[other + 1 : other + 6],
            ]
        lines += [f"{name}:", f"  {' '.join(words)}"]
    return lines


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
        margin, difference: at each first other word, the top-2 margin and the largest difference.
    """

    texts: int
    words: int
    ties: int
    margin: list[float]
    difference: list[float]


def changes(before: Sequence[Reply], after: Sequence[Reply]) -> Changes:
    """Compare replies up to the first word that is another: behind it they answer different texts."""
    words, ties, margin, difference = 0, 0, list[float](), list[float]()
    for a, b in zip(before, after, strict=True):
        n = first_other(a.tokens, b.tokens)
        same = len(a.tokens) if n is None else n + 1
        words, ties = words + same, ties + int((top_2(a.logits[:same]) == 0).sum())
        if n is not None:
            margin.append(float(top_2(a.logits[n])))
            difference.append(float((a.logits[n] - b.logits[n]).abs().max()))
    return Changes(len(margin), words, ties, margin, difference)


def counted() -> dict[str, dict[str, float]]:
    """Return how many of 1,000 diaries changed beside seven others; `.ci/record_same_prompt.py` counted."""
    found: dict[str, dict[str, float]] = json.loads(COUNTED.read_text(encoding="utf-8"))
    return found


def price(model: Transformer) -> dict[str, float]:
    """Return the milliseconds of a prompt of 128 tokens, and of a step behind 64, alone and eight at once."""

    def task(batch: int, behind: int, T: int) -> Task:
        cache = cache_for(model, [[1] * (behind + T)] * batch, 1)
        if behind:
            run(model, torch.ones(batch, behind, dtype=torch.int64), cache)

        def again() -> None:
            cache.truncate(behind)
            run(model, torch.ones(batch, T, dtype=torch.int64), cache)

        return again

    tasks = {
        "a prompt of 128 tokens": (1, 0, 128),
        "a step, alone": (1, 64, 1),
        "a step, eight at once": (8, 64, 1),
    }
    return fastest({name: task(*sizes) for name, sizes in tasks.items()}, turns=5)


def nearly_level(tokenizer: Tokenizer, a: Reply, b: Reply) -> tuple[list[str], list[list[float]]]:
    """Return the words at the first place where two replies differ, and the logit of each in both.

    Where no word differs: the two likeliest where the first reply's top-2 margin is smallest.
    """
    n = first_other(a.tokens, b.tokens)
    at = int(top_2(a.logits).argmin()) if n is None else n
    ids = a.logits[at].topk(2).indices.tolist() if n is None else [a.tokens[at], b.tokens[at]]
    return tokenizer.words(ids), [[float(one.logits[at, i]) for i in ids] for one in (a, b)]


class Overwritten(GrowingCache):
    """A cache with a bug: behind the prompt, the fourth token has another value in the third layer."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Hand out all rows, one of them wrong once the prompt has run; see `KVCache.append`."""
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
    told = "none" if n is None else f"{words[0][n]} → {words[1][n]}"
    return told, largest, eps * largest, difference
