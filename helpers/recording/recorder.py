"""The recorder: counts and checks what a decoder does while it runs, and writes a `Trace` of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from helpers.sampling import softmax
from helpers.trace import (
    Drop,
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
SAY = {  # why rows leave the cache
    "rejected": "Out of the cache: {}, of drafts that were not taken.",
    "window": "Out of the cache: {}, as the window has moved on.",
    "preempted": "Out of the cache: {}, to make room for others.",
}


class Recorder:
    """Writes a trace while a decoder runs.

    The loop:    begin_run, then for each pass open_pass … close_pass, and `say` for each token that came of
                 it; `trace` is whole after each. `settle` at the end, where rows may leave after a pass.
    The watcher: `attention` for what attention was given and gave, layer by layer. It looks on from outside:
                 the decoder knows nothing of it.
    The cache is asked which rows it keeps: those that it has let go are written down as a drop. Token
    indices, layers and sequences are from 0.

    Args:
        model: what runs.
        prompts: the tokens of each sequence's prompt.
        recorded: (layer, head) pairs whose attention weights are kept, each once; None keeps all.
        values: keep the contents of K, V and the contexts too (only for something as small as the toy).
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Sequence[Token]],
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
        sequences = [TokenSequence(len(prompt), list(prompt)) for prompt in prompts]
        self.trace = Trace(model, recorded, sequences, [])
        if values:
            self.trace.values = [Values(0, layer, [], []) for layer in range(model.n_layers)]

    def begin_run(self, name: str, cache: str) -> None:
        """Start a run; a second run replays the tokens of the first."""
        self.trace.runs.append(Run(name, cache, []))
        everyone = range(len(self.trace.sequences))
        self._rows: dict[int, list[int]] = {n: [] for n in everyone}  # which tokens' rows the cache keeps
        self._seen: dict[int, set[int]] = {n: set() for n in everyone}  # processed so far, training aside
        self._latest: dict[int, Part] = {}

    def open_pass(self, phase: str, tokens: Mapping[int, Sequence[int]], cache: Any = None) -> None:
        """Announce a pass.

        Args:
            phase: training, prefill, decode or verify. In training each token should predict the next.
            tokens: which tokens of each sequence run, in the order of the batch.
            cache: what keeps the rows, and says of which positions: `kept`; None where none stays.
        """
        self._tokens, self._cache = {n: list(run) for n, run in tokens.items()}, cache
        self.settle()
        read = {n: [] if cache is None else self._rows[n] for n in tokens}
        self._columns = {n: read[n] + run for n, run in self._tokens.items()}  # whose rows attention sees
        self._pass = Pass(phase, [self._part(n, read[n], phase) for n in tokens], [], {})

    def _part(self, n: int, read: list[int], phase: str) -> Part:
        """Return a sequence's share of the open pass, as far as it is known before it."""
        run, stays = self._tokens[n], self._cache is not None
        return Part(
            sequence=n,
            new=gather(set(run) - self._seen[n]),
            visible=[],
            read=gather(read),
            written=gather(run if stays else []),
            kept=(len(read), len(read) + len(run)) if stays else (0, 0),
            repeated=gather(set(run) & self._seen[n]),
            target=[token + 1 for token in run] if phase == "training" else None,
            contexts={},
            out=[],
        )

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
    ) -> None:
        """Take what went into the attention of the next layer, and what came out.

        Args:
            q: queries, (B, H, T, D), a sequence's at the right.
            k: keys of all visible rows, (B, Hkv, S, D), a sequence's at the left.
            v: values of every visible row, (B, Hkv, S, Dv).
            mask: the causal mask, (T, S) or (B, 1, T, S), True where a query may look.
            scale: what q · k is multiplied by.
            sink: one score a head, added to the softmax's row and dropped after it, (H,), or None.
            output: what the run went on with, (B, H, T, Dv).

        Raises:
            TraceError: something does not fit the pass, the layers before, or what was recorded before.
        """
        layer = len(self._pass.shapes)
        scores = (q @ np.swapaxes(_per_query_head(k, q.shape[1]), -1, -2)) * scale
        T, S = (max(map(len, tokens.values())) for tokens in (self._tokens, self._columns))
        expected = len(self._tokens), self.trace.model.n_heads, T, S
        if scores.shape != expected:
            raise TraceError(f"scores of shape {scores.shape} came in; expected (B, H, T, S), {expected}")
        masks = np.broadcast_to(mask, (len(self._tokens), 1, T, S))
        counts: Counter[str] = Counter()
        for b, part in enumerate(self._pass.parts):
            end, first = len(self._columns[part.sequence]), T - len(self._tokens[part.sequence])
            new, rows = np.s_[b : b + 1, :, first:], np.s_[b : b + 1, :, :end]
            seen = masks[b, 0, first:, :end]
            weights = attention_weights(scores[new][..., :end], seen, sink)
            self._check_output(layer, weights, v[rows], output[new])
            counts.update(self._count(layer, part, seen))
            self._keep_rows(layer, part, seen, weights, output[new])
        self._pass.counts = {**counts, "products": scores[:, 0].size}
        self._keep_contents(layer, k, v)
        arrays = {"q": q, "k": k, "v": v, "scores": scores}
        shapes = {name: list(array.shape) for name, array in arrays.items()}
        self._pass.shapes.append({"layer": layer, **shapes})

    def close_pass(self) -> None:
        """Finish the pass. TraceError if a layer's attention did not come, or the cache kept no new rows."""
        n_layers, expected = len(self._pass.shapes), self.trace.model.n_layers
        if n_layers != expected:
            raise TraceError(f"attention came from {n_layers} layers; expected each of {expected} once")
        self._pass.parts = [part for part in self._pass.parts if part.queries]
        if self._cache is not None:
            self._rows.update(self._columns)
        dropped = self._dropped(newest=True)
        self.trace.runs[-1].events += [self._pass, *dropped]
        for part in self._pass.parts:
            self._latest[part.sequence] = part
            if self._pass.phase != "training":
                self._seen[part.sequence].update(self._tokens[part.sequence])

    def say(
        self,
        top: Sequence[tuple[str, float, float]],
        chosen: Token,
        how: str = "greedy",
        *,
        sequence: int = 0,
        query: int | None = None,
    ) -> int:
        """Write down the token that came of the last pass in which a sequence ran; return its index.

        It is the token that stands behind its query already, where that is the same one (replayed, or a draft
        that was taken), or a new one.

        Args:
            top: the candidates: text, logit, probability.
            chosen: the token.
            how: it was chosen, such as "greedy".
            query: whose logits gave it; None for the newest token's.
        """
        part, tokens = self._latest[sequence], self.trace.sequences[sequence].tokens
        query = part.queries[-1] if query is None else query
        index = query + 1
        if index == len(tokens) or replace(tokens[index], origin=chosen.origin) != chosen:
            index = len(tokens)
            tokens.append(chosen)
        part.out.append(Output(query, list(top), index, how))
        return index

    def settle(self) -> None:
        """Write down which rows have left the cache since the last pass, of the sequences that were in it."""
        self.trace.runs[-1].events += self._dropped()

    def _dropped(self, newest: bool = False) -> list[Drop]:
        """Ask the cache which rows it keeps, and return the others; `newest` must be kept after a pass."""
        drops = []
        for b, n in enumerate(self._tokens if self._cache is not None else []):
            tokens, rows, kept = self.trace.sequences[n].tokens, self._rows[n], {*self._cache.kept(b)}
            place = {token: tokens[token].position for token in rows}
            if not kept <= {*place.values()} or (newest and rows and place[rows[-1]] not in kept):
                raise TraceError(
                    f"the cache keeps {len(kept)} rows, {len(rows)} were recorded; expected some of these, "
                    "the newest among them: was it reset before, and advanced once, after the last layer?"
                )
            gone = [token for token in rows if place[token] not in kept]
            self._rows[n] = [token for token in rows if place[token] in kept]
            if gone:
                drafts = all(tokens[token].origin == "draft" for token in gone)
                why = "rejected" if drafts else "window" if self._rows[n] else "preempted"
                message = SAY[why].format("1 row" if len(gone) == 1 else f"{len(gone)} rows")
                drops.append(Drop(n, gather(gone), why, message))
        return drops

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

    def _count(self, layer: int, part: Part, mask: np.ndarray) -> dict[str, int]:
        """Write down who looks at whom, the same in every layer; return how much that is."""
        columns = self._columns[part.sequence]
        visible = [gather(columns[j] for j in np.flatnonzero(row)) for row in mask]
        if not self._pass.shapes:
            part.visible = visible
        if visible != part.visible:
            raise TraceError(
                f"layer {layer} looks at {visible}, the layers before it at {part.visible}; expected "
                "the same: a trace has one mask a pass"
            )
        T, S = mask.shape
        return {"positions": T, "kv_rows": T, "rows_read": S - T, "pairs": int(mask.sum())}

    def _keep_rows(
        self, layer: int, part: Part, mask: np.ndarray, weights: np.ndarray, output: np.ndarray
    ) -> None:
        """Keep every row of the recorded heads' weights, and, with `values`, the contexts of new tokens."""
        allowed = FULL * AGAIN[self.trace.model.element_bytes]
        n, tokens = part.sequence, self._tokens[part.sequence]
        new = [query for query, token in enumerate(tokens) if token not in self._seen[n]]
        for head in (head for of_layer, head in self.trace.recorded if of_layer == layer):
            for query, token in enumerate(tokens):
                row = _in_16_bits(weights[0, head, query][mask[query]])
                kept = self.trace.weights.setdefault(weight_key(n, token, layer, head), row)
                if len(kept) != len(row) or np.abs(kept.astype(int) - row.astype(int)).max() > allowed:
                    raise TraceError(
                        f"token {token}, layer {layer}, head {head}: run again, it got other weights: "
                        "record the two runs as two traces and compare them"
                    )
            if self.trace.values is not None:
                part.contexts[f"{layer}.{head}"] = output[0, head, new].tolist()

    def _keep_contents(self, layer: int, k: np.ndarray, v: np.ndarray) -> None:
        """Keep new rows of K and V, if that was asked for; row i is token i's, because the toy drops none."""
        if self.trace.values is not None:
            kept = self.trace.values[layer]
            for name, array in {"k": k, "v": v}.items():
                stored = getattr(kept, name)
                stored += array[0, 0, len(stored) :].tolist()


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
