"""Synthetic traces of cases that the toy lacks, such as layers with different heads, and long texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.recording.recorder import Recorder
from helpers.recording.toy import record_toy
from helpers.sampling import softmax
from helpers.trace import (
    Model,
    Output,
    Token,
    TokenSequence,
    Trace,
    Values,
    weight_key,
)

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\u202eשלום",
    "\u200b",
    "👩‍👩‍👧",
    "x" * 200,
    '"quote\'s" & @title@',
    "\n",
]

Step = tuple[str, int, int]  # a phase, and the tokens that run: start, stop


def made(
    texts: list[str],
    prompt: int,
    plan: list[Step],
    recorded: dict[int, list[int]],
    names: list[str] | None = None,
    kv_heads: int = 1,
    seed: int = 0,
    windows: dict[int, int] | None = None,
    states: dict[int, dict[str, list[int]]] | None = None,
    shared: dict[int, int] | None = None,
) -> Trace:
    """Record two runs of a stand-in for a model, first with a KV cache and then without one.

    Args:
        texts: the texts of the tokens.
        prompt: number of tokens in the prompt, which are the first ones.
        plan: the passes of each run.
        recorded: the indices of the recorded heads, by layer.
        names: the names of the heads.
        kv_heads: number of KV heads. If there are several, the trace does not contain K and V, as in a trace
            of a real model.
        seed: seed of the random queries, keys and values.
        windows: number of tokens that a query sees, for each layer with sliding-window attention.
        states: the shapes of the state, for each layer that has a state instead of KV entries.
        shared: for each layer that reads another layer's K and V, the index of the other layer.
    """
    tokens = [Token(text, None, i, "prompt" if i < prompt else "generated") for i, text in enumerate(texts)]
    n_heads = 1 + max(head for heads in recorded.values() for head in heads)
    n_layers = 1 + max([*recorded, *(states or {})])
    model = Model("made", n_layers, n_heads, kv_heads, 2, 1, 1.0, names, 8)
    pairs = [(layer, head) for layer, heads in recorded.items() for head in heads]
    recorder = Recorder(model, [], recorded=pairs)
    recorder.trace.sequences = [TokenSequence(prompt, tokens)]
    maker = _Maker(recorder, np.random.default_rng(seed))
    maker.windows, maker.states, maker.shared = windows or {}, states or {}, shared or {}
    for run in (("cached", "growing"), ("uncached", "none")):
        recorder.begin_run(*run)
        maker.run(plan, run[0] == "cached")
    if kv_heads > 1:
        recorder.trace.values = None
    return recorder.trace


class _Maker:
    """Records runs with random queries, keys and values.

    They are chosen once, so that a token has the same attention weights in both runs.
    """

    windows: dict[int, int]
    states: dict[int, dict[str, list[int]]]
    shared: dict[int, int]

    def __init__(self, recorder: Recorder, rng: np.random.Generator) -> None:
        self.recorder, self.rng = recorder, rng
        self.sequence, model = recorder.trace.sequences[0], recorder.trace.model
        self.outs: dict[int, Output] = {}
        L, T, Hkv = model.n_layers, len(self.sequence.tokens), model.n_kv_heads
        q = rng.normal(size=(L, model.n_heads, T, 2))
        even = np.add.outer(np.arange(model.n_heads), np.arange(T)) % 4 == 0  # the rest is uneven: some
        self.q = np.where(even[..., None], 0, q)  # weights count for nothing
        self.k = (rng.permutation(900 * L)[: L * Hkv * T * 2] / 50).reshape(L, Hkv, T, 2)
        self.v = (rng.permutation(400 * L)[: L * Hkv * T] / 4).reshape(L, Hkv, T, 1)
        recorder.trace.values = [
            Values(0, layer, self.k[layer, 0].tolist(), self.v[layer, 0].tolist()) for layer in range(L)
        ]

    def run(self, plan: list[Step], cached: bool) -> None:
        self.rows: list[int] = []
        for phase, start, stop in plan:
            self.one_pass(phase, list(range(start, stop)), cached and phase != "training")

    def one_pass(self, phase: str, fresh: list[int], keeps: bool) -> None:
        training = phase == "training"
        columns = fresh if training else [*self.rows, *fresh]
        tokens = fresh if keeps else columns
        self.recorder.open_pass(phase, tokens, keeps)
        for layer in range(self.recorder.trace.model.n_layers):
            if layer in self.states:
                self.recorder.record_state(layer, self.states[layer])
            elif window := self.windows.get(layer):
                there = columns if len(tokens) > 1 else columns[-window:]
                given = self.attended(layer, tokens, there, window)
                self.recorder.record_attention(**given, n_cached=min(window - 1, len(columns)))
            elif (owner := self.shared.get(layer)) is not None:
                given = self.attended(owner, tokens, columns) | {"layer": layer}
                self.recorder.record_attention(**given, n_cached=0, computes_kv=False)
            else:
                self.recorder.record_attention(**self.attended(layer, tokens, columns))
        if not training:
            self.rows = columns
        self.recorder.close_pass()
        if not training:
            self.recorder.trace.runs[-1].passes[-1].parts[0].out.append(self.out(fresh[-1]))

    def attended(
        self, layer: int, tokens: list[int], columns: list[int], window: int = 1000
    ) -> dict[str, Any]:
        q, k, v = (
            self.q[layer][None, :, tokens],
            self.k[layer][None, :, columns],
            self.v[layer][None, :, columns],
        )
        mask = np.array([[query - window < i <= query for i in columns] for query in tokens])
        keys, values = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
        weights = softmax(np.where(mask, q @ keys.swapaxes(-1, -2), -np.inf))
        return {"q": q, "k": k, "v": v, "mask": mask, "output": weights @ values, "layer": layer}

    def out(self, query: int) -> Output:
        """Return the output for a query, with ten candidates that are not sorted by probability.

        The next token is the first candidate if `query` is even, and the last one otherwise.
        """
        if query not in self.outs:
            text = self.sequence.tokens[query + 1].text
            words = [text, *(f"other{i}" for i in range(9))][:: 1 if query % 2 else -1]
            logits = self.rng.normal(size=10) * 3
            if query % 2 == 0:
                logits[words.index(text)] = logits.max() + 1
            top = list(zip(words, logits.tolist(), softmax(logits).tolist(), strict=True))
            self.outs[query] = Output(query, top, query + 1, ("greedy", "sampled <2>")[query % 2])
        return self.outs[query]


def decodes(start: int, stop: int) -> list[Step]:
    """Return the plan of one decode step per token, for the tokens from `start` to `stop` - 1."""
    return [("decode", i, i + 1) for i in range(start, stop)]


def words(n: int) -> list[str]:
    """Return `n` different token texts of various lengths."""
    return [chr(97 + i % 26) * (1 + i % 5) + (str(i) if i > 25 else "") for i in range(n)]


FOUR = ["even", "newest", "first", "all"]


def layers() -> Trace:
    """Return a trace of four layers, three of which are recorded, each with other heads."""
    plan: list[Step] = [("training", 0, 4), ("prefill", 0, 4), *decodes(4, 7)]
    return made(words(8), 4, plan, {0: [0, 1, 2, 3], 2: [1, 3], 3: [3, 0]}, names=FOUR)


def of_size(n: int, training: bool = False) -> Callable[[], Trace]:
    """Return a function that makes a trace whose grid has `n` columns.

    SIZES has values of `n` just below and above those from which the view draws on a canvas, or a section of
    the grid.
    """
    start, plan = max(1, n - 2), [("training", 0, max(1, n - 2))] if training else []
    return lambda: made(
        words(n + 1), start, [*plan, ("prefill", 0, start), *decodes(start, n)], {0: [0, 1]}, seed=n
    )


def heads() -> Trace:
    """Return a trace with more heads than the view shows at once: ten in one layer, and six in the other.

    The attention weights of one query are missing.
    """
    plan: list[Step] = [("prefill", 0, 5), *decodes(5, 7)]
    trace = made(words(8), 5, plan, {0: [*range(10)], 1: [*range(6)]}, kv_heads=2)
    del trace.weights[weight_key(0, 6, 0, 1)]
    return trace


def kinds() -> Trace:
    """Return a trace with one layer of each type.

    The layers have full attention, a sliding window, a state, and neither KV entries nor a state. A fifth
    layer reads the K and V of the first one.
    """
    plan: list[Step] = [("prefill", 0, 5), *decodes(5, 8)]
    states = {2: {"state": [1, 2, 3, 4], "convolution": [1, 6, 3]}, 3: {}}
    recorded = {0: [0, 1], 1: [0, 1], 4: [0, 1]}
    trace = made(words(9), 5, plan, recorded, kv_heads=2, windows={1: 3}, states=states, shared={4: 0})
    full, *others = "full attention", "sliding attention", "linear attention", "mlp"
    trace.model.layer_types = [full, *others, full]
    return trace


UNEQUAL: dict[str, Callable[[], Trace]] = {"layers": layers, "heads": heads}
SIZES: dict[str, Callable[[], Trace]] = {
    f"n{n}": of_size(n, n in (1, 25)) for n in (1, 24, 25, 128, 129, 300)
}
# Every pass of these is walked, by the modules in node and by the page.
WALKED: dict[str, Callable[[], Trace]] = {
    "toy": record_toy,
    "two": lambda: record_toy(n_layers=2),
    "long run": lambda: record_toy(ban_eos=True),
    **UNEQUAL,
    **SIZES,
}
Look = tuple[str, int, int]  # a run's name, and indices of a pass and a layer


def every_look(trace: Trace) -> list[Look]:
    """Return all looks that a reader can select in a trace; see `Look`.

    For a text of more than 100 tokens, only the first and the last pass of each run are included.
    """
    looks = [
        (run.name, index, layer)
        for run in trace.runs
        for index in range(len(run.passes))
        for layer in trace.layers
    ]
    is_long = len(trace.sequences[0].tokens) > 100
    return [look for look in looks if look[1] in (0, len(trace.run(look[0]).passes) - 1) or not is_long]
