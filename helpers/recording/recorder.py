"""The recorder: counts and checks what a decoder does while it runs, and writes a `Trace` of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from helpers.sampling import softmax
from helpers.trace import (
    Model,
    Output,
    Part,
    Pass,
    Run,
    Token,
    TokenSequence,
    Trace,
    TraceError,
    Values,
    gather,
    weight_key,
)
from helpers.trace.record import FULL

WEIGHT_SUM = 0.005  # how far a stored row of weights may be from its sum
# How far a weight may move when its token runs again, in a pass of another shape, which sums in another
# order, by bytes of an element. Measured with torch, 12 layers of 576: 3e-5 in float32, 0.023 in bfloat16.
AGAIN = {8: 1e-3, 4: 1e-3, 2: 0.1}
# How far weights · v may be from the run's output, as a share of the largest |v|, by bytes of an element.
# A context is an average, so all errors scale with |v|. Measured with torch, 512 keys and scores up to 36:
# 1e-6 in float32, 0.004 in bfloat16, 0.03 where the scores themselves are rounded to bfloat16.
ROUNDING = {8: 1e-9, 4: 1e-5, 2: 4e-2}


class Recorder:
    """Writes a trace while a decoder runs.

    The loop:    begin_run, then for each pass open_pass … close_pass; `trace` is whole after each.
    The watcher: `append` for what enters the cache, `attention` for what attention was given and gave, layer
                 by layer. It looks on from outside: the decoder knows nothing of it.
    Everything counted is counted at those two places. Token indices and layers are from 0.

    Args:
        model: what runs.
        prompt: the prompt's tokens.
        recorded: (layer, head) pairs whose attention weights are kept, each once; None keeps all.
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
        recorded = everything if recorded is None else [(layer, head) for layer, head in recorded]
        for pair in recorded:
            if pair not in everything or recorded.count(pair) > 1:
                raise ValueError(
                    f"recorded has {pair}; expected each pair once, layers 0 to {model.n_layers - 1}, "
                    f"heads 0 to {model.n_heads - 1}"
                )
        self.trace = Trace(model, recorded, [TokenSequence(len(prompt), list(prompt))], [])
        if values:
            no_keys = model.k_dim is None
            layers = range(model.n_layers)
            self.trace.values = [Values(0, layer, None if no_keys else [], []) for layer in layers]

    def begin_run(self, name: str, cache: str) -> None:
        """Start a run; a second run replays the tokens of the first."""
        self.trace.runs.append(Run(name, cache, []))
        self._rows: list[int] = []  # which token each row of the cache belongs to
        self._seen: set[int] = set()  # tokens run so far, training aside

    def open_pass(
        self, phase: str, tokens: Sequence[int], cache: Any = None, target: list[int] | None = None
    ) -> None:
        """Announce a pass over these tokens; `cache` has `n_kept`, None where none stays after the pass."""
        self._tokens, self._cache = list(tokens), cache
        self._read = [] if cache is None else list(self._rows)
        self._appended: Counter[int] = Counter()  # rows of each layer
        self._part = Part(
            sequence=0,
            new=gather(token for token in tokens if token not in self._seen),
            visible=[],
            read=gather(self._read),
            written=gather([] if cache is None else tokens),
            kept=(0, 0) if cache is None else (cache.n_kept, cache.n_kept),
            repeated=gather(token for token in tokens if token in self._seen),
            target=target,
            contexts={},
            out=[],
        )
        self._pass = Pass(phase, [self._part], [], {})

    def append(self, layer: int, n_rows: int) -> None:
        """Count the new rows of a layer."""
        self._appended[layer] += n_rows

    def attention(
        self,
        *,
        q: np.ndarray | None = None,
        k: np.ndarray | None = None,
        v: np.ndarray,
        mask: np.ndarray,
        scale: float = 1.0,
        sink: np.ndarray | None = None,
        output: np.ndarray,
        scores: np.ndarray | None = None,
    ) -> None:
        """Take what went into the attention of the next layer, and what came out.

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
            TraceError: weights · v is not the output, the shapes do not fit the open pass, a token that ran
                before got other weights or rows, or the layers differ in who looks at whom.
        """
        layer = len(self._pass.shapes)
        if q is not None and k is not None:
            scores = (q @ np.swapaxes(_per_query_head(k, q.shape[1]), -1, -2)) * scale
        assert scores is not None  # rules hand over theirs
        self._check_shapes(layer, scores=scores, v=v, mask=mask, output=output)
        weights = attention_weights(scores, mask, sink)
        self._check_output(layer, weights, v, output)
        self._count(layer, mask)
        self._keep_rows(layer, mask, weights, output)
        if self.trace.values is not None:
            self._keep_contents(self.trace.values[layer], k, v)
        arrays = {"q": q, "k": k, "v": v, "scores": scores}
        shapes = {name: None if array is None else list(array.shape) for name, array in arrays.items()}
        self._pass.shapes.append({"layer": layer, **shapes})

    def close_pass(
        self, top: Sequence[tuple[str, float, float]] = (), chosen: Token | None = None, how: str = "greedy"
    ) -> None:
        """Finish the pass: the last query's candidates and the token chosen, or nothing in training.

        Raises:
            TraceError: attention did not come from each layer, or the cache did not keep what was appended.
        """
        n_layers, expected = len(self._pass.shapes), self.trace.model.n_layers
        if n_layers != expected:
            raise TraceError(f"attention came from {n_layers} layers; expected each of {expected} once")
        if self._cache is not None:
            before, after = self._part.kept[0], self._cache.n_kept
            if after - before != len(self._tokens):
                raise TraceError(
                    f"{len(self._tokens)} rows were appended, the cache went from {before} to {after} rows: "
                    "was it advanced once, after the last layer?"
                )
            self._part.kept = (before, after)
            self._rows += self._tokens
        if chosen is not None:
            sequence, query = self.trace.sequences[0].tokens, self._tokens[-1]
            if query + 1 == len(sequence):  # otherwise it is replayed
                sequence.append(chosen)
            self._part.out.append(Output(query, list(top), query + 1, how))
        self.trace.runs[-1].events.append(self._pass)
        if self._pass.phase != "training":
            self._seen.update(self._tokens)

    def _check_shapes(self, layer: int, **arrays: np.ndarray) -> None:
        """One new row a token, and what every head and query needs over all rows, kept and new."""
        T, H = len(self._tokens), self.trace.model.n_heads
        if self._appended[layer] != T:
            raise TraceError(
                f"layer {layer} appended {self._appended[layer]} rows; expected {T}, one a token"
            )
        (_, Hkv, _, Dv), S = arrays["v"].shape, len(self._read) + T
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
        wrong = np.argwhere(~(off <= allowed))  # so put, it finds NaN too
        if len(wrong):
            _, head, query, _ = wrong[0]
            raise TraceError(
                f"layer {layer}, head {head}, query {query}: attention weights times V differ from the run's "
                f"output by {off[0, head, query].max():.3g}; the mask, scale or sink is not the run's"
            )

    def _count(self, layer: int, mask: np.ndarray) -> None:
        """Write down who looks at whom and how much that is; it must be the same in every layer."""
        columns = self._read + self._tokens
        visible = [gather(columns[j] for j in np.flatnonzero(row)) for row in mask]
        (T, S), n_new = mask.shape, self._appended[layer]
        counts = {"positions": T, "kv_rows": n_new, "rows_read": S - n_new}
        counts |= {"pairs": int(mask.sum()), "products": T * S}
        if not self._pass.shapes:
            self._part.visible, self._pass.counts = visible, counts
        if visible != self._part.visible:
            raise TraceError(
                f"layer {layer} looks at {visible}, the layers before it at {self._part.visible}; expected "
                "the same: a trace has one mask a pass"
            )

    def _keep_rows(self, layer: int, mask: np.ndarray, weights: np.ndarray, output: np.ndarray) -> None:
        """Keep every row of the recorded heads' weights, and, with `values`, the contexts of new tokens."""
        allowed = FULL * AGAIN[self.trace.model.element_bytes]
        new = [query for query, token in enumerate(self._tokens) if token not in self._seen]
        for head in (head for of_layer, head in self.trace.recorded if of_layer == layer):
            for query, token in enumerate(self._tokens):
                row = _in_16_bits(weights[0, head, query][mask[query]])
                kept = self.trace.weights.setdefault(weight_key(0, token, layer, head), row)
                if len(kept) != len(row) or np.abs(kept.astype(int) - row.astype(int)).max() > allowed:
                    raise TraceError(
                        f"token {token}, layer {layer}, head {head}: run again, it got other weights: "
                        "record the two runs as two traces and compare them"
                    )
            if self.trace.values is not None:
                self._part.contexts[f"{layer}.{head}"] = output[0, head, new].tolist()

    def _keep_contents(self, kept: Values, k: np.ndarray | None, v: np.ndarray) -> None:
        """Keep new rows of K and V; row i is token i's, because the toy drops none."""
        for name, stored, rows in (("K", kept.k, k), ("V", kept.v, v)):
            if stored is None or rows is None:  # rules have no keys
                continue
            listed = rows[0, 0].tolist()
            if not np.allclose(stored[: len(listed)], listed[: len(stored)]):
                raise TraceError(
                    f"layer {kept.layer}: a row of {name} is not as an earlier pass made it: record two "
                    "traces and compare them"
                )
            stored += listed[len(stored) :]


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
    """Softmax of the visible scores, (1, H, T, S), in float32 or wider; with nothing to pick it is zeros.

    Mask (T, S) and sink (H,) are as in `Recorder.attention`.
    """
    scores = np.where(mask, scores, -np.inf).astype(np.result_type(scores, np.float32))
    if sink is None:
        return softmax(scores)
    extra = np.broadcast_to(np.asarray(sink, scores.dtype)[None, :, None, None], (*scores.shape[:3], 1))
    return softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
