"""Do two traces say the same? If not, where do they part first?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from helpers.trace.record import FULL, Output, Pass, Run, Trace, spread, weight_key

Field = tuple[str, Any]  # a place in words, and what stands there: an array is compared with a tolerance


def compare(a: Trace, b: Trace, tolerance: float = 1e-4) -> str:
    """Return "equal", or the first pass, layer, head, position and field that differ, and how.

    Compared are, of the new rows, their tokens and targets, who may look at whom, attention weights and
    contexts, and the logits and choices. Contexts are left out if one trace has none at all.

    Args:
        tolerance: largest difference of a weight, and of a context or logit relative to max(1, its size).

    Raises:
        ValueError: the traces do not have the same number of runs.
    """
    if len(a.runs) != len(b.runs):
        raise ValueError(f"{len(a.runs)} and {len(b.runs)} runs came in; pick one of each with .only(name)")
    contexts = all(any(p.parts[0].contexts for run in t.runs for p in run.passes) for t in (a, b))
    heads = a.model.head_names or range(a.model.n_heads)  # what b calls them is no difference
    passes = [event for trace in (a, b) for run in trace.runs for event in run.passes]
    layers = a.layers if any(event.others for event in passes) else []  # else all see what the part says
    fields = partial(_fields, heads=heads, contexts=contexts, layers=layers)
    for run_a, run_b in zip(a.runs, b.runs, strict=True):
        both = fields(a, run_a), fields(b, run_b)
        for (place, x), (other, y) in zip_longest(*both, fillvalue=("the end", "nothing")):
            if place != other or not _alike(x, y, tolerance):
                there = "" if place == other else f"{other}: "
                return f"{run_a.name}, {place}: {_short(x)} against {there}{_short(y)}"
    return "equal"


def _fields(trace: Trace, run: Run, **which: Any) -> Iterator[Field]:
    """Yield all that is compared of a run, in order: the first field that differs is where two runs part."""
    for number, event in enumerate(run.passes):
        for place, x in _result(trace, event, **which):
            yield f"pass {number} ({event.phase}): {place}", x


def _result(
    trace: Trace, event: Pass, heads: Sequence[Any], contexts: bool, layers: Sequence[int]
) -> Iterable[Field]:
    yield "recorded heads", trace.recorded
    [part], tokens = event.parts, trace.sequences[0].tokens
    new = spread(part.new)
    yield "new tokens", part.new
    yield "targets", part.target
    for token in new:
        yield f"position {tokens[token].position}, token", repr(tokens[token].text)
        seen = part.visible[part.queries.index(token)]
        yield f"position {tokens[token].position}, visible tokens", seen
        for layer in layers:
            seen = event.at(layer).parts[0].visible[part.queries.index(token)]
            yield f"layer {layer}, position {tokens[token].position}, visible tokens", seen
    for layer, head in trace.recorded:
        of_head = dict(zip(new, part.contexts.get(f"{layer}.{head}", []), strict=False))
        for token in new:
            place = f"layer {layer}, head {heads[head]}, position {tokens[token].position}"
            weights = trace.weights.get(weight_key(0, token, layer, head), np.array([]))
            yield f"{place}, attention weights", weights / FULL
            if contexts:
                yield f"{place}, context", np.array(of_head.get(token, []))
    yield "outputs", len(part.out)
    for out in part.out:
        yield "logits", _by_word(out)
        yield "chosen", f"{tokens[out.chosen].text!r} (token {out.chosen})"


def _by_word(out: Output) -> dict[str, list[float]]:
    """The candidates' logits; two tokens may have one text."""
    logits: dict[str, list[float]] = {}
    for word, logit, _ in out.top:
        logits.setdefault(word, []).append(logit)
    return logits


def _alike(x: Any, y: Any, tolerance: float) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):  # of the words that both name
        pairs = [pair for word in x if word in y for pair in zip(x[word], y[word], strict=False)]
        return all(_alike(np.array(one), np.array(other), tolerance) for one, other in pairs)
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return x.shape == y.shape and bool((np.abs(x - y) <= tolerance * np.maximum(1, np.abs(x))).all())
    return bool(x == y)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str([round(float(x), 4) for x in value[:8]])
    if isinstance(value, dict):
        return ", ".join(f"{word!r} {logit:.4f}" for word, logits in value.items() for logit in logits)
    return str(value) if value is not None else "nothing"
