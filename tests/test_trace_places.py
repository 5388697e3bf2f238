"""Suspect against plain: margins, differences, the line of rounding; traces, and what servers return.

logprobs.json has a small reply of each, in these forms; the numbers are made, or those of vLLM's test:

- "vLLM, chat", which llama.cpp's /v1/chat/completions has, too: ChatCompletionLogProbs in
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
from helpers.trace import Said, Trace, compare, logprobs, places, rounding
from tests.machine import ROOT
from tests.pictures import misplaced


def test_what_servers_return() -> None:
    replies = json.loads((ROOT / "tests/logprobs.json").read_text(encoding="utf-8"))
    chat, completion, native = map(logprobs, replies.values())
    assert chat == [Said("a", {"a": -0.1, "b": -0.2}), Said("b", {"b": -0.5, "a": -2.5})]
    assert completion == [Said("a", {"a": -0.1, "b": -0.2}), Said("b", {})]
    assert [(one.number, one.words) for one in places(completion, chat)] == [(0, ("a", "a"))]
    found = places(native, chat)
    assert [(p.margin, p.difference) for p in found] == [
        pytest.approx((0.01, 0.2)),
        pytest.approx((1.5, 0.5)),
    ]
    for nothing in ({"choices": [{"text": "ab"}]}, {"content": "ab", "completion_probabilities": []}):
        with pytest.raises(
            ValueError, match=r"no logprobs in a reply with \[.*ask for top_logprobs, or n_probs"
        ):
            logprobs(nothing)


LOGITS = st.lists(st.floats(-30, 30), min_size=3, max_size=3)


@given(LOGITS, LOGITS)
def test_another_word_needs_twice_the_difference(a: list[float], b: list[float]) -> None:
    one, other = (Said("x", dict(zip("xyz", logits, strict=True))) for logits in (a, b))
    [place] = places([one], [other])
    assert place.margin == sorted(a)[2] - sorted(a)[1]
    assert place.difference == np.abs(np.subtract(a, b)).max()
    assert place.margin <= 2 * place.difference or place.words[0] == place.words[1]


def test_they_are_compared_as_long_as_they_read_the_same() -> None:
    a = [Said(word, {"x": 2.0, "y": 1.0}) for word in "xxx"]
    b = [Said(word, {"x": 2.5, "y": 3.0}) for word in "xyx"]
    assert [(p.number, p.words, p.difference) for p in places(a, b)] == [
        (0, ("x", "y"), 2),
        (1, ("x", "y"), 2),
    ]


def shipped_in(dtype: torch.dtype) -> Any:
    return AutoModelForCausalLM.from_pretrained(shipped.FOLDER).to(dtype)


def run(model: Any, like: Trace | None = None) -> Trace:
    tokenizer, text = shipped.load()[1], "This is the diary of Chen from Oslo . The afternoon in Oslo was"
    reply = [token.id or 0 for token in like.sequences[0].tokens[like.sequences[0].prompt :]] if like else ()
    return watch(model, tokenizer, text, max_new_tokens=12, reply=reply)


def said(trace: Trace) -> list[Said]:
    """The words of a run, and the logits of their candidates."""
    outs = [event.parts[0].out[0] for event in trace.runs[0].passes]
    texts = [token.text for token in trace.sequences[0].tokens]
    return [Said(texts[out.chosen], {word: logit for word, logit, _ in out.top}) for out in outs]


def test_rounding_stays_below_the_line_and_a_bug_does_not() -> None:
    """Three formats of one model are no suspects; a twentieth off one row of V is."""
    plain, narrow = shipped_in(torch.float32), shipped_in(torch.bfloat16)
    wrong = copy.deepcopy(plain)
    wrong.model.layers[2].self_attn.v_proj.weight.data[3] *= 0.95
    trace = run(plain)
    others = {
        "float64": run(shipped_in(torch.float64), trace),
        "bfloat16": run(narrow, trace),
        "wrong": run(wrong, trace),
    }
    found = {name: places(said(trace), said(other)) for name, other in others.items()}
    largest = max(abs(logit) for one in said(trace) for logit in one.top.values())
    lines = {name: rounding(largest, 4, name if name == "bfloat16" else "float32") for name in others}
    most = {name: max(p.difference for p in found[name]) / line for name, line in lines.items()}
    assert all(len(one) == 12 for one in found.values())
    assert most["float64"] < 0.5
    assert most["bfloat16"] < 0.5
    assert most["wrong"] > 10
    assert compare(trace, others["float64"]) == "equal"
    assert compare(trace, others["wrong"]).startswith("cached, pass 0 (prefill): layer 3, head 0, position ")
    picture = plots.suspect(found["wrong"], lines["wrong"])
    above = sum(p.difference > lines["wrong"] for p in found["wrong"])
    assert f"above it lie {above}" in picture.alt
    assert misplaced(picture.figure) == misplaced(picture.narrow) == []


def test_the_line_is_that_of_notebook_21_for_its_four_layers() -> None:
    assert rounding(17.75, 4, "bfloat16") == 16 * 17.75 * 2**-7
    assert rounding(-20, 32) == pytest.approx(8 * math.sqrt(32) * 20 * 2**-23)
