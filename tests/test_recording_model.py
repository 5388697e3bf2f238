"""Traces of a real model's runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.model.generate import generate
from helpers.recording import model as recording
from helpers.recording.diary import load_diary, load_name_head
from helpers.recording.model import record_model
from helpers.sampling import Sampling
from helpers.stepper import Stepper
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace, compare
from tests import oracle
from tests.tiny import tiny
from tools.diary import record_diary, record_name_head

torch.set_num_threads(1)

PROMPT = [3, 1, 4, 1, 5]
MODEL = tiny(dtype=torch.float64).requires_grad_(False)
WORDS = "<eos> the weather today is so nice warm and . my soup was delicious in Oslo Mia swam lake".split()


@pytest.mark.parametrize(
    ("n_kv_heads", "dtype"), [(1, torch.float64), (3, torch.float32), (6, torch.bfloat16)]
)
def test_a_trace_is_what_generate_does(n_kv_heads: int, dtype: torch.dtype) -> None:
    model = tiny(dtype=dtype, n_kv_heads=n_kv_heads)
    trace = record_model(model, PROMPT, max_new_tokens=7)
    oracle.check(trace)
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()
    assert [run.cache for run in trace.runs] == ["growing", "none"]
    assert [token.id for token in trace.sequences[0].tokens[5:]] == list(generate(model, PROMPT, 7))
    assert [token.position for token in trace.sequences[0].tokens] == list(range(12))
    assert trace.recorded == [(layer, head) for layer in range(3) for head in range(6)]
    assert trace.model.scale == 8**-0.5
    assert trace.model.element_bytes == dtype.itemsize
    # logits around 6, rounded to bfloat16, change by 0.05 when sums run in another order
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
    assert compare(trace.only_run("cached"), trace.only_run("uncached"), tolerance) == "equal"


def test_chosen_layers_and_heads_have_the_same_weights() -> None:
    recorded = [(2, 5), (0, 3)]
    everything = record_model(tiny(), PROMPT, max_new_tokens=4)
    some = record_model(tiny(), PROMPT, max_new_tokens=4, recorded=recorded, training=False, uncached=False)
    assert some.recorded == recorded
    assert set(some.weights) == {
        f"0.{token}.{layer}.{head}" for token in range(8) for layer, head in recorded
    }
    assert all(np.array_equal(row, everything.weights[key]) for key, row in some.weights.items())
    assert [[event.phase for event in run.passes] for run in some.runs] == [["prefill", *["decode"] * 3]]
    assert some.values is None
    assert all(event.parts[0].contexts == {} for event in some.runs[0].passes)


def test_a_trace_has_words_and_five_candidates() -> None:
    tokenizer = Tokenizer.from_words(WORDS)
    trace = record_model(tiny(), "today the soup is so", tokenizer, max_new_tokens=3, name="tiny")
    texts = [token.text for token in trace.sequences[0].tokens]
    assert texts[:5] == ["today", "the", "soup", "is", "so"]
    assert set(texts) <= set(WORDS)
    out = trace.run("cached").passes[1].parts[0].out[0]
    assert len(out.top) == 5
    assert [logit for _, logit, _ in out.top] == sorted((logit for _, logit, _ in out.top), reverse=True)
    assert out.top[0][0] == texts[5]
    assert trace.model.name == "tiny"


def test_an_unlikely_chosen_token_is_the_last_candidate() -> None:
    selection = replace(recording.token_selection(tiny(), None), n_top=2)
    assert [text for text, _, _ in selection.top_candidates(np.array([1.0, 3.0, 2.0]), 0)] == ["<1>", "<0>"]


def test_sampled_tokens_are_candidates_and_are_replayed() -> None:
    trace = record_model(tiny(), PROMPT, max_new_tokens=10, sampling=Sampling(3.0, seed=4))
    output_ids = [token.id for token in trace.sequences[0].tokens[5:]]
    assert output_ids == list(generate(tiny(), PROMPT, 10, sampling=Sampling(3.0, seed=4)))
    assert output_ids != list(generate(tiny(), PROMPT, 10))
    assert trace.run("uncached").passes[1].parts[0].out[0].how == "sampled, temperature 3"
    oracle.check(trace)


def test_a_run_stops_at_eos_and_when_full() -> None:
    model = tiny()
    output_ids = list(generate(model, PROMPT, 8))
    with_eos = record_model(tiny(eos_ids=(output_ids[3],)), PROMPT, max_new_tokens=8)
    n_new = output_ids.index(output_ids[3]) + 1
    assert [token.id for token in with_eos.sequences[0].tokens[5:]] == output_ids[:n_new]
    full = record_model(tiny(max_seq_len=7), PROMPT, max_new_tokens=8)
    assert [token.id for token in full.sequences[0].tokens[5:]] == output_ids[:3]
    assert [len(run.passes) for run in full.runs] == [4, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prompt": "Today"}, "the prompt is 'Today'; expected ids"),
        ({"prompt": "Today", "tokenizer": Tokenizer.from_words(WORDS)}, "'Today' .nearest: today"),
        ({"prompt": [[1, 2], [3, 4]]}, "got 2 sequences; expected one"),
        ({"prompt": [1] * 41}, "41 new tokens after 0 make 41"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"recorded": [(3, 0)]}, r"recorded has \(3, 0\); expected each pair once, layers 0 to 2"),
        ({"recorded": [(0, 1), (0, 1)]}, "expected each pair once"),
    ],
)
def test_invalid_arguments_raise(changed: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"prompt": PROMPT, "max_new_tokens": 2} | changed
    with pytest.raises(ValueError, match=message):
        record_model(tiny(), **settings)


def test_recording_does_not_change_the_model() -> None:
    model = tiny()
    before = model(torch.tensor([PROMPT])).detach()
    trace = record_model(model, PROMPT)
    assert (trace.model.name, len(trace.sequences[0].tokens)) == ("model", 5 + 8)
    assert torch.equal(model(torch.tensor([PROMPT])).detach(), before)
    assert not any(module._forward_hooks for module in model.modules())
    assert Stepper(trace).data == trace.to_json()


def test_the_stored_diary_is_the_shipped_models_run() -> None:
    stored, today = load_diary(), record_diary()
    assert stored.sequences == today.sequences
    assert oracle.work(stored) == oracle.work(today)
    for name in ("cached", "uncached"):
        assert compare(stored.only_run(name), today.only_run(name)) == "equal"
    head, head_today = load_name_head(), record_name_head()
    assert (head.vocabulary, [*head.weights]) == (head_today.vocabulary, [*head_today.weights])
    for row, row_today in zip(head.weights.values(), head_today.weights.values(), strict=True):
        assert row == pytest.approx(row_today, abs=2e-3)


def test_a_token_without_a_text_shows_its_id() -> None:
    words = Tokenizer.from_words(["<eos>", "b"])
    assert [recording.display_text(t, i) for t, i in ((words, 1), (words, 99), (None, 1))] == [
        "b",
        "<99>",
        "<1>",
    ]
