"""The trace of a decoder's runs: a record of what the decoder did in each pass.

The stepper, its static picture, the saved page, the figures and the tests all read the same trace. Tokens are
only added to the end of a sequence, so a token is identified by its index in the sequence, from 0. Sets of
indices are stored as half-open ranges: [[0, 4]] means 0 to 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from helpers.trace.document import Document, check_indices, check_length

WEIGHT_SCALE = 65535  # an attention weight w is stored in 16 bits, as w * WEIGHT_SCALE, rounded

LayerHead = tuple[int, int]  # (index of the layer, index of the head), both from 0
Candidate = tuple[str, float, float]  # (text, logit, probability)
Range = tuple[int, int]  # half-open: (0, 4) is 0, 1, 2, 3


@dataclass
class Token:
    """A token in a sequence."""

    text: str
    id: int | None
    position: int  # from 1 in the toy, from 0 in models
    origin: str  # prompt | generated


@dataclass
class TokenSequence:
    """The tokens of a prompt and its reply. The first `prompt` of them are the prompt.

    A token is identified by its index in `tokens`. The sequence is identified by its index in the trace.
    """

    prompt: int
    tokens: list[Token]


@dataclass
class Model:
    """The dimensions of the model that ran, the names of its heads, and the types of its layers.

    Attributes:
        name: name of the model.
        n_layers: number of layers.
        n_heads, n_kv_heads: numbers of query heads and KV heads in the first layer with attention. The
            `shapes` of a pass have those of all layers.
        k_dim, v_dim: numbers of channels of a key and of a value in that layer. `k_dim` is None if the heads
            follow rules instead of using keys.
        scale: the factor by which scores are multiplied before the softmax.
        head_names: names of the heads; None if they have no names.
        element_bytes: bytes per tensor element.
        layer_types: the type of each layer, such as "sliding attention"; None if all layers have the same
            type.
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
    """The next token that a pass produced, and the candidates for it.

    Attributes:
        query: index, in the sequence, of the token whose logits were used.
        top: the candidates for the next token, with their logits and probabilities.
        chosen: index, in the sequence, of the chosen token.
        how: how the token was chosen, such as "greedy".
    """

    query: int
    top: list[Candidate]
    chosen: int
    how: str


@dataclass
class Part:
    """The tokens that ran in a pass, and what attention and the cache did with them.

    Tokens are given by their indices in the sequence. The queries of the pass are the new and the repeated
    tokens, in increasing order of their indices.
    """

    sequence: int
    new: list[Range]  # tokens that are processed for the first time in this run
    visible: list[list[Range]]  # for each query, the tokens that it may attend to
    read: list[Range]  # tokens whose KV entries are read from the cache
    written: list[Range]  # tokens whose KV entries are written to the cache and kept
    kept: tuple[int, int]  # number of KV entries in the cache before and after the pass
    repeated: list[Range]  # tokens that were already processed in this run
    target: list[int] | None  # in training, the token that each query should predict
    contexts: dict[str, list[list[float]]]  # "layer.head" -> for each new token, a list of v_dim channels
    out: list[Output]

    @property
    def queries(self) -> list[int]:
        """The indices of the tokens that this pass processes, in increasing order."""
        return sorted([*indices_of_ranges(self.repeated), *indices_of_ranges(self.new)])


@dataclass
class Kept:
    """The visible tokens and KV entries of layers in which these differ from the pass's `Part`.

    Such layers have a window, for example, or keep no KV entries. `layers` has the indices of these layers.
    The other fields are as in `Part` and `Pass`.
    """

    layers: list[int]
    visible: list[list[Range]]
    read: list[Range]
    written: list[Range]
    kept: tuple[int, int]
    counts: dict[str, int]


@dataclass
class Pass:
    """One pass of the model over one or more tokens.

    `parts` has exactly one element. `counts` are those of one head in one layer.
    """

    phase: str  # training | prefill | decode
    parts: list[Part]
    shapes: list[dict[str, Any]]  # for each layer, its index and the shapes of q, k, v, scores and any states
    counts: dict[str, int]  # positions, kv_rows, rows_read, pairs, products
    others: list[Kept] = field(default_factory=list)  # groups of layers to which `parts` does not apply

    def for_layer(self, layer: int) -> Pass:
        """Return the pass with the visible tokens, KV entries and counts of the layer with index `layer`."""
        for other in self.others:
            if layer in other.layers:
                own = {name: x for name, x in vars(other).items() if name not in ("layers", "counts")}
                return replace(self, parts=[replace(self.parts[0], **own)], counts=other.counts, others=[])
        return self


@dataclass
class Run:
    """One run of the model over the sequence, with a cache or without one.

    `cache` is the type of the cache, such as "growing", or "none".
    """

    name: str
    cache: str
    passes: list[Pass]

    @property
    def steps(self) -> list[Pass]:
        """The passes that generate the reply: prefill and decode steps, but not training passes."""
        return [event for event in self.passes if event.phase != "training"]


@dataclass
class Values:
    """The keys and values of all tokens in one layer, with one row per token. Only the toy records them."""

    sequence: int
    layer: int
    k: list[list[float]] | None
    v: list[list[float]]


@dataclass
class Trace(Document):
    """The trace of one or more runs over the same sequence of tokens.

    Two traces can be compared with `compare`.
    """

    FORMAT = "watch-it-decode-trace"

    model: Model
    recorded: list[LayerHead]
    sequences: list[TokenSequence]
    runs: list[Run]
    weights: dict[str, np.ndarray] = field(default_factory=dict)  # "sequence.token.layer.head" -> uint16s
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
        """The indices, from 0, of the layers that a view can show.

        These are the layers with recorded heads and the layers without attention.
        """
        no_attention = {shape["layer"] for shape in self.runs[0].passes[0].shapes if shape["v"] is None}
        return sorted(no_attention | {layer for layer, _ in self.recorded})

    def run(self, name: str) -> Run:
        """Return the run called `name`.

        Raises:
            KeyError: no run has this name. The error lists the names of all runs.
        """
        for run in self.runs:
            if run.name == name:
                return run
        raise KeyError(f"no run named {name!r}; this trace has {[run.name for run in self.runs]}")

    def only_run(self, name: str) -> Trace:
        """Return a copy of this trace with only the run called `name`.

        Two runs can be compared by calling `compare` with two such traces.
        """
        return replace(self, runs=[self.run(name)])

    def attention_weights(self, token: int, layer: int, head: int) -> np.ndarray:
        """Return a token's attention weights in one head, over the tokens that it may attend to.

        Args:
            token: index of the token that attends.
            layer, head: indices of the layer and of the head, from 0.

        Raises:
            KeyError: these attention weights were not recorded.
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
    """Return the indices in half-open ranges, such as [0, 1, 5] for [(0, 2), (5, 6)]."""
    return [i for start, stop in ranges for i in range(start, stop)]


def ranges_of_indices(indices: Iterable[int]) -> list[Range]:
    """Return sorted half-open ranges of the given indices, such as [(0, 2), (5, 6)] for [0, 1, 5]."""
    unique = set(map(int, indices))
    starts = sorted(i for i in unique if i - 1 not in unique)
    stops = sorted(i + 1 for i in unique if i + 1 not in unique)
    return list(zip(starts, stops, strict=True))


def weight_key(sequence: int, token: int, layer: int, head: int) -> str:
    """Return the key under which `Trace.weights` stores a token's attention weights in one head.

    Args:
        sequence: index of the token's sequence in the trace.
        token: index of the token in the sequence.
        layer, head: indices of the layer and of the head.
    """
    return f"{sequence}.{token}.{layer}.{head}"
