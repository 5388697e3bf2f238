"""The record of a run: what every pass of a decoder did, counted while it ran.

One record feeds every view (the stepper, the static tables, the saved page, the figures, the tests).
`format.py` documents its JSON form.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "watch-it-decode-trace"
VERSION = 1
FULL = 65535  # an attention weight w is stored as round(w * FULL) in 16 bits
WEIGHT_SUM = 0.005  # how far a row of weights may be from a sum of 1, or of 0
# How far a weight may move when its token runs again, in a pass of another shape, which sums in another
# order, by bytes of an element. Measured with torch, 12 layers of 576: 3e-5 in float32, 0.023 in bfloat16.
AGAIN = {8: 1e-3, 4: 1e-3, 2: 0.1, 1: 0.1}

COUNTS = ("positions", "kv_rows", "rows_read", "pairs", "products")

Range = tuple[int, int]  # half-open: (0, 4) holds 0, 1, 2, 3


class TraceError(ValueError):
    """A trace that cannot be right; the message names the field."""


@dataclass
class Token:
    """A token of a sequence. `position` is as the run counts it (the toy from 1, models from 0)."""

    text: str
    id: int | None
    position: int
    origin: str  # prompt | generated | draft


@dataclass
class TokenSequence:
    """Append-only list of tokens; a token is named by its index here. The first `prompt` are the prompt."""

    prompt: int
    tokens: list[Token]


@dataclass
class Model:
    """What ran: sizes, head names (None for a model whose heads have none) and bytes of one element."""

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    k_dim: int | None
    v_dim: int
    scale: float | None
    head_names: list[str] | None
    element_bytes: int


@dataclass
class Output:
    """What one query's logits gave: candidates (text, logit, probability) and the token chosen."""

    query: int
    top: list[tuple[str, float, float]]
    chosen: int
    how: str


@dataclass
class Part:
    """One sequence's share of a pass. Its queries are the repeated and the new tokens, by index."""

    sequence: int
    new: list[Range]
    visible: list[list[Range]]  # for each query, the tokens it may look at
    read: list[Range]  # rows that lay in the cache already
    written: list[Range]  # rows put into a cache that stays
    kept: tuple[int, int]  # rows in the cache before and after, asked of the cache
    repeated: list[Range]  # tokens run again
    target: list[int] | None  # training: the token that each query should predict
    contexts: dict[str, list[list[float]]]  # "layer.head" -> one list of v_dim numbers for each new row
    out: list[Output]

    @property
    def queries(self) -> list[int]:
        """Indices of the tokens run in this pass."""
        return sorted([*spread(self.repeated), *spread(self.new)])


@dataclass
class Pass:
    """One run of the model over one or more tokens. Counts are those of one head and one layer."""

    phase: str  # training | prefill | decode | verify
    parts: list[Part]
    shapes: list[dict[str, Any]]  # one a layer: layer, q, k, v, scores
    counts: dict[str, int]  # by COUNTS
    op: str = "pass"


@dataclass
class Drop:
    """Rows that left the cache between two passes, and why."""

    sequence: int
    rows: list[Range]
    why: str
    say: str
    op: str = "drop"


@dataclass
class Other:
    """An event of a later kind, kept as it came and shown as its sentence."""

    op: str
    say: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Run:
    """The same tokens run once through, with one kind of cache: none, growing, static, …"""

    name: str
    cache: str
    events: list[Pass | Drop | Other]

    @property
    def passes(self) -> list[Pass]:
        """The events that ran the model, training among them."""
        return [event for event in self.events if isinstance(event, Pass)]

    @property
    def steps(self) -> list[Pass]:
        """The passes of the reply: prefill and the decode steps, without the training reference."""
        return [event for event in self.passes if event.phase != "training"]

    def counted(self, what: str) -> list[int]:
        """Return one of the counts (positions, kv_rows, rows_read, pairs, products) of each step."""
        return [event.counts[what] for event in self.steps]


@dataclass
class Values:
    """Contents of K and V by token index (the toy only): k is None where the run had rules, not keys."""

    sequence: int
    layer: int
    k: list[list[float]] | None
    v: list[list[float]]


@dataclass
class Trace:
    """All that was recorded; see the module's docstring. Compare two with `compare`."""

    model: Model
    recorded: list[tuple[int, int]]  # (layer, head)
    sequences: list[TokenSequence]
    runs: list[Run]
    weights: dict[str, np.ndarray] = field(default_factory=dict)  # "sequence.token.layer.head" -> u16
    values: list[Values] | None = None

    def run(self, name: str) -> Run:
        """Return the run of that name; KeyError names those there are."""
        for run in self.runs:
            if run.name == name:
                return run
        raise KeyError(f"no run named {name!r}; this trace has {[run.name for run in self.runs]}")

    def only(self, name: str) -> Trace:
        """Return this trace with one of its runs, so that two runs can be compared."""
        return replace(self, runs=[self.run(name)])

    def attention_weights(self, token: int, layer: int, head: int, sequence: int = 0) -> np.ndarray:
        """Return the attention weights of one query over the tokens it may look at, as floats.

        Raises:
            KeyError: that row was not recorded.
        """
        key = weight_key(sequence, token, layer, head)
        if key not in self.weights:
            raise KeyError(
                f"no weights of token {token} for layer {layer}, head {head}; recorded: {self.recorded}"
            )
        return self.weights[key].astype(float) / FULL

    def __repr__(self) -> str:
        words = len(self.sequences[0].tokens)
        runs = ", ".join(f"{run.name}: {len(run.passes)} passes" for run in self.runs)
        return f"Trace({self.model.name}, {words} tokens, {self.model.n_layers} layers, {runs})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form as plain lists and dicts."""
        rows = {
            key: base64.b64encode(row.astype("<u2").tobytes()).decode() for key, row in self.weights.items()
        }
        return {
            "format": FORMAT,
            "version": VERSION,
            **{name: _plain(getattr(self, name)) for name in ("model", "recorded", "sequences", "runs")},
            "weights": {"encoding": "u16-base64", "rows": rows},
            "values": _plain(self.values),
        }

    def to_json(self) -> str:
        """Return the JSON form as one compact line."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trace:
        """Build a trace from its JSON form.

        Raises:
            TraceError: the first field that is wrong, by its path.
        """
        from helpers.trace.format import validate

        validate(data)
        return _build(data)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Build a trace from JSON text.

        Raises:
            TraceError: as in `from_dict`; the text is cut off, or holds more than Python reads.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise TraceError(
                f"this is no complete JSON text ({error}); expected a whole trace file: "
                "it may be cut off, save it again"
            ) from None
        except (ValueError, RecursionError) as error:
            what = "a number of thousands of digits" if isinstance(error, ValueError) else "lists in lists"
            raise TraceError(
                f"this JSON text holds {what}, more than Python reads; expected a trace file: "
                "it is of another tool or damaged, save it again"
            ) from None
        return cls.from_dict(data)

    def save(self, path: str | Path) -> None:
        """Write the JSON form to a file, whole or not at all. OSError if its folder is not there."""
        write_whole(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file that `save` wrote; errors as in `from_json`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise TraceError(
                f"{path} is no UTF-8 text ({error}); expected a whole trace file: "
                "it may be cut off, save it again"
            ) from None
        return cls.from_json(text)


def spread(ranges: Iterable[Sequence[int]]) -> list[int]:
    """[(0, 2), (5, 6)] -> [0, 1, 5]"""
    return [i for start, stop in ranges for i in range(start, stop)]


def gather(indices: Iterable[int]) -> list[Range]:
    """[0, 1, 5] -> [(0, 2), (5, 6)]; indices ascend."""
    ranges: list[Range] = []
    for i in indices:
        if ranges and ranges[-1][1] == i:
            ranges[-1] = (ranges[-1][0], i + 1)
        else:
            ranges.append((int(i), int(i) + 1))
    return ranges


def is_utf8(text: str) -> bool:
    """Whether text can be written to a file: half of a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def weight_key(sequence: int, token: int, layer: int, head: int) -> str:
    """The name of one row of attention weights in `Trace.weights`."""
    return f"{sequence}.{token}.{layer}.{head}"


def write_whole(path: str | Path, text: str) -> None:
    """Write a text file so that a failure leaves no partial file behind.

    Raises:
        FileNotFoundError: the folder is not there.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(path.parent)!r}; make it first, or save somewhere else"
        )
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _plain(x: Any) -> Any:
    """Dataclasses, tuples and lists as what JSON knows."""
    if isinstance(x, Other):
        return {**_plain(x.data), "op": x.op, "say": x.say}
    if is_dataclass(x):
        return {f.name: _plain(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, list | tuple):
        return [_plain(item) for item in x]
    return {key: _plain(item) for key, item in x.items()} if isinstance(x, dict) else x


def _ranges(lists: list[list[int]]) -> list[Range]:
    return [(start, stop) for start, stop in lists]


def _build_part(data: dict[str, Any]) -> Part:
    return Part(
        sequence=data["sequence"],
        visible=[_ranges(query) for query in data["visible"]],
        kept=(data["kept"][0], data["kept"][1]),
        target=data["target"],
        contexts=data["contexts"],
        out=[
            Output(o["query"], [(w, float(x), float(p)) for w, x, p in o["top"]], o["chosen"], o["how"])
            for o in data["out"]
        ],
        **{name: _ranges(data[name]) for name in ("new", "read", "written", "repeated")},
    )


def _build_event(data: dict[str, Any]) -> Pass | Drop | Other:
    if data["op"] == "pass":
        parts = [_build_part(part) for part in data["parts"]]
        shapes = [{key: row[key] for key in ("layer", "q", "k", "v", "scores")} for row in data["shapes"]]
        return Pass(data["phase"], parts, shapes, {name: data["counts"][name] for name in COUNTS})
    if data["op"] == "drop":
        return Drop(data["sequence"], _ranges(data["rows"]), data["why"], data["say"])
    rest = {key: value for key, value in data.items() if key not in ("op", "say")}
    return Other(data["op"], data["say"], rest)


def _pick(cls: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The entries of `data` that the dataclass knows: unknown keys are ignored."""
    return {name: data[name] for name in cls.__dataclass_fields__}


def _build(data: dict[str, Any]) -> Trace:
    tokens = [[Token(**_pick(Token, t)) for t in s["tokens"]] for s in data["sequences"]]
    rows = data["weights"]["rows"]
    return Trace(
        model=Model(**_pick(Model, data["model"])),
        recorded=[(layer, head) for layer, head in data["recorded"]],
        sequences=[TokenSequence(s["prompt"], t) for s, t in zip(data["sequences"], tokens, strict=True)],
        runs=[Run(r["name"], r["cache"], [_build_event(e) for e in r["events"]]) for r in data["runs"]],
        weights={key: np.frombuffer(base64.b64decode(text), "<u2") for key, text in rows.items()},
        values=None if data["values"] is None else [Values(**_pick(Values, v)) for v in data["values"]],
    )
