"""One prompt, run in several ways: alone, beside others, in chunks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from helpers.model.cache import RaggedCache
from helpers.model.generate import run
from helpers.model.transformer import Transformer
from helpers.recording.clock import fastest
from helpers.tables import Table

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
    forced: Sequence[int] = (),
) -> list[Reply]:
    """Answer prompts of any lengths in one batch, n tokens each; `<eos>` ends none.

    Args:
        cache: rows of their beginnings; None has none.
        forced: what the first is made to say, so that its logits can be compared behind the same words.
    """
    cache = cache or cache_for(model, prompts, n)
    new = [prompt[length:] for prompt, length in zip(prompts, cache.lengths, strict=True)]
    T = max(map(len, new))
    cache.expect([*map(len, new)])
    ids, rows = torch.tensor([[0] * (T - len(part)) + [*part] for part in new]), []
    for at in range(n):
        rows.append(run(model, ids, cache).float())  # (B, V)
        ids = rows[-1].argmax(-1, keepdim=True)
        ids[0] = forced[at] if forced else ids[0]
    logits = torch.stack(rows, dim=1)  # (B, n, V)
    return [Reply(one.argmax(-1).tolist(), one) for one in logits]


def in_ways(model: Transformer, prompts: Sequence[Sequence[int]], n: int) -> dict[str, Reply]:
    """Answer the first of some prompts alone, beside others and in chunks; each is fed what alone said."""
    prompt = prompts[0]
    [alone], chunked = answer(model, [prompt], n), cache_for(model, [prompt], n)
    for i in range(0, len(prompt) - 4, 4):
        run(model, torch.tensor([prompt[i : i + 4]]), chunked)
    return {
        "alone": alone,
        "beside seven others": answer(model, prompts, n, forced=alone.tokens)[0],
        "beside seven copies of herself": answer(model, [prompt] * 8, n, forced=alone.tokens)[0],
        "beside Bram alone": answer(model, prompts[:2], n, forced=alone.tokens)[0],
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
