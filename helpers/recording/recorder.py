"""The recorder: counts and checks what a decoder does while it runs, and writes a `Trace` of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.sampling import softmax
from helpers.trace import (
    Kept,
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

    The loop:    begin_run, then for each pass open_pass … close_pass, and `say` for the token that came of
                 it; `trace` is whole after each.
    The watcher: `attention` for what attention was given and gave, layer by layer, and `state` for a layer
                 that keeps something else, or nothing. It looks on from outside: the decoder knows nothing
                 of it.
    A cache keeps all rows that were recorded. Token indices and layers are from 0.

    Args:
        model: what runs.
        prompt: its tokens.
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
            self.trace.values = [Values(0, layer, [], []) for layer in range(model.n_layers)]

    def begin_run(self, name: str, cache: str) -> None:
        """Start a run; a second run replays the tokens of the first."""
        self.trace.runs.append(Run(name, cache, []))
        self._rows: list[int] = []  # which tokens' rows the cache keeps
        self._seen: set[int] = set()  # processed so far, training aside

    def open_pass(self, phase: str, tokens: Sequence[int], keeps: bool = False) -> None:
        """Announce a pass.

        Args:
            phase: training, prefill or decode. In training each token should predict the next.
            tokens: those that run.
            keeps: whether a cache keeps their rows, as it did those before.
        """
        self._tokens, self._keeps = [*tokens], keeps
        self._columns = [*(self._rows if keeps else []), *tokens]  # whose rows attention sees
        self._kinds: list[tuple[np.ndarray, int, Kept]] = []  # of layers, by mask and rows kept
        part = Part(
            sequence=0,
            new=gather(set(tokens) - self._seen),
            visible=[],
            read=[],
            written=[],
            kept=(0, 0),
            repeated=gather(set(tokens) & self._seen),
            target=[token + 1 for token in tokens] if phase == "training" else None,
            contexts={},
            out=[],
        )
        self._part, self._pass = part, Pass(phase, [part], [], {})

    def attention(
        self,
        *,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray,
        scale: float = 1.0,
        sink: np.ndarray | None = None,
        output: np.ndarray,
        weights: np.ndarray | None = None,
        layer: int | None = None,
        n_kept: int | None = None,
        makes: bool = True,
    ) -> None:
        """Take what went into the attention of a layer, and what came out.

        Args:
            q: queries, (1, H, T, D).
            k: keys of all visible rows, (1, Hkv, S, D).
            v: values of every visible row, (1, Hkv, S, Dv).
            mask: the causal mask, (T, S) or (1, 1, T, S), True where a query may look.
            scale: what q · k is multiplied by.
            sink: one score a head, added to the softmax's row and dropped after it, (H,), or None.
            output: what the run went on with, (1, H, T, Dv).
            weights: attention weights, (1, H, T, S), where the watcher has them; None works them out.
            layer: index; None is the next.
            n_kept: rows that the cache keeps in this layer after it, the newest ones. S may then be fewer
                than all: those before have left. None keeps all.
            makes: whether the layer made K and V of the new tokens; else it reads those of an earlier layer.

        Raises:
            TraceError: something does not fit the pass, or what was recorded before.
        """
        layer = len(self._pass.shapes) if layer is None else layer
        columns = self._columns if n_kept is None else self._columns[-k.shape[2] :]
        if weights is None:
            scores = (q @ np.swapaxes(_per_query_head(k, q.shape[1]), -1, -2)) * scale
        T, S = len(self._tokens), len(columns)
        expected, got = (1, self.trace.model.n_heads, T, S), (scores if weights is None else weights).shape
        if got != expected:
            raise TraceError(f"scores of shape {got} came in; expected (1, H, T, S), {expected}")
        if mask.shape not in ((T, S), (1, 1, T, S)):
            raise TraceError(
                f"a mask of shape {mask.shape} came in; expected {(T, S)}, the same for all heads"
            )
        seen = mask.reshape(T, S)
        weights = attention_weights(scores, seen, sink) if weights is None else weights
        self._check_output(layer, weights, v, output)
        self._look(layer, seen, columns, S if n_kept is None else n_kept, makes)
        self._keep_rows(layer, seen, weights, output)
        if self.trace.values is not None:  # row i is token i's, because the toy drops none
            for name, array in {"k": k, "v": v}.items():
                stored = getattr(self.trace.values[layer], name)
                stored += array[0, 0, len(stored) :].tolist()
        arrays = {"q": q, "k": k, "v": v, "scores": weights}
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        self._pass.shapes.append({"layer": layer, **shapes})

    def state(self, layer: int, shapes: dict[str, list[int]]) -> None:
        """Take the shapes, by name, of what a layer keeps beside its rows, or without any; {} for nothing."""
        for known in self._pass.shapes:
            if known["layer"] == layer:
                known |= shapes
                return
        self._look(layer, np.zeros((len(self._tokens), 0), bool), [], 0)
        self._pass.shapes.append({"layer": layer, **dict.fromkeys(("q", "k", "v", "scores")), **shapes})

    def close_pass(self) -> None:
        """Finish the pass. TraceError if a layer did not come once."""
        self._pass.shapes.sort(key=lambda shape: shape["layer"])
        layers, expected = [shape["layer"] for shape in self._pass.shapes], self.trace.model.n_layers
        if layers != [*range(expected)]:
            raise TraceError(
                f"attention came {len(layers)} times; expected once from each of {expected} layers"
            )
        kinds = [kind for *_, kind in self._kinds]
        most = max(kinds, key=lambda kind: kind.counts["pairs"])  # the part says what layers do that see all
        self._part.visible, self._part.read, self._part.written = most.visible, most.read, most.written
        self._part.kept, self._pass.counts = most.kept, most.counts
        self._pass.others = [kind for kind in kinds if kind is not most]
        if self._keeps:
            self._rows = self._columns
        self.trace.runs[-1].passes.append(self._pass)
        if self._pass.phase != "training":
            self._seen.update(self._tokens)

    def say(self, top: Sequence[tuple[str, float, float]], chosen: Token, how: str = "greedy") -> None:
        """Write down the token that came of the last pass: it is new, or replayed and there already.

        Args:
            top: the candidates: text, logit, probability.
            chosen: the token.
            how: it was chosen, such as "greedy".
        """
        query, tokens = self._part.queries[-1], self.trace.sequences[0].tokens
        if query + 1 == len(tokens):
            tokens.append(chosen)
        self._part.out.append(Output(query, list(top), query + 1, how))

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

    def _look(
        self, layer: int, mask: np.ndarray, columns: Sequence[int], n_kept: int, makes: bool = True
    ) -> None:
        """Write down who looks at whom and which rows are kept, once for all layers that do the same."""
        (T, S), n_kept = mask.shape, n_kept if self._keeps else 0
        made = T if S and makes else 0
        for known, n, kind in self._kinds:
            if (n, kind.counts["kv_rows"]) == (n_kept, made) and np.array_equal(mask, known):
                kind.layers.append(layer)
                return
        read = max(0, S - T)
        counts = {"positions": T, "kv_rows": made, "rows_read": read, "pairs": int(mask.sum())}
        kind = Kept(
            layers=[layer],
            visible=[gather(columns[j] for j in np.flatnonzero(row).tolist()) for row in mask],
            read=gather(columns[:read]),
            written=gather(columns[max(read, S - n_kept) :]),
            kept=(read if n_kept else 0, n_kept),
            counts=counts | {"products": T * S},
        )
        self._kinds.append((mask, n_kept, kind))

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


def _per_query_head(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Repeat (B, Hkv, S, D) to (B, H, S, D): each KV head serves H / Hkv query heads."""
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
