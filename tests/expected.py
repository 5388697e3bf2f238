"""Grid, KV entries and tokens at an event, as plain data, worked out by other means than the views' own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from helpers.trace import Part, Pass, Run, Trace, indices_of_ranges


def expected(trace: Trace, name: str, index: int, layer: int) -> dict[str, Any]:
    """What one event shows of a layer; keys of dicts are token indices."""
    moment = Moment(trace, trace.run(name), index, layer)
    heads = [head for where, head in trace.recorded if where == layer]
    looks = moment.looks
    return {
        "live": moment.live,
        "marks": moment.marks(),
        "tokens": [moment.token(i) for i in range(len(moment.tokens))],
        "untouched": {str(q): moment.last_pass(q) for q in moment.untouched},
        "entries": [moment.entry_state(i) for i in range(len(moment.tokens))],
        "weights": {str(q): [moment.weights(q, layer, head, looks[q]) for head in heads] for q in looks},
        "contexts": {str(q): [moment.context(q, layer, head) for head in heads] for q in looks},
        "note": moment.note(),
    }


def expected_marks(trace: Trace, name: str, index: int) -> list[list[str]]:
    """The grid of one pass, worked out from the trace's visibility alone."""
    return Moment(trace, trace.run(name), index).marks()


@dataclass
class Moment:
    """An event of a run, and what came before it."""

    trace: Trace
    run: Run
    index: int
    layer: int = 0

    def __post_init__(self) -> None:
        self.event = self.run.passes[self.index]
        self.state = next(one for one in self.event.shapes if one["layer"] == self.layer)["v"] is None
        self.part = self.event.for_layer(self.layer).parts[0]
        self.shares = self.event.for_layer(self.layer).counts["kv_rows"] == 0
        self.live = self.part.queries
        self.tokens = self.trace.sequences[0].tokens
        self.steps = self.counted(self.run.passes[: self.index + 1])
        self.keeps = self.run.cache != "none"
        self.is_training = self.event.phase == "training"

    def counted(self, passes: list[Pass]) -> list[tuple[Pass, Part]]:
        """Passes, training apart."""
        return [(one, one.for_layer(self.layer).parts[0]) for one in passes if one.phase != "training"]

    @cached_property
    def looks(self) -> dict[int, list[int]]:
        """What each token that has run looked at when it last did."""
        parts = [*(part for _, part in self.steps), self.part]
        return {
            q: indices_of_ranges(r) for part in parts for q, r in zip(part.queries, part.visible, strict=True)
        }

    def marks(self) -> list[list[str]]:
        """The grid: scored now or so many times, masked, scored before."""
        times: dict[tuple[int, int], int] = {}
        for _, part in self.steps:
            for query, ranges in zip(part.queries, part.visible, strict=True):
                for key in indices_of_ranges(ranges):
                    times[query, key] = times.get((query, key), 0) + 1
        live = {q: set(seen) for q, seen in self.looks.items() if q in self.live}
        there = set() if self.state else {*self.live, *indices_of_ranges(self.part.read)}

        def mark(query: int, key: int) -> str:
            count = times.get((query, key), 0)
            if query not in live:
                return "○" if count else ""
            if key not in live[query]:
                return "×" if key in there else ""
            return str(count) if count > 1 else "●"

        size = max(self.live) + 1
        return [[mark(query, key) for key in range(size)] for query in range(size)]

    def token(self, i: int) -> list[Any]:
        """Text, place counted from 1, where it is from, whether it is there, and whether it runs."""
        token = self.tokens[i]
        ran = any(i in part.queries for _, part in self.steps)
        chosen = any(i == out.chosen for _, part in self.steps for out in part.out)
        there = ran or i in self.live or token.origin == "prompt"
        state = "present" if there else "emitted" if chosen else "absent"
        return [token.text, i + 1, token.origin, state, i in self.live]

    @cached_property
    def untouched(self) -> list[int]:
        """Tokens that ran before this pass and do not run in it."""
        return sorted({q for _, part in self.steps for q in part.queries} - set(self.live))

    def last_pass(self, query: int) -> str:
        """The name of the last pass that ran a token."""
        return pass_name(self.run, next(e for e, part in self.steps[::-1] if query in part.queries))

    def entry_state(self, token: int) -> str:
        """What happens to a token's KV entry."""
        if token in indices_of_ranges(self.part.written):
            return "written"
        if token in indices_of_ranges(self.part.read):
            return "read"
        if self.state or token in self.live:
            return "empty" if self.state else "read" if self.shares else "made"
        ran = any(token in part.queries for _, part in self.steps)
        return "evicted" if ran and self.keeps and not self.is_training else "empty"

    def weights(self, query: int, layer: int, head: int, seen: list[int]) -> list[Any] | None:
        """[key, weight] for each key; None where the trace holds no row."""
        row = self.trace.weights.get(f"0.{query}.{layer}.{head}")
        return None if row is None else [[k, int(w) / 65535] for k, w in zip(seen, row, strict=True)]

    def context(self, query: int, layer: int, head: int) -> float | None:
        """A context of one number, from the pass in which the query was new."""
        for event in self.trace.runs[0].passes + self.trace.runs[-1].passes:
            part = event.parts[0]
            if query in indices_of_ranges(part.new) and f"{layer}.{head}" in part.contexts:
                numbers = part.contexts[f"{layer}.{head}"][indices_of_ranges(part.new).index(query)]
                return numbers[0] if len(numbers) == 1 else None
        return None

    def note(self) -> str:
        """What happens to KV entries in a pass, in words."""
        if self.state:
            kept = any(size for name, size in self.event.shapes[self.layer].items() if name != "layer")
            return "the state is rewritten" if kept else "no entry written or read"
        if self.shares:
            seen = indices_of_ranges([*self.part.read, *self.part.new, *self.part.repeated])
            return f"no entry made; {entries(len(seen))} of an earlier layer read"
        made, again = len(self.live), len(indices_of_ranges(self.part.repeated))
        if not self.keeps or self.is_training:
            return f"{entries(made)} made, " + (f"{again} again" if again else "used, dropped")
        read, written = len(indices_of_ranges(self.part.read)), len(indices_of_ranges(self.part.written))
        return f"{entries(read)} read, {written} written" if read else f"{entries(written)} written"


def entries(n: int) -> str:
    return f"{n} entr{'y' if n == 1 else 'ies'}"


def pass_name(run: Run, event: Any) -> str:
    """What a pass is called: "prefill", "decode 2"."""
    number = sum(one.phase == event.phase for one in run.passes[: run.passes.index(event) + 1])
    return f"decode {number}" if event.phase == "decode" else event.phase
