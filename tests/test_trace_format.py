"""The JSON form of a trace: exact there and back, refused by the first wrong field, small, saved whole."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import toy
from helpers.recording.toy import record_toy
from helpers.trace import Other, Trace, TraceError, format, recorder, validate

FEW = settings(deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
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


def document() -> dict[str, Any]:
    """The JSON form of a run of 7 tokens with two layers, a drop, and an event of a later kind."""
    trace = record_toy(n_layers=2, max_new=3, ban_eos=True)
    data = trace.to_dict()
    data["runs"][0]["events"] += [
        {"op": "drop", "sequence": 0, "rows": [[4, 6]], "why": "rejected", "say": "Two rows go."},
        {"op": "swap", "say": "The cache moves to disk.", "where": ["disk", {"block": 3}]},
    ]
    return data


DOCUMENT = document()
Path_ = tuple[Any, ...]  # keys and indices from the root


def fields(x: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every field of the document, objects' and lists' entries alike."""
    entries = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from fields(value, (*path, key))


def get(data: Any, path: Path_) -> Any:
    for key in path:
        data = data[key]
    return data


def spell(path: Path_) -> str:
    """runs[0].events[2].parts[0].contexts['0.1'], as the validator writes it."""
    free = ("rows", "contexts")
    text = ""
    for before, key in zip((None, *path), path, strict=False):
        quoted = isinstance(key, int) or (before in free and isinstance(key, str) and "." in key)
        text += f"[{key!r}]" if quoted else f".{key}"
    return text.lstrip(".")


def some_of_each_kind() -> list[Path_]:
    """The first and the last field of each kind: indices and free keys aside, the same names."""
    kinds: dict[Path_, list[Path_]] = {}
    for path in fields(DOCUMENT):
        if path[:2] == ("runs", 0) and get(DOCUMENT, path[:4]) == DOCUMENT["runs"][0]["events"][-1]:
            continue  # the event of a later kind: anything goes, see below
        kind = tuple(key for key in path if isinstance(key, str) and "." not in key)
        kinds.setdefault((kind, isinstance(path[-1], int)), []).append(path)
    return list(dict.fromkeys(p for paths in kinds.values() for p in (paths[0], paths[-1])))


EACH_KIND = some_of_each_kind()
OBJECT_FIELDS = [path for path in EACH_KIND if isinstance(path[-1], str)]


def refused(data: Any) -> str:
    with pytest.raises(TraceError) as error:
        Trace.from_dict(data)
    assert "expected" in str(error.value)
    assert len(str(error.value)) < 400
    return str(error.value)


# --- there and back ---


def same(a: Trace, b: Trace) -> None:
    assert a.to_dict() == b.to_dict()
    assert list(a.weights) == list(b.weights)
    assert all(np.array_equal(a.weights[key], b.weights[key]) for key in a.weights)
    for field in ("model", "recorded", "sequences", "runs", "values"):
        assert getattr(a, field) == getattr(b, field), field


@FEW
@given(
    st.lists(
        st.tuples(st.text(min_size=1) | st.sampled_from(HOSTILE), st.floats(-1e9, 1e9)),
        min_size=1,
        max_size=7,
    ),
    st.fixed_dictionaries(
        {
            "n_layers": st.integers(1, 3),
            "max_new": st.integers(1, 4),
            "ban_eos": st.booleans(),
            "training": st.booleans(),
            "form": st.sampled_from(["dots", "rules"]),
            "temperature": st.none() | st.floats(0.1, 5),
        }
    ),
)
def test_json_there_and_back_is_exact(prompt: list[tuple[str, float]], settings: dict[str, Any]) -> None:
    trace = record_toy([word for word, _ in prompt], [number for _, number in prompt], **settings)
    text = trace.to_json()
    same(Trace.from_json(text), trace)
    assert Trace.from_json(text).to_json() == text
    assert Trace.from_dict(trace.to_dict()).to_json() == text


@pytest.mark.parametrize("word", HOSTILE, ids=[f"hostile{n}" for n in range(len(HOSTILE))])
def test_hostile_text_comes_back_as_it_was(word: str, tmp_path: Path) -> None:
    trace = record_toy([word, "so"], [1, 2])
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json").sequences[0].tokens[0].text == word


def test_the_document_of_these_tests_is_valid() -> None:
    validate(DOCUMENT)
    assert Trace.from_dict(DOCUMENT).to_dict() == DOCUMENT


def test_the_docstring_shows_every_field_and_no_other() -> None:
    shown = set(re.findall(r'"(\w+)":', format.__doc__ or ""))
    later = {"where", "block"}  # of the event of a later kind
    written = {p[-1] for p in fields(DOCUMENT) if isinstance(p[-1], str) and "." not in p[-1]} - later
    assert shown == written


def test_an_event_of_a_later_kind_is_kept() -> None:
    event = Trace.from_dict(DOCUMENT).runs[0].events[-1]
    assert event == Other("swap", "The cache moves to disk.", {"where": ["disk", {"block": 3}]})
    again = Trace.from_json(Trace.from_dict(DOCUMENT).to_json()).to_dict()
    assert again["runs"][0]["events"][-1] == DOCUMENT["runs"][0]["events"][-1]


def test_unknown_keys_are_ignored() -> None:
    data = copy.deepcopy(DOCUMENT)
    kept = copy.deepcopy(data)
    for path in [(), *fields(kept)]:
        free = path and path[-1] in ("rows", "contexts")
        later = path[:2] == ("runs", 0) and len(path) > 3 and path[3] == len(data["runs"][0]["events"]) - 1
        if isinstance(get(data, path), dict) and not free and not later:
            get(data, path)["of a later version"] = [1]
    assert data["runs"][0]["events"][0]["counts"]["of a later version"] == [1]
    assert Trace.from_dict(data).to_dict() == kept


# --- the validator: every field ---


@pytest.mark.parametrize("path", OBJECT_FIELDS, ids=spell)
def test_a_missing_field_is_named(path: Path_) -> None:
    data = copy.deepcopy(DOCUMENT)
    del get(data, path[:-1])[path[-1]]
    # A recorded head's contexts are all there or none are: the object that lacks one is named.
    named = path[:-1] if path[-2:-1] == ("contexts",) else path
    assert refused(data).startswith(f"{spell(named)}: ")


def is_number(path: Path_) -> bool:
    """Whether any finite number is right there: logits, contexts, contents of K and V, the scale."""
    inside = {"contexts", "k", "v"} & set(path[:-2]) and "shapes" not in path
    return bool((inside and isinstance(path[-2], int)) or path[-1] == "scale" or path[-3::2] == ("top", 1))


@pytest.mark.parametrize("path", EACH_KIND, ids=spell)
def test_a_field_of_the_wrong_type_is_named(path: Path_) -> None:
    named = [path]
    while isinstance(named[-1][-1], int):  # an entry of a list of numbers or names: the list may be named
        named.append(named[-1][:-1])
    data = copy.deepcopy(DOCUMENT)
    too_small = 10**400 if is_number(path) else -1.5  # more than a float can hold
    for wrong in ({"a": 1}, "\ud800", True, float("nan"), [None] * 7, too_small):
        get(data, path[:-1])[path[-1]] = wrong
        assert refused(data).startswith(tuple(spell(path) for path in named)), wrong


# --- the validator: what does not fit together ---


def weights(*row: float) -> str:
    return base64.b64encode(np.round(np.array(row) * 65535).astype("<u2").tobytes()).decode()


PREFILL, DECODE = "runs[0].events[1]", "runs[0].events[2]"  # of the cached run
AGAIN = "runs[1].events[2]"  # decode without a cache
TRAINING_PART, PREFILL_PART = "runs[0].events[0].parts[0]", f"{PREFILL}.parts[0]"
DECODE_PART, AGAIN_PART = f"{DECODE}.parts[0]", f"{AGAIN}.parts[0]"
ROW = "weights.rows['0.1.0.3']"


def put(data: Any, path: str, value: Any) -> None:
    """Change one field, by its path as the validator writes it; a function changes what stands there."""
    found = re.findall(r"\[(\d+)\]|\['(.+?)'\]|(\w+)", path)
    *keys, last = [int(number) if number else quoted or name for number, quoted, name in found]
    parent = get(data, tuple(keys))
    parent[last] = value(parent[last]) if callable(value) else value


AGAIN_OUT = f"{AGAIN_PART}.out"


def swapped(shape: dict[str, Any]) -> dict[str, Any]:
    """The same number of products, but T and S exchanged."""
    B, H, T, S = shape["scores"]
    return shape | {"q": [B, H, S, 2], "k": [B, 1, T, 2], "v": [B, 1, T, 1], "scores": [B, H, S, T]}


def wide(event: dict[str, Any], S: int) -> dict[str, Any]:
    """The pass with scores over S columns, those past its rows masked."""
    T = event["counts"]["positions"]
    sizes = {"q": [1, 4, T, 2], "k": [1, 1, S, 2], "v": [1, 1, S, 1], "scores": [1, 4, T, S]}
    shapes = [shape | sizes for shape in event["shapes"]]
    return event | {"shapes": shapes, "counts": event["counts"] | {"products": T * S}}


INCONSISTENT: list[
    tuple[Any, ...]
] = [  # what is wrong, the field changed, its value, the field named if another
    ("version 2", "version", 2, "version: got 2; expected 1"),
    ("another format", "format", "chrome-trace"),
    ("no sequence", "sequences", []),
    ("no run", "runs", []),
    ("two runs of one name", "runs[1].name", "cached"),
    ("heads that share no KV head", "model.n_kv_heads", 3),
    ("a name too few", "model.head_names", ["even"]),
    ("elements of 3 bytes", "model.element_bytes", 3),
    ("a layer that is not there", "recorded[7]", [2, 0], "recorded[7][0]"),
    ("a head that is not there", "recorded[7]", [1, 4], "recorded[7][1]"),
    ("a head recorded twice", "recorded[7]", [0, 0]),
    ("a prompt longer than its tokens", "sequences[0].prompt", 9),
    ("an empty prompt", "sequences[0].prompt", 0),
    ("a prompt token generated", "sequences[0].tokens[1].origin", "generated"),
    ("a generated token of the prompt", "sequences[0].tokens[4].origin", "prompt"),
    ("two tokens in one place", "sequences[0].tokens[3].position", 3),
    ("another encoding", "weights.encoding", "f32"),
    ("weights that sum to 0.9", ROW, weights(0.5, 0.4), f"{ROW}: got 'weights that sum to 0.9"),
    ("weights that sum to 0.5", ROW, weights(0.5, 0)),
    ("weights that sum to 1.006", ROW, weights(1, 0.006)),
    ("a weight too few", ROW, weights(1), f"{ROW}: got '1 weights'; expected 2"),
    ("a weight too many", ROW, weights(1, 0, 0)),
    ("half a weight", ROW, "AIA="),
    ("an odd byte", ROW, "AIAA"),
    ("no base64", ROW, "****"),
    (
        "weights of a token that is not there",
        "weights.rows",
        lambda rows: rows | {"0.99.0.0": ""},
        "weights.rows['0.99.0.0']",
    ),
    ("weights under no key", "weights.rows", lambda rows: rows | {"so": ""}, "weights.rows['so']"),
    ("a phase of no kind", f"{DECODE}.phase", "encode"),
    ("a pass of nothing", f"{DECODE}.parts", []),
    ("no token run", f"{DECODE_PART}.new", []),
    ("a sequence that is not there", f"{DECODE_PART}.sequence", 1),
    ("new, though it ran before", f"{DECODE_PART}.new", [[3, 4]]),
    ("repeated, though it never ran", f"{AGAIN_PART}.repeated", [[0, 4], [5, 6]]),
    ("overlapping ranges", f"{AGAIN_PART}.repeated", [[0, 3], [2, 4]], f"{AGAIN_PART}.repeated[1][0]"),
    ("ranges out of order", f"{AGAIN_PART}.repeated", [[2, 4], [0, 2]], f"{AGAIN_PART}.repeated[1][0]"),
    ("an empty range", f"{DECODE_PART}.new", [[4, 4]], f"{DECODE_PART}.new[0][1]"),
    ("a range past the last token", f"{DECODE_PART}.new", [[4, 99]], f"{DECODE_PART}.new[0][1]"),
    ("rows read that were never written", f"{DECODE_PART}.read", [[0, 5]], f"{DECODE_PART}.read: "),
    ("rows read without a cache", f"{AGAIN_PART}.read", [[0, 4]]),
    ("rows written that were not made", f"{DECODE_PART}.written", [[3, 4]]),
    ("kept off by one", f"{DECODE_PART}.kept", [4, 6], f"{DECODE_PART}.kept: got [4, 6]; expected [4, 5]"),
    ("a cache that was not reset", f"{PREFILL_PART}.kept", [4, 8]),
    ("training writes", f"{TRAINING_PART}.written", [[0, 4]], f"{TRAINING_PART}.kept"),
    ("a query without its row", f"{PREFILL_PART}.visible", lambda v: v[:3]),
    ("a key that is not there", f"{PREFILL_PART}.visible[3]", [[0, 5]]),
    ("one visible key fewer", f"{PREFILL_PART}.visible[3]", [[0, 3]], "weights.rows['0.3.0.0']"),
    ("contexts of a head that was not recorded", f"{DECODE_PART}.contexts", {"0.9": [[1.0]]}),
    ("a row of contexts too many", f"{DECODE_PART}.contexts['0.1']", [[1.0], [2.0]]),
    (
        "contexts too wide",
        f"{DECODE_PART}.contexts['0.1']",
        [[1.0, 2.0]],
        f"{DECODE_PART}.contexts['0.1'][0]",
    ),
    ("targets in prefill", f"{PREFILL_PART}.target", [1, 2, 3, 4]),
    ("a target too few", f"{TRAINING_PART}.target", [1, 2, 3]),
    ("a target that is not there", f"{TRAINING_PART}.target[3]", 7),
    ("training emits", "runs[0].events[0].parts[0].out", DOCUMENT["runs"][0]["events"][1]["parts"][0]["out"]),
    ("logits of a query that did not run", f"{DECODE_PART}.out[0].query", 3),
    (
        "a chosen word that is no candidate",
        f"{DECODE_PART}.out[0].top",
        lambda top: top[1:],
        f"{DECODE_PART}.out[0].chosen: got 'nice'",
    ),
    ("no candidates", f"{DECODE_PART}.out[0].top", [], f"{DECODE_PART}.out[0].chosen"),
    ("chosen: a token that is not there", f"{DECODE_PART}.out[0].chosen", 7),
    ("chosen: a token of the past", f"{DECODE_PART}.out[0].chosen", 4),
    ("a probability over 1", f"{DECODE_PART}.out[0].top[0][2]", 1.2),
    ("probabilities over 1 together", f"{DECODE_PART}.out[0].top[0][2]", 0.9, f"{DECODE_PART}.out[0].top: "),
    ("a candidate of two entries", f"{DECODE_PART}.out[0].top[0]", ["nice", 1.0]),
    (
        "positions off by one",
        f"{DECODE}.counts.positions",
        2,
        f"{DECODE}.counts.positions: got 2; expected 1",
    ),
    ("kv_rows off by one", f"{DECODE}.counts.kv_rows", 0, f"{DECODE}.counts.kv_rows: got 0; expected 1"),
    (
        "rows_read off by one",
        f"{DECODE}.counts.rows_read",
        5,
        f"{DECODE}.counts.rows_read: got 5; expected 4",
    ),
    ("pairs off by one", f"{PREFILL}.counts.pairs", 11, f"{PREFILL}.counts.pairs: got 11; expected 10"),
    ("fewer products than pairs", f"{PREFILL}.counts.products", 9),
    ("products off by one", f"{PREFILL}.counts.products", 17, f"{PREFILL}.shapes[0].scores"),
    ("a layer without shapes", f"{PREFILL}.shapes", lambda shapes: shapes[:1]),
    ("layers out of order", f"{PREFILL}.shapes", lambda shapes: shapes[::-1], f"{PREFILL}.shapes[0].layer"),
    ("queries of another width", f"{PREFILL}.shapes[1].q", [1, 4, 4, 3]),
    ("keys for every query head", f"{PREFILL}.shapes[1].k", [1, 4, 4, 2]),
    ("another batch of V", f"{PREFILL}.shapes[1].v", [2, 1, 4, 1]),
    ("scores of three heads", f"{PREFILL}.shapes[1].scores", [1, 3, 4, 4], f"{PREFILL}.shapes[1].scores[1]"),
    ("queries without keys", f"{PREFILL}.shapes[1].k", None),
    ("dropped rows that were not there", "runs[0].events[4].rows", [[4, 7]]),
    ("an event without a sentence", "runs[0].events[5]", {"op": "swap"}, "runs[0].events[5].say"),
    ("contents of a layer that is not there", "values[1].layer", 2),
    ("contents of too many tokens", "values[0].v", lambda v: v * 2),
    ("a row of K without its V", "values[0].v", lambda v: v[:-1]),
    ("a row of K too wide", "values[0].k[0]", [0.0, 1.0, 2.0]),
    ("a wider model", "model.k_dim", 3, "runs[0].events[0].shapes[0].q"),
    # each field right by itself
    ("a run of nothing", "runs[0].events", []),
    ("a run without a pass", "runs[0].events", lambda events: events[5:]),
    ("training twice", "runs[0].events", lambda events: events[:1] + events, "runs[0].events[1].phase"),
    ("no cache, but rows are written", "runs[0].cache", "none", f"{PREFILL_PART}.written"),
    ("a cache, but no row is written", "runs[1].cache", "growing"),
    ("decode marked as prefill", f"{DECODE}.phase", "prefill"),
    ("decode without a cache marked as prefill", f"{AGAIN}.phase", "prefill"),
    ("prefill marked as decode", f"{PREFILL}.phase", "decode"),
    ("prefill marked as verify", f"{PREFILL}.phase", "verify"),
    ("training without targets", f"{TRAINING_PART}.target", None),
    ("a target that is not the next token", f"{TRAINING_PART}.target[2]", 2),
    ("no word after the prompt", f"{PREFILL_PART}.out", []),
    ("no word after a decode step", f"{DECODE_PART}.out", []),
    (
        "no word after the new token",
        f"{AGAIN_PART}.out[0]",
        lambda o: o | {"query": 3, "chosen": 4},
        AGAIN_OUT,
    ),
    ("a word in the middle of the prompt", f"{PREFILL_PART}.out[0].query", 2),
    ("two words of one query", f"{PREFILL_PART}.out", lambda out: out * 2, f"{PREFILL_PART}.out[1].query"),
    ("chosen: a token further on", f"{PREFILL_PART}.out[0].chosen", 5),
    ("greedy, though small", f"{DECODE_PART}.out[0].top[0][1]", -9.0, f"{DECODE_PART}.out[0].chosen"),
    (
        "greedy, though another is larger",
        f"{DECODE_PART}.out[0].top[1][1]",
        99,
        f"{DECODE_PART}.out[0].chosen",
    ),
    (
        "chosen though banned",
        f"{PREFILL_PART}.out[0].how",
        "greedy, nice banned",
        f"{PREFILL_PART}.out[0].chosen",
    ),
    (
        "T and S swapped",
        f"{DECODE}.shapes",
        lambda shapes: [swapped(x) for x in shapes],
        f"{DECODE}.shapes[0].scores[2]",
    ),
    ("S without rows", DECODE, lambda event: wide(event, 9), f"{DECODE}.shapes[0].scores[3]"),
    ("contents of no token", "values[0]", lambda v: v | {"k": [], "v": []}, "values[0].k"),
    (
        "contents of a token too few",
        "values[1]",
        lambda v: v | {"k": v["k"][:-1], "v": v["v"][:-1]},
        "values[1].k",
    ),
    ("V alone, of a token too few", "values[1]", lambda v: v | {"k": None, "v": v["v"][:-1]}, "values[1].v"),
    ("contents of a layer twice", "values[1].layer", 0),
    ("a context that is not weights · V", f"{PREFILL_PART}.contexts['0.3'][1]", [1e9]),
    ("a context off by 1", f"{DECODE_PART}.contexts['1.1'][0]", lambda row: [row[0] + 1]),
]


@pytest.mark.parametrize("case", INCONSISTENT, ids=lambda case: case[0])
def test_what_does_not_fit_is_named(case: tuple[Any, ...]) -> None:
    _, path, value, named = (*case, case[1]) if len(case) == 3 else case
    data = copy.deepcopy(DOCUMENT)
    put(data, path, value)
    assert data != DOCUMENT
    assert refused(data).startswith(named if ": " in named else f"{named}: ")


@pytest.mark.parametrize("wrong", [None, [], "trace", 3, {}], ids=repr)
def test_what_is_no_trace_at_all(wrong: Any) -> None:
    refused(wrong)


VALID: dict[str, tuple[str, Any]] = {
    "<eos> is larger, but banned": (f"{DECODE_PART}.out[0].top[3][1]", 99.0),
    "sampled": (
        f"{DECODE_PART}.out[0]",
        lambda out: with_logit(out, -9.0) | {"how": "sampled, temperature 2"},
    ),
    "as large as the other, to the rounding of a second run": (
        f"{AGAIN_PART}.out[0]",
        lambda out: with_logit(out),
    ),
    "a token without text": ("sequences[0].tokens[0].text", ""),
    "columns of a static cache": ("runs[0]", lambda run: static(run)),
    "no training": ("runs[0].events", lambda events: events[1:]),
    "a run that stops earlier": ("runs[1].events", lambda events: events[:3]),
    "training alone": ("runs[0].events", lambda events: events[:1]),
}


def with_logit(out: dict[str, Any], logit: float | None = None) -> dict[str, Any]:
    """The output with another logit of the chosen word; without one, 1e-5 under the largest of the others."""
    (word, old, p), *others = out["top"]
    assert (word, old) == ("nice", max(x for _, x, _ in out["top"][:3]))  # all but <eos>, which is banned
    return out | {
        "top": [[word, old - 1e-5 if logit is None else logit, p], [others[0][0], old, 0.0], *others[1:]]
    }


def static(run: dict[str, Any]) -> dict[str, Any]:
    events = [wide(event, 16) if event["op"] == "pass" else event for event in run["events"]]
    return run | {"cache": "static", "events": events}


@pytest.mark.parametrize("name", VALID)
def test_what_fits_is_accepted(name: str) -> None:
    path, value = VALID[name]
    data = copy.deepcopy(DOCUMENT)
    put(data, path, value)
    assert data != DOCUMENT
    assert Trace.from_dict(data).to_dict() == data


# --- the validator: passes of later kinds ---


def part(new: list[int], read: list[list[int]], stored: int, **more: Any) -> dict[str, Any]:
    """One sequence's share of a pass: a range of new tokens, each looking at what lies before it."""
    visible = [[*read, [new[0], query + 1]] for query in range(*new)]
    given = {"sequence": 0, "new": [new], "repeated": [], "visible": visible, "read": read, "written": [new]}
    given |= {"kept": [stored, stored + new[1] - new[0]], "target": None, "contexts": {}, "out": []}
    return given | more


def one_pass(phase: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """A pass of these parts, their queries one after the other, over the rows of the longest."""
    n_read = [sum(stop - start for start, stop in part["read"]) for part in parts]
    n_new = [len(part["visible"]) for part in parts]
    T, S = sum(n_new), max(map(sum, zip(n_read, n_new, strict=True)))
    pairs = sum(b - a for part in parts for ranges in part["visible"] for a, b in ranges)
    counts = {"positions": T, "kv_rows": T, "rows_read": sum(n_read), "pairs": pairs, "products": T * S}
    shape = {"layer": 0, "q": [1, 1, T, 8], "k": [1, 1, S, 8], "v": [1, 1, S, 8], "scores": [1, 1, T, S]}
    return {"op": "pass", "phase": phase, "parts": list(parts), "shapes": [shape], "counts": counts}


def says(query: int, chosen: int) -> list[dict[str, Any]]:
    return [{"query": query, "top": [["so", 1.0, 0.5]], "chosen": chosen, "how": "greedy"}]


def later(cache: str, origins: str, events: list[Any], n_sequences: int = 1) -> dict[str, Any]:
    """A trace by hand: origins are a letter a token, p(rompt), g(enerated) or d(raft)."""
    kinds = {"p": "prompt", "g": "generated", "d": "draft"}
    tokens = [{"text": "so", "id": n, "position": n, "origin": kinds[o]} for n, o in enumerate(origins)]
    model = {
        "name": "made",
        "n_layers": 1,
        "n_heads": 1,
        "n_kv_heads": 1,
        "k_dim": 8,
        "v_dim": 8,
        "scale": 1.0,
    }
    sequence = {"prompt": origins.count("p"), "tokens": tokens}
    return {
        "format": "watch-it-decode-trace",
        "version": 1,
        "model": model | {"head_names": None, "element_bytes": 2},
        "recorded": [],
        "sequences": [copy.deepcopy(sequence) for _ in range(n_sequences)],
        "runs": [{"name": "made", "cache": cache, "events": events}],
        "weights": {"encoding": "u16-base64", "rows": {}},
        "values": None,
    }


def chunks() -> dict[str, Any]:
    """A prompt of four in two passes: no word comes out of the first."""
    first, second = part([0, 2], [], 0), part([2, 4], [[0, 2]], 2, out=says(3, 4))
    return later("growing", "ppppg", [one_pass("prefill", first), one_pass("prefill", second)])


def speculation() -> dict[str, Any]:
    """Two drafts, 5 and 6; 5 is accepted, 6 is not: its row goes, and 7 takes its place."""
    drop = {
        "op": "drop",
        "sequence": 0,
        "rows": [[6, 7]],
        "why": "rejected",
        "say": "The second draft was wrong.",
    }
    data = later(
        "growing",
        "ppppgddgg",
        [
            one_pass("prefill", part([0, 4], [], 0, out=says(3, 4))),
            one_pass("verify", part([4, 7], [[0, 4]], 4, out=says(4, 5) + says(5, 7))),
            drop,
            one_pass("decode", part([7, 8], [[0, 6]], 6, out=says(7, 8))),
        ],
    )
    for token, position in ((7, 6), (8, 7)):
        data["sequences"][0]["tokens"][token]["position"] = position
    return data


def batch() -> dict[str, Any]:
    """Two sequences: one decodes in the pass that runs a chunk of the other's prompt."""
    chunk = part([0, 2], [], 0, sequence=1)
    events = [
        one_pass("prefill", part([0, 4], [], 0, out=says(3, 4))),
        one_pass("prefill", part([4, 5], [[0, 4]], 4, out=says(4, 5)), chunk),
    ]
    return later("paged", "ppppgg", events, n_sequences=2)


@pytest.mark.parametrize("make", [chunks, speculation, batch])
def test_passes_of_later_kinds_are_accepted(make: Any) -> None:
    assert Trace.from_dict(make()).to_dict() == make()


LATER: list[tuple[Any, ...]] = [
    (
        "a word of a chunk",
        chunks,
        "runs[0].events[0].parts[0].out",
        says(1, 2),
        "runs[0].events[0].parts[0].out[0].query",
    ),
    ("no word after the last chunk", chunks, "runs[0].events[1].parts[0].out", []),
    ("no word after the drafts", speculation, "runs[0].events[1].parts[0].out", []),
    (
        "a token that no pass chose",
        speculation,
        "runs[0].events[1].parts[0].out",
        says(4, 5),
        "runs[0].events[3].parts[0].new",
    ),
    ("chosen: past a generated token", speculation, "runs[0].events[1].parts[0].out[1].chosen", 8),
    ("no part decodes", batch, "runs[0].events[0].phase", "decode"),
    (
        "fewer queries than tokens",
        batch,
        "runs[0].events[1].shapes[0]",
        lambda shape: one_query(shape),
        "runs[0].events[1].shapes[0].scores[2]",
    ),
    ("a token in a place that is taken", speculation, "sequences[0].tokens[7].position", 4),
]


def one_query(shape: dict[str, Any]) -> dict[str, Any]:
    n = shape["scores"][2] * shape["scores"][3]
    return shape | {"q": [1, 1, 1, 8], "k": [1, 1, n, 8], "v": [1, 1, n, 8], "scores": [1, 1, 1, n]}


@pytest.mark.parametrize("case", LATER, ids=lambda case: case[0])
def test_what_does_not_fit_in_passes_of_later_kinds_is_named(case: tuple[Any, ...]) -> None:
    _, make, path, value, named = (*case, case[2]) if len(case) == 4 else case
    data = make()
    put(data, path, value)
    assert refused(data).startswith(f"{named}: ")


@pytest.mark.parametrize("n", [1, 3, 600, 656, 1000, 1024])
def test_a_long_row_keeps_its_sum(n: int) -> None:
    """1,000 equal weights rounded the same way would be off by 0.007; the recorder spreads what is left."""
    exact = np.full(n, 1 / n)
    row = recorder._in_16_bits(exact)
    assert abs(row / 65535 - exact).max() <= 1 / 65535
    assert len(set(row.tolist())) == 1 or n > 327  # equal weights stay equal, as long as the sum allows
    format._decode_row(base64.b64encode(row.astype("<u2").tobytes()).decode(), "row")


def test_a_long_row_off_by_more_is_refused() -> None:
    with pytest.raises(
        TraceError, match=r"row: got 'weights that sum to 1\.0071'; expected a sum of 1, or of 0"
    ):
        format._decode_row(weights(*[1 / 1000] * 1000), "row")


def test_a_trace_without_recorded_weights_or_contents_is_valid() -> None:
    data = copy.deepcopy(DOCUMENT)
    data["weights"]["rows"], data["values"], data["model"]["head_names"] = {}, None, None
    for event in data["runs"][0]["events"][:4] + data["runs"][1]["events"]:
        event["parts"][0]["contexts"] = {}
    assert Trace.from_dict(data).to_dict() == data


# --- files ---


@pytest.mark.parametrize(
    ("prompt", "upto", "limit"), [(4, 64, 200_000), (508, 512, 2_000_000)], ids=["4 to 64", "508 to 512"]
)
def test_size(prompt: int, upto: int, limit: int) -> None:
    rng = np.random.default_rng(0)
    words = [toy.PROMPT[n % 4] for n in range(prompt)]
    trace = record_toy(words, rng.uniform(0, 20, prompt).tolist(), max_new=upto - prompt, ban_eos=True)
    assert len(trace.sequences[0].tokens) == upto
    assert len(trace.runs) == 2
    assert len(trace.to_json().encode()) < limit


def test_save_and_load(tmp_path: Path) -> None:
    trace = record_toy()
    trace.save(tmp_path / "trace.json")
    same(Trace.load(str(tmp_path / "trace.json")), trace)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_save_to_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere'; make it first"):
        record_toy().save(tmp_path / "nowhere" / "trace.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["write_text", "replace"])
def test_a_failing_write_leaves_the_old_file_and_no_other(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_text("the old one", encoding="utf-8")
    write = Path.write_text

    def fails(self: Path, *args: Any, **named: Any) -> None:
        if broken == "write_text":
            write(self, "half of i", encoding="utf-8")
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, broken, fails)
    with pytest.raises(OSError, match="no space left"):
        record_toy().save(path)
    assert path.read_text(encoding="utf-8") == "the old one"
    assert [found.name for found in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off(share: float, tmp_path: Path) -> None:
    text = record_toy().to_json()
    with pytest.raises(TraceError, match=r"no complete JSON text .*; expected a whole trace file"):
        Trace.from_json(text[: int(len(text) * share)])


@pytest.mark.parametrize(
    ("text", "holds"),
    [("[" * 100_000, "lists in lists"), ("1" * 5_000, "a number of thousands of digits")],
    ids=["lists", "digits"],
)
def test_json_that_python_cannot_read(text: str, holds: str) -> None:
    for whole in (text, f'{{"format": {text}'):
        with pytest.raises(
            TraceError, match=f"this JSON text holds {holds}, more than .*; expected a trace file"
        ):
            Trace.from_json(whole)


def test_what_python_cannot_write_out_is_named() -> None:
    data = copy.deepcopy(DOCUMENT)
    data["version"] = 10**5_000
    assert refused(data).startswith("version: got int too long to show; expected 1")


def test_a_file_that_is_cut_off_inside_a_character(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    whole = record_toy(["🙂"], [1]).to_json().encode()
    path.write_bytes(whole[: whole.index("🙂".encode()) + 2])
    with pytest.raises(TraceError, match=r"no UTF-8 text .*; expected a whole trace file"):
        Trace.load(path)


def test_json_has_no_nan(tmp_path: Path) -> None:
    trace = record_toy()
    trace.run("cached").passes[1].parts[0].contexts["0.1"][0][0] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        trace.save(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    text = json.dumps(trace.to_dict())  # other tools do write NaN
    with pytest.raises(TraceError, match=re.escape("contexts['0.1'][0]: got nan; expected a finite number")):
        Trace.from_json(text)


# --- looking things up ---


def test_looking_up_runs_and_weights() -> None:
    trace = record_toy()
    assert trace.only("uncached").runs == [trace.run("uncached")]
    with pytest.raises(KeyError, match=r"no run named 'fast'; this trace has \['cached', 'uncached'\]"):
        trace.run("fast")
    np.testing.assert_allclose(trace.attention_weights(3, 0, 0), [0, 0.5, 0, 0.5], atol=1 / 65535)
    with pytest.raises(KeyError, match="no weights of token 3 for layer 1, head 0; recorded"):
        trace.attention_weights(3, 1, 0)
    assert repr(trace) == "Trace(toy, 6 tokens, 1 layers, cached: 3 passes, uncached: 3 passes)"
