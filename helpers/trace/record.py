"""The trace of a run: what each pass of a decoder did, counted while it ran.

All views read the same trace: the stepper, its picture, the saved page, the figures and the tests. Tokens are
only ever added to a sequence, so a token's index in it, from 0, identifies the token. Ranges are half-open:
[[0, 4]] means 0 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from helpers.trace.document import Document, check_indices, check_length

WEIGHT_SCALE = 65535  # an attention weight w is stored as round(w * WEIGHT_SCALE) in 16 bits

LayerHead = tuple[int, int]  # (layer, head), from 0
Candidate = tuple[str, float, float]  # (text, logit, probability)
Range = tuple[int, int]  # half-open: (0, 4) is 0, 1, 2, 3


@dataclass
class Token:
    """A token of a sequence."""

    text: str
    id: int | None
    position: int  # the toy counts from 1, models from 0
    origin: str  # prompt | generated


@dataclass
class TokenSequence:
    """The tokens of a text, the first `prompt` of which are the prompt.

    A token is identified by its index in `tokens`; the sequence, by its index in the trace.
    """

    prompt: int
    tokens: list[Token]


@dataclass
class Model:
    """The model that ran: its sizes, its heads' names (None if they have no names), and bytes per element.

    The head counts and widths are those of the first layer with attention; for the shapes of every layer, see
    `shapes` of a pass. `k_dim` is None if the heads follow rules instead of using keys. `layer_types` gives
    the type of each layer, such as "sliding attention", or is None if all layers are of the same type.
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
    """The output of one query.

    Attributes:
        query: index of the query's token.
        top: the candidates for the next token.
        chosen: index of the chosen token.
        how: how it was chosen, such as "greedy".
    """

    query: int
    top: list[Candidate]
    chosen: int
    how: str


@dataclass
class Part:
    """The tokens that ran in a pass, by index. The pass's queries are the repeated and the new tokens."""

    sequence: int
    new: list[Range]
    visible: list[list[Range]]  # for each query, the tokens that it may attend to
    read: list[Range]  # tokens whose KV entries were in the cache before
    written: list[Range]  # tokens whose KV entries the cache keeps
    kept: tuple[int, int]  # KV entries in the cache before and after, as the cache reports them
    repeated: list[Range]  # tokens that are processed again
    target: list[int] | None  # training: the token that each query should predict
    contexts: dict[str, list[list[float]]]  # "layer.head" -> one list of v_dim numbers for each new token
    out: list[Output]

    @property
    def queries(self) -> list[int]:
        """Indices of the tokens processed in this pass, in increasing order."""
        return sorted([*indices_of_ranges(self.repeated), *indices_of_ranges(self.new)])


@dataclass
class Kept:
    """The visible tokens and KV entries of layers that differ from `Part`: with a window, or without entries.

    `layers` has the indices of these layers. The other fields are as in `Part` and `Pass`.
    """

    layers: list[int]
    visible: list[list[Range]]
    read: list[Range]
    written: list[Range]
    kept: tuple[int, int]
    counts: dict[str, int]


@dataclass
class Pass:
    """One pass of the model over one or more tokens, as one part. Counts are for one head of one layer."""

    phase: str  # training | prefill | decode
    parts: list[Part]
    shapes: list[dict[str, Any]]  # for each layer: layer, q, k, v, scores, and state if it keeps one
    counts: dict[str, int]  # positions, kv_rows, rows_read, pairs, products
    others: list[Kept] = field(default_factory=list)  # layers that differ

    def for_layer(self, layer: int) -> Pass:
        """Return the pass as it was for one layer: with its visible tokens, cached entries and counts."""
        for other in self.others:
            if layer in other.layers:
                own = {name: x for name, x in vars(other).items() if name not in ("layers", "counts")}
                return replace(self, parts=[replace(self.parts[0], **own)], counts=other.counts, others=[])
        return self


@dataclass
class Run:
    """One run over the tokens. `cache` is the type of its cache: none, growing, static, …"""

    name: str
    cache: str
    passes: list[Pass]

    @property
    def steps(self) -> list[Pass]:
        """The passes that generate the reply: prefill and decode, but not training."""
        return [event for event in self.passes if event.phase != "training"]

    def counts_per_step(self, count: str) -> list[int]:
        """Return one of the counts, such as "positions", for each of `steps`."""
        return [event.counts[count] for event in self.steps]


@dataclass
class Values:
    """One layer's keys and values, one row per token (toy model only)."""

    sequence: int
    layer: int
    k: list[list[float]] | None
    v: list[list[float]]


@dataclass
class Trace(Document):
    """The trace of the runs of one text. Two traces can be compared with `compare`."""

    FORMAT = "watch-it-decode-trace"

    model: Model
    recorded: list[LayerHead]
    sequences: list[TokenSequence]
    runs: list[Run]
    weights: dict[str, np.ndarray] = field(default_factory=dict)  # "sequence.token.layer.head" -> u16
    values: list[Values] | None = None

    def check(self) -> None:
        """Raise TraceError if an index is out of range or a list has the wrong length."""
        n_layers = self.model.n_layers
        passes = [event for run in self.runs for event in run.passes]
        check_length("texts", len(self.sequences), 1)
        check_length("runs without a pass", sum(not run.passes for run in self.runs or [Run("", "", [])]), 0)
        n_tokens = len(self.sequences[0].tokens)
        check_indices("token", [self.sequences[0].prompt - 1], n_tokens)
        check_indices("head", [head for _, head in self.recorded], self.model.n_heads)
        layers = [layer for layer, _ in self.recorded] + [one.layer for one in self.values or []]
        layers += [shape["layer"] for event in passes for shape in event.shapes]
        check_indices(
            "layer", layers + [n for event in passes for one in event.others for n in one.layers], n_layers
        )
        for event in passes:
            check_length("parts of a pass", len(event.parts), 1)
            [part] = event.parts
            for start, stop in part.new + part.repeated:
                check_indices("token", (start, stop - 1), n_tokens)
            check_length("targets", len(part.target or part.queries), len(part.queries))
            check_indices("token", part.target or [], n_tokens)
            for out in part.out:
                check_indices("token", (out.query, out.chosen), n_tokens)
            layer_groups: list[Part | Kept] = [part, *event.others]
            for group in layer_groups:
                check_length("lists of visible tokens", len(group.visible), len(part.queries))
                for start, stop in chain(group.read, group.written, *group.visible):
                    check_indices("token", (start, stop - 1), n_tokens)
            self._check_weights(event)

    def _check_weights(self, event: Pass) -> None:
        queries = event.parts[0].queries
        for layer in {layer for layer, _ in self.recorded}:
            sizes = [
                sum(stop - start for start, stop in seen) for seen in event.for_layer(layer).parts[0].visible
            ]
            for head in (head for recorded_layer, head in self.recorded if recorded_layer == layer):
                for query, size in zip(queries, sizes, strict=True):
                    row = self.weights.get(weight_key(0, query, layer, head))
                    check_length("attention weights of a token", size if row is None else len(row), size)

    @property
    def layers(self) -> list[int]:
        """Indices, from 0, of the layers that can be shown.

        These are the layers with recorded heads and those without attention.
        """
        no_attention = {shape["layer"] for shape in self.runs[0].passes[0].shapes if shape["v"] is None}
        return sorted(no_attention | {layer for layer, _ in self.recorded})

    def run(self, name: str) -> Run:
        """Return the run called `name`. Raises KeyError, which lists all runs, if no run has that name."""
        for run in self.runs:
            if run.name == name:
                return run
        raise KeyError(f"no run named {name!r}; this trace has {[run.name for run in self.runs]}")

    def only_run(self, name: str) -> Trace:
        """Return this trace with only the run called `name`, so that two runs can be compared."""
        return replace(self, runs=[self.run(name)])

    def attention_weights(self, token: int, layer: int, head: int) -> np.ndarray:
        """Return a token's attention weights over the tokens that it may attend to.

        Args:
            token: index of the token that attends.
            layer, head: indices, from 0.

        Raises:
            KeyError: the weights were not recorded.
        """
        key = weight_key(0, token, layer, head)
        if key not in self.weights:
            raise KeyError(
                f"no weights of token {token}, layer {layer}, head {head}; recorded: {self.recorded}"
            )
        return self.weights[key].astype(float) / WEIGHT_SCALE

    def __repr__(self) -> str:
        words = len(self.sequences[0].tokens)
        runs = ", ".join(f"{run.name}: {len(run.passes)} passes" for run in self.runs)
        return f"Trace({self.model.name}, {words} tokens, {self.model.n_layers} layers, {runs})"


def indices_of_ranges(ranges: Iterable[Sequence[int]]) -> list[int]:
    """Return the indices that are in half-open ranges: [(0, 2), (5, 6)] -> [0, 1, 5]."""
    return [i for start, stop in ranges for i in range(start, stop)]


def ranges_of_indices(indices: Iterable[int]) -> list[Range]:
    """Return indices as sorted half-open ranges: [0, 1, 5] -> [(0, 2), (5, 6)]."""
    unique = set(map(int, indices))
    starts = sorted(i for i in unique if i - 1 not in unique)
    stops = sorted(i + 1 for i in unique if i + 1 not in unique)
    return list(zip(starts, stops, strict=True))


def weight_key(sequence: int, token: int, layer: int, head: int) -> str:
    """Return the key in `Trace.weights` of a token's attention weights, given its sequence and the head."""
    return f"{sequence}.{token}.{layer}.{head}"
