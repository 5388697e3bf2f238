"""Traces made by hand, of what no toy shows: unequal layers and heads, drops, drafts, sequences, sizes."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from helpers.recording.toy import record_toy
from helpers.trace import (
    Drop,
    Model,
    Other,
    Output,
    Part,
    Pass,
    Run,
    Token,
    TokenSequence,
    Trace,
    Values,
    gather,
    spread,
    weight_key,
)

DROP = Drop(0, [(0, 2)], "evicted", "Two rows leave.")
SWAP = Other("swap", "The rows <b>move</b>.")
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

Step = tuple[str, int, int]  # a phase or "drop", and the tokens that run or leave, half-open
EMITTED = {"prefill", "decode", "verify"}


def made(
    texts: list[str],
    prompt: int,
    plan: list[Step],
    recorded: dict[int, list[int]],
    *,
    names: list[str] | None = None,
    chosen: dict[int, int] | None = None,
    kv_heads: int = 1,
    seed: int = 0,
) -> Trace:
    """Return a trace of two runs, with a cache that goes by the plan and without one.

    Args:
        texts: a token each; what is drafted and rejected stays among them.
        prompt: how many of them are the prompt.
        plan: the passes of the cached run, and what drops its rows. The plain run has no drops.
        recorded: the heads of each recorded layer; every weight, key and value differs between them.
        names: of all heads; None for a model whose heads have none.
        chosen: the token that a query's logits gave, by query; without it the last query's is the next one.
        kv_heads: of several, K and V are not kept, as in the record of a model.
        seed: another one gives other numbers.
    """
    maker = _Maker(texts, prompt, recorded, chosen or {}, kv_heads, np.random.default_rng(seed))
    cached, plain = maker.run("cached", "growing", plan), maker.run("uncached", "none", plan)
    tokens = [
        Token(text, None, i, "prompt" if i < prompt else "draft" if i in maker.drafts else "generated")
        for i, text in enumerate(texts)
    ]
    return Trace(
        model=Model("made", 1 + max(recorded), maker.n_heads, kv_heads, 2, 1, 1.0, names, 8),
        recorded=[(layer, head) for layer, heads in recorded.items() for head in heads],
        sequences=[TokenSequence(prompt, tokens)],
        runs=[cached, plain],
        weights=maker.rows,
        values=[Values(0, layer, maker.k[layer], maker.v[layer]) for layer in recorded]
        if kv_heads == 1
        else None,
    )


class _Maker:
    """Rolls the numbers of a run; what a token sees and weighs is the same in both runs."""

    def __init__(
        self,
        texts: list[str],
        prompt: int,
        recorded: dict[int, list[int]],
        chosen: dict[int, int],
        kv_heads: int,
        rng: Any,
    ) -> None:
        self.texts, self.prompt, self.recorded, self.chosen, self.rng = texts, prompt, recorded, chosen, rng
        self.kv_heads = kv_heads
        self.n_heads = 1 + max(head for heads in recorded.values() for head in heads)
        self.sees: dict[int, list[int]] = {}
        self.rows: dict[str, np.ndarray] = {}
        self.drafts: set[int] = set()
        self.outs: dict[int, Output] = {}
        self.v = {layer: (rng.permutation(400)[: len(texts), None] / 4).tolist() for layer in recorded}
        self.k = {
            layer: (rng.permutation(900)[: 2 * len(texts)] / 4).reshape(-1, 2).tolist() for layer in recorded
        }

    def run(self, name: str, cache: str, plan: list[Step]) -> Run:
        stored: list[int] = []
        events: list[Any] = []
        for what, start, stop in plan:
            fresh = list(range(start, stop))
            if what == "drop":
                if cache != "none":
                    stored = [i for i in stored if i not in fresh]
                    events.append(Drop(0, [(start, stop)], "window", f"{stop - start} rows <leave>."))
                continue
            keeps = cache != "none" and what != "training"
            again = [] if keeps or what == "training" else [i for i in stored if i < start]
            events.append(self.one_pass(what, fresh, again, stored if keeps else [], keeps))
            stored = stored if what == "training" else [*stored, *fresh]
        return Run(name, cache, events)

    def one_pass(self, phase: str, fresh: list[int], again: list[int], read: list[int], keeps: bool) -> Pass:
        queries = [*again, *fresh]
        for query in fresh:
            self.sees.setdefault(query, [i for i in [*read, *again, *fresh] if i <= query])
        if phase == "verify":
            self.drafts |= set(fresh[1:])
        visible = [gather(self.sees[query]) for query in queries]
        part = Part(
            sequence=0,
            new=gather(fresh),
            visible=visible,
            read=gather(read),
            written=gather(fresh) if keeps else [],
            kept=(len(read), len(read) + len(fresh)) if keeps else (0, 0),
            repeated=gather(again),
            target=[i + 1 for i in fresh] if phase == "training" else None,
            contexts={
                f"{layer}.{head}": [[self.context(query, layer, head)] for query in fresh]
                for layer, heads in self.recorded.items()
                for head in heads
            },
            out=[
                self.out(query) for query in fresh if phase in EMITTED and query in self.heard(phase, fresh)
            ],
        )
        pairs = sum(len(spread(ranges)) for ranges in visible)
        counts = {"positions": len(queries), "kv_rows": len(queries), "rows_read": len(read), "pairs": pairs}
        return Pass(
            phase,
            [part],
            self.shapes(len(queries), len(read)),
            {**counts, "products": len(queries) * (len(read) + len(queries))},
        )

    def heard(self, phase: str, fresh: list[int]) -> list[int]:
        """Whose logits give a word: those of drafts up to a rejected one, else the last of a full prompt."""
        return (
            [i for i in fresh if i in self.chosen]
            if phase == "verify"
            else [i for i in fresh[-1:] if i >= self.prompt - 1]
        )

    def shapes(self, new: int, read: int) -> list[dict[str, Any]]:
        return shapes(1 + max(self.recorded), self.n_heads, self.kv_heads, new, new + read)

    def context(self, query: int, layer: int, head: int) -> float:
        key = weight_key(0, query, layer, head)
        if key not in self.rows:
            # Uneven on purpose: some weights count for nothing, some rows are even.
            share = (
                self.rng.dirichlet([0.3] * len(self.sees[query]))
                if (query + head) % 4
                else 1 / len(self.sees[query])
            )
            self.rows[key] = np.round(share * np.ones(len(self.sees[query])) * 65535).astype("<u2")
        weights = self.rows[key].astype(float) / 65535
        return float(sum(w * self.v[layer][i][0] for w, i in zip(weights, self.sees[query], strict=True)))

    def out(self, query: int) -> Output:
        """Ten candidates in no order of size; the token that follows is the last of them every other time."""
        if query not in self.outs:
            follows = self.chosen.get(query, query + 1)
            words = [self.texts[follows], *(f"other{n}" for n in range(9))][:: 1 if query % 2 else -1]
            logits = self.rng.normal(size=10) * 3
            if query % 2 == 0:
                logits[words.index(self.texts[follows])] = logits.max() + 1
            p = np.exp(logits) / np.exp(logits).sum()
            top = [(word, float(x), float(y)) for word, x, y in zip(words, logits, p, strict=True)]
            self.outs[query] = Output(query, top, follows, ("greedy", "sampled <2>")[query % 2])
        return self.outs[query]


def shapes(
    n_layers: int, heads: int, kv_heads: int, new: int, keys: int, batch: int = 1
) -> list[dict[str, Any]]:
    """What each layer works on in a pass."""
    one = {
        "q": [batch, heads, new, 2],
        "k": [batch, kv_heads, keys, 2],
        "v": [batch, kv_heads, keys, 1],
        "scores": [batch, heads, new, keys],
    }
    return [{"layer": layer, **one} for layer in range(n_layers)]


def together(first: Trace, second: Trace) -> Trace:
    """Two traces as two sequences of one; the second comes two passes later, and equal passes run as one."""
    runs = []
    for one, other in zip(first.runs, second.runs, strict=True):
        events: list[Any] = []
        later = [[], [], *_steps([_as_second(event) for event in other.events])]
        for step in map(_joined, zip_longest(_steps(one.events), later, fillvalue=[])):
            passes = [event for event in step if isinstance(event, Pass)]
            events += [event for event in step if isinstance(event, Drop)]
            if len({event.phase for event in passes}) == len(passes):
                events += passes
                continue
            a, b = passes
            counts = {name: a.counts[name] + b.counts[name] for name in a.counts}
            T, S = (max(one.shapes[0]["scores"][n] for one in passes) for n in (2, 3))
            sizes = shapes(len(a.shapes), first.model.n_heads, first.model.n_kv_heads, T, S, batch=2)
            events.append(Pass(a.phase, [*a.parts, *b.parts], sizes, {**counts, "products": 2 * T * S}))
        runs.append(Run(one.name, one.cache, events))
    return replace(
        first,
        sequences=[*first.sequences, *second.sequences],
        runs=runs,
        weights=first.weights | {f"1{key[1:]}": row for key, row in second.weights.items()},
        values=[*(first.values or []), *(replace(kept, sequence=1) for kept in second.values or [])],
    )


def _joined(pair: tuple[list[Any], ...]) -> list[Any]:
    return [event for events in pair for event in events]


def _steps(events: list[Any]) -> list[list[Any]]:
    """Events in stretches that end with a pass."""
    steps: list[list[Any]] = [[]]
    for event in events:
        steps[-1].append(event)
        if isinstance(event, Pass):
            steps.append([])
    return steps


def _as_second(event: Any) -> Any:
    if isinstance(event, Drop):
        return replace(event, sequence=1)
    return replace(event, parts=[replace(part, sequence=1) for part in event.parts])


def decodes(start: int, stop: int) -> list[Step]:
    """A decode step for each token."""
    return [("decode", i, i + 1) for i in range(start, stop)]


def words(n: int) -> list[str]:
    """Texts that differ, of one to seven characters."""
    return [chr(97 + i % 26) * (1 + i % 5) + (str(i) if i > 25 else "") for i in range(n)]


FOUR = ["even", "newest", "first", "all"]


def layers() -> Trace:
    """Two of four layers and one more, with other heads each."""
    plan: list[Step] = [("training", 0, 4), ("prefill", 0, 4), *decodes(4, 7)]
    return made(words(8), 4, plan, {0: [0, 1, 2, 3], 2: [1, 3], 3: [3, 0]}, names=FOUR)


def sequences() -> Trace:
    """Two sequences of unequal length in the passes of one run; rows of the second leave the cache."""
    plan: list[Step] = [("training", 0, 3), ("prefill", 0, 3), *decodes(3, 6)]
    other = [("prefill", 0, 5), ("decode", 5, 6), ("drop", 0, 2), ("decode", 6, 7)]
    recorded = {0: [0, 1], 1: [0, 1]}
    return together(made(words(7), 3, plan, recorded), made(words(9)[::-1][:8], 5, other, recorded, seed=6))


def of_size(n: int, training: bool = False) -> Callable[[], Trace]:
    """So many columns, on both sides of where the canvas and its window begin."""
    start, plan = max(1, n - 2), [("training", 0, max(1, n - 2))] if training else []
    return lambda: made(
        words(n + 1), start, [*plan, ("prefill", 0, start), *decodes(start, n)], {0: [0, 1]}, seed=n
    )


def heads() -> Trace:
    """More heads than have a line each, ten in one layer and six in the other; one row was not recorded."""
    plan: list[Step] = [("prefill", 0, 5), *decodes(5, 7)]
    trace = made(words(8), 5, plan, {0: [*range(10)], 1: [*range(6)]}, kv_heads=2)
    del trace.weights[weight_key(0, 6, 0, 1)]
    return trace


def window() -> Trace:
    """Rows that leave the cache between passes."""
    plan = [("prefill", 0, 4), ("drop", 0, 2), *decodes(4, 6), ("drop", 2, 3), *decodes(6, 8)]
    return made(words(9), 4, plan, {0: [0, 1], 1: [0, 1]}, seed=1)


def drafts() -> Trace:
    """Three drafts verified in one pass, two of them rejected."""
    plan = [("prefill", 0, 3), ("verify", 3, 7), ("drop", 5, 7), *decodes(7, 9)]
    return made(words(10), 3, plan, {0: [0, 1, 2]}, chosen={3: 4, 4: 7}, seed=2)


def chunks() -> Trace:
    """A prompt in three chunks, and more tokens than a static table has columns."""
    plan = [("prefill", 0, 3), ("prefill", 3, 4), ("prefill", 4, 6), *decodes(6, 18)]
    return made(words(19), 6, plan, {0: [2, 5]}, seed=3)


UNEQUAL: dict[str, Callable[[], Trace]] = {
    make.__name__: make for make in (layers, heads, window, drafts, chunks, sequences)
}
SIZES: dict[str, Callable[[], Trace]] = {
    f"n{n}": of_size(n, n in (1, 25)) for n in (1, 24, 25, 128, 129, 300)
}
# Every event of these is held against tests/expected.py, by the modules in node and by the page.
WALKED: dict[str, Callable[[], Trace]] = {
    "toy": record_toy,
    "two": lambda: record_toy(n_layers=2),
    "long run": lambda: record_toy(ban_eos=True),
    **UNEQUAL,
    **SIZES,
    "drop": lambda: with_event(DROP, 3),
    "swap": lambda: with_event(SWAP, 2),
    "fewer": lambda: with_fewer_passes(),
}
Look = tuple[str, int, int, int]  # a run's name, and indices of an event, a layer and a sequence


def every_look(trace: Trace) -> list[Look]:
    """All that a reader can turn to; of a long text only the passes at both ends."""
    looks = [
        (run.name, index, layer, sequence)
        for run in trace.runs
        for index in range(len(run.events))
        for layer in sorted({layer for layer, _ in trace.recorded})
        for sequence in range(len(trace.sequences))
    ]
    is_long = len(trace.sequences[0].tokens) > 100
    return [look for look in looks if look[1] in (0, len(trace.run(look[0]).events) - 1) or not is_long]


def with_event(event: Drop | Other, index: int, name: str = "cached", trace: Trace | None = None) -> Trace:
    """A toy's trace with one event more in one of its runs."""
    trace = deepcopy(trace or record_toy())
    trace.run(name).events.insert(index, event)
    return trace


def with_fewer_passes(missing: int = 2) -> Trace:
    """A long run whose replay without a cache stops earlier."""
    trace = record_toy(ban_eos=True, max_new=5)
    del trace.run("uncached").events[-missing:]
    return trace
