"""What a view of a trace has to show at a pass, worked out from the trace by other means than the views'.

`expected` is plain data, so that it can be handed to JavaScript: the static tables, the modules that node
runs and the page in a browser are all held against it.
"""

from __future__ import annotations

import math
from typing import Any

from helpers.trace import Drop, Pass, Run, Trace, spread


def expected(trace: Trace, name: str, index: int, layer: int) -> dict[str, Any]:
    """All that one pass, layer by layer, has to show; keys of dicts are token indices."""
    run, event = trace.run(name), trace.run(name).events[index]
    assert isinstance(event, Pass)
    part, tokens = event.parts[0], trace.sequences[0].tokens
    seen = {q: spread(ranges) for q, ranges in zip(part.queries, part.visible, strict=True)}
    heads = [head for where, head in trace.recorded if where == layer]
    return {
        "live": part.queries,
        "marks": expected_marks(trace, name, index),
        "untouched": {str(q): last_pass(run, index, q) for q in untouched(run, index, set(seen))},
        "rows": [row_state(run, index, i) for i in range(len(tokens))],
        "weights": {str(q): [weights(trace, q, layer, head, seen[q]) for head in heads] for q in seen},
        "contexts": {str(q): [context(trace, q, layer, head) for head in heads] for q in seen},
        "sums": {str(q): [sum_of(trace, q, layer, head, seen[q]) for head in heads] for q in seen},
        "names": [head_name(trace, head) for head in heads],
        "out": [
            {"query": o.query, "how": o.how, "chosen": tokens[o.chosen].text, "top": o.top} for o in part.out
        ],
        "targets": [tokens[i].text for i in part.target or []],
        "work": work(trace, name, index),
        "note": note(run, index),
        "ledger": ledger(trace, run, index),
    }


def expected_marks(trace: Trace, name: str, index: int) -> list[list[str]]:
    """The grid of one pass, worked out from the trace's visibility alone."""
    times: dict[tuple[int, int], int] = {}
    live: dict[int, list[int]] = {}
    there: set[int] = set()
    for event in trace.run(name).events[: index + 1]:
        if not isinstance(event, Pass):
            continue
        part = event.parts[0]
        live = {q: spread(ranges) for q, ranges in zip(part.queries, part.visible, strict=True)}
        there = {*part.queries, *spread(part.read)}
        for query, key in ((q, k) for q, keys in live.items() for k in keys if event.phase != "training"):
            times[query, key] = times.get((query, key), 0) + 1
    size = max(there) + 1

    def mark(query: int, key: int) -> str:
        count = times.get((query, key), 0)
        if query not in live:
            return "○" if count else ""
        if key not in live[query]:
            return "×" if key in there else ""
        return str(count) if count > 1 else "●"

    return [[mark(query, key) for key in range(size)] for query in range(size)]


def untouched(run: Run, index: int, live: set[int]) -> list[int]:
    """Tokens that ran before this pass and do not run in it."""
    before = (e for e in run.events[:index] if isinstance(e, Pass) and e.phase != "training")
    return sorted({q for e in before for q in e.parts[0].queries} - live)


def last_pass(run: Run, index: int, query: int) -> str:
    """The name of the last pass that ran a token."""
    events = [e for e in run.events[:index] if isinstance(e, Pass) and query in e.parts[0].queries]
    return pass_name(run, events[-1])


def pass_name(run: Run, event: Pass) -> str:
    """What a pass is called: "prefill", "decode 2"."""
    same = [e for e in run.passes if e.phase == event.phase]
    number = next(n for n, e in enumerate(same, 1) if e is event)
    return f"{event.phase} {number}" if event.phase == "decode" or len(same) > 1 else event.phase


def row_state(run: Run, index: int, token: int) -> str:
    """What happens to a token's row of K and V: written, read, rest, made (used, dropped) or empty."""
    part = run.events[index].parts[0]  # type: ignore[union-attr]
    if token in spread(part.written):
        return "written"
    if token in spread(part.read):
        return "read"
    rows: list[bool] = [False]
    for event in run.events[:index]:
        if isinstance(event, Pass):
            rows += [True] * (token in spread(event.parts[0].written))
        elif isinstance(event, Drop):
            rows += [False] * (token in spread(event.rows))
    return "rest" if rows[-1] else "made" if token in part.queries else "empty"


def weights(trace: Trace, query: int, layer: int, head: int, seen: list[int]) -> list[Any] | None:
    """[key, weight] for each key; None where the trace holds no row."""
    row = trace.weights.get(f"0.{query}.{layer}.{head}")
    return None if row is None else [[k, int(w) / 65535] for k, w in zip(seen, row, strict=True)]


def context(trace: Trace, query: int, layer: int, head: int) -> float | None:
    """A context of one number, from the pass in which the query was new."""
    for event in trace.runs[0].passes + trace.runs[-1].passes:
        part = event.parts[0]
        if query in spread(part.new) and f"{layer}.{head}" in part.contexts:
            numbers = part.contexts[f"{layer}.{head}"][spread(part.new).index(query)]
            return numbers[0] if len(numbers) == 1 else None
    return None


def sum_of(trace: Trace, query: int, layer: int, head: int, seen: list[int]) -> str | None:
    """The sum behind a context, as in "0.5 × 20 + 0.5 × 5 = 12.5"."""
    found, total = weights(trace, query, layer, head, seen), context(trace, query, layer, head)
    numbers = next((kept.v for kept in trace.values or [] if kept.layer == layer), None)
    if found is None or total is None or numbers is None:
        return None
    terms = [(w, numbers[k][0]) for k, w in found if w >= 0.05 / len(seen)]
    said = " + ".join(f"{shown(w)} × {shown(v)}" for w, v in terms) or "nothing to pick"
    if len(terms) > 2:
        even = all(abs(w - 1 / len(terms)) < 1e-4 for w, _ in terms)
        said = f"average of {len(terms)}" if even else f"sum of {len(terms)} products"
    return f"{said} = {shown(total)}"


def shown(x: float) -> str:
    """A number as a reader reads it."""
    rounded = math.copysign(int(abs(x) * 100 + 0.5001), x) / 100
    return f"{rounded:g}".replace("-", "−") if rounded else "0"


def head_name(trace: Trace, head: int) -> str:
    """A head by its name, else by its number from 1."""
    return trace.model.head_names[head] if trace.model.head_names else f"head {head + 1}"


def work(trace: Trace, name: str, index: int) -> dict[str, Any]:
    """Counts of the pass, those of the same pass without a cache, and positions run so far."""
    run, plain = trace.run(name), trace.run("uncached")
    event = run.events[index]
    assert isinstance(event, Pass)
    same = next((e for e in plain.passes if pass_name(plain, e) == pass_name(run, event)), None)

    def so_far(steps: list[Pass], last: Pass | None) -> int:
        at = next((n for n, e in enumerate(steps, 1) if e is last), 0)
        return sum(e.counts["positions"] for e in steps[:at])

    return {
        "counts": event.counts,
        "plain": same.counts if same else None,
        "so far": so_far(run.steps, event),
        "without": so_far(plain.steps, same) if same and run is not plain else None,
        "kept": event.parts[0].kept[1],
    }


def note(run: Run, index: int) -> str:
    """What happens to rows in a pass, in words."""
    event = run.events[index]
    assert isinstance(event, Pass)
    states = [row_state(run, index, i) for i in range(max(event.parts[0].queries) + 1)]
    count = {state: states.count(state) for state in ("read", "written", "rest", "made")}
    again = len(spread(event.parts[0].repeated))
    rows = lambda n: f"{n} row{'s' * (n != 1)}"  # noqa: E731
    if run.cache == "none" or event.phase == "training":
        made = event.counts["kv_rows"]
        return f"{rows(made)} made, {again} again" if again else f"{rows(made)} made, used, dropped"
    first = f"{rows(count['read'])} read, {count['written']} written"
    said = first if count["read"] else f"{rows(count['written'])} written"
    return said + (f", {count['rest']} at rest" if count["rest"] else "")


def ledger(trace: Trace, run: Run, index: int) -> str:
    """The ledger where its numbers hold, else why not."""
    event = run.events[index]
    assert isinstance(event, Pass)
    if event.phase == "training":
        return "nothing cached: training keeps no rows"
    if run.cache == "none":
        return "0 cached: K and V are made, used and dropped"
    so_far = run.events[: index + 1]
    emitted = sum(len(e.parts[0].out) for e in so_far if isinstance(e, Pass))
    gone = sum(len(spread(e.rows)) for e in so_far if isinstance(e, Drop))
    cached, prompt = event.parts[0].kept[1], trace.sequences[0].prompt
    if not emitted:
        return f"{cached} cached: the prompt is not finished, nothing is emitted"
    said = f"{prompt} prompt + {emitted} emitted − 1"
    if gone:
        return f"{cached} cached, not {said}: {gone} row{'s' * (gone != 1)} dropped"
    right = prompt + emitted - 1
    return f"{cached} cached = {said}" if cached == right else f"{cached} cached, not {said} ({right})"
