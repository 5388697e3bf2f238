"""Traces of rows that leave, of drafts and of several sequences: what a pass alone, in full, would show."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from helpers.model.cache import KVCache, RaggedCache, WindowCache
from helpers.model.generate import generate, run
from helpers.model.speculate import Draft, Drafter, DraftModel, FirstLayers, LookUp, speculate
from helpers.recording import model as recording
from helpers.recording.model import describe, record_model, tokens_of, voice_of
from helpers.recording.recorder import Recorder
from helpers.recording.watch import Watcher, record_engine, record_reply
from helpers.sampling import GREEDY, Sampling
from helpers.serve.engine import Engine
from helpers.stepper import Stepper
from helpers.stepper.moment import Moment
from helpers.tokenizer import Tokenizer
from helpers.trace import Drop, Trace, TraceError, compare, spread
from tests import oracle
from tests.planted import Bug, Planted
from tests.test_latent import tiny_latent
from tests.tiny import tiny

torch.set_num_threads(1)

MODEL = tiny(dtype=torch.float64).requires_grad_(False)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def drops(trace: Trace) -> list[tuple[int, list[int], str]]:
    events = (event for run in trace.runs for event in run.events if isinstance(event, Drop))
    return [(event.sequence, spread(event.rows), event.why) for event in events]


def same_weights(trace: Trace, sequence: int, alone: Trace) -> None:
    """Of every token in the text, against the same text as `record_model` records it by itself."""
    tokens = trace.sequences[sequence].tokens
    taken = {
        out.chosen
        for p in trace.runs[0].passes
        for part in p.parts
        for out in part.out
        if part.sequence == sequence
    }
    text = [i for i, token in enumerate(tokens) if token.origin == "prompt" or i in taken]
    assert [tokens[i].id for i in text] == [token.id for token in alone.sequences[0].tokens]
    for place, i in enumerate(text[:-1]):
        for layer, head in trace.recorded:
            got = trace.attention_weights(i, layer, head, sequence)
            np.testing.assert_allclose(got, alone.attention_weights(place, layer, head), atol=2e-5)


@pytest.mark.parametrize(("window", "sinks"), [(1, 0), (4, 0), (4, 2)])
def test_rows_that_leave_a_window(window: int, sinks: int) -> None:
    cache = WindowCache(MODEL.config, window, sinks, dtype=torch.float64)
    trace = record_model(MODEL, PROMPT, max_new=4, cache=cache)
    oracle.check(trace)
    assert [one.cache for one in trace.runs] == ["window", "none"]
    assert str(compare(trace.only("cached"), trace.only("uncached"))) == "equal"
    first = list(range(sinks, len(PROMPT) - window))
    assert drops(trace) == [(0, first, "window"), *((0, [n - window], "window") for n in range(8, 11))]
    seen = [spread(p.parts[0].visible[-1]) for p in trace.run("cached").steps]
    assert seen == [[*range(sinks), *range(n - window + 1, n + 1)] for n in range(7, 11)]
    assert "<table" in Stepper(trace).still().numbers


def test_windows_in_some_layers_have_no_place_in_a_trace() -> None:
    cache = WindowCache(MODEL.config, [4, None, 4], dtype=torch.float64)
    with pytest.raises(TraceError, match="expected the same: a trace has one mask a pass"):
        record_model(MODEL, PROMPT, cache=cache, training=False)


class Wrong(LookUp):
    """Its drafts are never taken."""

    def propose(self, text: Any, k: int, *others: Any) -> Draft:
        return Draft([0] * k)  # which the model does not say


DRAFTERS: dict[str, Any] = {
    "wrong": Wrong,
    "look-up": LookUp,
    "first layers": lambda: FirstLayers(MODEL, 2),
    "the model itself": lambda: DraftModel(MODEL),
    "another model": lambda: DraftModel(tiny(seed=1, n_layers=2, dtype=torch.float64).requires_grad_(False)),
}


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", DRAFTERS)
def test_drafts(name: str, k: int) -> None:
    replies: list[Any] = []
    drafter: Drafter = DRAFTERS[name]()

    def reply(ids: list[int], cache: Any) -> Any:
        replies.append(speculate(MODEL, ids, 12, drafter, k, cache=cache))
        return replies[0]

    trace = record_reply(MODEL, PROMPT, reply)
    oracle.check(trace)
    same_weights(trace, 0, record_model(MODEL, PROMPT, max_new=12))
    rounds, passes = replies[0].rounds, trace.runs[0].passes
    assert [len(p.parts[0].queries) for p in passes[1:]] == [one.drafted + 1 for one in rounds[1:]]
    assert [len(p.parts[0].out) for p in passes] == [one.accepted + 1 for one in rounds]
    for part in (p.parts[0] for p in passes[1:]):
        assert [out.query for out in part.out] == part.queries[: len(part.out)]
    assert {p.phase for p in passes[1:]} <= {"verify", "decode"}
    rejected = [one.drafted - one.accepted for one in rounds]
    assert [(len(rows), why) for _, rows, why in drops(trace)] == [(n, "rejected") for n in rejected if n]
    assert sum(token.origin == "draft" for token in trace.sequences[0].tokens) == sum(
        r.drafted for r in rounds
    )
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()
    at = [i for i, event in enumerate(trace.runs[0].events) if not isinstance(event, Drop)]
    for index, one in zip(at, rounds, strict=True):
        moment = Moment(trace, trace.runs[0], index)
        assert (len(moment.drafts), len(moment.refused)) == (one.drafted, one.drafted - one.accepted)


def test_rows_that_leave_after_the_last_pass() -> None:
    """Four drafts are not taken in each of two rounds, and then nobody asks for more words."""
    reply = lambda ids, cache: islice(speculate(MODEL, ids, 12, Wrong(), 4, cache=cache), 3)  # noqa: E731
    assert [len(rows) for _, rows, _ in drops(record_reply(MODEL, PROMPT, reply))] == [4, 4]


def test_a_reply_without_drafts_is_what_record_model_records() -> None:
    trace = record_reply(MODEL, PROMPT, lambda ids, cache: generate(MODEL, ids, 5, cache=cache))
    alone = record_model(MODEL, PROMPT, max_new=5, training=False, uncached=False)
    assert [str(compare(trace, alone, what)) for what in ("result", "work")] == ["equal", "equal"]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in MODEL.modules())


def test_sequences_of_unequal_length_in_one_pass() -> None:
    """8 and 2 tokens of two prompts, padding on the left; one ends while the other decodes; one alone."""
    prompts = [PROMPT, [7, 7, 2]]
    cache = RaggedCache(MODEL.config, 2, dtype=torch.float64)
    watched = Recorder(describe(MODEL, "two"), [tokens_of(MODEL, prompt, None) for prompt in prompts])
    watched.begin_run("cached", "ragged")
    with Watcher(watched, MODEL, lambda cache: [0, 1], voice_of(MODEL, None, 5, GREEDY)) as watcher:
        text, ran = [[*prompt] for prompt in prompts], [0, 0]
        for new, said in (([8, 2], [0]), ([1, 1], [0, 1]), ([1, 0], [0])):
            cache.expect(new)
            ran = [before + n for before, n in zip(ran, new, strict=True)]
            ids = [([0] * 8 + one[:end])[-max(new) :] for one, end in zip(text, ran, strict=True)]
            logits = run(MODEL, torch.tensor(ids), cache)
            for n in said:
                text[n].append(int(logits[n].argmax()))
                watcher.say(text[n][-1], sequence=n)
    trace = watched.trace
    assert [[part.sequence for part in p.parts] for p in trace.runs[0].passes] == [[0, 1], [0, 1], [0]]
    assert [p.counts["positions"] for p in trace.runs[0].passes] == [10, 2, 1]
    assert [p.phase for p in trace.runs[0].passes] == ["prefill", "decode", "decode"]
    for n, prompt in enumerate(prompts):
        same_weights(trace, n, record_model(MODEL, prompt, max_new=3 - 2 * n, uncached=False))


@pytest.mark.parametrize(("n_pages", "budget"), [(30, None), (30, 5), (6, 6)])
def test_requests_of_an_engine(n_pages: int, budget: int | None) -> None:
    prompts = [PROMPT, [7, 7, 2], [5] * 6]
    engine = Engine(MODEL, 2, budget, n_pages=n_pages, page_size=3, sharing=False)
    for n, prompt in enumerate(prompts):
        engine.add(f"request {n}", prompt, 6)
    trace = record_engine(engine)
    oracle.check(trace)
    for n, prompt in enumerate(prompts):
        same_weights(trace, n, record_model(MODEL, prompt, max_new=6, uncached=False))
    assert {why for _, _, why in drops(trace)} == ({"preempted"} if n_pages == 6 else set())
    assert max(len(p.parts) for p in trace.runs[0].passes) == 2
    assert "<table" in Stepper(trace).still().numbers


def test_latent_attention_in_both_forms() -> None:
    """The same weights, though one attends with keys of every head and the other on the rows."""
    model = tiny_latent()
    expanded = record_model(model, PROMPT, max_new=4)
    model.absorb()
    absorbed = record_model(model, PROMPT, max_new=4)
    assert str(compare(expanded, absorbed)) == "equal"
    shapes = [trace.runs[0].passes[0].shapes[0]["k"] for trace in (expanded, absorbed)]
    assert shapes == [[1, 6, 8, 12], [1, 1, 8, 9]]
    assert expanded.model.scale == 12**-0.5
    assert "<table" in Stepper(absorbed).still().numbers


def test_a_record_says_what_was_asked_for() -> None:
    """A reply and an engine's request, sampled, with words: the same as `record_model` writes down."""
    words, sampling = (
        Tokenizer.of_words(["<eos>", *(f"w{n}" for n in range(18))]),
        Sampling(temperature=2.0, seed=1),
    )
    asked: Any = {"recorded": [(0, 1)]}
    whole: Any = {"max_new": 6, "sampling": sampling, "training": False, "uncached": False}
    alone = record_model(MODEL, "w3", words, **asked, **whole)
    reply = lambda ids, cache: generate(MODEL, ids, 6, cache=cache, sampling=sampling)  # noqa: E731
    assert record_reply(MODEL, "w3", reply, words, sampling=sampling, **asked).to_json() == alone.to_json()
    engine = Engine(MODEL, 1, sharing=False)
    engine.add("a", words.encode("w3"), 6, sampling)
    assert str(compare(record_engine(engine, words, **asked), alone)) == "equal"
    outs = [p.parts[0].out[0] for p in alone.runs[0].passes]
    assert {out.how for out in outs} == {"sampled, temperature 2"}
    full = record_model(MODEL, "w3", words, **whole, n_top=MODEL.config.vocab_size).runs[0].passes
    for out, every in zip(outs, (p.parts[0].out[0].top for p in full), strict=True):
        assert out.top[:4] == every[:4], "the chosen one takes the last place"


def test_texts_of_tokens() -> None:
    words = Tokenizer.of_words(["<eos>", "b"])
    assert [recording.text_of(t, i) for t, i in ((words, 1), (words, 99), (None, 1))] == ["b", "<99>", "<1>"]


def test_what_was_not_told_is_noticed() -> None:
    def silent(ids: list[int], cache: Any) -> Any:
        run(MODEL, torch.tensor([ids]), cache)
        run(MODEL, torch.tensor([[2]]), cache)
        run(MODEL, torch.tensor([[3, 3]]), cache)
        return []

    with pytest.raises(TraceError, match="runs ids"):
        record_reply(MODEL, PROMPT, silent)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in MODEL.modules())


planted = Planted()
WINDOW = test_rows_that_leave_a_window
planted("rows kept are counted, not asked for", [WINDOW])(
    lambda patch: patch.setattr(WindowCache, "kept", KVCache.kept)
)


@planted("a rejected draft is taken for the text", [test_drafts])
def _(patch: pytest.MonkeyPatch) -> None:
    def say(self: Any, top: Any, chosen: Any, *rest: Any, query: int, **named: Any) -> int:
        behind = self.trace.sequences[0].tokens[query + 1 :][:1]
        return real(self, top, *(behind or [chosen]), *rest, query=query, **named)

    real = Recorder.say
    patch.setattr(Recorder, "say", say)


planted("the run without a cache forgets the window", [WINDOW])(
    lambda patch: patch.setattr(recording, "deepcopy", lambda cache: MODEL.fitting(None, 1))
)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert bug.missed_by() == []
