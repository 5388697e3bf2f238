"""The recorder: a loop opens and closes passes, a watcher tells what was appended and attended to, a `Trace`
comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from helpers.sampling import softmax
from helpers.trace import (
    FULL,
    Model,
    Output,
    Part,
    Pass,
    Range,
    Run,
    Token,
    TokenSequence,
    Trace,
    TraceError,
    Values,
    gather,
    weight_key,
)

WEIGHT_SUM = 0.005  # how far a stored row of weights may be from its sum
# How far a weight may move when its token runs again, in a pass of another shape, which sums in another
# order, by bytes of an element. Measured with torch, 12 layers of 576: 3e-5 in float32, 0.023 in bfloat16.
AGAIN = {8: 1e-3, 4: 1e-3, 2: 0.1, 1: 0.1}
# How far weights · v may be from the run's output, as a share of the largest |v|, by bytes of an element.
# A context is an average, so all errors scale with |v|. Measured with torch, 512 keys and scores up to 36:
# 1e-6 in float32, 0.004 in bfloat16, 0.03 where the scores themselves are rounded to bfloat16.
ROUNDING = {8: 1e-9, 4: 1e-5, 2: 4e-2}


class Counts(Protocol):
    """What a recorder asks of a cache: how many rows it keeps."""

    @property
    def n_kept(self) -> int: ...


class Recorder:
    """Writes a trace while a decoder runs.

    The loop:    begin_run, then for each pass open_pass … close_pass, then finish.
    The watcher: `append(layer, k, v)` for what enters the cache, `attention(layer, …)` for what attention
                 was given and gave. It looks on from outside: the decoder knows nothing of it.
    Everything counted is counted at those two places. Token indices and layers are from 0.

    Args:
        model: what runs.
        prompt: the prompt's tokens.
        recorded: (layer, head) pairs whose attention weights are kept; None keeps all.
        values: keep the contents of K, V and the contexts too (only for something as small as the toy).
    """

    def __init__(
        self,
        model: Model,
        prompt: Sequence[Token],
        *,
        recorded: Sequence[tuple[int, int]] | None = None,
        values: bool = False,
    ) -> None:
        everything = [(layer, head) for layer in range(model.n_layers) for head in range(model.n_heads)]
        recorded = everything if recorded is None else list(recorded)
        self.trace = Trace(model, recorded, [TokenSequence(len(prompt), list(prompt))], [])
        if values:
            self.trace.values = [Values(0, layer, [], []) for layer in range(model.n_layers)]

    @property
    def tokens(self) -> list[Token]:
        """The tokens so far: the prompt and what was generated."""
        return self.trace.sequences[0].tokens

    @property
    def n_prompt(self) -> int:
        """How many of them are the prompt."""
        return self.trace.sequences[0].prompt

    def begin_run(self, name: str, cache: str) -> None:
        """Start a run; a second run replays the tokens of the first."""
        self.trace.runs.append(Run(name, cache, []))
        self._rows: list[int] = []  # which token each row of the cache belongs to
        self._seen: set[int] = set()  # tokens run so far, training aside
        self._emitted = 0

    def open_pass(
        self, phase: str, tokens: Sequence[int], cache: Counts | None = None, target: list[int] | None = None
    ) -> None:
        """Announce a pass over these tokens. `cache` is None where no cache stays after the pass."""
        self._open = _OpenPass(phase, list(tokens), cache, target, cache.n_kept if cache is not None else 0)

    def append(self, layer: int, k: np.ndarray | None, v: np.ndarray) -> None:
        """Take the new rows of a layer, (B, Hkv, T, D); k is None where rules take its place."""
        opened = self._open
        opened.appended[layer] = opened.appended.get(layer, 0) + v.shape[-2]
        if self.trace.values is not None:
            self._keep_contents(self.trace.values[layer], opened.tokens, k, v)

    def attention(
        self,
        layer: int,
        *,
        q: np.ndarray | None,
        k: np.ndarray | None,
        v: np.ndarray,
        mask: np.ndarray,
        scale: float | None,
        sink: np.ndarray | None,
        output: np.ndarray,
        scores: np.ndarray | None = None,
    ) -> None:
        """Take what went into the attention of one layer, and what came out.

        Args:
            q: queries, (1, H, T, D), or None with `scores` given.
            k: keys of every visible row, (1, Hkv, S, D), or None with `scores` given.
            v: values of every visible row, (1, Hkv, S, Dv).
            mask: the causal mask, (T, S), True where a query may look.
            scale: what q · k is multiplied by.
            sink: one score a head, added to the softmax's row and dropped after it, (H,), or None.
            output: what the run went on with, (1, H, T, Dv).
            scores: where rules take the place of q · k: scores before the causal mask, (1, H, T, S).

        Raises:
            TraceError: weights · v is not the output, or the shapes do not fit the open pass.
        """
        opened = self._open
        if q is not None and k is not None and scale is not None:
            scores = (q @ np.swapaxes(_per_query_head(k, q.shape[1]), -1, -2)) * scale
        assert scores is not None  # rules hand over theirs
        rows = (self._rows if opened.cache is not None else []) + opened.tokens  # the tokens of the columns
        self._check_shapes(layer, len(rows), scores=scores, v=v, mask=mask, output=output)
        weights = attention_weights(scores, mask, sink)
        self._check_output(layer, weights, v, output)
        opened.visible.append([gather(rows[j] for j in np.flatnonzero(row)) for row in mask])
        opened.shapes.append({"layer": layer, **_shapes(q=q, k=k, v=v, scores=scores)})
        n_new = opened.appended[layer]
        counts = {"positions": mask.shape[0], "kv_rows": n_new, "rows_read": v.shape[-2] - n_new}
        opened.counts.append(counts | {"pairs": int(mask.sum()), "products": int(mask.size)})
        self._keep_weights(layer, opened.tokens, mask, weights)
        if self.trace.values is not None:
            self._keep_contexts(layer, opened, output)

    def close_pass(
        self,
        top: Sequence[tuple[str, float, float]] | None = None,
        chosen: Token | None = None,
        how: str = "greedy",
    ) -> None:
        """Finish the pass: the last query's candidates and the token chosen, or nothing in training.

        Raises:
            TraceError: layers or heads counted different work, the cache did not keep what was appended,
                or a second run chose another token than the first.
        """
        opened = self._open
        layers, expected = [shape["layer"] for shape in opened.shapes], self.trace.model.n_layers
        if layers != list(range(expected)):
            raise TraceError(
                f"attention came from layers {layers}; expected each of {expected} once, in order"
            )
        for name in ("counts", "visible"):
            first, *others = getattr(opened, name)
            if any(other != first for other in others):
                raise TraceError(f"the layers of one pass differ in {name}: {getattr(opened, name)}")
        part = self._part(opened)
        if chosen is not None:
            part.out.append(Output(opened.tokens[-1], list(top or []), self._choose(chosen), how))
        self.trace.runs[-1].events.append(Pass(opened.phase, [part], opened.shapes, opened.counts[0]))
        if opened.phase != "training":
            self._seen.update(opened.tokens)
        if opened.cache is not None:
            self._rows += opened.tokens

    def finish(self) -> Trace:
        """Return the trace. Contents of K are None where the run had none."""
        for values in self.trace.values or []:
            values.k = values.k or None
        return self.trace

    def _check_shapes(self, layer: int, n_rows: int, **arrays: np.ndarray) -> None:
        """One new row a token, and what every head and query needs over all rows, kept and new."""
        T, H, n_new = len(self._open.tokens), self.trace.model.n_heads, self._open.appended.get(layer, 0)
        if n_new != T:
            raise TraceError(
                f"layer {layer} appended {n_new} rows for {T} tokens; expected one for each, once"
            )
        (_, Hkv, _, Dv), S = arrays["v"].shape, n_rows
        expected = {"mask": (T, S), "v": (1, Hkv, S, Dv), "scores": (1, H, T, S), "output": (1, H, T, Dv)}
        for name, array in arrays.items():
            if array.shape != expected[name]:
                raise TraceError(
                    f"{name} of shape {array.shape} came in; expected {expected[name]}: {T} queries of one "
                    f"sequence, {S} rows kept and new"
                )

    def _check_output(self, layer: int, weights: np.ndarray, v: np.ndarray, output: np.ndarray) -> None:
        """Weights · v must be what the run used, within the rounding of its elements."""
        values = _per_query_head(v, weights.shape[1])
        off = np.abs(weights @ values - output)
        allowed = ROUNDING[self.trace.model.element_bytes] * np.abs(values).max()
        if not (off <= allowed).all():
            head, query = np.unravel_index(
                np.nanargmax(np.where(off <= allowed, 0, np.nan_to_num(off, nan=np.inf))), off.shape
            )[1:3]
            raise TraceError(
                f"layer {layer}, head {head}, query {query}: attention weights times V differ from the run's "
                f"output by {off[0, head, query].max():.3g}; the mask, scale or sink is not the run's"
            )

    def _keep_weights(self, layer: int, tokens: list[int], mask: np.ndarray, weights: np.ndarray) -> None:
        for of_layer, head in self.trace.recorded:
            if of_layer != layer:
                continue
            for query, token in enumerate(tokens):
                row = _in_16_bits(weights[0, head, query][mask[query]])
                kept = self.trace.weights.setdefault(weight_key(0, token, layer, head), row)
                allowed = FULL * AGAIN[self.trace.model.element_bytes]
                if len(kept) != len(row) or np.abs(kept.astype(int) - row.astype(int)).max() > allowed:
                    raise TraceError(
                        f"token {token}, layer {layer}, head {head}: run again, it got other weights: "
                        "record the two runs as two traces and compare them"
                    )

    def _keep_contexts(self, layer: int, opened: _OpenPass, output: np.ndarray) -> None:
        new = [i for i, token in enumerate(opened.tokens) if token not in self._seen]
        for of_layer, head in self.trace.recorded:
            if of_layer == layer:
                opened.contexts[f"{layer}.{head}"] = [[float(x) for x in output[0, head, i]] for i in new]

    def _keep_contents(self, kept: Values, tokens: list[int], k: np.ndarray | None, v: np.ndarray) -> None:
        for name, stored, rows in (("K", kept.k, k), ("V", kept.v, v)):
            if stored is None or rows is None:
                continue
            for token, row in zip(tokens, rows[0, 0], strict=True):
                if token == len(stored):
                    stored.append([float(x) for x in row])
                elif token > len(stored) or not np.allclose(stored[token], row):
                    raise TraceError(
                        f"token {token} ran again and got another row of {name}, or one before it never ran: "
                        "record two traces and compare them"
                    )

    def _part(self, opened: _OpenPass) -> Part:
        new = [token for token in opened.tokens if token not in self._seen]
        after = opened.cache.n_kept if opened.cache is not None else 0
        written = opened.tokens if opened.cache is not None else []
        if after - opened.before != len(written):
            raise TraceError(
                f"{len(written)} rows were appended, the cache went from {opened.before} to {after} rows: "
                "was it advanced once, after the last layer?"
            )
        return Part(
            sequence=0,
            new=gather(new),
            visible=opened.visible[0],
            read=gather(self._rows if opened.cache is not None else []),
            written=gather(written),
            kept=(opened.before, after),
            repeated=gather(token for token in opened.tokens if token in self._seen),
            target=opened.target,
            contexts=opened.contexts,
            out=[],
        )

    def _choose(self, chosen: Token) -> int:
        index = self.n_prompt + self._emitted
        self._emitted += 1
        if index == len(self.tokens):
            self.tokens.append(chosen)
        elif self.tokens[index].text != chosen.text:
            raise TraceError(
                f"the first run chose {self.tokens[index].text!r}, this one {chosen.text!r}; replay the first"
            )
        return index


@dataclass
class _OpenPass:
    phase: str
    tokens: list[int]
    cache: Counts | None
    target: list[int] | None
    before: int
    appended: dict[int, int] = field(default_factory=dict)
    visible: list[list[list[Range]]] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    counts: list[dict[str, int]] = field(default_factory=list)
    contexts: dict[str, list[list[float]]] = field(default_factory=dict)


def _shapes(**arrays: np.ndarray | None) -> dict[str, list[int] | None]:
    return {name: None if array is None else list(array.shape) for name, array in arrays.items()}


def _per_query_head(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Repeat (1, Hkv, S, D) to (1, H, S, D): each KV head serves H / Hkv query heads."""
    return np.repeat(rows, n_heads // rows.shape[1], axis=1)


def _in_16_bits(weights: np.ndarray) -> np.ndarray:
    """Round a row of weights. Equal ones stay equal, unless all of them rounded one way spoil the sum."""
    exact = weights.astype(float) * FULL
    rounded = np.round(exact)
    if abs(rounded.sum() - exact.sum()) > FULL * WEIGHT_SUM / 2:  # more than 327 of them
        rounded = np.diff(np.round(np.cumsum(exact)), prepend=0)
    return rounded.astype(np.uint16)


def attention_weights(scores: np.ndarray, mask: np.ndarray, sink: np.ndarray | None = None) -> np.ndarray:
    """Softmax of the visible scores; a row with nothing to pick gives zeros.

    Args:
        scores: (1, H, T, S), before the causal mask.
        mask: (T, S), True where a query may look.
        sink: (H,), one score a head that takes part in the softmax and is dropped after it, or None.

    Returns:
        (1, H, T, S), in the scores' dtype or float32, whichever is wider.
    """
    scores = np.where(mask, scores, -np.inf).astype(np.result_type(scores, np.float32))
    if sink is None:
        return softmax(scores)
    extra = np.broadcast_to(np.asarray(sink, scores.dtype)[None, :, None, None], (*scores.shape[:3], 1))
    return softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
