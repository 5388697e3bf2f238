"""A trace: its fields fit each other, its JSON form is exact there and back, what is no trace is named."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.recording.toy import record_toy
from helpers.trace import Drop, Other, Trace, TraceError, gather, spread
from tests import oracle

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script>",
    "'\"\\",
    "\u202eתישארב",
    "a\u200bb",
    "🙂‍↔️",
    "x" * 200,
    " ",
    "\n\t\x00\u2028",
]
SETTINGS = st.fixed_dictionaries(
    {
        "n_layers": st.integers(1, 3),
        "max_new": st.integers(1, 4),
        "ban_eos": st.booleans(),
        "training": st.booleans(),
        "form": st.sampled_from(["dots", "rules"]),
        "temperature": st.none() | st.floats(0.1, 5),
    }
)
WORDS = st.tuples(st.text(min_size=1) | st.sampled_from(HOSTILE), st.floats(-1e9, 1e9))


def a_trace() -> Trace:
    """A run of 7 tokens with two layers, a drop, and an event of a later kind."""
    trace = record_toy(n_layers=2, max_new=3, ban_eos=True)
    trace.runs[0].events += [
        Drop(0, [(4, 6)], "rejected", "Two rows go."),
        Other("swap", "The cache moves to disk.", {"where": ["disk", {"block": 3}]}),
    ]
    return trace


@given(st.lists(WORDS, min_size=1, max_size=7), SETTINGS)
def test_any_run_of_the_toy_fits_itself_and_comes_back_from_json(
    prompt: list[tuple[str, float]], settings: dict[str, Any]
) -> None:
    trace = record_toy([word for word, _ in prompt], [number for _, number in prompt], **settings)
    oracle.check(trace)
    back = Trace.from_json(trace.to_json())
    for field in ("model", "recorded", "sequences", "runs", "values"):
        assert getattr(back, field) == getattr(trace, field), field
    assert list(back.weights) == list(trace.weights)
    assert all(np.array_equal(back.weights[key], trace.weights[key]) for key in trace.weights)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_run_fits_itself(n_layers: int) -> None:
    oracle.check(record_toy(max_new=3, ban_eos=True, n_layers=n_layers))


def test_saved_and_loaded(tmp_path: Path) -> None:
    trace = a_trace()
    trace.save(tmp_path / "trace.json")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    assert Trace.load(tmp_path / "trace.json").to_dict() == trace.to_dict()
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        trace.save(tmp_path / "nowhere" / "trace.json")


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        a_trace().save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]
    assert path.read_text() == "old"


def test_the_json_form_is_as_documented() -> None:
    data = json.loads(a_trace().to_json())
    assert list(data) == ["format", "version", "model", "recorded", "sequences", "runs", "weights", "values"]
    assert data["weights"]["encoding"] == "u16-base64"
    assert data["sequences"][0]["tokens"][0] == {
        "text": "Today",
        "id": None,
        "position": 1,
        "origin": "prompt",
    }
    *passes, drop, swap = data["runs"][0]["events"]
    assert {event["op"] for event in passes} == {"pass"}
    assert drop == {"op": "drop", "sequence": 0, "rows": [[4, 6]], "why": "rejected", "say": "Two rows go."}
    assert swap == {"op": "swap", "say": "The cache moves to disk.", "where": ["disk", {"block": 3}]}
    decode = passes[2]["parts"][0]
    assert decode["visible"] == [[[0, 5]]]
    assert decode["kept"] == [4, 5]
    assert passes[2]["counts"]["rows_read"] == 4


def test_unknown_keys_are_ignored() -> None:
    data = json.loads(a_trace().to_json())
    for place in (
        data,
        data["model"],
        data["runs"][0]["events"][0],
        data["runs"][0]["events"][0]["parts"][0],
    ):
        place["later"] = {"any": [1]}
    assert Trace.from_json(json.dumps(data)).to_dict() == a_trace().to_dict()


def every_field(data: Any, path: str = "trace") -> list[tuple[dict[str, Any], str, str]]:
    """Each (object, key, path) of the document whose key the format has, one of a kind."""
    found = []
    if isinstance(data, dict):
        free = path.endswith((".contexts", ".weights", ".rows", ".counts")) or "shapes" in path
        if data.get("op") not in (None, "pass", "drop"):
            return []
        found += [] if free else [(data, key, path) for key in data if key not in ("op", "encoding")]
        for key, item in data.items():
            found += every_field(item, path if key == "rows" and "weights" in path else f"{path}.{key}")
    if isinstance(data, list):
        for n, item in enumerate(data):
            found += every_field(item, f"{path}[{n}]")
    return found


def test_each_field_that_is_missing_is_named() -> None:
    text = a_trace().to_json()
    n_fields = len(every_field(json.loads(text)))
    for n in range(0, n_fields, 7):  # every seventh: the passes are all alike
        data = json.loads(text)
        place, key, path = every_field(data)[n]
        del place[key]
        says = "expected format" if key in ("format", "version") else f"{path}: got no field '{key}'"
        with pytest.raises(
            TraceError, match=re.escape(says.replace("trace.weights: got no field 'rows'", "trace.weights"))
        ):
            Trace.from_json(json.dumps(data))


def at(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


PART = ("runs", 0, "events", 1, "parts", 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (at("version", value=2), "'version': 2}; expected format 'watch-it-decode-trace', version 1"),
        (at("format", value="gif"), "'format': 'gif'"),
        (
            at("sequences", 0, "tokens", 0, "position", value="1"),
            "trace.sequences[0].tokens[0].position: got 1 (a str)",
        ),
        (at("model", "n_layers", value=True), "trace.model.n_layers: got True (a bool)"),
        (at("model", "scale", value="1"), "trace.model.scale: got 1"),
        (at(*PART, "kept", value=[4]), "parts[0].kept: got [4]"),
        (at(*PART, "visible", 0, value={}), "parts[0].visible[0]: got {} (a dict)"),
        (at(*PART, value=3), "trace.runs[0].events[1].parts[0]: got 3"),
        (at("weights", "rows", "0.0.0.0", value="%%"), "trace.weights['0.0.0.0']: got %%"),
        (at("runs", 0, "events", 5, value={"op": "swap"}), "trace.runs[0].events[5]: got no field 'say'"),
    ],
)
def test_a_field_of_another_kind_is_named(change: Callable[[Any], None], says: str) -> None:
    data = json.loads(a_trace().to_json())
    change(data)
    with pytest.raises(TraceError, match=re.escape(says)) as error:
        Trace.from_json(json.dumps(data))
    assert "expected" in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]", "3", '{"format": 1}', a_trace().to_json()[:999], "[" * 100_000])
def test_what_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected"):
        Trace.from_json(text)
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=re.escape(str(path))):
        Trace.load(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=re.escape(str(path))):
        Trace.load(path)


@given(st.sets(st.integers(0, 40)))
def test_ranges_are_indices_and_back(indices: set[int]) -> None:
    ranges = gather(sorted(indices))
    assert spread(ranges) == sorted(indices)
    assert all(stop < start for (_, stop), (start, _) in itertools.pairwise(ranges))


def test_runs_by_name() -> None:
    trace = a_trace()
    assert trace.only("uncached").runs == [trace.run("uncached")]
    assert trace.run("cached").counted("positions") == [4, 1, 1]
    assert [event.phase for event in trace.run("cached").steps] == ["prefill", "decode", "decode"]
    with pytest.raises(KeyError, match=r"no run named 'fast'; this trace has \['cached', 'uncached'\]"):
        trace.run("fast")
    with pytest.raises(KeyError, match="no weights of token 9 for layer 0, head 0"):
        trace.attention_weights(9, 0, 0)
    assert repr(trace) == "Trace(toy, 7 tokens, 2 layers, cached: 4 passes, uncached: 4 passes)"


def test_a_trace_is_small() -> None:
    trace = record_toy(max_new=60, ban_eos=True)
    assert len(trace.to_json().encode()) < 200_000
