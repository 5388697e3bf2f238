"""The record of a run: what every pass of a decoder did, counted while it ran.

One record feeds every view (the stepper, its picture, the saved page, the figures, the tests).
A token is named by its index in its sequence, which only grows; ranges are half-open, [[0, 4]] holds 0 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from helpers.trace.document import Document, check_length, check_names

FULL = 65535  # an attention weight w is stored as round(w * FULL) in 16 bits

Range = tuple[int, int]  # half-open: (0, 4) holds 0, 1, 2, 3


@dataclass
class Token:
    """A token of a sequence."""

    text: str
    id: int | None
    position: int  # as the run counts: the toy from 1, models from 0
    origin: str  # prompt | generated


@dataclass
class TokenSequence:
    """The text of a trace; a token is named by its index here. The first `prompt` are the prompt."""

    prompt: int
    tokens: list[Token]


@dataclass
class Model:
    """What ran: sizes, head names (None for a model whose heads have none) and bytes of one element.

    Heads and widths are those of the first layer that attends: a pass's `shapes` has those of every layer.
    `layer_types` names what each layer is, such as "sliding attention"; None where all are alike.
    """

    name: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    k_dim: int | None
    v_dim: int
    scale: float | None
    head_names: list[str] | None
    element_bytes: int
    layer_types: list[str] | None = None


@dataclass
class Output:
    """What one query's logits gave: candidates (text, logit, probability) and the token chosen."""

    query: int
    top: list[tuple[str, float, float]]
    chosen: int
    how: str


@dataclass
class Part:
    """What ran in a pass. Its queries are the repeated and the new tokens, by index."""

    sequence: int
    new: list[Range]
    visible: list[list[Range]]  # for each query, the tokens it may look at
    read: list[Range]  # rows that lay in the cache already
    written: list[Range]  # rows put into a cache that stays
    kept: tuple[int, int]  # rows in the cache before and after, asked of the cache
    repeated: list[Range]  # tokens processed again
    target: list[int] | None  # training: the token that each query should predict
    contexts: dict[str, list[list[float]]]  # "layer.head" -> one list of v_dim numbers for each new row
    out: list[Output]

    @property
    def queries(self) -> list[int]:
        """Indices of the tokens processed in this pass."""
        return sorted([*spread(self.repeated), *spread(self.new)])


@dataclass
class Kept:
    """What layers see and keep in a pass that is not what the part says: a window, or a state and no rows."""

    layers: list[int]
    visible: list[list[Range]]
    read: list[Range]
    written: list[Range]
    kept: tuple[int, int]
    counts: dict[str, int]


@dataclass
class Pass:
    """One run of the model over one or more tokens: one part. Counts are those of one head and one layer."""

    phase: str  # training | prefill | decode
    parts: list[Part]
    shapes: list[
        dict[str, Any]
    ]  # one a layer: layer, q, k, v, scores; those and state where it keeps a state
    counts: dict[str, int]  # positions, kv_rows, rows_read, pairs, products
    others: list[Kept] = field(default_factory=list)  # of layers that do otherwise

    def at(self, layer: int) -> Pass:
        """Return the pass as one layer does it: its part and counts are that layer's."""
        for other in self.others:
            if layer in other.layers:
                mine = {name: x for name, x in vars(other).items() if name not in ("layers", "counts")}
                return replace(self, parts=[replace(self.parts[0], **mine)], counts=other.counts, others=[])
        return self


@dataclass
class Run:
    """The same tokens processed once through, with one kind of cache: none, growing, static, …"""

    name: str
    cache: str
    passes: list[Pass]

    @property
    def steps(self) -> list[Pass]:
        """The passes of the reply: prefill and the decode steps, without the training reference."""
        return [event for event in self.passes if event.phase != "training"]

    def counted(self, what: str) -> list[int]:
        """Return one of the counts, such as "positions", of each step."""
        return [event.counts[what] for event in self.steps]


@dataclass
class Values:
    """Contents of K and V by token index (the toy only): k is None where the run had rules, not keys."""

    sequence: int
    layer: int
    k: list[list[float]] | None
    v: list[list[float]]


@dataclass
class Trace(Document):
    """All that was recorded; see the module's docstring. Compare two with `compare`."""

    FORMAT = "watch-it-decode-trace"

    model: Model
    recorded: list[tuple[int, int]]  # (layer, head)
    sequences: list[TokenSequence]
    runs: list[Run]
    weights: dict[str, np.ndarray] = field(default_factory=dict)  # "sequence.token.layer.head" -> u16
    values: list[Values] | None = None

    def check(self) -> None:
        """Raise TraceError for a number that names nothing that is there, or a list of the wrong length."""
        n_layers = self.model.n_layers
        passes = [event for run in self.runs for event in run.passes]
        check_length("texts", len(self.sequences), 1)
        check_length("runs without a pass", sum(not run.passes for run in self.runs or [Run("", "", [])]), 0)
        n_tokens = len(self.sequences[0].tokens)
        check_names("token", [self.sequences[0].prompt - 1], n_tokens)
        check_names("head", [head for _, head in self.recorded], self.model.n_heads)
        layers = [layer for layer, _ in self.recorded] + [one.layer for one in self.values or []]
        layers += [shape["layer"] for event in passes for shape in event.shapes]
        check_names(
            "layer", layers + [n for event in passes for one in event.others for n in one.layers], n_layers
        )
        for event in passes:
            check_length("parts of a pass", len(event.parts), 1)
            [part] = event.parts
            for start, stop in part.new + part.repeated:
                check_names("token", (start, stop - 1), n_tokens)
            check_length("targets", len(part.target or part.queries), len(part.queries))
            check_names("token", part.target or [], n_tokens)
            for out in part.out:
                check_names("token", (out.query, out.chosen), n_tokens)
            looks: list[Part | Kept] = [part, *event.others]
            for one in looks:
                check_length("lists of visible tokens", len(one.visible), len(part.queries))
                for start, stop in chain(one.read, one.written, *one.visible):
                    check_names("token", (start, stop - 1), n_tokens)
            self._check_weights(event)

    def _check_weights(self, event: Pass) -> None:
        queries = event.parts[0].queries
        for layer in {layer for layer, _ in self.recorded}:
            sizes = [sum(stop - start for start, stop in seen) for seen in event.at(layer).parts[0].visible]
            for head in (head for of, head in self.recorded if of == layer):
                for query, size in zip(queries, sizes, strict=True):
                    row = self.weights.get(weight_key(0, query, layer, head))
                    check_length("attention weights of a token", size if row is None else len(row), size)

    @property
    def layers(self) -> list[int]:
        """The layers that can be shown: those with heads that were recorded, and those that keep no rows."""
        rowless = {shape["layer"] for shape in self.runs[0].passes[0].shapes if shape["v"] is None}
        return sorted(rowless | {layer for layer, _ in self.recorded})

    def run(self, name: str) -> Run:
        """Return the run of that name; KeyError names those there are."""
        for run in self.runs:
            if run.name == name:
                return run
        raise KeyError(f"no run named {name!r}; this trace has {[run.name for run in self.runs]}")

    def only(self, name: str) -> Trace:
        """Return this trace with one of its runs, so that two runs can be compared."""
        return replace(self, runs=[self.run(name)])

    def attention_weights(self, token: int, layer: int, head: int) -> np.ndarray:
        """Return one query's weights over the tokens it may look at; KeyError if they were not recorded."""
        key = weight_key(0, token, layer, head)
        if key not in self.weights:
            raise KeyError(f"no row of token {token}, layer {layer}, head {head}; recorded: {self.recorded}")
        return self.weights[key].astype(float) / FULL

    def __repr__(self) -> str:
        words = len(self.sequences[0].tokens)
        runs = ", ".join(f"{run.name}: {len(run.passes)} passes" for run in self.runs)
        return f"Trace({self.model.name}, {words} tokens, {self.model.n_layers} layers, {runs})"


def spread(ranges: Iterable[Sequence[int]]) -> list[int]:
    """[(0, 2), (5, 6)] -> [0, 1, 5]"""
    return [i for start, stop in ranges for i in range(start, stop)]


def gather(indices: Iterable[int]) -> list[Range]:
    """[0, 1, 5] -> [(0, 2), (5, 6)]"""
    found = set(map(int, indices))
    starts = sorted(i for i in found if i - 1 not in found)
    stops = sorted(i + 1 for i in found if i + 1 not in found)
    return list(zip(starts, stops, strict=True))


def weight_key(sequence: int, token: int, layer: int, head: int) -> str:
    """The name of one row of attention weights in `Trace.weights`."""
    return f"{sequence}.{token}.{layer}.{head}"
