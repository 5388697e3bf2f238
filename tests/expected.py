"""What a view must show for a pass, as plain data: the grid, the KV entries and the tokens.

It is computed from the trace independently of the views' own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from helpers.trace import Part, Pass, Run, Trace, indices_of_ranges


def expected(trace: Trace, name: str, index: int, layer: int) -> dict[str, Any]:
    """Return what a view must show for one pass and one layer. The keys of inner dicts are token indices.

    Args:
        trace: the trace.
        name: the name of the run.
        index: the index of the pass in the run.
        layer: the index of the layer.
    """
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
    """Return the grid of marks for one pass in layer 0, computed only from the keys that each query sees."""
    return Moment(trace, trace.run(name), index).marks()


@dataclass
class Moment:
    """A pass of a run, and the passes before it, for one layer."""

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
        """Return these passes, each with its part for this layer. The training pass is left out."""
        return [(one, one.for_layer(self.layer).parts[0]) for one in passes if one.phase != "training"]

    @cached_property
    def looks(self) -> dict[int, list[int]]:
        """The keys that each query saw in the last pass that ran it, by the query's token index."""
        parts = [*(part for _, part in self.steps), self.part]
        return {
            q: indices_of_ranges(r) for part in parts for q, r in zip(part.queries, part.visible, strict=True)
        }

    def marks(self) -> list[list[str]]:
        """Return the grid, with one mark for each query (row) and key (column).

        A pair that is scored in this pass has ●, or the number of passes that have scored it if there are
        several. A masked pair has ×. A pair that was scored only in earlier passes has ○.
        """
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
        """Return a token as [text, position from 1, origin, state, whether this pass runs it].

        The state is "present", "emitted" (chosen, but not run yet) or "absent".
        """
        token = self.tokens[i]
        ran = any(i in part.queries for _, part in self.steps)
        chosen = any(i == out.chosen for _, part in self.steps for out in part.out)
        there = ran or i in self.live or token.origin == "prompt"
        state = "present" if there else "emitted" if chosen else "absent"
        return [token.text, i + 1, token.origin, state, i in self.live]

    @cached_property
    def untouched(self) -> list[int]:
        """The indices of tokens that were run before this pass and are not run in it."""
        return sorted({q for _, part in self.steps for q in part.queries} - set(self.live))

    def last_pass(self, query: int) -> str:
        """Return the name of the last pass that ran a token."""
        return pass_name(self.run, next(e for e, part in self.steps[::-1] if query in part.queries))

    def entry_state(self, token: int) -> str:
        """Return the state of a token's KV entry: "written", "read", "made", "evicted" or "empty"."""
        if token in indices_of_ranges(self.part.written):
            return "written"
        if token in indices_of_ranges(self.part.read):
            return "read"
        if self.state or token in self.live:
            return "empty" if self.state else "read" if self.shares else "made"
        ran = any(token in part.queries for _, part in self.steps)
        return "evicted" if ran and self.keeps and not self.is_training else "empty"

    def weights(self, query: int, layer: int, head: int, seen: list[int]) -> list[Any] | None:
        """Return [key, weight] for each key that a query sees, or None if its weights were not recorded."""
        row = self.trace.weights.get(f"0.{query}.{layer}.{head}")
        return None if row is None else [[k, int(w) / 65535] for k, w in zip(seen, row, strict=True)]

    def context(self, query: int, layer: int, head: int) -> float | None:
        """Return a query's context from the pass in which the query was new.

        If the context was not recorded or has several channels, None is returned.
        """
        for event in self.trace.runs[0].passes + self.trace.runs[-1].passes:
            part = event.parts[0]
            if query in indices_of_ranges(part.new) and f"{layer}.{head}" in part.contexts:
                numbers = part.contexts[f"{layer}.{head}"][indices_of_ranges(part.new).index(query)]
                return numbers[0] if len(numbers) == 1 else None
        return None

    def note(self) -> str:
        """Return a sentence on what happens to KV entries in this pass."""
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
    """Return the name that views give a pass, such as "prefill" or "decode 2"."""
    number = sum(one.phase == event.phase for one in run.passes[: run.passes.index(event) + 1])
    return f"decode {number}" if event.phase == "decode" else event.phase
