"""The JSON form of a trace, version 1, and the check that names the first wrong field.

{ "format": "watch-it-decode-trace", "version": 1,
  "model": { "name": "toy", "n_layers": 1, "n_heads": 4, "n_kv_heads": 1, "k_dim": 2, "v_dim": 1,
             "scale": 1.0, "head_names": ["even", …] or null, "element_bytes": 8 },
             (k_dim and scale are null where rules take the place of keys)
  "recorded": [[layer, head], …],
  "sequences": [ { "prompt": 4, "tokens": [ { "text": "Today", "id": null, "position": 1,
                   "origin": "prompt" | "generated" | "draft" }, … ] } ],
             (append-only: elsewhere a token is named by its index here; `position` is as the run counts)
  "runs": [ { "name": "cached", "cache": "none" | "growing" | "static" | …, "events": [ event, … ] } ],
  "weights": { "encoding": "u16-base64", "rows": { "sequence.token.layer.head": "…" } },
             (little-endian 16-bit integers, weight × 65535, one for each visible token, in order;
              once for each token, layer and head: rows that run again look theirs up)
  "values": null or [ { "sequence": 0, "layer": 0, "k": [[…], …] or null, "v": [[…], …] } ] }
             (contents of K and V by token index; tokens that never ran have none)

An event is a pass, a drop of rows, or (of a later kind) anything with an `op` and a sentence `say`:

{ "op": "pass", "phase": "training" | "prefill" | "decode" | "verify",
  "parts": [ { "sequence": 0,
      "new": [[0, 4]], "repeated": [],       half-open ranges of token indices: run first, run again
      "visible": [[[0, 1]], …],              for each query (repeated and new, by index): what it may look at
      "read": [], "written": [[0, 4]],       rows that lay in the cache, rows that were put there to stay
      "kept": [0, 4],                        rows in the cache before and after
      "target": null,                        training: the token each query should predict
      "contexts": { "layer.head": [[…], …] },   one list of v_dim numbers for each new row; {} if not kept
      "out": [ { "query": 3, "top": [["nice", logit, probability], …], "chosen": 4, "how": "greedy" } ] } ],
  "shapes": [ { "layer": 0, "q": [B,H,T,D], "k": [B,Hkv,S,D], "v": [B,Hkv,S,Dv], "scores": [B,H,T,S] } ],
  "counts": { "positions": 4, "kv_rows": 4, "rows_read": 0, "pairs": 10, "products": 16 } }
             (of one head and one layer)
{ "op": "drop", "sequence": 0, "rows": [[5, 7]], "why": "rejected", "say": "…" }

Keys that are not listed are ignored.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from typing import Any, NoReturn

import numpy as np

from helpers.trace.record import COUNTS, FORMAT, FULL, VERSION, TraceError, is_utf8, spread, weight_key

PHASES = ("training", "prefill", "decode", "verify")
ORIGINS = ("prompt", "generated", "draft")
WEIGHT_SUM = 0.005  # for rows of up to 655 weights; each is rounded by at most 1 / 131070


def validate(data: Any) -> None:
    """Check the JSON form (as dicts and lists) of a trace.

    Raises:
        TraceError: the first field that is wrong, what stands there, and what was expected.
    """
    _check_head(data)
    _check_model(_get(data, "model", ""))
    _check_recorded(data)
    for s, sequence in enumerate(_some(data, "sequences", "")):
        _check_sequence(sequence, f"sequences[{s}]")
    rows = _decode_weights(data)
    for r, run in enumerate(_some(data, "runs", "")):
        _check_run(data, rows, run, f"runs[{r}]")
        earlier = [other["name"] for other in data["runs"][:r]]
        _need(run["name"] not in earlier, f"runs[{r}].name", run["name"], f"another name than {earlier}")
    if _get(data, "values", "") is not None:
        for n, values in enumerate(_list(data, "values", "")):
            _check_values(data, values, f"values[{n}]")


def _wrong(path: str, got: Any, expected: str) -> NoReturn:
    shown = repr(got)
    raise TraceError(f"{path}: got {shown if len(shown) <= 80 else shown[:77] + '…'}; expected {expected}")


def _need(condition: bool, path: str, got: Any, expected: str) -> None:
    if not condition:
        _wrong(path, got, expected)


def _get(data: Any, key: str, path: str) -> Any:
    _need(isinstance(data, dict), path or "trace", data, "an object")
    if key not in data:
        _wrong(
            f"{path}.{key}".lstrip("."), "nothing", "this field (the file may be cut off or of another tool)"
        )
    return data[key]


def _list(data: Any, key: str, path: str) -> list[Any]:
    value = _get(data, key, path)
    _need(isinstance(value, list), f"{path}.{key}".lstrip("."), value, "a list")
    return value


def _some(data: Any, key: str, path: str) -> list[Any]:
    value = _list(data, key, path)
    _need(len(value) > 0, f"{path}.{key}".lstrip("."), value, "a list of one or more")
    return value


def _text(data: Any, key: str, path: str) -> str:
    value = _get(data, key, path)
    fine = isinstance(value, str) and is_utf8(value)
    _need(fine, f"{path}.{key}".lstrip("."), value, "text")
    return value


def _whole(value: Any, path: str, low: int = 0, high: float = math.inf) -> int:
    fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    allowed = f"from {low} to {high}" if high < math.inf else f"of at least {low}"
    _need(fine, path, value, f"a whole number {allowed}")
    return value


def _number(value: Any, path: str) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    _need(fine and abs(value) <= sys.float_info.max, path, value, "a finite number")
    return value


def _check_head(data: Any) -> None:
    _need(_get(data, "format", "") == FORMAT, "format", data["format"], repr(FORMAT))
    version = _get(data, "version", "")
    _need(
        type(version) is int and version == VERSION,
        "version",
        version,
        f"{VERSION}; this trace was written by another version, record it again",
    )


def _check_model(model: Any) -> None:
    _text(model, "name", "model")
    for key in ("n_layers", "n_heads", "n_kv_heads", "v_dim"):
        _whole(_get(model, key, "model"), f"model.{key}", 1)
    if _get(model, "k_dim", "model") is not None:
        _whole(model["k_dim"], "model.k_dim", 1)
    if _get(model, "scale", "model") is not None:
        _number(model["scale"], "model.scale")
    size = _whole(_get(model, "element_bytes", "model"), "model.element_bytes")
    _need(size in (1, 2, 4, 8), "model.element_bytes", size, "1, 2, 4 or 8")
    _need(
        model["n_heads"] % model["n_kv_heads"] == 0,
        "model.n_kv_heads",
        model["n_kv_heads"],
        f"a divisor of {model['n_heads']}",
    )
    names = _get(model, "head_names", "model")
    fine = names is None or (
        isinstance(names, list)
        and len(names) == model["n_heads"]
        and all(isinstance(name, str) and is_utf8(name) for name in names)
    )
    _need(fine, "model.head_names", names, f"null or {model['n_heads']} names")


def _check_recorded(data: Any) -> None:
    for n, pair in enumerate(_list(data, "recorded", "")):
        path = f"recorded[{n}]"
        _need(isinstance(pair, list) and len(pair) == 2, path, pair, "[layer, head]")
        _whole(pair[0], f"{path}[0]", 0, data["model"]["n_layers"] - 1)
        _whole(pair[1], f"{path}[1]", 0, data["model"]["n_heads"] - 1)
        _need(pair not in data["recorded"][:n], path, pair, "each layer and head once")


def _check_sequence(sequence: Any, path: str) -> None:
    tokens = _list(sequence, "tokens", path)
    prompt = _whole(_get(sequence, "prompt", path), f"{path}.prompt", 1, len(tokens))
    last = None
    for n, token in enumerate(tokens):
        here = f"{path}.tokens[{n}]"
        _text(token, "text", here)
        if _get(token, "id", here) is not None:
            _whole(token["id"], f"{here}.id")
        position = _whole(_get(token, "position", here), f"{here}.position", 0 if last is None else last + 1)
        expected = ("prompt",) if n < prompt else ORIGINS[1:]
        _need(
            _get(token, "origin", here) in expected, f"{here}.origin", token["origin"], " or ".join(expected)
        )
        last = position


def _decode_weights(data: Any) -> dict[str, np.ndarray]:
    weights = _get(data, "weights", "")
    _need(
        _get(weights, "encoding", "weights") == "u16-base64",
        "weights.encoding",
        weights["encoding"],
        "'u16-base64'",
    )
    rows = _get(weights, "rows", "weights")
    _need(isinstance(rows, dict), "weights.rows", rows, "an object")
    known = {
        weight_key(s, token, layer, head)
        for s, sequence in enumerate(data["sequences"])
        for token in range(len(sequence["tokens"]))
        for layer, head in data["recorded"]
    }
    for key in rows:
        _need(key in known, f"weights.rows[{key!r}]", key, "sequence.token.layer.head of a recorded head")
    return {key: _decode_row(text, f"weights.rows[{key!r}]") for key, text in rows.items()}


def _decode_row(text: Any, path: str) -> np.ndarray:
    _need(isinstance(text, str), path, text, "base64 text")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        _wrong(path, text, "base64 text")
    _need(len(raw) % 2 == 0, path, text, "16-bit numbers: an even number of bytes")
    row = np.frombuffer(raw, "<u2") / FULL
    total, allowed = float(row.sum()), max(WEIGHT_SUM, len(row) / (2 * FULL))
    _need(
        min(abs(total - 1), abs(total)) <= allowed,
        path,
        f"weights that sum to {total:.4f}",
        "a sum of 1, or of 0",
    )
    return row


def _ranges(part: Any, key: str, path: str, n_tokens: int) -> list[int]:
    return _spread_ranges(_list(part, key, path), f"{path}.{key}", n_tokens)


def _spread_ranges(ranges: Any, path: str, n_tokens: int) -> list[int]:
    _need(isinstance(ranges, list), path, ranges, "a list of ranges")
    last = 0
    for n, pair in enumerate(ranges):
        here = f"{path}[{n}]"
        _need(isinstance(pair, list | tuple) and len(pair) == 2, here, pair, "[start, stop]")
        _whole(pair[0], f"{here}[0]", last)
        last = _whole(pair[1], f"{here}[1]", pair[0] + 1, n_tokens)
    return spread(ranges)


def _check_run(data: Any, rows: dict[str, np.ndarray], run: Any, path: str) -> None:
    _text(run, "name", path)
    _text(run, "cache", path)
    in_cache: dict[int, list[int]] = {s: [] for s in range(len(data["sequences"]))}
    has_run: dict[int, set[int]] = {s: set() for s in in_cache}
    for e, event in enumerate(_list(run, "events", path)):
        here = f"{path}.events[{e}]"
        if _text(event, "op", here) == "pass":
            _check_pass(data, rows, event, here, in_cache, has_run)
        else:
            _text(event, "say", here)
        if event["op"] == "drop":
            _check_drop(data, event, here, in_cache)


def _check_drop(data: Any, event: Any, path: str, in_cache: dict[int, list[int]]) -> None:
    _text(event, "why", path)
    s = _whole(_get(event, "sequence", path), f"{path}.sequence", 0, len(data["sequences"]) - 1)
    dropped = _ranges(event, "rows", path, len(data["sequences"][s]["tokens"]))
    _need(
        set(dropped) <= set(in_cache[s]), f"{path}.rows", event["rows"], f"rows in the cache: {in_cache[s]}"
    )
    in_cache[s] = [token for token in in_cache[s] if token not in dropped]


def _check_pass(
    data: Any,
    rows: dict[str, np.ndarray],
    event: Any,
    path: str,
    in_cache: dict[int, list[int]],
    has_run: dict[int, set[int]],
) -> None:
    _need(_get(event, "phase", path) in PHASES, f"{path}.phase", event["phase"], ", ".join(PHASES))
    found = dict.fromkeys(COUNTS, 0)
    for p, part in enumerate(_some(event, "parts", path)):
        here = f"{path}.parts[{p}]"
        s = _whole(_get(part, "sequence", here), f"{here}.sequence", 0, len(data["sequences"]) - 1)
        queries = _check_rows(data, part, event["phase"], here, in_cache[s], has_run[s])
        seen = _check_visible(data, rows, part, here, queries, in_cache[s])
        _check_contexts(data, part, here)
        _check_target(data, part, event["phase"], here, queries)
        outs = _list(part, "out", here)
        _need(
            event["phase"] != "training" or not outs, f"{here}.out", outs, "nothing: training emits nothing"
        )
        for n, out in enumerate(outs):
            _check_out(data["sequences"][s]["tokens"], queries, out, f"{here}.out[{n}]")
        found["positions"] += len(queries)
        found["kv_rows"] += len(queries)
        found["rows_read"] += len(spread(part["read"]))
        found["pairs"] += seen
        in_cache[s] += spread(part["written"])
        if event["phase"] != "training":
            has_run[s] |= set(queries)
    _check_counts(_get(event, "counts", path), found, f"{path}.counts")
    _check_shapes(data, event, path)


def _check_rows(
    data: Any, part: Any, phase: str, path: str, in_cache: list[int], has_run: set[int]
) -> list[int]:
    """Which rows are new, repeated, read, written and kept; return the queries."""
    n = len(data["sequences"][part["sequence"]]["tokens"])
    new, repeated, read, written = (
        _ranges(part, key, path, n) for key in ("new", "repeated", "read", "written")
    )
    queries = sorted(new + repeated)
    _need(len(queries) > 0, f"{path}.new", part["new"], "at least one token, in new or repeated")
    _need(not set(new) & has_run, f"{path}.new", part["new"], "tokens that no earlier pass of this run ran")
    _need(
        set(repeated) <= has_run,
        f"{path}.repeated",
        part["repeated"],
        "tokens that an earlier pass of this run ran",
    )
    never = sorted(set(read) - set(in_cache))
    _need(not never, f"{path}.read", part["read"], f"rows that were written before; {never} were not")
    _need(
        set(written) <= set(queries),
        f"{path}.written",
        part["written"],
        f"rows of this pass's tokens {queries}",
    )
    again = sorted(set(written) & set(in_cache))
    _need(not again, f"{path}.written", part["written"], f"rows that are not in the cache yet; {again} are")
    kept = _list(part, "kept", path)
    expected = [len(in_cache), len(in_cache) + len(written)]
    _need(kept == expected, f"{path}.kept", kept, f"{expected}: rows before, and after those written")
    return queries


def _check_visible(
    data: Any, rows: dict[str, np.ndarray], part: Any, path: str, queries: list[int], in_cache: list[int]
) -> int:
    """Who may look at whom, and the weights for it; return the number of pairs."""
    visible, present, pairs = _list(part, "visible", path), {*queries, *spread(part["read"])}, 0
    _need(
        len(visible) == len(queries),
        f"{path}.visible",
        visible,
        f"one list for each of the {len(queries)} queries",
    )
    n = len(data["sequences"][part["sequence"]]["tokens"])
    for query, (token, ranges) in enumerate(zip(queries, visible, strict=True)):
        here = f"{path}.visible[{query}]"
        tokens = _spread_ranges(ranges, here, n)
        absent = sorted(set(tokens) - present)
        _need(not absent, here, ranges, f"rows read or made in this pass; {absent} were neither")
        pairs += len(tokens)
        for layer, head in data["recorded"] if rows else ():
            key = weight_key(part["sequence"], token, layer, head)
            _need(
                key in rows,
                f"weights.rows[{key!r}]",
                "nothing",
                "a row: this token ran and this head is recorded",
            )
            got = len(rows[key])
            _need(
                got == len(tokens),
                f"weights.rows[{key!r}]",
                f"{got} weights",
                f"{len(tokens)}, one for each visible token",
            )
    return pairs


def _check_contexts(data: Any, part: Any, path: str) -> None:
    contexts = _get(part, "contexts", path)
    _need(isinstance(contexts, dict), f"{path}.contexts", contexts, "an object")
    known = {f"{layer}.{head}" for layer, head in data["recorded"]}
    missing = sorted(known - set(contexts)) if contexts else []
    _need(not missing, f"{path}.contexts", sorted(contexts), f"every recorded head or none; {missing} lack")
    n, width = len(spread(part["new"])), data["model"]["v_dim"]
    for key, rows in contexts.items():
        here = f"{path}.contexts[{key!r}]"
        _need(key in known, here, key, "a recorded 'layer.head'")
        _need(isinstance(rows, list) and len(rows) == n, here, rows, f"{n} lists, one for each new row")
        for r, row in enumerate(rows):
            _need(isinstance(row, list) and len(row) == width, f"{here}[{r}]", row, f"{width} numbers")
            for x in row:
                _number(x, f"{here}[{r}]")


def _check_target(data: Any, part: Any, phase: str, path: str, queries: list[int]) -> None:
    target = _get(part, "target", path)
    if target is None:
        return
    n = len(data["sequences"][part["sequence"]]["tokens"])
    fine = isinstance(target, list) and len(target) == len(queries)
    _need(phase == "training", f"{path}.target", target, "null: only training has targets")
    _need(fine, f"{path}.target", target, f"{len(queries)} tokens, one for each query")
    for q, token in enumerate(target):
        _whole(token, f"{path}.target[{q}]", 0, n - 1)


def _check_out(tokens: list[Any], queries: list[int], out: Any, path: str) -> None:
    query = _whole(_get(out, "query", path), f"{path}.query")
    _need(query in queries, f"{path}.query", query, f"a token of this pass: {queries}")
    _text(out, "how", path)
    chosen = _whole(_get(out, "chosen", path), f"{path}.chosen", query + 1, len(tokens) - 1)
    words, total = [], 0.0
    for n, entry in enumerate(_list(out, "top", path)):
        here = f"{path}.top[{n}]"
        _need(isinstance(entry, list | tuple) and len(entry) == 3, here, entry, "[text, logit, probability]")
        _need(isinstance(entry[0], str) and is_utf8(entry[0]), f"{here}[0]", entry[0], "text")
        _number(entry[1], f"{here}[1]")
        _need(
            0 <= _number(entry[2], f"{here}[2]") <= 1 + 1e-6,
            f"{here}[2]",
            entry[2],
            "a probability from 0 to 1",
        )
        words.append(entry[0])
        total += entry[2]
    _need(total <= 1 + 1e-4, f"{path}.top", f"probabilities that sum to {total:.4f}", "at most 1 together")
    _need(
        tokens[chosen]["text"] in words,
        f"{path}.chosen",
        tokens[chosen]["text"],
        f"one of the candidates in top: {words}",
    )


def _check_counts(counts: Any, found: dict[str, int], path: str) -> None:
    for name in COUNTS:
        value = _whole(_get(counts, name, path), f"{path}.{name}")
        if name == "products":
            _need(value >= found["pairs"], f"{path}.{name}", value, f"at least the pairs, {found['pairs']}")
        else:
            _need(
                value == found[name], f"{path}.{name}", value, f"{found[name]}, as the rows of this pass say"
            )


def _check_shapes(data: Any, event: Any, path: str) -> None:
    shapes = _list(event, "shapes", path)
    n_layers = data["model"]["n_layers"]
    _need(len(shapes) == n_layers, f"{path}.shapes", shapes, f"{n_layers} entries, one a layer")
    for n, shape in enumerate(shapes):
        here = f"{path}.shapes[{n}]"
        _whole(_get(shape, "layer", here), f"{here}.layer", n, n)
        _check_shape(data["model"], event, shape, here)


def _check_shape(model: Any, event: Any, shape: Any, path: str) -> None:
    """The shapes of one layer fit each other, the model and the counts."""
    scores = _get(shape, "scores", path)
    _need(
        isinstance(scores, list | tuple) and len(scores) == 4,
        f"{path}.scores",
        scores,
        "(batch, heads, T, S)",
    )
    B, H, T, S = (_whole(size, f"{path}.scores[{n}]", 1) for n, size in enumerate(scores))
    _need(model["n_heads"] == H, f"{path}.scores[1]", H, f"{model['n_heads']}, the model's heads")
    dense = event["counts"]["products"]
    _need(dense == B * T * S, f"{path}.scores", scores, f"{dense} products of one head, as counts says")
    stored = [B, model["n_kv_heads"], S]
    expected = {
        "q": [B, H, T, model["k_dim"]],
        "k": [*stored, model["k_dim"]],
        "v": [*stored, model["v_dim"]],
    }
    for name, sizes in expected.items():
        value = _get(shape, name, path)
        if name == "v" or value is not None:  # q and k are null where rules took the place of dot products
            _need(value == sizes, f"{path}.{name}", value, str(sizes))
            for n, size in enumerate(value):
                _whole(size, f"{path}.{name}[{n}]")
    _need((shape["q"] is None) == (shape["k"] is None), f"{path}.k", shape["k"], "null where q is null")


def _check_values(data: Any, values: Any, path: str) -> None:
    s = _whole(_get(values, "sequence", path), f"{path}.sequence", 0, len(data["sequences"]) - 1)
    _whole(_get(values, "layer", path), f"{path}.layer", 0, data["model"]["n_layers"] - 1)
    n_tokens = len(data["sequences"][s]["tokens"])
    for name, width in (("k", data["model"]["k_dim"]), ("v", data["model"]["v_dim"])):
        rows = _get(values, name, path)
        if rows is None and name == "k":
            continue
        fine = isinstance(rows, list) and len(rows) <= n_tokens
        _need(fine, f"{path}.{name}", rows, f"a list of at most {n_tokens} rows")
        if name == "v" and values["k"] is not None:
            _need(len(rows) == len(values["k"]), f"{path}.v", rows, f"{len(values['k'])} rows, as k has")
        for r, row in enumerate(rows):
            _need(isinstance(row, list) and len(row) == width, f"{path}.{name}[{r}]", row, f"{width} numbers")
            for x in row:
                _number(x, f"{path}.{name}[{r}]")
