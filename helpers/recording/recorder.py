"""The recorder, which records in a `Trace` what a decoder does while it runs, and checks the record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.sampling import softmax
from helpers.trace import (
    Candidate,
    Kept,
    LayerHead,
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
    ranges_of_indices,
    weight_key,
)
from helpers.trace.record import WEIGHT_SCALE

SUM_TOLERANCE = 0.005  # maximum difference between the sum of a token's stored weights and the exact sum
# Maximum difference, by bytes per element, between a token's attention weights in two passes of different
# shapes, which sum in different orders. Measured with torch, in 12 layers with hidden size 576: 3e-5 in
# float32, 0.023 in bfloat16.
RERUN_TOLERANCE = {8: 1e-3, 4: 1e-3, 2: 0.1}
# Maximum difference between weights · v and the run's output, as a fraction of the largest |v|, by bytes per
# element. A context is a weighted average of values, so all errors are proportional to |v|. Measured with
# torch, with 512 keys and scores up to 36: 1e-6 in float32, 0.004 in bfloat16, 0.03 if the scores themselves
# are rounded to bfloat16.
OUTPUT_TOLERANCE = {8: 1e-9, 4: 1e-5, 2: 4e-2}


class Recorder:
    """Writes a trace while a decoder runs.

    The loop that runs the passes calls `begin_run` once per run. For each pass, it calls `open_pass`,
    `close_pass`, and, if the pass produced a token, `record_output`. `trace` is complete after each
    `record_output`.

    During a pass, hooks in the model call `record_attention` with the inputs and outputs of each layer's
    attention. `record_state` is called for each layer that keeps a state or has no attention. The decoder
    itself does not know about the recorder.

    A cache is assumed to keep the KV entries of all passes that are recorded with it, except in layers for
    which `record_attention` gets `n_cached`. Token and layer indices start from 0.

    Args:
        model: dimensions of the model.
        prompt: tokens of the prompt.
        recorded: pairs (layer, head), each listed once, of the heads whose attention weights are recorded;
            None records all.
        values: whether to record K, V and the contexts, too. This is only for models as small as the toy.
    """

    def __init__(
        self,
        model: Model,
        prompt: Sequence[Token],
        *,
        recorded: Sequence[LayerHead] | None = None,
        values: bool = False,
    ) -> None:
        pairs = [(layer, head) for layer in range(model.n_layers) for head in range(model.n_heads)]
        recorded = pairs if recorded is None else [(layer, head) for layer, head in recorded]
        for pair in recorded:
            if pair not in pairs or recorded.count(pair) > 1:
                raise ValueError(
                    f"recorded has {pair}; expected each pair once, layers 0 to {model.n_layers - 1}, "
                    f"heads 0 to {model.n_heads - 1}"
                )
        self.trace = Trace(model, recorded, [TokenSequence(len(prompt), list(prompt))], [])
        if values:
            self.trace.values = [Values(0, layer, [], []) for layer in range(model.n_layers)]

    def begin_run(self, name: str, cache: str) -> None:
        """Start a run. A second run must process the same tokens as the first.

        Args:
            name: name of the run in the trace, such as "cached".
            cache: type of the run's cache, such as "growing", or "none".
        """
        self.trace.runs.append(Run(name, cache, []))
        self._cached: list[int] = []  # tokens whose KV entries are in the cache
        self._seen: set[int] = set()  # tokens processed so far, except in training passes

    def open_pass(self, phase: str, tokens: Sequence[int], use_cache: bool = False) -> None:
        """Start a pass.

        Args:
            phase: "training", "prefill" or "decode". In training, each token's target is the next token.
            tokens: indices of the tokens that run.
            use_cache: whether a cache provides earlier KV entries and keeps the new ones.
        """
        self._tokens, self._use_cache = [*tokens], use_cache
        self._columns = [*(self._cached if use_cache else []), *tokens]  # tokens whose K and V are available
        self._layer_groups: list[tuple[np.ndarray, int, Kept]] = []  # layers with equal masks and entries
        part = Part(
            sequence=0,
            new=ranges_of_indices(set(tokens) - self._seen),
            visible=[],
            read=[],
            written=[],
            kept=(0, 0),
            repeated=ranges_of_indices(set(tokens) & self._seen),
            target=[token + 1 for token in tokens] if phase == "training" else None,
            contexts={},
            out=[],
        )
        self._part, self._pass = part, Pass(phase, [part], [], {})

    def record_attention(
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
        n_cached: int | None = None,
        computes_kv: bool = True,
    ) -> None:
        """Record the inputs and outputs of one layer's attention.

        Args:
            q: queries, of shape (1, H, T, D).
            k: keys of the cached and the new tokens, of shape (1, Hkv, S, D).
            v: values of the cached and the new tokens, of shape (1, Hkv, S, Dv).
            mask: the attention mask, of shape (T, S) or (1, 1, T, S), which is True where a query may attend
                to a key.
            scale: the factor by which q · k is multiplied.
            sink: one score per head, of shape (H,), which is appended to each row of scores before the
                softmax and dropped after it.
            output: the contexts that the run computed, of shape (1, H, T, Dv).
            weights: attention weights, of shape (1, H, T, S). If None, they are computed from q and k.
            layer: index of the layer; None for the layer after the one recorded last.
            n_cached: number of KV entries in this layer's cache after the pass. These are the newest entries.
                None means that the cache drops no entries. If older entries were dropped, S is smaller than
                the number of tokens so far.
            computes_kv: whether the layer computed K and V of the new tokens. If not, it used those of an
                earlier layer.

        Raises:
            TraceError: the arguments do not fit the pass, or contradict what was recorded before.
        """
        layer = len(self._pass.shapes) if layer is None else layer
        columns = self._columns if n_cached is None else self._columns[-k.shape[2] :]
        if weights is None:
            scores = (q @ np.swapaxes(_per_query_head(k, q.shape[1]), -1, -2)) * scale
        T, S = len(self._tokens), len(columns)
        expected, got = (1, self.trace.model.n_heads, T, S), (scores if weights is None else weights).shape
        if got != expected:
            raise TraceError(f"got scores of shape {got}; expected (1, H, T, S), {expected}")
        if mask.shape not in ((T, S), (1, 1, T, S)):
            raise TraceError(f"got a mask of shape {mask.shape}; expected {(T, S)}, the same for all heads")
        mask = mask.reshape(T, S)
        weights = attention_weights(scores, mask, sink) if weights is None else weights
        self._check_output(layer, weights, v, output)
        self._record_visible(layer, mask, columns, S if n_cached is None else n_cached, computes_kv)
        self._record_weights(layer, mask, weights, output)
        if self.trace.values is not None:  # the toy drops no entries, so entry i belongs to token i
            for name, array in {"k": k, "v": v}.items():
                stored = getattr(self.trace.values[layer], name)
                stored += array[0, 0, len(stored) :].tolist()
        arrays = {"q": q, "k": k, "v": v, "scores": weights}
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        self._pass.shapes.append({"layer": layer, **shapes})

    def record_state(self, layer: int, shapes: dict[str, list[int]]) -> None:
        """Record the shapes of a layer's states.

        A layer without attention must be recorded even if it keeps no state, with {} as `shapes`.

        Args:
            layer: index of the layer. If the layer has attention, too, that must already be recorded.
            shapes: shapes of the states, by state name.
        """
        for recorded in self._pass.shapes:
            if recorded["layer"] == layer:
                recorded |= shapes
                return
        self._record_visible(layer, np.zeros((len(self._tokens), 0), bool), [], 0)
        self._pass.shapes.append({"layer": layer, **dict.fromkeys(("q", "k", "v", "scores")), **shapes})

    def close_pass(self) -> None:
        """Add the pass to the trace.

        Raises:
            TraceError: a layer was not recorded, or was recorded more than once.
        """
        self._pass.shapes.sort(key=lambda shape: shape["layer"])
        layers, expected = [shape["layer"] for shape in self._pass.shapes], self.trace.model.n_layers
        if layers != [*range(expected)]:
            raise TraceError(
                f"attention was recorded {len(layers)} times; expected once for each of {expected} layers"
            )
        groups = [group for *_, group in self._layer_groups]
        main = max(groups, key=lambda group: group.counts["pairs"])  # the layers that see the most tokens
        self._part.visible, self._part.read, self._part.written = main.visible, main.read, main.written
        self._part.kept, self._pass.counts = main.kept, main.counts
        self._pass.others = [group for group in groups if group is not main]
        if self._use_cache:
            self._cached = self._columns
        self.trace.runs[-1].passes.append(self._pass)
        if self._pass.phase != "training":
            self._seen.update(self._tokens)

    def record_output(self, top: Sequence[Candidate], chosen: Token, method: str = "greedy") -> None:
        """Record the token that the last pass produced.

        The token is added to the sequence, unless the run replays a token that the sequence already has.

        Args:
            top: the candidates for the token.
            chosen: the token that was chosen.
            method: how the token was chosen, such as "greedy".
        """
        query, tokens = self._part.queries[-1], self.trace.sequences[0].tokens
        if query + 1 == len(tokens):
            tokens.append(chosen)
        self._part.out.append(Output(query, list(top), query + 1, method))

    def _check_output(self, layer: int, weights: np.ndarray, v: np.ndarray, output: np.ndarray) -> None:
        """Raise TraceError if weights · v differs from the run's output by more than rounding can explain."""
        values = _per_query_head(v, weights.shape[1])
        errors = np.abs(weights @ values - output)
        allowed = OUTPUT_TOLERANCE[self.trace.model.element_bytes] * np.abs(values).max()
        too_large = np.argwhere(~(errors <= allowed))  # not `errors > allowed`, which is False for NaN
        if len(too_large):
            _, head, query, _ = too_large[0]
            raise TraceError(
                f"layer {layer}, head {head}, query {query}: attention weights times V differ from the run's "
                f"output by {errors[0, head, query].max():.3g}; the mask, scale or sink is not the run's"
            )

    def _record_visible(
        self, layer: int, mask: np.ndarray, columns: Sequence[int], n_cached: int, computes_kv: bool = True
    ) -> None:
        """Record which tokens each query of a layer may attend to, and which KV entries are cached.

        Layers for which these are equal share one record.
        """
        (T, S), n_cached = mask.shape, n_cached if self._use_cache else 0
        computed = T if S and computes_kv else 0
        for group_mask, n, group in self._layer_groups:
            if (n, group.counts["kv_rows"]) == (n_cached, computed) and np.array_equal(mask, group_mask):
                group.layers.append(layer)
                return
        read = max(0, S - T)
        counts = {"positions": T, "kv_rows": computed, "rows_read": read, "pairs": int(mask.sum())}
        group = Kept(
            layers=[layer],
            visible=[ranges_of_indices(columns[j] for j in np.flatnonzero(row).tolist()) for row in mask],
            read=ranges_of_indices(columns[:read]),
            written=ranges_of_indices(columns[max(read, S - n_cached) :]),
            kept=(read if n_cached else 0, n_cached),
            counts=counts | {"products": T * S},
        )
        self._layer_groups.append((mask, n_cached, group))

    def _record_weights(self, layer: int, mask: np.ndarray, weights: np.ndarray, output: np.ndarray) -> None:
        """Store the attention weights of a layer's recorded heads, and, if values are recorded, the contexts.

        Raises:
            TraceError: a token ran before, and its attention weights then were different.
        """
        allowed = WEIGHT_SCALE * RERUN_TOLERANCE[self.trace.model.element_bytes]
        new = [query for query, token in enumerate(self._tokens) if token not in self._seen]
        for head in (head for of_layer, head in self.trace.recorded if of_layer == layer):
            for query, token in enumerate(self._tokens):
                row = _in_16_bits(weights[0, head, query][mask[query]])
                stored = self.trace.weights.setdefault(weight_key(0, token, layer, head), row)
                if len(stored) != len(row) or np.abs(stored.astype(int) - row.astype(int)).max() > allowed:
                    raise TraceError(
                        f"token {token}, layer {layer}, head {head}: its attention weights differ from those "
                        "of the first run: record the two runs as two traces and compare them"
                    )
            if self.trace.values is not None:
                self._part.contexts[f"{layer}.{head}"] = output[0, head, new].tolist()


def _per_query_head(x: np.ndarray, n_heads: int) -> np.ndarray:
    """Repeat each KV head's keys or values for the H / Hkv query heads that share them.

    The shape of x is (B, Hkv, S, D), and that of the result is (B, H, S, D).
    """
    return np.repeat(x, n_heads // x.shape[1], axis=1)


def _in_16_bits(weights: np.ndarray) -> np.ndarray:
    """Return a token's attention weights, each rounded to a 16-bit integer.

    Equal weights stay equal after rounding, unless the error of their sum would be too large.
    """
    exact = weights.astype(float) * WEIGHT_SCALE
    rounded = np.round(exact)
    if abs(rounded.sum() - exact.sum()) > WEIGHT_SCALE * SUM_TOLERANCE / 2:  # only with more than 327 weights
        rounded = np.diff(np.round(np.cumsum(exact)), prepend=0)
    return rounded.astype(np.uint16)


def attention_weights(scores: np.ndarray, mask: np.ndarray, sink: np.ndarray | None = None) -> np.ndarray:
    """Return the softmax of the visible scores, of shape (1, H, T, S), in float32 or a wider dtype.

    If a query may not attend to any key, all of its weights are 0.

    Args:
        scores: scores, of shape (1, H, T, S).
        mask: a mask of shape (T, S), as in `Recorder.record_attention`.
        sink: one score per head, of shape (H,), as in `Recorder.record_attention`.
    """
    scores = np.where(mask, scores, -np.inf).astype(np.result_type(scores, np.float32))
    if sink is None:
        return softmax(scores)
    extra = np.broadcast_to(np.asarray(sink, scores.dtype)[None, :, None, None], (*scores.shape[:3], 1))
    return softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
