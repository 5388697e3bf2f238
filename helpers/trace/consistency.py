"""What each field of a trace says by itself may be right, and the whole still tell no run that can be.

`validate` calls this once every field is of its kind: the order of the phases, the tokens chosen, what a
run keeps, shapes against rows, and contexts against attention weights times V.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from helpers.trace.fields import need
from helpers.trace.record import AGAIN, FULL, spread, weight_key


def check_consistency(data: Any, rows: dict[str, np.ndarray]) -> None:
    """Check what passes say of each other.

    Args:
        data: the JSON form of a trace, each of its fields checked.
        rows: its attention weights by key, as floats.

    Raises:
        TraceError: the first field that does not fit the others.
    """
    for r, run in enumerate(data["runs"]):
        _check_run(data, run, f"runs[{r}]")
    if data["values"] is not None:
        _check_values(data)
        _check_contexts(data, rows)


def _passes(run: Any, path: str) -> list[tuple[str, Any]]:
    events = enumerate(run["events"])
    return [(f"{path}.events[{e}]", event) for e, event in events if event["op"] == "pass"]


def _parts(data: Any) -> Iterator[tuple[str, Any]]:
    for r, run in enumerate(data["runs"]):
        for path, event in _passes(run, f"runs[{r}]"):
            for p, part in enumerate(event["parts"]):
                yield f"{path}.parts[{p}]", part


def _queries(part: Any) -> list[int]:
    return sorted(spread(part["new"]) + spread(part["repeated"]))


def _check_run(data: Any, run: Any, path: str) -> None:
    passes = _passes(run, path)
    need(len(passes) > 0, f"{path}.events", run["events"], "a pass: this run ran nothing")
    chosen: dict[int, set[int]] = {s: set() for s in range(len(data["sequences"]))}
    wrote = False
    for n, (here, event) in enumerate(passes):
        phase = event["phase"]
        first = n == 0 or phase != "training"
        need(first, f"{here}.phase", phase, "another phase: training is a run's first pass, once")
        _check_phase(data["sequences"], event, here)
        for p, part in enumerate(event["parts"]):
            of_part = f"{here}.parts[{p}]"
            keeps = run["cache"] != "none" and phase != "training"
            says = "no rows: training and a run whose cache is 'none' keep none"
            need(keeps or not part["written"], f"{of_part}.written", part["written"], says)
            wrote = wrote or bool(part["written"])
            if phase == "training":
                _check_target(part, of_part)
            else:
                _check_outs(data, part, of_part, chosen[part["sequence"]])
        _check_sizes(run["cache"], event, here)
    nothing = run["cache"] == "none" or passes[-1][1]["phase"] == "training"
    need(wrote or nothing, f"{path}.cache", run["cache"], "'none': no pass of this run wrote a row")


def _check_phase(sequences: list[Any], event: Any, path: str) -> None:
    """Prefill runs tokens of the prompt, decode and verify those after it; one part of a pass is enough."""
    news = [(part["new"][0][0], sequences[part["sequence"]]) for part in event["parts"] if part["new"]]
    in_prompt = {token < sequence["prompt"] for token, sequence in news}
    if event["phase"] == "prefill":
        says = "decode or verify: the tokens that it runs come after the prompt"
        need(not news or True in in_prompt, f"{path}.phase", "prefill", says)
    elif event["phase"] != "training":
        says = "prefill: the tokens that it runs are the prompt's"
        need(not news or False in in_prompt, f"{path}.phase", event["phase"], says)


def _check_target(part: Any, path: str) -> None:
    queries, target = _queries(part), part["target"]
    need(target is not None, f"{path}.target", target, f"{len(queries)} tokens, one for each query")
    for q, (query, token) in enumerate(zip(queries, target, strict=True)):
        need(token == query + 1, f"{path}.target[{q}]", token, f"{query + 1}, the token after query {query}")


def _check_outs(data: Any, part: Any, path: str, chosen: set[int]) -> None:
    """Each token that was generated was chosen after the one before it; `chosen` holds those so far."""
    sequence, new = data["sequences"][part["sequence"]], spread(part["new"])
    tokens, last = sequence["tokens"], sequence["prompt"] - 1
    never = [token for token in new if tokens[token]["origin"] == "generated" and token not in chosen]
    need(
        not never, f"{path}.new", part["new"], f"generated tokens that a pass before chose; {never} were not"
    )
    asked: list[int] = []
    for n, out in enumerate(part["out"]):
        here, query, token = f"{path}.out[{n}]", out["query"], out["chosen"]
        need(query >= last, f"{here}.query", query, f"{last} or more: there the prompt ends")
        need(query not in asked, f"{here}.query", query, "each query once")
        between = {tokens[other]["origin"] for other in range(query + 1, token)}
        says = f"{query + 1}, the next token of its sequence (only drafts may stand between)"
        need(between <= {"draft"}, f"{here}.chosen", token, says)
        _check_choice(out, tokens[token]["text"], here, data["model"]["element_bytes"])
        asked.append(query)
    chosen |= {out["chosen"] for out in part["out"]}
    if new and new[-1] >= last:  # a chunk of the prompt that does not end it has none
        rejected = tokens[new[-1]]["origin"] == "draft"  # it may be: one before it then has the last word
        found = new[-1] in asked or (rejected and asked)
        need(bool(found), f"{path}.out", part["out"], f"the token chosen after token {new[-1]}")


def _check_choice(out: Any, word: str, path: str, element_bytes: int) -> None:
    """Not banned; and if the choice was greedy, of the largest logit, as near as a second run comes to it."""

    def banned(text: str) -> bool:
        return f", {text} banned," in f"{out['how']},"

    need(not banned(word), f"{path}.chosen", word, f"a word that is not banned, as how says: {out['how']}")
    if out["how"].split(",")[0] == "greedy":
        logits = [logit for text, logit, _ in out["top"] if text == word]
        largest = max(logit for text, logit, _ in out["top"] if not banned(text))
        near = max(logits) >= largest - AGAIN[element_bytes] * max(1, abs(largest))
        need(
            near, f"{path}.chosen", word, f"the word of the largest logit, {largest:.6g}, as how says: greedy"
        )


def _check_sizes(cache: str, event: Any, path: str) -> None:
    """T is the queries and S the rows there; several sequences may be padded or packed, rows lie in pages."""
    queries = [set(_queries(part)) for part in event["parts"]]
    present = [of | set(spread(part["read"])) for of, part in zip(queries, event["parts"], strict=True)]
    fewest, most, rows = max(map(len, queries)), sum(map(len, queries)), max(map(len, present))
    exact = len(queries) == 1 and cache in ("none", "growing")
    for n, shape in enumerate(event["shapes"]):
        here, (T, S) = f"{path}.shapes[{n}].scores", shape["scores"][2:]
        need(fewest <= T <= most, f"{here}[2]", T, f"{most}, the queries of this pass")
        says = f"{rows}{'' if exact else ' or more'}, the rows that this pass reads and makes"
        need(S == rows if exact else S >= rows, f"{here}[3]", S, says)


def _check_values(data: Any) -> None:
    ran = dict.fromkeys(range(len(data["sequences"])), -1)
    for _, part in _parts(data):
        ran[part["sequence"]] = max([ran[part["sequence"]], *spread(part["new"])])
    before: list[tuple[int, int]] = []
    for n, values in enumerate(data["values"]):
        of = (values["sequence"], values["layer"])
        need(of not in before, f"values[{n}].layer", values["layer"], "each layer of a sequence once")
        before.append(of)
        for name in ("k", "v"):
            kept, least = values[name], ran[values["sequence"]] + 1
            fine = kept is None or len(kept) >= least
            need(fine, f"values[{n}].{name}", kept, f"{least} rows, one for each token that ran")


def _check_contexts(data: Any, rows: dict[str, np.ndarray]) -> None:
    """Contexts are weights · V, within the rounding of weights to 16 bits and of a token that runs again."""
    if data["model"]["n_kv_heads"] != 1:
        return  # the contents do not say of which KV head they are
    kept = {(values["sequence"], values["layer"]): np.array(values["v"], float) for values in data["values"]}
    share = AGAIN[data["model"]["element_bytes"]]
    for path, part in _parts(data):
        visible = dict(zip(_queries(part), part["visible"], strict=True))
        for row, token in enumerate(spread(part["new"])):
            seen = spread(visible[token])
            for key, contexts in part["contexts"].items():
                layer, head = map(int, key.split("."))
                weights = rows.get(weight_key(part["sequence"], token, layer, head))
                if weights is None or (part["sequence"], layer) not in kept:
                    continue
                v = kept[part["sequence"], layer][seen]  # (S, Dv)
                allowed = np.abs(v).sum(axis=0) / FULL + share * np.abs(v).max(initial=0)
                near = (np.abs(weights @ v - np.array(contexts[row], float)) <= allowed).all()
                says = f"about {(weights @ v).tolist()}: its attention weights times V"
                need(bool(near), f"{path}.contexts['{key}'][{row}]", contexts[row], says)
