"""The trace of a real run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.model.generate import generate
from helpers.recording import model as recording
from helpers.recording.diary import load_diary, load_lines
from helpers.recording.model import record_model
from helpers.sampling import Sampling
from helpers.stepper import Stepper
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace, compare
from tests import oracle
from tests.test_latent import tiny_latent
from tests.tiny import tiny
from tools.diary import record, record_lines

torch.set_num_threads(1)

PROMPT = [3, 1, 4, 1, 5]
EIGHT = [*PROMPT, 9, 2, 6]
MODEL = tiny(dtype=torch.float64).requires_grad_(False)
WORDS = "<eos> the weather today is so nice warm and . my soup was delicious in Oslo Mia swam lake".split()


@pytest.mark.parametrize(
    ("n_kv_heads", "dtype"), [(1, torch.float64), (3, torch.float32), (6, torch.bfloat16)]
)
def test_a_real_run(n_kv_heads: int, dtype: torch.dtype) -> None:
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
    # logits of 6 rounded to bfloat16 move by 0.05 when sums run in another order
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-4
    assert compare(trace.only("cached"), trace.only("uncached"), tolerance) == "equal"


def test_any_layers_and_heads() -> None:
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


def test_words_and_candidates() -> None:
    tokenizer = Tokenizer.of_words(WORDS)
    trace = record_model(tiny(), "today the soup is so", tokenizer, max_new_tokens=3, name="tiny")
    texts = [token.text for token in trace.sequences[0].tokens]
    assert texts[:5] == ["today", "the", "soup", "is", "so"]
    assert set(texts) <= set(WORDS)
    out = trace.run("cached").passes[1].parts[0].out[0]
    assert len(out.top) == 5
    assert [logit for _, logit, _ in out.top] == sorted((logit for _, logit, _ in out.top), reverse=True)
    assert out.top[0][0] == texts[5]
    assert trace.model.name == "tiny"


def test_a_chosen_token_takes_the_last_place_of_the_candidates_and_the_likeliest_stays() -> None:
    voice = replace(recording.voice_of(tiny(), None), n_top=2)
    assert [text for text, _, _ in voice.top(np.array([1.0, 3.0, 2.0]), 0)] == ["<1>", "<0>"]


def test_sampled_tokens_are_among_the_candidates_and_are_replayed() -> None:
    trace = record_model(tiny(), PROMPT, max_new_tokens=10, sampling=Sampling(3.0, seed=4))
    output_ids = [token.id for token in trace.sequences[0].tokens[5:]]
    assert output_ids == list(generate(tiny(), PROMPT, 10, sampling=Sampling(3.0, seed=4)))
    assert output_ids != list(generate(tiny(), PROMPT, 10))
    assert trace.run("uncached").passes[1].parts[0].out[0].how == "sampled, temperature 3"
    oracle.check(trace)


def test_stops_at_eos_and_when_full() -> None:
    model = tiny()
    output_ids = list(generate(model, PROMPT, 8))
    ends = record_model(tiny(eos_ids=(output_ids[3],)), PROMPT, max_new_tokens=8)
    assert [token.id for token in ends.sequences[0].tokens[5:]] == output_ids[
        : output_ids.index(output_ids[3]) + 1
    ]
    full = record_model(tiny(max_seq_len=7), PROMPT, max_new_tokens=8)
    assert [token.id for token in full.sequences[0].tokens[5:]] == output_ids[:3]
    assert [len(run.passes) for run in full.runs] == [4, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"prompt": "Today"}, "the prompt is 'Today'; expected ids"),
        ({"prompt": "Today", "tokenizer": Tokenizer.of_words(WORDS)}, "'Today' .nearest: today"),
        ({"prompt": [[1, 2], [3, 4]]}, "2 sequences came in; expected one"),
        ({"prompt": [1] * 41}, "41 new tokens after 0 make 41"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"recorded": [(3, 0)]}, r"recorded has \(3, 0\); expected each pair once, layers 0 to 2"),
        ({"recorded": [(0, 1), (0, 1)]}, "expected each pair once"),
    ],
)
def test_bad_input(changed: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"prompt": PROMPT, "max_new_tokens": 2} | changed
    with pytest.raises(ValueError, match=message):
        record_model(tiny(), **settings)


def test_recording_changes_nothing_and_the_stepper_plays_it() -> None:
    model = tiny()
    before = model(torch.tensor([PROMPT])).detach()
    trace = record_model(model, PROMPT)
    assert (trace.model.name, len(trace.sequences[0].tokens)) == ("model", 5 + 8)
    assert torch.equal(model(torch.tensor([PROMPT])).detach(), before)
    assert not any(module._forward_hooks for module in model.modules())
    assert "<table" in Stepper(trace).still().numbers


def test_the_stored_diary_is_what_the_shipped_model_says() -> None:
    stored, today = load_diary(), record()
    assert stored.sequences == today.sequences
    assert oracle.work(stored) == oracle.work(today)
    for name in ("cached", "uncached"):
        assert compare(stored.only(name), today.only(name)) == "equal"
    lines, lines_today = load_lines(), record_lines(today)
    assert (lines.words, lines.vocabulary) == (lines_today.words, lines_today.vocabulary)
    assert lines.replies == lines_today.replies
    assert list(lines.looks) == list(lines_today.looks)
    for stored_look, look_today in zip(lines.looks.values(), lines_today.looks.values(), strict=True):
        assert stored_look == pytest.approx(look_today, abs=2e-3)
    assert lines.logits == pytest.approx(lines_today.logits, abs=2e-3)  # stored in thousandths
    followed = [lines.vocabulary.index(word) for word in lines.words[1:]]
    probabilities = torch.tensor(lines.logits).softmax(-1)[range(len(followed)), followed]
    assert lines.probabilities == pytest.approx(probabilities.tolist())


def test_latent_attention_in_both_forms() -> None:
    """The same weights, though one attends with keys of every head and the other on the rows."""
    model = tiny_latent()
    expanded = record_model(model, EIGHT, max_new_tokens=4)
    model.absorb()
    absorbed = record_model(model, EIGHT, max_new_tokens=4)
    assert compare(expanded, absorbed) == "equal"
    shapes = [trace.runs[0].passes[0].shapes[0]["k"] for trace in (expanded, absorbed)]
    assert shapes == [[1, 6, 8, 12], [1, 1, 8, 9]]
    assert expanded.model.scale == 12**-0.5
    assert "<table" in Stepper(absorbed).still().numbers


def test_texts_of_tokens() -> None:
    words = Tokenizer.of_words(["<eos>", "b"])
    assert [recording.text_of(t, i) for t, i in ((words, 1), (words, 99), (None, 1))] == ["b", "<99>", "<1>"]
