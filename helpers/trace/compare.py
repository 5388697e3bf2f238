"""Compare two traces, and describe their first difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from helpers.trace.record import WEIGHT_SCALE, Output, Pass, Run, Trace, indices_of_ranges, weight_key

Field = tuple[str, Any]  # a description of the field, and its value; arrays are compared with a tolerance


def compare(a: Trace, b: Trace, tolerance: float = 1e-4) -> str:
    """Return "equal", or a description of the first difference between two traces.

    The description names the run, the pass and the field, and where they apply, the layer, the head and the
    position. In each pass, the new tokens are compared first: their targets in training, their texts and the
    tokens visible to them. These are followed by attention weights, contexts, logits and chosen tokens.
    Contexts are compared only if both traces have them. Logits are compared only for candidates that both
    traces have.

    Args:
        a, b: the traces.
        tolerance: the largest allowed difference between two attention weights. For a context or a logit x, a
            difference of `tolerance` · max(1, |x|) is allowed.

    Raises:
        ValueError: the traces do not have the same number of runs.
    """
    if len(a.runs) != len(b.runs):
        raise ValueError(
            f"got {len(a.runs)} and {len(b.runs)} runs; expected the same number: use .only_run(name)"
        )
    contexts = all(any(p.parts[0].contexts for run in t.runs for p in run.passes) for t in (a, b))
    heads = a.model.head_names or range(a.model.n_heads)  # other names in b are no difference
    passes = [event for trace in (a, b) for run in trace.runs for event in run.passes]
    layers = a.layers if any(event.others for event in passes) else []  # else all layers see the same tokens
    fields = partial(_fields, heads=heads, contexts=contexts, layers=layers)
    for run_a, run_b in zip(a.runs, b.runs, strict=True):
        pairs = zip_longest(fields(a, run_a), fields(b, run_b), fillvalue=("the end", "nothing"))
        for (place_a, x), (place_b, y) in pairs:
            if place_a != place_b or not _equal(x, y, tolerance):
                where = "" if place_a == place_b else f"{place_b}: "
                return f"{run_a.name}, {place_a}: {_short(x)} against {where}{_short(y)}"
    return "equal"


def _fields(trace: Trace, run: Run, **options: Any) -> Iterator[Field]:
    """Yield all fields of a run in the order in which they are compared."""
    for number, event in enumerate(run.passes):
        for place, x in _fields_of_pass(trace, event, **options):
            yield f"pass {number} ({event.phase}): {place}", x


def _fields_of_pass(
    trace: Trace, event: Pass, heads: Sequence[Any], contexts: bool, layers: Sequence[int]
) -> Iterable[Field]:
    yield "recorded heads", trace.recorded
    [part], tokens = event.parts, trace.sequences[0].tokens
    new = indices_of_ranges(part.new)
    yield "new tokens", part.new
    yield "targets", part.target
    for token in new:
        yield f"position {tokens[token].position}, token", repr(tokens[token].text)
        visible = part.visible[part.queries.index(token)]
        yield f"position {tokens[token].position}, visible tokens", visible
        for layer in layers:
            visible = event.for_layer(layer).parts[0].visible[part.queries.index(token)]
            yield f"layer {layer}, position {tokens[token].position}, visible tokens", visible
    for layer, head in trace.recorded:
        by_token = dict(zip(new, part.contexts.get(f"{layer}.{head}", []), strict=False))
        for token in new:
            place = f"layer {layer}, head {heads[head]}, position {tokens[token].position}"
            weights = trace.weights.get(weight_key(0, token, layer, head), np.array([]))
            yield f"{place}, attention weights", weights / WEIGHT_SCALE
            if contexts:
                yield f"{place}, context", np.array(by_token.get(token, []))
    yield "outputs", len(part.out)
    for out in part.out:
        yield "logits", _by_word(out)
        yield "chosen", f"{tokens[out.chosen].text!r} (token {out.chosen})"


def _by_word(out: Output) -> dict[str, list[float]]:
    """Return the candidates' logits by their texts.

    Each text has a list of logits, because several tokens may have the same text.
    """
    logits: dict[str, list[float]] = {}
    for word, logit, _ in out.top:
        logits.setdefault(word, []).append(logit)
    return logits


def _equal(x: Any, y: Any, tolerance: float) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):  # compare the words that are in both
        pairs = [pair for word in x if word in y for pair in zip(x[word], y[word], strict=False)]
        return all(_equal(np.array(logit_x), np.array(logit_y), tolerance) for logit_x, logit_y in pairs)
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return x.shape == y.shape and bool((np.abs(x - y) <= tolerance * np.maximum(1, np.abs(x))).all())
    return bool(x == y)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return str([round(float(x), 4) for x in value[:8]])
    if isinstance(value, dict):
        return ", ".join(f"{word!r} {logit:.4f}" for word, logits in value.items() for logit in logits)
    return str(value) if value is not None else "nothing"
