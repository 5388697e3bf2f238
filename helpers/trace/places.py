"""Two runs of the same words, place by place: how far the likeliest word leads, and how far logits differ.

Another word can be the likeliest only where that lead, the margin, is at most twice the largest difference of
a logit. Rounding makes a difference that grows with the logits' size and, as its errors are independent, with
the square root of the number of layers. What lies far above that has another cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}  # a mark, at 1
# Of one layer; 16 of four. Two right runs (eager and sdpa, float32 and bfloat16, transformers 5.23 on a CPU)
# were an eighth of the line apart at most in trained models, half of it in random ones.
MARKS = 8
UNKNOWN = -9999.0  # vLLM's, for a logprob that it does not know


@dataclass(frozen=True)
class Said:
    """A word of a reply, and the logit or logprob of each candidate that is known."""

    word: str
    top: Mapping[str, float]


@dataclass(frozen=True)
class Place:
    """One place of a reply, where both runs have read the same words.

    Attributes:
        number: of the word in the reply, from 0.
        words: the likeliest of each run.
        margin: by how much the first run's likeliest word leads its second.
        difference: the largest between the runs, of a word that both name.
    """

    number: int
    words: tuple[str, str]
    margin: float
    difference: float


def places(a: Sequence[Said], b: Sequence[Said]) -> list[Place]:
    """Compare two replies, up to the first word that differs; where two candidates are known to both.

    Args:
        a: of the run that is trusted.
        b: of the suspect, logits beside logits or logprobs beside logprobs.
    """
    found = []
    for number, (one, other) in enumerate(zip(a, b, strict=False)):
        both = one.top.keys() & other.top.keys()
        if len(both) > 1:
            second, first = sorted(one.top.values())[-2:]
            words = max(one.top, key=one.top.__getitem__), max(other.top, key=other.top.__getitem__)
            off = max(abs(one.top[word] - other.top[word]) for word in both)
            found.append(Place(number, words, first - second, off))
        if one.word != other.word:
            break
    return found


def logprobs(reply: Mapping[str, Any]) -> list[Said]:
    """Return the words of a server's reply, parsed from JSON, and the logprobs of their candidates.

    vLLM and llama.cpp give them on /v1/chat/completions for "logprobs": true, "top_logprobs": 5; vLLM on
    /v1/completions for "logprobs": 5; llama.cpp on /completion for "n_probs": 5.

    Raises:
        ValueError: there are none.

    Source: vllm/entrypoints/openai/chat_completion/protocol.py and tests/entrypoints/openai/completion/
    test_completion_logprobs.py of github.com/vllm-project/vllm; tools/server/README.md of
    github.com/ggml-org/llama.cpp; both as of November 2026.
    """
    beside = (reply.get("choices") or [{}])[0].get("logprobs") or {}
    if "tokens" in beside:
        tops = [top or {} for top in beside["top_logprobs"] or []]
        return [Said(word, top) for word, top in zip(beside["tokens"], tops, strict=False)]
    listed = beside.get("content") or reply.get("completion_probabilities") or []
    if not any(one.get("top_logprobs") for one in listed):
        raise ValueError(
            f"no logprobs in a reply with {sorted(reply)}; expected some: ask for top_logprobs, or n_probs"
        )
    return [
        Said(one["token"], {c["token"]: c["logprob"] for c in one["top_logprobs"] if c["logprob"] > UNKNOWN})
        for one in listed
    ]


def rounding(largest: float, n_layers: int, dtype: str = "float32") -> float:
    """Return the difference of a logit above which rounding cannot be the cause.

    Args:
        largest: the largest logit, by size; a guess of 20 to 30 where a server gives logprobs.
        n_layers: of the model.
        dtype: of the coarser of the two runs.
    """
    return MARKS * math.sqrt(n_layers) * EPS[dtype] * abs(largest)
