"""Compare the replies of two runs word by word, by the logits of the candidates for each word.

For each word, two values are compared: the margin in the first run, and the largest difference between the
two runs' logits. The margin is the logit of the most probable candidate minus that of the second. The second
run can have another most probable candidate only if the margin is at most twice the largest difference.

Differences that rounding causes are proportional to the magnitude of the logits. They also grow with the
square root of the number of layers, because the rounding errors of the layers are independent. A much larger
difference has another cause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The distance from 1 to the next larger value, by dtype.
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# The limit for one layer, in units of EPS times the largest logit; for four layers, it is 16. Correct runs
# (eager and sdpa, float32 and bfloat16, transformers 5.23 on a CPU) differed by at most an eighth of the
# limit in trained models, and by half of it in models with random weights.
EPS_PER_LAYER = 8
UNKNOWN_LOGPROB = -9999.0  # vLLM returns this for a logprob that it does not know


@dataclass(frozen=True)
class WordLogits:
    """A word of a reply, and the candidates for it, with their logits or logprobs.

    `top` has only the candidates whose logits or logprobs are known.
    """

    word: str
    top: Mapping[str, float]


@dataclass(frozen=True)
class WordComparison:
    """The comparison of two runs at one word of the reply. All earlier words are the same in both runs.

    Attributes:
        index: index of the word in the reply, from 0.
        words: the most probable candidate in the first run, and that in the second run.
        margin: in the first run, the logit of the most probable candidate minus that of the second.
        difference: the largest difference between the two runs' logits, over the candidates that both runs
            have.
    """

    index: int
    words: tuple[str, str]
    margin: float
    difference: float


def compare_words(a: Sequence[WordLogits], b: Sequence[WordLogits]) -> list[WordComparison]:
    """Compare two replies word by word, up to and including the first word that differs.

    Words for which the replies have fewer than two candidates in common are left out. Either both replies
    must have logits, or both must have logprobs.

    Args:
        a: the reply of the reference run.
        b: the reply of the run to check.
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

    A server returns logprobs only if the request asks for them. On /v1/chat/completions, both vLLM and
    llama.cpp need "logprobs": true and "top_logprobs": 5. On /v1/completions, vLLM needs "logprobs": 5. On
    /completion, llama.cpp needs "n_probs": 5.

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
    """Return the largest difference between two runs' logits that rounding can explain.

    Args:
        largest_logit: the largest absolute value of a logit. If the server returns logprobs instead of
            logits, use 20 to 30 as an estimate.
        n_layers: number of layers in the model.
        dtype: the dtype of the run with the lower precision, a key of EPS.
    """
    return EPS_PER_LAYER * math.sqrt(n_layers) * EPS[dtype] * abs(largest_logit)
