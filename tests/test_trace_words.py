"""Comparison of replies: margins, differences and the limit of rounding, of traces and of servers' replies.

logprobs.json has a small reply in each of these forms; the numbers are invented, or those of vLLM's test:

- "vLLM, chat", also the form of llama.cpp's /v1/chat/completions: ChatCompletionLogProbs in
  vllm/entrypoints/openai/chat_completion/protocol.py, github.com/vllm-project/vllm at 002032ee;
- "vLLM, completions": tests/entrypoints/openai/completion/test_completion_logprobs.py, there, at 9fb12f26;
- "llama.cpp": "Response format" of /completion in tools/server/README.md,
  github.com/ggml-org/llama.cpp at 00dc8057.
"""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from helpers import plots
from helpers.model import shipped
from helpers.recording.hf import watch
from helpers.trace import Trace, WordLogits, compare, compare_words, read_logprobs, rounding_limit
from tests.machine import ROOT
from tests.pictures import misplaced


def test_logprobs_of_servers_replies_are_read() -> None:
    replies = json.loads((ROOT / "tests/logprobs.json").read_text(encoding="utf-8"))
    chat, completion, native = map(read_logprobs, replies.values())
    assert chat == [WordLogits("a", {"a": -0.1, "b": -0.2}), WordLogits("b", {"b": -0.5, "a": -2.5})]
    assert completion == [WordLogits("a", {"a": -0.1, "b": -0.2}), WordLogits("b", {})]
    assert [(one.index, one.words) for one in compare_words(completion, chat)] == [(0, ("a", "a"))]
    found = compare_words(native, chat)
    assert [(p.margin, p.difference) for p in found] == [
        pytest.approx((0.01, 0.2)),
        pytest.approx((1.5, 0.5)),
    ]
    for reply in ({"choices": [{"text": "ab"}]}, {"content": "ab", "completion_probabilities": []}):
        with pytest.raises(
            ValueError, match=r"no logprobs in a reply with \[.*ask for top_logprobs, or n_probs"
        ):
            read_logprobs(reply)


LOGITS = st.lists(st.floats(-30, 30), min_size=3, max_size=3)


@given(LOGITS, LOGITS)
def test_another_word_needs_twice_the_difference(a: list[float], b: list[float]) -> None:
    word_a, word_b = (WordLogits("x", dict(zip("xyz", logits, strict=True))) for logits in (a, b))
    [result] = compare_words([word_a], [word_b])
    assert result.margin == sorted(a)[2] - sorted(a)[1]
    assert result.difference == np.abs(np.subtract(a, b)).max()
    assert result.margin <= 2 * result.difference or result.words[0] == result.words[1]


def test_replies_are_compared_up_to_the_first_difference() -> None:
    a = [WordLogits(word, {"x": 2.0, "y": 1.0}) for word in "xxx"]
    b = [WordLogits(word, {"x": 2.5, "y": 3.0}) for word in "xyx"]
    assert [(p.index, p.words, p.difference) for p in compare_words(a, b)] == [
        (0, ("x", "y"), 2),
        (1, ("x", "y"), 2),
    ]


def shipped_in(dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(shipped.FOLDER).to(dtype)


def run(model: Any, like: Trace | None = None) -> Trace:
    tokenizer, text = (
        shipped.load_shipped()[1],
        "This is the diary of Chen from Oslo . The afternoon in Oslo was",
    )
    reply = [token.id or 0 for token in like.sequences[0].tokens[like.sequences[0].prompt :]] if like else ()
    return watch(model, tokenizer, text, max_new_tokens=12, reply=reply)


def words_of(trace: Trace) -> list[WordLogits]:
    """Return the words of a run, with the logits of their candidates."""
    outs = [event.parts[0].out[0] for event in trace.runs[0].passes]
    texts = [token.text for token in trace.sequences[0].tokens]
    return [WordLogits(texts[out.chosen], {word: logit for word, logit, _ in out.top}) for out in outs]


def test_rounding_stays_below_the_limit_and_bugs_exceed_it() -> None:
    """Three dtypes of one model stay below it; a change of one row of V by a twentieth exceeds it."""
    plain, narrow = shipped_in(torch.float32), shipped_in(torch.bfloat16)
    wrong = copy.deepcopy(plain)
    wrong.model.layers[2].self_attn.v_proj.weight.data[3] *= 0.95
    trace = run(plain)
    others = {
        "float64": run(shipped_in(torch.float64), trace),
        "bfloat16": run(narrow, trace),
        "wrong": run(wrong, trace),
    }
    found = {name: compare_words(words_of(trace), words_of(other)) for name, other in others.items()}
    largest = max(abs(logit) for one in words_of(trace) for logit in one.top.values())
    lines = {name: rounding_limit(largest, 4, name if name == "bfloat16" else "float32") for name in others}
    most = {name: max(p.difference for p in found[name]) / line for name, line in lines.items()}
    assert all(len(one) == 12 for one in found.values())
    assert most["float64"] < 0.5
    assert most["bfloat16"] < 0.5
    assert most["wrong"] > 10
    assert compare(trace, others["float64"]) == "equal"
    assert compare(trace, others["wrong"]).startswith("cached, pass 0 (prefill): layer 3, head 0, position ")
    picture = plots.word_differences_of_pairs({"": (found["wrong"], lines["wrong"])})
    above = sum(p.difference > lines["wrong"] for p in found["wrong"])
    assert f"above it lie {above}" in picture.alt
    assert misplaced(picture.figure) == []


def test_the_rounding_limit_is_that_of_notebook_21() -> None:
    assert rounding_limit(17.75, 4, "bfloat16") == 16 * 17.75 * 2**-7
    assert rounding_limit(-20, 32) == pytest.approx(8 * math.sqrt(32) * 20 * 2**-23)
