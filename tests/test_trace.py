"""Traces: their fields are consistent, JSON keeps them exactly, and invalid traces raise."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from helpers.recording.toy import record_toy
from helpers.sampling import Sampling
from helpers.trace import Trace, TraceError, compare, engine, indices_of_ranges, ranges_of_indices, record
from tests import oracle
from tests.machine import ROOT
from tests.made_traces import HOSTILE, UNEQUAL, kinds

SCHEMA = Draft202012Validator(json.loads((ROOT / "helpers/trace/schema.json").read_text(encoding="utf-8")))

SETTINGS = st.fixed_dictionaries(
    {
        "n_layers": st.integers(1, 3),
        "max_new_tokens": st.integers(1, 4),
        "ban_eos": st.booleans(),
        "training": st.booleans(),
        "sampling": st.builds(Sampling, st.none() | st.floats(0.1, 5)),
    }
)
WORDS = st.tuples(st.text(min_size=1) | st.sampled_from(HOSTILE), st.floats(-1e9, 1e9))


def a_trace() -> Trace:
    """A run of 7 tokens with two layers."""
    return record_toy(n_layers=2, max_new_tokens=3, ban_eos=True)


@given(st.lists(WORDS, min_size=1, max_size=7), SETTINGS)
def test_traces_of_the_toy_are_consistent_and_survive_json(
    prompt: list[tuple[str, float]], settings: dict[str, Any]
) -> None:
    trace = record_toy([word for word, _ in prompt], [number for _, number in prompt], **settings)
    oracle.check(trace)
    loaded = Trace.from_json(trace.to_json())
    assert loaded.to_json() == trace.to_json()
    assert replace(loaded, weights={}) == replace(trace, weights={})


def test_a_saved_trace_can_be_loaded(tmp_path: Path) -> None:
    trace = a_trace()
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json").to_json() == trace.to_json()


def test_unknown_keys_are_ignored() -> None:
    data = json.loads(a_trace().to_json())
    passes = data["runs"][0]["passes"]
    for place in (data, data["model"], passes[0], passes[0]["parts"][0]):
        place["later"] = {"any": [1]}
    assert Trace.from_json(json.dumps(data)).to_json() == a_trace().to_json()


def test_all_traces_fit_the_schema() -> None:
    files = [path for folder in ("helpers", "tools") for path in (ROOT / folder).rglob("*.json")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    shipped = [text for text in texts if text.startswith('{"format":"watch-it-decode')]
    assert len(shipped) == 2  # the diary and the published model
    result = (a_trace(), UNEQUAL["heads"](), kinds())
    for text in (*shipped, *(trace.to_json() for trace in result)):
        SCHEMA.validate(json.loads(text))


def test_the_schema_requires_every_field() -> None:
    SCHEMA.check_schema(SCHEMA.schema)
    classes = {
        name: cls for module in (record, engine) for name, cls in vars(module).items() if is_dataclass(cls)
    }
    for name, cls in classes.items():
        definition = SCHEMA.schema["$defs"][name]
        names = ({"format", "version"} if hasattr(cls, "FORMAT") else set()) | {
            field.name for field in fields(cls)
        }
        assert set(definition["properties"]) == names
        assert set(definition["required"]) == names - {"layer_types", "others"}  # older traces lack these


def test_the_example_in_format_md_equals_a_recorded_trace() -> None:
    text = (ROOT / "helpers/trace/FORMAT.md").read_text(encoding="utf-8")
    example = text.partition("```json")[2].partition("```")[0]
    SCHEMA.validate(json.loads(example))
    recorded = record_toy(["weather", "so"], max_new_tokens=2, training=False).only_run("cached")
    assert compare(Trace.from_json(example), recorded) == "equal"
    assert oracle.work(Trace.from_json(example)) == oracle.work(recorded)


WHOLE = a_trace().to_json().encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WHOLE[:999], "no complete JSON .*expected a trace: if cut off, save it again"),
        (WHOLE.replace(b":3,", b":1,", 1), r"'watch-it-decode-trace', 1\]; expected .* 3\]: record it again"),
        (WHOLE.replace(b'"scale"', b'"scales"'), "a field is missing or has another type .*'scale'"),
        (
            WHOLE.replace(b'"visible":[[[0,1]]', b'"visible":[[[0,10000000]]', 1),
            "token 9,999,999 is out of range",
        ),
        (
            re.sub(rb'"0.0.0.0":"[^"]*', b'"0.0.0.0":"AAAAAA==', WHOLE),
            "got 2 attention weights of a token; expect",
        ),
        (
            WHOLE.replace(b'"recorded":[[0,0]', b'"recorded":[[0,4]', 1),
            "head 4 is out of range; expected 0 to 3",
        ),
        (
            re.sub(rb'"runs":.*"weights"', b'"runs":[],"weights"', WHOLE),
            "got 1 runs without a pass; expec",
        ),
    ],
)
def test_an_invalid_trace_raises(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    with pytest.raises(TraceError, match=f"{re.escape(str(path))}: .*{message}"):
        Trace.load(path)


@given(st.sets(st.integers(0, 40)))
def test_indices_survive_ranges(indices: set[int]) -> None:
    ranges = ranges_of_indices(sorted(indices))
    assert indices_of_ranges(ranges) == sorted(indices)
    assert all(stop < start for (_, stop), (start, _) in itertools.pairwise(ranges))


def test_runs_and_weights_are_found_or_raise() -> None:
    trace = a_trace()
    assert trace.only_run("uncached").runs == [trace.run("uncached")]
    assert [step.counts["positions"] for step in trace.run("cached").steps] == [4, 1, 1]
    assert [event.phase for event in trace.run("cached").steps] == ["prefill", "decode", "decode"]
    with pytest.raises(KeyError, match=r"no run named 'fast'; this trace has \['cached', 'uncached'\]"):
        trace.run("fast")
    assert trace.attention_weights(1, 0, 3).tolist() == [32768 / 65535] * 2
    with pytest.raises(KeyError, match="no weights of token 9, layer 0, head 0; recorded"):
        trace.attention_weights(9, 0, 0)
    assert repr(trace) == "Trace(toy, 7 tokens, 2 layers, cached: 4 passes, uncached: 4 passes)"
