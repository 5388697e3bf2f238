"""Compare two runs word by word: the margin of the most probable word, and the difference between the logits.

The margin is the lead of the most probable word over the second. In the other run, another word can be the
most probable only if the margin is at most twice the largest difference of a logit. A difference caused by
rounding grows with the size of the logits and, because the rounding errors are independent, with the square
root of the number of layers. A much larger difference has another cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}  # spacing at 1
# For one layer; 16 for four layers. Correct runs (eager and sdpa, float32 and bfloat16, transformers 5.23 on
# a CPU) differed by at most an eighth of the limit in trained models, by half of it in random ones.
EPS_PER_LAYER = 8
UNKNOWN_LOGPROB = -9999.0  # vLLM returns this for a logprob that it does not know


@dataclass(frozen=True)
class WordLogits:
    """A word of a reply, and the logits or logprobs of those candidates for it that are known."""

    word: str
    top: Mapping[str, float]


@dataclass(frozen=True)
class WordComparison:
    """The comparison of one word of a reply. All words before it are the same in both runs.

    Attributes:
        index: index of the word in the reply, from 0.
        words: the most probable word in each run.
        margin: in the first run, the lead of the most probable word over the second.
        difference: the largest difference between the runs' logits, over the candidates that both runs have.
    """

    index: int
    words: tuple[str, str]
    margin: float
    difference: float


def compare_words(a: Sequence[WordLogits], b: Sequence[WordLogits]) -> list[WordComparison]:
    """Compare two replies word by word, up to and including the first word that differs.

    Words for which the replies have fewer than two candidates in common are left out.

    Args:
        a: the reply of the reference run.
        b: the reply of the run to check. Both replies must have logits, or both logprobs.
    """
    comparisons = []
    for n, (word_a, word_b) in enumerate(zip(a, b, strict=False)):
        common = word_a.top.keys() & word_b.top.keys()
        if len(common) > 1:
            second, first = sorted(word_a.top.values())[-2:]
            words = max(word_a.top, key=word_a.top.__getitem__), max(word_b.top, key=word_b.top.__getitem__)
            difference = max(abs(word_a.top[word] - word_b.top[word]) for word in common)
            comparisons.append(WordComparison(n, words, first - second, difference))
        if word_a.word != word_b.word:
            break
    return comparisons


def read_logprobs(reply: Mapping[str, Any]) -> list[WordLogits]:
    """Return the words of a server's reply, each with the logprobs of its candidates.

    vLLM and llama.cpp return logprobs on /v1/chat/completions for "logprobs": true, "top_logprobs": 5; vLLM
    on /v1/completions for "logprobs": 5; llama.cpp on /completion for "n_probs": 5.

    Args:
        reply: the server's reply, parsed from JSON.

    Raises:
        ValueError: the reply has no logprobs.

    Source: vllm/entrypoints/openai/chat_completion/protocol.py and
    tests/entrypoints/openai/completion/test_completion_logprobs.py of github.com/vllm-project/vllm;
    tools/server/README.md of github.com/ggml-org/llama.cpp; both as of November 2026.
    """
    logprobs = (reply.get("choices") or [{}])[0].get("logprobs") or {}
    if "tokens" in logprobs:
        tops = [top or {} for top in logprobs["top_logprobs"] or []]
        return [WordLogits(word, top) for word, top in zip(logprobs["tokens"], tops, strict=False)]
    tokens = logprobs.get("content") or reply.get("completion_probabilities") or []
    if not any(token.get("top_logprobs") for token in tokens):
        raise ValueError(
            f"no logprobs in a reply with {sorted(reply)}; expected some: ask for top_logprobs, or n_probs"
        )
    return [
        WordLogits(
            token["token"],
            {c["token"]: c["logprob"] for c in token["top_logprobs"] if c["logprob"] > UNKNOWN_LOGPROB},
        )
        for token in tokens
    ]


def rounding_limit(largest_logit: float, n_layers: int, dtype: str = "float32") -> float:
    """Return the largest difference of a logit that rounding can explain.

    Args:
        largest_logit: the largest absolute logit. If a server returns logprobs, estimate 20 to 30.
        n_layers: number of layers of the model.
        dtype: the dtype of the run with the lower precision, a key of EPS.
    """
    return EPS_PER_LAYER * math.sqrt(n_layers) * EPS[dtype] * abs(largest_logit)
