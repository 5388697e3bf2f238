"""Do two traces say the same? If not, where do they part first?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from helpers.trace.record import FULL, Drop, Part, Pass, Run, Trace, spread, weight_key


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
    for where in _structure_differences(a, b) if what == "result" else ():
        return Comparison(False, where)
    differences = _result_differences if what == "result" else _work_differences
    for run_a, run_b in zip(a.runs, b.runs, strict=True):
        if len(run_a.passes) != len(run_b.passes):
            return Comparison(
                False, f"run {run_a.name}: {len(run_a.passes)} passes against {len(run_b.passes)}"
            )
        between_a, between_b = _between(run_a), _between(run_b)
        for number, (x, y) in enumerate(zip(run_a.passes, run_b.passes, strict=True)):
            for where in _event_differences(between_a[number], between_b[number]):
                return Comparison(False, f"{run_a.name}, before pass {number}: {where}")
            for where in differences(a, b, x, y, tolerance):
                return Comparison(False, f"{run_a.name}, pass {number} ({x.phase}): {where}")
        for where in _event_differences(between_a[-1], between_b[-1]):
            return Comparison(False, f"{run_a.name}, after the last pass: {where}")
    return Comparison(True)


def _between(run: Run) -> list[list[str] | None]:
    """What happened before each pass and after the last, in words; None for a run that keeps no rows."""
    found: list[list[str]] = [[]]
    for event in run.events:
        if isinstance(event, Pass):
            found.append([])
        elif isinstance(event, Drop):
            found[-1].append(f"drop of rows {event.rows} of sequence {event.sequence} ({event.why})")
        else:
            found[-1].append(event.op)
    return [None if run.cache == "none" else events for events in found]


def _event_differences(x: list[str] | None, y: list[str] | None) -> Iterable[str]:
    if x is not None and y is not None and x != y:
        yield f"{', '.join(x) or 'nothing'} against {', '.join(y) or 'nothing'}"


def _structure_differences(a: Trace, b: Trace) -> Iterable[str]:
    if a.recorded != b.recorded:
        yield f"recorded heads: {a.recorded} against {b.recorded}"


def _work_differences(a: Trace, b: Trace, x: Pass, y: Pass, tolerance: float) -> Iterable[str]:
    for name in x.counts:
        if x.counts[name] != y.counts.get(name):
            yield f"counts {name}: {x.counts[name]} against {y.counts.get(name)}"
    for shape_x, shape_y in zip(x.shapes, y.shapes, strict=False):
        for name in shape_x:
            if shape_x[name] != shape_y[name]:
                yield f"layer {shape_x['layer']}, shape of {name}: {shape_x[name]} against {shape_y[name]}"
    if len(x.shapes) != len(y.shapes):
        yield f"layers: {len(x.shapes)} against {len(y.shapes)}"


def _result_differences(a: Trace, b: Trace, x: Pass, y: Pass, tolerance: float) -> Iterable[str]:
    if x.phase != y.phase:
        yield f"phase: {x.phase} against {y.phase}"
    if len(x.parts) != len(y.parts):
        yield f"sequences: {len(x.parts)} against {len(y.parts)}"
    for part_x, part_y in zip(x.parts, y.parts, strict=False):
        if part_x.new != part_y.new:
            yield f"new tokens: {part_x.new} against {part_y.new}"
            continue
        if part_x.target != part_y.target:
            yield f"targets: {part_x.target} against {part_y.target}"
        yield from _row_differences(a, b, part_x, part_y, tolerance)
        yield from _output_differences(a, b, part_x, part_y, tolerance)


def _row_differences(a: Trace, b: Trace, x: Part, y: Part, tolerance: float) -> Iterable[str]:
    tokens = a.sequences[x.sequence].tokens
    new = spread(x.new)
    for token in new:
        text_x, text_y = (t.sequences[part.sequence].tokens[token].text for t, part in ((a, x), (b, y)))
        if text_x != text_y:
            yield f"position {tokens[token].position}, token: {text_x!r} against {text_y!r}"
        seen_x, seen_y = (part.visible[part.queries.index(token)] for part in (x, y))
        if seen_x != seen_y:
            yield f"position {tokens[token].position}, visible tokens: {seen_x} against {seen_y}"
    contexts_kept = _keeps_contexts(a) and _keeps_contexts(b)
    for layer, head in a.recorded:
        name = a.model.head_names[head] if a.model.head_names else str(head)
        for row, token in enumerate(new):
            place = f"layer {layer}, head {name}, position {tokens[token].position}"
            key = weight_key(x.sequence, token, layer, head)
            if (key in a.weights) != (key in b.weights):
                yield f"{place}, attention weights: recorded in one trace only"
            yield from _far_apart(
                f"{place}, attention weights", a.weights.get(key), b.weights.get(key), tolerance * FULL
            )
            contexts = (part.contexts.get(f"{layer}.{head}") for part in (x, y))
            here, there = (None if rows is None else np.array(rows[row]) for rows in contexts)
            if contexts_kept and (here is None) != (there is None):
                yield f"{place}, context: recorded in one trace only"
            yield from _far_apart(f"{place}, context", here, there, tolerance, relative=True)


def _keeps_contexts(trace: Trace) -> bool:
    """Whether any are recorded: a large model's trace has none."""
    return any(part.contexts for run in trace.runs for event in run.passes for part in event.parts)


def _far_apart(
    place: str, a: np.ndarray | None, b: np.ndarray | None, tolerance: float, relative: bool = False
) -> Iterable[str]:
    if a is None or b is None:
        return  # one of them was not recorded
    a, b = a.astype(float), b.astype(float)
    unit = np.maximum(1, np.abs(a)) if relative and a.shape == b.shape else 1
    if a.shape != b.shape or not (np.abs(a - b) <= tolerance * unit).all():
        yield f"{place}: {_short(a, relative)} against {_short(b, relative)}"


def _short(row: np.ndarray, relative: bool) -> list[float]:
    return [round(float(x), 4) for x in (row if relative else row / FULL)[:8]]


def _output_differences(a: Trace, b: Trace, x: Part, y: Part, tolerance: float) -> Iterable[str]:
    if len(x.out) != len(y.out):
        yield f"outputs: {len(x.out)} against {len(y.out)}"
    for out_x, out_y in zip(x.out, y.out, strict=False):
        other = {word: logit for word, logit, _ in out_y.top}
        for word, logit, _ in out_x.top:
            if word in other and not abs(logit - other[word]) <= tolerance * max(1, abs(logit)):
                yield f"logit of {word!r}: {logit:.4f} against {other[word]:.4f}"
        here, there = (t.sequences[x.sequence].tokens[o.chosen].text for t, o in ((a, out_x), (b, out_y)))
        if (here, out_x.chosen) != (there, out_y.chosen):
            yield f"chosen: {here!r} (token {out_x.chosen}) against {there!r} (token {out_y.chosen})"
