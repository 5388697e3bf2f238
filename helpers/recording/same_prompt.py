"""One prompt, run in several ways: alone, beside others, in chunks, with hidden keys."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.model.attention import Core
from helpers.model.cache import GrowingCache, RaggedCache
from helpers.model.generate import run
from helpers.model.one_shape import in_one_shape
from helpers.model.transformer import Transformer
from helpers.recording.clock import fastest
from helpers.recording.model import record_model
from helpers.tables import Table
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace

RECORDED = Path(__file__).parent / "same_prompt.json"
AT_ONCE = 8  # keys on which the processor of the recording works at once
TEXTS = (  # Carla's six words, Bram's ten, and six more
    "Carla writes from Toronto . Carla",
    "Bram lives in Kyiv . The afternoon in Kyiv was",
    "Emma writes from Cairo",
    "This is the diary of Chen from Oslo",
    "It was",
    "Leo lives in Rome",
    "Layla writes from Lisbon . Layla swam in",
    "This is the diary of Aisha from Beirut",
)


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


def in_ways(model: Transformer, prompts: Sequence[Sequence[int]], n: int) -> dict[str, Reply]:
    """Answer the first of some prompts alone, beside others and in chunks; each is fed what alone said."""
    prompt = prompts[0]
    [alone], chunked = answer(model, [prompt], n), cache_for(model, [prompt], n)
    for i in range(0, len(prompt) - 4, 4):
        run(model, torch.tensor([prompt[i : i + 4]]), chunked)
    return {
        "alone": alone,
        "beside seven others": answer(model, prompts, n, said=alone.tokens)[0],
        "beside seven copies of herself": answer(model, [prompt] * 8, n, said=alone.tokens)[0],
        "beside Bram alone": answer(model, prompts[:2], n, said=alone.tokens)[0],
        "in chunks of 4": answer(model, [prompt], n, chunked, alone.tokens)[0],
    }


def differ(a: Reply, b: Reply) -> int:
    """Return how many logits of two replies differ."""
    return int((a.logits != b.logits).sum())


def off_by_way(
    models: Sequence[Transformer], prompts: Sequence[Sequence[int]], n: int
) -> dict[str, list[float]]:
    """Count for each way and model the logits that differ from those alone, and say by how much at most.

    Args:
        models: in float32 and in bfloat16.
        prompts: the one that is answered, and those beside it; the second is Bram's.
    """
    runs, found = [in_ways(model, prompts, n) for model in models], {}
    for way in [*runs[0]][1:]:
        both = [(run[way], run["alone"]) for run in runs]
        found[way] = [x for a, b in both for x in (differ(a, b), float((a.logits - b.logits).abs().max()))]
    return found


def off_table(off: Mapping[str, Sequence[float]]) -> Table:
    """Return what `off_by_way` found as a table."""
    lines = [[x if isinstance(x, int) else f"{x:.3g}" for x in line] for line in off.values()]
    heads = [
        head for name in ("float32", "bfloat16") for head in (f"{name}: logits that differ", "at most by")
    ]
    return Table(lines, [*off], heads, corner="against alone")


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


def first_other(a: Sequence[Any], b: Sequence[Any]) -> int | None:
    """Return the first place where two replies differ, from 0; None if they say the same."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def marked(replies: Mapping[str, Sequence[str]]) -> list[str]:
    """Return two replies by name as lines of text around their first other word, which stands in brackets."""
    other, lines = first_other(*replies.values()), []
    for name, words in replies.items():
        if other is not None:
            before, after = words[max(other - 1, 0) : other], words[other + 1 : other + 6]
            words = ["…", *before, f"[{words[other]}]", *after]
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


def recorded() -> dict[str, Any]:
    """Return what `.ci/record_same_prompt.py` recorded: Carla, three pairs, 1,000 diaries."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def price(model: Transformer) -> float:
    """Return the milliseconds of a step for eight requests, behind 64 tokens each."""
    cache = cache_for(model, [[1] * 65] * 8, 1)
    run(model, torch.ones(8, 64, dtype=torch.int64), cache)

    def step() -> None:
        cache.truncate(64)
        run(model, torch.ones(8, 1, dtype=torch.int64), cache)

    return fastest({"step": step}, turns=5)["step"]


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
    message = "none" if n is None else f"{words[0][n]} → {words[1][n]}"
    return message, largest, eps * largest, difference
