"""Grid, rows and tokens at an event, as plain data, worked out by other means than those of the views."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from helpers.trace import Drop, Part, Pass, Run, Trace, spread


def expected(trace: Trace, name: str, index: int, layer: int) -> dict[str, Any]:
    """What one event shows of a layer; keys of dicts are token indices."""
    moment = Moment(trace, trace.run(name), index)
    heads = [head for where, head in trace.recorded if where == layer]
    looks = moment.looks
    return {
        "live": moment.live,
        "marks": moment.marks(),
        "tokens": [moment.token(i) for i in range(len(moment.tokens))],
        "untouched": {str(q): moment.last_pass(q) for q in moment.untouched},
        "rows": [moment.row_state(i) for i in range(len(moment.tokens))],
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

    def __post_init__(self) -> None:
        self.event = self.run.events[self.index]
        self.part = self.part_of(self.event)
        self.live = self.part.queries if self.part else []
        self.tokens = self.trace.sequences[0].tokens
        self.steps = self.counted(self.run.events[: self.index + 1])
        self.keeps = self.run.cache != "none"
        self.is_training = isinstance(self.event, Pass) and self.event.phase == "training"

    def part_of(self, event: Any) -> Part | None:
        return event.parts[0] if isinstance(event, Pass) else None

    def counted(self, events: list[Any]) -> list[tuple[Pass, Part]]:
        """The passes among some events training apart."""
        passes = [e for e in events if isinstance(e, Pass) and e.phase != "training"]
        return [(e, part) for e in passes if (part := self.part_of(e))]

    @cached_property
    def looks(self) -> dict[int, list[int]]:
        """What each token that has run looked at when it last did."""
        parts = [part for _, part in self.steps] + ([self.part] if self.part else [])
        return {q: spread(r) for part in parts for q, r in zip(part.queries, part.visible, strict=True)}

    def marks(self) -> list[list[str]]:
        """The grid: scored now or so many times, masked, scored before."""
        times: dict[tuple[int, int], int] = {}
        for _, part in self.steps:
            for query, ranges in zip(part.queries, part.visible, strict=True):
                for key in spread(ranges):
                    times[query, key] = times.get((query, key), 0) + 1
        live = {q: set(seen) for q, seen in self.looks.items() if q in self.live}
        there = {*self.live, *spread(self.part.read)} if self.part else set()
        ran = {query for query, _ in times}

        def mark(query: int, key: int) -> str:
            count = times.get((query, key), 0)
            if query not in live:
                return "○" if count else ""
            if key not in live[query]:
                return "×" if key in there else ""
            return str(count) if count > 1 else "●"

        size = max(there or ran, default=-1) + 1
        return [[mark(query, key) for key in range(size)] for query in range(size)]

    def token(self, i: int) -> list[Any]:
        """Text, position, where it is from, whether it is there, whether it runs, and a draft's fate."""
        token = self.tokens[i]
        ran = any(i in part.queries for _, part in self.steps)
        chosen = any(i == out.chosen for _, part in self.steps for out in part.out)
        there = ran or i in self.live or token.origin == "prompt"
        state = "present" if there else "emitted" if chosen else "absent"
        fate = ("accepted" if chosen else "rejected") if ran and token.origin == "draft" else ""
        return [token.text, token.position, token.origin, state, i in self.live, fate]

    @cached_property
    def untouched(self) -> list[int]:
        """Tokens that ran before this pass and do not run in it."""
        return sorted({q for _, part in self.steps for q in part.queries} - set(self.live))

    def last_pass(self, query: int) -> str:
        """The name of the last pass that ran a token."""
        return pass_name(self.run, next(e for e, part in self.steps[::-1] if query in part.queries))

    @cached_property
    def stored(self) -> set[int]:
        """Tokens whose rows lie in the cache after the event."""
        rows: set[int] = set()
        for event in self.run.events[: self.index + 1]:
            if isinstance(event, Drop):
                rows -= set(spread(event.rows))
            elif part := self.part_of(event):
                rows |= set(spread(part.written))
        return rows

    def row_state(self, token: int) -> str:
        """What happens to a token's row of K and V."""
        event = self.event
        if isinstance(event, Drop) and token in spread(event.rows):
            return "dropped"
        if self.part and token in spread(self.part.written):
            return "written"
        if self.part and token in spread(self.part.read):
            return "read"
        return "rest" if token in self.stored else "made" if token in self.live else "empty"

    def weights(self, query: int, layer: int, head: int, seen: list[int]) -> list[Any] | None:
        """[key, weight] for each key; None where the trace holds no row."""
        row = self.trace.weights.get(f"0.{query}.{layer}.{head}")
        return None if row is None else [[k, int(w) / 65535] for k, w in zip(seen, row, strict=True)]

    def context(self, query: int, layer: int, head: int) -> float | None:
        """A context of one number, from the pass in which the query was new."""
        for event in self.trace.runs[0].passes + self.trace.runs[-1].passes:
            part = self.part_of(event)
            if part and query in spread(part.new) and f"{layer}.{head}" in part.contexts:
                numbers = part.contexts[f"{layer}.{head}"][spread(part.new).index(query)]
                return numbers[0] if len(numbers) == 1 else None
        return None

    def note(self) -> str:
        """What happens to rows in a pass, in words."""
        states = [self.row_state(i) for i in range(len(self.tokens))]
        count = {state: states.count(state) for state in ("read", "written", "rest", "made", "dropped")}
        if count["dropped"]:
            return f"{rows(count['dropped'])} dropped: {getattr(self.event, 'why', '')}"
        if self.part is None:
            return f"{rows(len(self.stored))} kept"
        again = len(spread(self.part.repeated))
        if not self.keeps or self.is_training:
            return f"{rows(len(self.live))} made, " + (f"{again} again" if again else "used, dropped")
        first = f"{rows(count['read'])} read, {count['written']} written"
        sentence = first if count["read"] else f"{rows(count['written'])} written"
        return sentence + (f", {count['rest']} at rest" if count["rest"] else "")


def rows(n: int) -> str:
    return f"{n} row{'s' * (n != 1)}"


def pass_name(run: Run, event: Any) -> str:
    """What an event is called: "prefill", "decode 2", "drop"."""
    kind = lambda e: getattr(e, "phase", e.op)  # noqa: E731
    same = [e for e in run.events if kind(e) == kind(event)]
    number = next(n for n, e in enumerate(same, 1) if e is event)
    return f"{kind(event)} {number}" if kind(event) == "decode" or len(same) > 1 else kind(event)
