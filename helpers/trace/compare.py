"""Do two traces say the same? If not, where do they part first?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from helpers.trace.record import FULL, Drop, Part, Pass, Run, Trace, spread, weight_key

Field = tuple[str, Any]  # a place in words, and what stands there: an array is compared with a tolerance


@dataclass(frozen=True)
class Comparison:
    """True if two traces are equal; as text "equal", or the first place where they part."""

    equal: bool
    where: str = "equal"

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        return self.where

    __repr__ = __str__


def compare(a: Trace, b: Trace, what: str = "result", tolerance: float = 1e-4) -> Comparison:
    """Compare two traces, run by run and pass by pass.

    Args:
        what: "result" compares, of the new rows, their tokens and targets, who may look at whom, attention
            weights and contexts, and the logits and choices; "work" compares counts and shapes. Contexts are
            left out if one trace has none at all. Both compare what happened between the passes (rows that
            were dropped), unless a run has no cache.
        tolerance: largest difference of a weight, and of a context or logit relative to max(1, its size).

    Returns:
        A `Comparison`; `str()` of it says "equal", or names the first pass, layer, head, position and
        field that differ.

    Raises:
        ValueError: `what` is neither, or the traces do not have the same number of runs.
    """
    if what not in ("result", "work"):
        raise ValueError(f"what is {what!r}; expected 'result' or 'work'")
    if len(a.runs) != len(b.runs):
        raise ValueError(
            f"the traces have {len(a.runs)} and {len(b.runs)} runs; pick one of each with .only(name)"
        )
    if what == "result" and a.recorded != b.recorded:
        return Comparison(False, f"recorded heads: {a.recorded} against {b.recorded}")
    contexts = all(any(p.parts[0].contexts for run in t.runs for p in run.passes) for t in (a, b))
    for run_a, run_b in zip(a.runs, b.runs, strict=True):
        if len(run_a.passes) != len(run_b.passes):
            return Comparison(
                False, f"run {run_a.name}: {len(run_a.passes)} passes against {len(run_b.passes)}"
            )
        events = "none" not in (run_a.cache, run_b.cache)
        b = replace(b, model=a.model)  # what the heads are called is no difference
        both = (_fields(trace, run, what, events, contexts) for trace, run in ((a, run_a), (b, run_b)))
        for (place, x), (other, y) in zip_longest(*both, fillvalue=("the end", "nothing")):
            if place != other or not _alike(x, y, tolerance):
                told = f"{place}: {_short(x)} against {_short(y)}" if place == other else f"{place}, {other}"
                return Comparison(False, f"{run_a.name}, {told}")
    return Comparison(True)


def _fields(trace: Trace, run: Run, what: str, events: bool, contexts: bool) -> Iterator[Field]:
    """Yield all that is compared of a run, in order: the first field that differs is where two runs part."""
    between: list[str] = []
    number = 0
    for event in run.events:
        if not isinstance(event, Pass):
            between.append(_said(event))
            continue
        if events:
            yield f"before pass {number}", ", ".join(between) or "nothing"
        of_pass = _result(trace, event, contexts) if what == "result" else _work(event)
        for place, value in of_pass:
            yield f"pass {number} ({event.phase}): {place}" if place != "phase" else f"pass {number}", value
        between, number = [], number + 1
    if events:
        yield "after the last pass", ", ".join(between) or "nothing"


def _said(event: Any) -> str:
    if isinstance(event, Drop):
        return f"drop of rows {event.rows} of sequence {event.sequence} ({event.why})"
    return str(event.op)


def _work(event: Pass) -> Iterable[Field]:
    yield from ((f"counts {name}", count) for name, count in event.counts.items())
    yield "layers", len(event.shapes)
    for shape in event.shapes:
        names = (name for name in shape if name != "layer")
        yield from ((f"layer {shape['layer']}, shape of {name}", shape[name]) for name in names)


def _result(trace: Trace, event: Pass, contexts: bool) -> Iterable[Field]:
    yield "phase", event.phase
    yield "sequences", len(event.parts)
    for part in event.parts:
        yield "new tokens", part.new
        yield "targets", part.target
        yield from _rows(trace, part, contexts)
        tokens = trace.sequences[part.sequence].tokens
        yield "outputs", len(part.out)
        for out in part.out:
            yield "logits", {word: logit for word, logit, _ in out.top}
            yield "chosen", f"{tokens[out.chosen].text!r} (token {out.chosen})"


def _rows(trace: Trace, part: Part, contexts: bool) -> Iterable[Field]:
    tokens, new = trace.sequences[part.sequence].tokens, spread(part.new)
    for token in new:
        yield f"position {tokens[token].position}, token", repr(tokens[token].text)
        seen = part.visible[part.queries.index(token)]
        yield f"position {tokens[token].position}, visible tokens", seen
    for layer, head in trace.recorded:
        name = trace.model.head_names[head] if trace.model.head_names else str(head)
        of_head = part.contexts.get(f"{layer}.{head}", [])
        for row, token in enumerate(new):
            place = f"layer {layer}, head {name}, position {tokens[token].position}"
            weights = trace.weights.get(weight_key(part.sequence, token, layer, head))
            yield f"{place}, attention weights", None if weights is None else weights / FULL
            if contexts:
                yield f"{place}, context", np.array(of_head[row]) if row < len(of_head) else None


def _alike(x: Any, y: Any, tolerance: float) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):  # of the words that both name
        return all(_alike(np.array(x[word]), np.array(y[word]), tolerance) for word in x if word in y)
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return x.shape == y.shape and bool((np.abs(x - y) <= tolerance * np.maximum(1, np.abs(x))).all())
    return type(x) is type(y) and bool(x == y)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str([round(float(x), 4) for x in value[:8]])
    if isinstance(value, dict):
        return ", ".join(f"{word!r} {logit:.4f}" for word, logit in value.items())
    return str(value) if value is not None else "nothing"
