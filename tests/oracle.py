"""An oracle for traces: the fields of any trace must be consistent.

A recorder counts KV entries and query-key pairs while a decoder runs. Here the same counts are computed from
the tokens that each pass runs and from the keys that each query sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from helpers.recording.recorder import RERUN_TOLERANCE
from helpers.trace import Part, Pass, Run, Trace, indices_of_ranges, weight_key
from helpers.trace.record import WEIGHT_SCALE


def check(trace: Trace) -> None:
    """Assert that the fields of a trace are consistent with each other."""
    [sequence] = trace.sequences
    positions = [token.position for token in sequence.tokens]
    assert positions == sorted(set(positions))
    origins = [token.origin for token in sequence.tokens]
    assert origins == ["prompt"] * sequence.prompt + ["generated"] * (len(origins) - sequence.prompt)
    for run in trace.runs:
        _check_run(trace, run)


def work(trace: Trace) -> list[Any]:
    """Return a (counts, shapes) pair for each pass, in one list per run."""
    return [[(event.counts, event.shapes) for event in run.passes] for run in trace.runs]


def _check_run(trace: Trace, run: Run) -> None:
    rows: list[int] = []  # in the cache
    ran: set[int] = set()
    chosen = set(range(trace.sequences[0].prompt))
    for event in run.passes:
        [part] = event.parts
        _check_rows(run, event, part, rows, ran)
        _check_weights(trace, part)
        assert set(part.queries) <= chosen
        _check_outputs(trace, part)
        chosen |= {out.chosen for out in part.out}
        rows += indices_of_ranges(part.written)
        ran |= set(part.queries) if event.phase != "training" else set()
        _check_counts(trace, event, part)


def _check_rows(run: Run, event: Pass, part: Part, rows: list[int], ran: set[int]) -> None:
    uncached = run.cache == "none" or event.phase == "training"
    assert not set(indices_of_ranges(part.new)) & ran
    assert set(indices_of_ranges(part.repeated)) <= ran
    assert indices_of_ranges(part.read) == ([] if uncached else rows)
    assert indices_of_ranges(part.written) == ([] if uncached else part.queries)
    assert part.kept == ((0, 0) if uncached else (len(rows), len(rows) + len(part.queries)))
    present = {*indices_of_ranges(part.read), *part.queries}
    for query, visible in zip(part.queries, map(indices_of_ranges, part.visible), strict=True):
        assert query in visible
        assert max(visible) == query
        assert set(visible) <= present
    if event.phase == "training":
        assert part.target == [query + 1 for query in part.queries]
        assert not part.out
    else:
        assert part.target is None


def _check_weights(trace: Trace, part: Part) -> None:
    contents = {v.layer: np.array(v.v) for v in trace.values or []}
    new = indices_of_ranges(part.new)
    for layer, head in trace.recorded:
        for query, visible in zip(part.queries, map(indices_of_ranges, part.visible), strict=True):
            weights = trace.weights[weight_key(0, query, layer, head)] / WEIGHT_SCALE
            assert len(weights) == len(visible)
            total = weights.sum()
            assert min(abs(total - 1), abs(total)) <= 0.005  # 0 where there is nothing to pick
            if query in new and layer in contents and part.contexts:
                v = contents[layer][visible]
                context = part.contexts[f"{layer}.{head}"][new.index(query)]
                allowed = np.abs(v).sum(axis=0) / WEIGHT_SCALE + RERUN_TOLERANCE[8] * np.abs(v).max()
                assert (np.abs(weights @ v - context) <= allowed).all()


def _check_outputs(trace: Trace, part: Part) -> None:
    tokens = trace.sequences[0].tokens
    for out in part.out:
        assert out.query in part.queries
        assert out.chosen > out.query
        assert tokens[out.chosen].text in [word for word, _, _ in out.top]
        logits, p = (np.array([row[n] for row in out.top]) for n in (1, 2))
        ratios = np.exp(logits - logits.max())
        np.testing.assert_allclose(p / p.max(), ratios / ratios[np.argmax(p)], atol=1e-6)
        assert p.sum() <= 1 + 1e-6
        if out.how == "greedy":
            assert logits[[word for word, _, _ in out.top].index(tokens[out.chosen].text)] == logits.max()


def _check_counts(trace: Trace, event: Pass, part: Part) -> None:
    T, read = len(part.queries), len(indices_of_ranges(part.read))
    S, pairs = T + read, sum(len(indices_of_ranges(visible)) for visible in part.visible)
    counts = {"positions": T, "kv_rows": T, "rows_read": read, "pairs": pairs, "products": T * S}
    assert event.counts == counts
    model: Any = trace.model
    H, Hkv, D, Dv = model.n_heads, model.n_kv_heads, model.k_dim, model.v_dim
    sizes = {"q": [1, H, T, D], "k": [1, Hkv, S, D], "v": [1, Hkv, S, Dv], "scores": [1, H, T, S]}
    for layer, shape in enumerate(event.shapes):
        known = {name: None if None in size else size for name, size in sizes.items()}
        assert shape == {"layer": layer, **known}
    assert len(event.shapes) == model.n_layers
