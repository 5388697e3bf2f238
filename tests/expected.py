"""What a view of a trace has to show at an event, worked out from the trace by other means than the views'.

`expected` and `view` are plain data, so that they can be handed to JavaScript: the static tables, the modules
that node runs and the page in a browser are all held against them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from helpers.trace import Drop, Part, Pass, Run, Trace, spread

SPELLED = 12  # rows, and weights of a row, that are told one by one
SAMPLED = 20  # of more tokens than this not every line is looked into
ROWS = {"read": "read", "written": "written", "rest": "at rest", "made": "made, used and dropped"}


def expected(trace: Trace, name: str, index: int, layer: int, sequence: int = 0) -> dict[str, Any]:
    """All that one event has to show of a layer and a sequence; keys of dicts are token indices."""
    moment = Moment(trace, trace.run(name), index, sequence)
    heads = [head for where, head in trace.recorded if where == layer]
    looks = {q: seen for q, seen in moment.looks.items() if moment.is_looked_into(q)}

    def by_query(one: Any) -> dict[str, list[Any]]:
        return {str(q): [one(q, layer, head) for head in heads] for q in looks}

    want = {
        "pass": moment.title(),
        "live": moment.live,
        "marks": moment.marks(),
        "columns": moment.columns,
        "coming": moment.coming(),
        "tokens": [moment.token(i) for i in range(len(moment.tokens))],
        "untouched": {str(q): moment.last_pass(q) for q in moment.untouched},
        "rows": [moment.row_state(i) for i in range(len(moment.tokens))],
        "heads": heads,
        "names": [head_name(trace, head) for head in heads],
        "weights": by_query(lambda q, at, head: moment.weights(q, at, head, looks[q])),
        "contexts": by_query(moment.context),
        "sums": by_query(lambda q, at, head: moment.sum_of(q, at, head, looks[q])),
        "out": [
            {"query": o.query, "how": o.how, "chosen": moment.tokens[o.chosen].text, "top": o.top}
            for o in (moment.part.out if moment.part else [])
        ],
        "targets": [moment.tokens[i].text for i in (moment.part and moment.part.target) or []],
        "work": moment.work(),
        "note": moment.note(),
        "ledger": moment.ledger(),
        "sentence": moment.facts(),
        "layer": layer,
    }
    want["words"] = in_words(moment, want)
    want["spelled"] = [moment.spelled(i) for i in range(len(moment.tokens))]
    return want


def expected_marks(trace: Trace, name: str, index: int) -> list[list[str]]:
    """The grid of one pass, worked out from the trace's visibility alone."""
    return Moment(trace, trace.run(name), index).marks()


@dataclass
class Moment:
    """An event of a run, and what came before it, for one sequence."""

    trace: Trace
    run: Run
    index: int
    sequence: int = 0

    def __post_init__(self) -> None:
        self.event = self.run.events[self.index]
        self.part = self.part_of(self.event)
        self.live = self.part.queries if self.part else []
        self.tokens = self.trace.sequences[self.sequence].tokens
        self.steps = self.counted(self.run.events[: self.index + 1])
        self.keeps = self.run.cache != "none"
        self.is_training = isinstance(self.event, Pass) and self.event.phase == "training"

    def part_of(self, event: Any) -> Part | None:
        return next((p for p in getattr(event, "parts", []) if p.sequence == self.sequence), None)

    def counted(self, events: list[Any]) -> list[tuple[Pass, Part]]:
        """The passes among some events in which the sequence ran, training apart."""
        passes = [e for e in events if isinstance(e, Pass) and e.phase != "training"]
        return [(e, part) for e in passes if (part := self.part_of(e))]

    @cached_property
    def columns(self) -> int:
        """How many tokens ever run, in whatever run."""
        parts = [self.part_of(event) for run in self.trace.runs for event in run.events]
        return 1 + max(q for part in parts if part for q in part.queries)

    def is_looked_into(self, query: int) -> bool:
        size = self.columns
        return size <= SAMPLED or query in (0, 1, size // 2, *range(size - 4, size))

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

    def coming(self) -> dict[str, list[int]]:
        """Tokens that run for the first time in a later pass, and what they will look at then."""
        rows: dict[str, list[int]] = {}
        for _, part in self.counted(self.run.events):
            for query, ranges in zip(part.queries, part.visible, strict=True):
                rows.setdefault(str(query), spread(ranges))
        return {q: rows[q] for q in rows if int(q) not in self.looks}

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

    def title(self) -> str:
        """What the event is called, with the cache and the sequence."""
        name = pass_name(self.run, self.event).capitalize()
        cache = "" if self.is_training else f", cache {'on' if self.keeps else 'off'}"
        return f"{name}{cache}{self.which()}."

    def which(self) -> str:
        many = len(self.trace.sequences)
        return f", sequence {self.sequence + 1} of {many}" if many > 1 else ""

    @cached_property
    def stored(self) -> set[int]:
        """Tokens whose rows lie in the cache after the event."""
        rows: set[int] = set()
        for event in self.run.events[: self.index + 1]:
            if isinstance(event, Drop) and event.sequence == self.sequence:
                rows -= set(spread(event.rows))
            elif part := self.part_of(event):
                rows |= set(spread(part.written))
        return rows

    def row_state(self, token: int) -> str:
        """What happens to a token's row of K and V."""
        event = self.event
        if isinstance(event, Drop) and event.sequence == self.sequence and token in spread(event.rows):
            return "dropped"
        if self.part and token in spread(self.part.written):
            return "written"
        if self.part and token in spread(self.part.read):
            return "read"
        return "rest" if token in self.stored else "made" if token in self.live else "empty"

    def weights(self, query: int, layer: int, head: int, seen: list[int]) -> list[Any] | None:
        """[key, weight] for each key; None where the trace holds no row."""
        row = self.trace.weights.get(f"{self.sequence}.{query}.{layer}.{head}")
        return None if row is None else [[k, int(w) / 65535] for k, w in zip(seen, row, strict=True)]

    def context(self, query: int, layer: int, head: int) -> float | None:
        """A context of one number, from the pass in which the query was new."""
        for event in self.trace.runs[0].passes + self.trace.runs[-1].passes:
            part = self.part_of(event)
            if part and query in spread(part.new) and f"{layer}.{head}" in part.contexts:
                numbers = part.contexts[f"{layer}.{head}"][spread(part.new).index(query)]
                return numbers[0] if len(numbers) == 1 else None
        return None

    def contents(self, layer: int) -> Any:
        kept = self.trace.values or []
        return next((v for v in kept if (v.layer, v.sequence) == (layer, self.sequence)), None)

    def sum_of(self, query: int, layer: int, head: int, seen: list[int]) -> str | None:
        """The sum behind a context, as in "0.5 × 20 + 0.5 × 5 = 12.5"."""
        found, total = self.weights(query, layer, head, seen), self.context(query, layer, head)
        kept = self.contents(layer)
        if found is None or total is None or kept is None:
            return None
        terms = [(w, kept.v[k][0]) for k, w in found if w >= 0.05 / len(seen)]
        said = " + ".join(f"{shown(w)} × {shown(v)}" for w, v in terms) or "nothing to pick"
        if len(terms) > 2:
            even = all(abs(w - 1 / len(terms)) < 1e-4 for w, _ in terms)
            said = f"average of {len(terms)}" if even else f"sum of {len(terms)} products"
        return f"{said} = {shown(total)}"

    def same_pass(self, event: Any) -> Pass | None:
        """The same pass in the run without a cache."""
        plain = self.trace.run("uncached") if any(r.name == "uncached" for r in self.trace.runs) else None
        if plain is None or not isinstance(event, Pass):
            return None
        return next((e for e in plain.passes if pass_name(plain, e) == pass_name(self.run, event)), None)

    def work(self) -> dict[str, Any]:
        """Counts of the pass and of the same without a cache, positions so far, this sequence's rows."""
        reached = [e for e in self.run.events[: self.index + 1] if isinstance(e, Pass)][-1:]
        same = self.same_pass(self.event)
        before = self.same_pass(reached[0]) if reached and self.keeps else None

        def so_far(run: Run, last: Pass | None) -> int:
            passes = run.passes[: 1 + next(n for n, e in enumerate(run.passes) if e is last)] if last else []
            return sum(e.counts["positions"] for e in passes if e.phase != "training")

        return {
            "counts": getattr(self.event, "counts", None),
            "plain": same.counts if same else None,
            "so far": so_far(self.run, reached[0] if reached else None),
            "without": so_far(self.trace.run("uncached"), before) if before else None,
            "kept": self.part.kept[1] if self.part else len(self.stored),
            "read": len(spread(self.part.read)) if self.part else 0,
        }

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
        said = first if count["read"] else f"{rows(count['written'])} written"
        return said + (f", {count['rest']} at rest" if count["rest"] else "")

    def ledger(self) -> str:
        """The ledger where its numbers hold, else why not."""
        if self.is_training:
            return "nothing cached: training keeps no rows"
        if not self.keeps:
            return "0 cached: K and V are made, used and dropped"
        so_far = self.run.events[: self.index + 1]
        drops = [e for e in so_far if isinstance(e, Drop) and e.sequence == self.sequence]
        emitted, gone = sum(len(part.out) for _, part in self.steps), sum(len(spread(e.rows)) for e in drops)
        cached, prompt = self.work()["kept"], self.trace.sequences[self.sequence].prompt
        if not emitted:
            return f"{cached} cached: the prompt is not finished, nothing is emitted"
        said, right = f"{prompt} prompt + {emitted} emitted − 1", prompt + emitted - 1
        if gone:
            return f"{cached} cached, not {said}: {rows(gone)} dropped"
        return f"{cached} cached = {said}" if cached == right else f"{cached} cached, not {said} ({right})"

    def facts(self) -> list[str]:
        """What the sentence has to say, whatever else it says."""
        event = self.event
        if getattr(event, "sequence", self.sequence) != self.sequence or (
            isinstance(event, Pass) and not self.part
        ):
            return ["Nothing happens to this sequence here: another one has its turn."]
        if not isinstance(event, Pass) or not self.part:
            return [getattr(event, "say", "")]
        mine = self.part.visible
        counts = sum(len(spread(seen)) for seen in mine)
        said = [f"{counts:,} pair{'s' * (counts != 1)}"]
        if len(event.parts) > 1:
            together = f"{len(event.parts)} sequences run together, {event.counts['pairs']:,} pairs in all."
            said.append(f"{together} Of sequence {self.sequence + 1}:")
        if self.part.out:
            said.append(self.tokens[self.part.out[-1].chosen].text)
        drafts = [i for i in spread(self.part.new) if self.tokens[i].origin == "draft"]
        if drafts:
            accepted = sum(self.token(i)[5] == "accepted" for i in drafts)
            said.append(f"Drafts accepted: {accepted} of {len(drafts)}.")
        same = self.same_pass(event)
        others = self.part_of(same)
        other = sum(len(spread(seen)) for seen in others.visible) if others else 0
        if self.keeps and event.phase in ("decode", "verify") and other > counts:
            said.append(f" instead of {other:,}.")
        return said

    def spelled(self, i: int) -> str:
        return f"\u2068{self.tokens[i].text}\u2069 ({self.tokens[i].position})"

    def named(self, indices: list[int]) -> str:
        """Tokens by name; of a long stretch the first and the last."""
        stretches: list[list[int]] = []
        for i in indices:
            if stretches and stretches[-1][-1] == i - 1:
                stretches[-1].append(i)
            else:
                stretches.append([i])
        few = lambda s: ", ".join(map(self.spelled, s))  # noqa: E731
        return ", ".join(
            few(s) if len(s) <= 8 else f"{self.spelled(s[0])} to {self.spelled(s[-1])}" for s in stretches
        )


def in_words(moment: Moment, want: dict[str, Any]) -> list[str]:
    """The pass for readers who do not see it: grid, rows, drafts; what the chosen line adds is `view`'s."""
    lines, marks = [want["pass"]], want["marks"]
    told = moment.live if len(moment.live) <= SPELLED else [moment.live[0], moment.live[-1]]
    if len(told) < len(moment.live):
        lines.append(
            f"{len(moment.live)} rows are scored; each looks at itself and what stands before it. "
            "The first and the last:"
        )
    for query in told:
        seen = [j for j, mark in enumerate(marks[query]) if mark not in ("", "×")]
        again = [j for j in seen if marks[query][j] != "●"]
        masked = [j for j, mark in enumerate(marks[query]) if mark == "×"]
        said = f"{moment.spelled(query)} looks at {moment.named(seen)}"
        said += f", {len(again)} of them scored before" if again else ""
        lines.append(said + (f"; masked: {moment.named(masked)}." if masked else "."))
    if moment.untouched and isinstance(moment.event, Pass) and not moment.is_training:
        lines.append(f"Not run in this pass: {moment.named(moment.untouched)}.")
    states = want["rows"][: want["columns"]]
    for state in ("written", "read", "rest", "made", "dropped"):
        if found := [i for i, s in enumerate(states) if s == state]:
            lines.append(f"Rows of K and V {ROWS.get(state, state)}: {moment.named(found)}.")
    for fate in ("accepted", "rejected"):
        if found := [i for i, token in enumerate(want["tokens"][: want["columns"]]) if token[5] == fate]:
            lines.append(f"Drafts {fate}: {moment.named(found)}.")
    return lines


def views(want: dict[str, Any]) -> list[tuple[int | None, int | None]]:
    """Heads, their mean first, and lines, the last first, in pairs: each comes at least once."""
    heads: list[int | None] = [None, *want["heads"]]
    lines: list[int | None] = [*reversed([*map(int, want["weights"])])]
    lines = lines or [None]
    return [(heads[k % len(heads)], lines[k % len(lines)]) for k in range(max(len(heads), len(lines)))]


def view(want: dict[str, Any], head: int | None, row: int | None) -> dict[str, Any]:
    """What depends on the chosen head (None: their mean) and line: weights in grid, ribbon, lines, words."""
    heads, every = want["heads"], want["weights"]

    def looks(query: Any, one: int | None) -> list[Any] | None:
        if str(query) not in every or one is not None:
            return every[str(query)][heads.index(one)] if str(query) in every else None
        lines = every[str(query)]
        if None in lines:
            return None
        return [
            [k, math.fsum(line[n][1] for line in lines) / len(lines)] for n, (k, _) in enumerate(lines[0])
        ]

    def picked(found: list[Any]) -> list[Any]:
        return [[k, w] for k, w in found if w * len(found) >= 0.05]

    lines = heads if len(heads) <= 4 else [head]
    mine = looks(row, head) or []
    most = max((w for _, w in mine), default=1)
    at = lambda one: None if one is None else heads.index(one)  # noqa: E731
    said = lambda key, one, q=row: want[key][str(q)][at(one)] if q is not None and one is not None else None  # noqa: E731
    numbers = [one for one in lines if one is not None]
    contexts = {
        str(q): [said("contexts", one, q) for one in numbers] for q in want["live"] if str(q) in every
    }
    shown_contexts = {
        q: [shown(c) for c in found if c is not None]
        for q, found in contexts.items()
        if found and None not in found
    }
    outs = want["out"]
    return {
        "head": head,
        "row": row,
        "shares": {
            f"{q}.{k}": w if w * len(found) >= 0.05 else 0
            for q in every
            for found in [looks(q, head) or []]
            for k, w in found
        },
        "shades": {str(k): math.floor(100 * w / most + 0.5) for k, w in picked(mine) if w},
        "lines": [
            {
                "name": "mean" if one is None else want["names"][at(one)],
                "weights": looks(row, one),
                "sum": said("sums", one),
            }
            for one in lines
        ],
        "contexts": shown_contexts,
        "out": next((o for o in outs if o["query"] == row), outs[-1] if outs else None),
        "said": [
            f"Attention weights of {want['spelled'][row]} in layer {want['layer'] + 1}, "
            f"{'mean' if one is None else want['names'][at(one)]}: {spell(want, looks(row, one))}."
            for one in dict.fromkeys([head, *lines])
            if row is not None
        ],
    }


def spell(want: dict[str, Any], found: list[Any] | None) -> str:
    """Weights in words: the greatest, in the order of their tokens."""
    if found is None:
        return "not recorded"
    picked = [[k, w] for k, w in found if w * len(found) >= 0.05]
    told = [[k, w] for k, w in picked if sum(other > w for _, other in picked) < SPELLED]
    words = [f"{want['spelled'][k]} {shown(w)}" for k, w in told]
    others = len(found) - len(told)
    return ", ".join([*words, *([f"less on {others} other token{'s' * (others != 1)}"] if others else [])])


def shown(x: float) -> str:
    """A number as a reader reads it."""
    rounded = math.copysign(int(abs(x) * 100 + 0.5001), x) / 100
    return f"{rounded:g}".replace("-", "−") if rounded else "0"


def rows(n: int) -> str:
    return f"{n} row{'s' * (n != 1)}"


def head_name(trace: Trace, head: int) -> str:
    """A head by its name, else by its number from 1."""
    return trace.model.head_names[head] if trace.model.head_names else f"head {head + 1}"


def pass_name(run: Run, event: Any) -> str:
    """What an event is called: "prefill", "decode 2", "drop"."""
    kind = lambda e: getattr(e, "phase", e.op)  # noqa: E731
    same = [e for e in run.events if kind(e) == kind(event)]
    number = next(n for n, e in enumerate(same, 1) if e is event)
    return f"{kind(event)} {number}" if kind(event) == "decode" or len(same) > 1 else kind(event)
