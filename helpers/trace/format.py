"""The JSON form of a trace, version 1, and the check that names the first wrong field.

{ "format": "watch-it-decode-trace", "version": 1,
  "model": { "name": "toy", "n_layers": 1, "n_heads": 4, "n_kv_heads": 1, "k_dim": 2, "v_dim": 1,
             "scale": 1.0, "head_names": ["even", …] or null, "element_bytes": 8 },
             (k_dim and scale are null where rules take the place of keys)
  "recorded": [[layer, head], …],
  "sequences": [ { "prompt": 4, "tokens": [ { "text": "Today", "id": null, "position": 1,
                   "origin": "prompt" | "generated" | "draft" }, … ] } ],
             (append-only: elsewhere a token is named by its index here; `position` is as the run counts:
              it grows, but a token may stand where a draft that was rejected stood; `text` may be empty)
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
      "target": null,                        training, the first pass of a run: the token after each query
      "contexts": { "layer.head": [[…], …] },   one list of v_dim numbers for each new row; {} if not kept
      "out": [ { "query": 3, "top": [["nice", logit, probability], …], "chosen": 4, "how": "greedy" } ] } ],
  "shapes": [ { "layer": 0, "q": [B,H,T,D], "k": [B,Hkv,S,D], "v": [B,Hkv,S,Dv], "scores": [B,H,T,S] } ],
  "counts": { "positions": 4, "kv_rows": 4, "rows_read": 0, "pairs": 10, "products": 16 } }
             (of one head and one layer)
{ "op": "drop", "sequence": 0, "rows": [[5, 7]], "why": "rejected", "say": "…" }

`out` is empty in training and in a chunk that does not end the prompt. The training, prefill and later
passes of a run, its tokens and its contents have to fit each other too: `consistency.py` checks that.
Keys that are not listed are ignored.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from helpers.trace.consistency import check_consistency
from helpers.trace.fields import finite, get, get_list, get_some, get_text, need, whole, wrong
from helpers.trace.record import COUNTS, FORMAT, FULL, VERSION, WEIGHT_SUM, is_utf8, spread, weight_key

PHASES = ("training", "prefill", "decode", "verify")
ORIGINS = ("prompt", "generated", "draft")


def validate(data: Any) -> None:
    """Check the JSON form (as dicts and lists) of a trace.

    Raises:
        TraceError: the first field that is wrong, what stands there, and what was expected.
    """
    _check_head(data)
    _check_model(get(data, "model", ""))
    _check_recorded(data)
    for s, sequence in enumerate(get_some(data, "sequences", "")):
        _check_sequence(sequence, f"sequences[{s}]")
    rows = _decode_weights(data)
    for r, run in enumerate(get_some(data, "runs", "")):
        _check_run(data, rows, run, f"runs[{r}]")
        earlier = [other["name"] for other in data["runs"][:r]]
        need(run["name"] not in earlier, f"runs[{r}].name", run["name"], f"another name than {earlier}")
    if get(data, "values", "") is not None:
        for n, values in enumerate(get_list(data, "values", "")):
            _check_values(data, values, f"values[{n}]")
    check_consistency(data, rows)


def _check_head(data: Any) -> None:
    need(get(data, "format", "") == FORMAT, "format", data["format"], repr(FORMAT))
    version = get(data, "version", "")
    need(
        type(version) is int and version == VERSION,
        "version",
        version,
        f"{VERSION}; this trace was written by another version, record it again",
    )


def _check_model(model: Any) -> None:
    get_text(model, "name", "model")
    for key in ("n_layers", "n_heads", "n_kv_heads", "v_dim"):
        whole(get(model, key, "model"), f"model.{key}", 1)
    if get(model, "k_dim", "model") is not None:
        whole(model["k_dim"], "model.k_dim", 1)
    if get(model, "scale", "model") is not None:
        finite(model["scale"], "model.scale")
    size = whole(get(model, "element_bytes", "model"), "model.element_bytes")
    need(size in (1, 2, 4, 8), "model.element_bytes", size, "1, 2, 4 or 8")
    need(
        model["n_heads"] % model["n_kv_heads"] == 0,
        "model.n_kv_heads",
        model["n_kv_heads"],
        f"a divisor of {model['n_heads']}",
    )
    names = get(model, "head_names", "model")
    fine = names is None or (
        isinstance(names, list)
        and len(names) == model["n_heads"]
        and all(isinstance(name, str) and is_utf8(name) for name in names)
    )
    need(fine, "model.head_names", names, f"null or {model['n_heads']} names")


def _check_recorded(data: Any) -> None:
    for n, pair in enumerate(get_list(data, "recorded", "")):
        path = f"recorded[{n}]"
        need(isinstance(pair, list) and len(pair) == 2, path, pair, "[layer, head]")
        whole(pair[0], f"{path}[0]", 0, data["model"]["n_layers"] - 1)
        whole(pair[1], f"{path}[1]", 0, data["model"]["n_heads"] - 1)
        need(pair not in data["recorded"][:n], path, pair, "each layer and head once")


def _check_sequence(sequence: Any, path: str) -> None:
    tokens = get_list(sequence, "tokens", path)
    prompt = whole(get(sequence, "prompt", path), f"{path}.prompt", 1, len(tokens))
    low = 0
    for n, token in enumerate(tokens):
        here = f"{path}.tokens[{n}]"
        get_text(token, "text", here)
        if get(token, "id", here) is not None:
            whole(token["id"], f"{here}.id")
        position = whole(get(token, "position", here), f"{here}.position", low)
        expected = ("prompt",) if n < prompt else ORIGINS[1:]
        need(get(token, "origin", here) in expected, f"{here}.origin", token["origin"], " or ".join(expected))
        if token["origin"] != "draft":  # a draft may be rejected: another token then takes its place
            low = position + 1


def _decode_weights(data: Any) -> dict[str, np.ndarray]:
    weights = get(data, "weights", "")
    need(
        get(weights, "encoding", "weights") == "u16-base64",
        "weights.encoding",
        weights["encoding"],
        "'u16-base64'",
    )
    rows = get(weights, "rows", "weights")
    need(isinstance(rows, dict), "weights.rows", rows, "an object")
    known = {
        weight_key(s, token, layer, head)
        for s, sequence in enumerate(data["sequences"])
        for token in range(len(sequence["tokens"]))
        for layer, head in data["recorded"]
    }
    for key in rows:
        need(key in known, f"weights.rows[{key!r}]", key, "sequence.token.layer.head of a recorded head")
    return {key: _decode_row(text, f"weights.rows[{key!r}]") for key, text in rows.items()}


def _decode_row(text: Any, path: str) -> np.ndarray:
    need(isinstance(text, str), path, text, "base64 text")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        wrong(path, text, "base64 text")
    need(len(raw) % 2 == 0, path, text, "16-bit numbers: an even number of bytes")
    row = np.frombuffer(raw, "<u2") / FULL
    total = float(row.sum())
    need(
        min(abs(total - 1), abs(total)) <= WEIGHT_SUM,
        path,
        f"weights that sum to {total:.4f}",
        "a sum of 1, or of 0",
    )
    return row


def _ranges(part: Any, key: str, path: str, n_tokens: int) -> list[int]:
    return _spread_ranges(get_list(part, key, path), f"{path}.{key}", n_tokens)


def _spread_ranges(ranges: Any, path: str, n_tokens: int) -> list[int]:
    need(isinstance(ranges, list), path, ranges, "a list of ranges")
    last = 0
    for n, pair in enumerate(ranges):
        here = f"{path}[{n}]"
        need(isinstance(pair, list | tuple) and len(pair) == 2, here, pair, "[start, stop]")
        whole(pair[0], f"{here}[0]", last)
        last = whole(pair[1], f"{here}[1]", pair[0] + 1, n_tokens)
    return spread(ranges)


def _check_run(data: Any, rows: dict[str, np.ndarray], run: Any, path: str) -> None:
    get_text(run, "name", path)
    get_text(run, "cache", path)
    in_cache: dict[int, list[int]] = {s: [] for s in range(len(data["sequences"]))}
    has_run: dict[int, set[int]] = {s: set() for s in in_cache}
    for e, event in enumerate(get_list(run, "events", path)):
        here = f"{path}.events[{e}]"
        if get_text(event, "op", here) == "pass":
            _check_pass(data, rows, event, here, in_cache, has_run)
        else:
            get_text(event, "say", here)
        if event["op"] == "drop":
            _check_drop(data, event, here, in_cache)


def _check_drop(data: Any, event: Any, path: str, in_cache: dict[int, list[int]]) -> None:
    get_text(event, "why", path)
    s = whole(get(event, "sequence", path), f"{path}.sequence", 0, len(data["sequences"]) - 1)
    dropped = _ranges(event, "rows", path, len(data["sequences"][s]["tokens"]))
    need(set(dropped) <= set(in_cache[s]), f"{path}.rows", event["rows"], f"rows in the cache: {in_cache[s]}")
    in_cache[s] = [token for token in in_cache[s] if token not in dropped]


def _check_pass(
    data: Any,
    rows: dict[str, np.ndarray],
    event: Any,
    path: str,
    in_cache: dict[int, list[int]],
    has_run: dict[int, set[int]],
) -> None:
    need(get(event, "phase", path) in PHASES, f"{path}.phase", event["phase"], ", ".join(PHASES))
    found = dict.fromkeys(COUNTS, 0)
    for p, part in enumerate(get_some(event, "parts", path)):
        here = f"{path}.parts[{p}]"
        s = whole(get(part, "sequence", here), f"{here}.sequence", 0, len(data["sequences"]) - 1)
        queries = _check_rows(data, part, event["phase"], here, in_cache[s], has_run[s])
        seen = _check_visible(data, rows, part, here, queries, in_cache[s])
        _check_contexts(data, part, here)
        _check_target(data, part, event["phase"], here, queries)
        outs = get_list(part, "out", here)
        need(event["phase"] != "training" or not outs, f"{here}.out", outs, "nothing: training emits nothing")
        for n, out in enumerate(outs):
            _check_out(data["sequences"][s]["tokens"], queries, out, f"{here}.out[{n}]")
        found["positions"] += len(queries)
        found["kv_rows"] += len(queries)
        found["rows_read"] += len(spread(part["read"]))
        found["pairs"] += seen
        in_cache[s] += spread(part["written"])
        if event["phase"] != "training":
            has_run[s] |= set(queries)
    _check_counts(get(event, "counts", path), found, f"{path}.counts")
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
    need(len(queries) > 0, f"{path}.new", part["new"], "at least one token, in new or repeated")
    need(not set(new) & has_run, f"{path}.new", part["new"], "tokens that no earlier pass of this run ran")
    need(
        set(repeated) <= has_run,
        f"{path}.repeated",
        part["repeated"],
        "tokens that an earlier pass of this run ran",
    )
    never = sorted(set(read) - set(in_cache))
    need(not never, f"{path}.read", part["read"], f"rows that were written before; {never} were not")
    need(
        set(written) <= set(queries),
        f"{path}.written",
        part["written"],
        f"rows of this pass's tokens {queries}",
    )
    again = sorted(set(written) & set(in_cache))
    need(not again, f"{path}.written", part["written"], f"rows that are not in the cache yet; {again} are")
    kept = get_list(part, "kept", path)
    expected = [len(in_cache), len(in_cache) + len(written)]
    need(kept == expected, f"{path}.kept", kept, f"{expected}: rows before, and after those written")
    return queries


def _check_visible(
    data: Any, rows: dict[str, np.ndarray], part: Any, path: str, queries: list[int], in_cache: list[int]
) -> int:
    """Who may look at whom, and the weights for it; return the number of pairs."""
    visible, present, pairs = get_list(part, "visible", path), {*queries, *spread(part["read"])}, 0
    need(
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
        need(not absent, here, ranges, f"rows read or made in this pass; {absent} were neither")
        pairs += len(tokens)
        for layer, head in data["recorded"] if rows else ():
            key = weight_key(part["sequence"], token, layer, head)
            need(
                key in rows,
                f"weights.rows[{key!r}]",
                "nothing",
                "a row: this token ran and this head is recorded",
            )
            got = len(rows[key])
            need(
                got == len(tokens),
                f"weights.rows[{key!r}]",
                f"{got} weights",
                f"{len(tokens)}, one for each visible token",
            )
    return pairs


def _check_contexts(data: Any, part: Any, path: str) -> None:
    contexts = get(part, "contexts", path)
    need(isinstance(contexts, dict), f"{path}.contexts", contexts, "an object")
    known = {f"{layer}.{head}" for layer, head in data["recorded"]}
    missing = sorted(known - set(contexts)) if contexts else []
    need(not missing, f"{path}.contexts", sorted(contexts), f"every recorded head or none; {missing} lack")
    n, width = len(spread(part["new"])), data["model"]["v_dim"]
    for key, rows in contexts.items():
        here = f"{path}.contexts[{key!r}]"
        need(key in known, here, key, "a recorded 'layer.head'")
        need(isinstance(rows, list) and len(rows) == n, here, rows, f"{n} lists, one for each new row")
        for r, row in enumerate(rows):
            need(isinstance(row, list) and len(row) == width, f"{here}[{r}]", row, f"{width} numbers")
            for x in row:
                finite(x, f"{here}[{r}]")


def _check_target(data: Any, part: Any, phase: str, path: str, queries: list[int]) -> None:
    target = get(part, "target", path)
    if target is None:
        return
    n = len(data["sequences"][part["sequence"]]["tokens"])
    fine = isinstance(target, list) and len(target) == len(queries)
    need(phase == "training", f"{path}.target", target, "null: only training has targets")
    need(fine, f"{path}.target", target, f"{len(queries)} tokens, one for each query")
    for q, token in enumerate(target):
        whole(token, f"{path}.target[{q}]", 0, n - 1)


def _check_out(tokens: list[Any], queries: list[int], out: Any, path: str) -> None:
    query = whole(get(out, "query", path), f"{path}.query")
    need(query in queries, f"{path}.query", query, f"a token of this pass: {queries}")
    get_text(out, "how", path)
    chosen = whole(get(out, "chosen", path), f"{path}.chosen", query + 1, len(tokens) - 1)
    words, total = [], 0.0
    for n, entry in enumerate(get_list(out, "top", path)):
        here = f"{path}.top[{n}]"
        need(isinstance(entry, list | tuple) and len(entry) == 3, here, entry, "[text, logit, probability]")
        need(isinstance(entry[0], str) and is_utf8(entry[0]), f"{here}[0]", entry[0], "text")
        finite(entry[1], f"{here}[1]")
        need(
            0 <= finite(entry[2], f"{here}[2]") <= 1 + 1e-6,
            f"{here}[2]",
            entry[2],
            "a probability from 0 to 1",
        )
        words.append(entry[0])
        total += entry[2]
    need(total <= 1 + 1e-4, f"{path}.top", f"probabilities that sum to {total:.4f}", "at most 1 together")
    need(
        tokens[chosen]["text"] in words,
        f"{path}.chosen",
        tokens[chosen]["text"],
        f"one of the candidates in top: {words}",
    )


def _check_counts(counts: Any, found: dict[str, int], path: str) -> None:
    for name in COUNTS:
        value = whole(get(counts, name, path), f"{path}.{name}")
        if name == "products":
            need(value >= found["pairs"], f"{path}.{name}", value, f"at least the pairs, {found['pairs']}")
        else:
            need(
                value == found[name], f"{path}.{name}", value, f"{found[name]}, as the rows of this pass say"
            )


def _check_shapes(data: Any, event: Any, path: str) -> None:
    shapes = get_list(event, "shapes", path)
    n_layers = data["model"]["n_layers"]
    need(len(shapes) == n_layers, f"{path}.shapes", shapes, f"{n_layers} entries, one a layer")
    for n, shape in enumerate(shapes):
        here = f"{path}.shapes[{n}]"
        whole(get(shape, "layer", here), f"{here}.layer", n, n)
        _check_shape(data["model"], event, shape, here)


def _check_shape(model: Any, event: Any, shape: Any, path: str) -> None:
    """The shapes of one layer fit each other, the model and the counts."""
    scores = get(shape, "scores", path)
    need(
        isinstance(scores, list | tuple) and len(scores) == 4,
        f"{path}.scores",
        scores,
        "(batch, heads, T, S)",
    )
    B, H, T, S = (whole(size, f"{path}.scores[{n}]", 1) for n, size in enumerate(scores))
    need(model["n_heads"] == H, f"{path}.scores[1]", H, f"{model['n_heads']}, the model's heads")
    dense = event["counts"]["products"]
    need(dense == B * T * S, f"{path}.scores", scores, f"{dense} products of one head, as counts says")
    stored = [B, model["n_kv_heads"], S]
    expected = {
        "q": [B, H, T, model["k_dim"]],
        "k": [*stored, model["k_dim"]],
        "v": [*stored, model["v_dim"]],
    }
    for name, sizes in expected.items():
        value = get(shape, name, path)
        if name == "v" or value is not None:  # q and k are null where rules took the place of dot products
            need(value == sizes, f"{path}.{name}", value, str(sizes))
            for n, size in enumerate(value):
                whole(size, f"{path}.{name}[{n}]")
    need((shape["q"] is None) == (shape["k"] is None), f"{path}.k", shape["k"], "null where q is null")


def _check_values(data: Any, values: Any, path: str) -> None:
    s = whole(get(values, "sequence", path), f"{path}.sequence", 0, len(data["sequences"]) - 1)
    whole(get(values, "layer", path), f"{path}.layer", 0, data["model"]["n_layers"] - 1)
    n_tokens = len(data["sequences"][s]["tokens"])
    for name, width in (("k", data["model"]["k_dim"]), ("v", data["model"]["v_dim"])):
        rows = get(values, name, path)
        if rows is None and name == "k":
            continue
        fine = isinstance(rows, list) and len(rows) <= n_tokens
        need(fine, f"{path}.{name}", rows, f"a list of at most {n_tokens} rows")
        if name == "v" and values["k"] is not None:
            need(len(rows) == len(values["k"]), f"{path}.v", rows, f"{len(values['k'])} rows, as k has")
        for r, row in enumerate(rows):
            need(isinstance(row, list) and len(row) == width, f"{path}.{name}[{r}]", row, f"{width} numbers")
            for x in row:
                finite(x, f"{path}.{name}[{r}]")
