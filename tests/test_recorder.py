"""The recorder counts what ran, works the attention weights out itself, and refuses what does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from helpers.recording import recorder as module
from helpers.recording.recorder import Recorder, attention_weights
from helpers.recording.toy import record_toy
from helpers.trace import Model, Token, TraceError

# All sizes distinct: equal ones hide transposes. Two layers, 6 query heads, 3 KV heads, widths 8 and 4.
GQA = Model("test", 2, 6, 3, 8, 4, 8**-0.5, None, 4)


@dataclass
class Rows:
    """A cache as the recorder sees it."""

    n_kept: int = 0

    def kept(self, b: int) -> range:
        return range(self.n_kept)


def tensors(layer: int, tokens: Sequence[int], model: Model = GQA) -> list[np.ndarray]:
    """Queries, keys and values in float32, the same whenever a token runs again."""
    sizes = [(model.n_heads, model.k_dim), (model.n_kv_heads, model.k_dim), (model.n_kv_heads, model.v_dim)]
    made = []
    for kind, (heads, width) in enumerate(sizes):
        rows = [np.random.default_rng((7, layer, kind, t)).normal(size=(heads, width or 0)) for t in tokens]
        made.append(np.stack(rows, axis=1)[None].astype(np.float32))  # (1, heads, T, width)
    return made


def by_loops(seen: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weights and outputs in float64, head by head and query by query."""
    q, k, v, sink = (seen[name] for name in ("q", "k", "v", "sink"))
    (_, H, T, _), (_, Hkv, S, _) = q.shape, k.shape
    weights, out = np.zeros((1, H, T, S)), np.zeros((1, H, T, v.shape[-1]))
    for head in range(H):
        shared = head * Hkv // H  # heads 0 and 1 use KV head 0, and so on
        for query in range(T):
            scores = [
                float(np.dot(q[0, head, query].astype(float), row)) * seen["scale"] for row in k[0, shared]
            ]
            exps = [np.exp(s) if looks else 0.0 for s, looks in zip(scores, seen["mask"][query], strict=True)]
            total = sum(exps) + (0 if sink is None else np.exp(sink[head]))
            weights[0, head, query] = [e / total for e in exps]
            out[0, head, query] = weights[0, head, query] @ v[0, shared]
    return weights, out


Change = Callable[[int, dict[str, Any]], Any]


def a_pass(
    recorder: Recorder,
    tokens: Sequence[int],
    cache: Rows | None,
    phase: str = "prefill",
    *,
    sink: np.ndarray | None = None,
    change: Change = lambda layer, seen: None,
    advance: int | None = None,
    says: str | None = None,
) -> None:
    """Run a pass of the stand-in model; `change` may spoil what a layer hands over."""
    model, rows, T = recorder.trace.model, list(range(cache.n_kept)) if cache else [], len(tokens)
    recorder.open_pass(phase, {0: tokens}, cache)
    for layer in range(model.n_layers):
        _, k, v = tensors(layer, [*rows, *tokens], model)
        S = k.shape[2]
        seen: dict[str, Any] = {"q": tensors(layer, tokens, model)[0], "k": k, "v": v, "scale": model.scale}
        seen |= {"mask": np.arange(S) <= np.arange(S - T, S)[:, None], "sink": sink, "append": [T]}
        change(layer, seen)
        for n_rows in seen.pop("append"):
            recorder.append(layer, n_rows)
        if "output" not in seen:
            seen["output"] = by_loops(seen)[1].astype(np.float32)
        for _ in range(seen.pop("times", 1)):
            recorder.attention(**seen)
    if cache:
        cache.n_kept += T if advance is None else advance
    recorder.close_pass()
    if says is not None:
        recorder.say([(says, 1.0, 1.0)], Token(says, 9, tokens[-1] + 1, "generated"))


def begun(model: Model = GQA, **settings: Any) -> Recorder:
    recorder = Recorder(model, [[Token(f"t{i}", i, i, "prompt") for i in range(5)]], **settings)
    recorder.begin_run("cached", "growing")
    return recorder


def test_contents_and_contexts_of_the_toy() -> None:
    trace = record_toy(n_layers=2, max_new=2, ban_eos=True)
    assert trace.model == Model("toy", 2, 4, 1, 2, 1, 1.0, ["even", "newest", "first", "all"], 8)
    assert trace.values is not None
    assert trace.values[0].k == [[0, 1], [1, 2], [0, 3], [1, 4], [0, 5]]
    assert trace.values[0].v == [[10], [20], [1], [5], [14]]
    np.testing.assert_allclose(trace.values[1].v[:2], [[7.5], [16.25]], atol=1e-7)
    decode = trace.run("uncached").passes[2].parts[0]
    assert [len(rows) for rows in decode.contexts.values()] == [1] * 8  # of the new row only
    np.testing.assert_allclose(decode.contexts["0.3"], [[10]])
    rules = record_toy(form="rules")  # they have no keys, and nothing to keep in a cache
    assert [(run.cache, run.passes[1].shapes[0]["k"]) for run in rules.runs] == [("none", None)]
    assert rules.values == [replace(trace.values[0], k=None, v=[[10], [20], [1], [5], [14]])]


@pytest.mark.parametrize("with_sink", [False, True])
def test_grouped_heads(with_sink: bool) -> None:
    """Against attention in float64; a prompt in two chunks, and several new tokens after stored ones."""
    sink = np.linspace(-1, 1, 6).astype(np.float32) if with_sink else None
    recorder, cache = begun(), Rows()
    a_pass(recorder, [0, 1], cache, sink=sink)
    a_pass(recorder, [2, 3, 4], cache, sink=sink, says="a")
    a_pass(recorder, [5], cache, "decode", sink=sink, says="b")
    recorder.trace.sequences[0].tokens.append(Token("c", 9, 7, "draft"))
    a_pass(recorder, [6, 7], cache, "verify", sink=sink)
    trace = recorder.trace
    for layer in range(2):
        q, k, v = tensors(layer, range(8))
        known = {"q": q, "k": k, "v": v, "mask": np.tri(8, dtype=bool), "scale": 8**-0.5, "sink": sink}
        expected = by_loops(known)[0]
        for token in range(8):
            for head in range(6):
                got = trace.attention_weights(token, layer, head)
                # rounded to 16 bits, from scores in float32
                np.testing.assert_allclose(got, expected[0, head, token, : token + 1], atol=1e-5)
    passes = trace.run("cached").passes
    assert [p.phase for p in passes] == ["prefill", "prefill", "decode", "verify"]
    shapes = {"q": [1, 6, 2, 8], "k": [1, 3, 8, 8], "v": [1, 3, 8, 4], "scores": [1, 6, 2, 8]}
    assert passes[3].shapes == [{"layer": layer, **shapes} for layer in range(2)]
    assert [p.counts["pairs"] for p in passes] == [3, 3 + 4 + 5, 6, 7 + 8]
    assert [p.counts["products"] for p in passes] == [4, 15, 6, 16]
    assert passes[3].parts[0].visible == [[(0, 7)], [(0, 8)]]
    assert [p.parts[0].kept for p in passes] == [(0, 2), (2, 5), (5, 6), (6, 8)]
    assert [(out.query, out.chosen) for p in passes for out in p.parts[0].out] == [(4, 5), (5, 6)]
    assert [token.text for token in trace.sequences[0].tokens[5:]] == ["a", "b", "c"]


def test_a_window_leaves_a_gap() -> None:
    """The first token and the last two: visible has two ranges, the weights only what is visible."""

    def window(layer: int, seen: dict[str, Any]) -> None:
        seen["mask"] = seen["mask"] & ((np.arange(5) == 0) | (np.arange(5) > np.arange(5)[:, None] - 2))

    recorder = begun()
    a_pass(recorder, range(5), Rows(), change=window)
    done = recorder.trace.run("cached").passes[0]
    assert done.parts[0].visible[4] == [(0, 1), (3, 5)]
    assert done.counts["pairs"] == 1 + 2 + 3 + 3 + 3
    assert len(recorder.trace.attention_weights(4, 1, 5)) == 3


def test_equal_weights_stay_equal_until_that_spoils_their_sum() -> None:
    """A thousand, rounded one by one to 16 bits, would sum to 1.0071."""
    few, many = (module._in_16_bits(np.full(n, 1 / n)) for n in (300, 1000))
    assert set(few) == {round(65535 / 300)}
    assert set(many) == {65, 66}
    assert abs(many.sum() - 65535) <= 1


def test_weights_with_nothing_to_pick_and_with_a_sink() -> None:
    scores = np.array([[[[-np.inf, 3.0]], [[1.0, 2.0]]]])
    mask = np.array([[True, False]])
    assert attention_weights(scores, mask).tolist() == [[[[0, 0]], [[1, 0]]]]
    assert attention_weights(scores, mask, np.array([0.0, -np.inf])).tolist() == [[[[0, 0]], [[1, 0]]]]
    assert attention_weights(scores, ~mask & mask).tolist() == [[[[0, 0]], [[0, 0]]]]
    even = attention_weights(np.full((1, 2, 1, 1), 5.0), np.array([[True]]), np.array([5.0, -np.inf]))
    assert even.tolist() == [[[[0.5]], [[1.0]]]]  # a sink of the same score takes half and is dropped


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Round to bfloat16, 8 bits of significand, and back to float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("size", [1e-3, 1, 1e3])
@pytest.mark.parametrize(
    ("element_bytes", "lie", "rounded"), [(8, 1e-8, np.float64), (4, 1e-4, np.float32), (2, 0.08, bfloat16)]
)
def test_rounding_passes_and_a_small_lie_does_not(
    element_bytes: int, lie: float, rounded: Callable[..., np.ndarray], size: float
) -> None:
    """The outputs of a run in each dtype pass; off by 10 (2 bytes: 2) times the tolerance they do not,
    however small or large V is."""

    def in_dtype(off: float) -> Change:
        def change(layer: int, seen: dict[str, Any]) -> None:
            seen.update({name: rounded(seen[name]) for name in ("q", "k", "v")})
            seen["v"] = seen["v"] * size
            weights, _ = by_loops(seen)
            seen["output"] = rounded(rounded(weights) @ np.repeat(seen["v"].astype(float), 2, axis=1))
            seen["output"][0, 3, 4, 2] += off * np.abs(seen["v"]).max()

        return change

    model = replace(GQA, element_bytes=element_bytes)
    a_pass(begun(model), range(5), Rows(), change=in_dtype(0))
    with pytest.raises(TraceError, match="layer 0, head 3, query 4: attention weights times V differ"):
        a_pass(begun(model), range(5), Rows(), change=in_dtype(lie))


# --- what it refuses ---


def in_layer_1(**spoiled: Callable[[Any], Any]) -> Change:
    def change(layer: int, seen: dict[str, Any]) -> None:
        if layer == 1:
            seen.update({name: spoil(seen.get(name)) for name, spoil in spoiled.items()})

    return change


def wrong_output(**spoiled: Callable[[Any], Any]) -> Change:
    """The run worked with something else than it handed over, in layer 1."""

    def change(layer: int, seen: dict[str, Any]) -> None:
        real = dict(seen)
        in_layer_1(**spoiled)(layer, real)
        seen["output"] = by_loops(real)[1].astype(np.float32)

    return change


def one_key(layer: int) -> np.ndarray:
    """One visible key for each query: the first in layer 0, itself in layer 1; as many pairs in both."""
    return np.eye(5, dtype=bool) if layer else np.arange(5) == np.zeros((5, 1))


NOT_THE_RUNS = "the mask, scale or sink is not the run's"
REFUSED: dict[str, tuple[Change, str]] = {
    "another mask": (wrong_output(mask=lambda m: np.ones((5, 5), bool)), NOT_THE_RUNS),
    "another scale": (wrong_output(scale=lambda s: 1.0), NOT_THE_RUNS),
    "a sink it did not name": (wrong_output(sink=lambda s: np.zeros(6)), NOT_THE_RUNS),
    "heads grouped the other way": (wrong_output(k=lambda k: k[:, [1, 2, 0]]), NOT_THE_RUNS),
    "rows of layer 0": (wrong_output(k=lambda k: tensors(0, range(5))[1]), NOT_THE_RUNS),
    "an output of NaN": (in_layer_1(output=lambda o: np.full((1, 6, 5, 4), np.nan)), NOT_THE_RUNS),
    "an output of another shape": (
        in_layer_1(output=lambda o: np.zeros((1, 1, 5, 4))),
        "output of shape (1, 1, 5, 4) came in; expected (1, 6, 5, 4)",
    ),
    "queries of too few heads": (
        in_layer_1(q=lambda q: q[:, :3]),
        "scores of shape (1, 3, 5, 5) came in; expected (1, 6, 5, 5)",
    ),
    "a batch of two": (
        lambda layer, s: s.update({n: np.repeat(s[n], 2, axis=0) for n in ("q", "k", "v")}),
        "scores of shape (2, 6, 5, 5) came in; expected (1, 6, 5, 5): sequences 1, queries 5, rows",
    ),
    "a mask for other rows": (
        in_layer_1(mask=lambda m: m[:, :4], output=lambda o: 0),
        "mask of shape (1, 1, 5, 4) came in; expected (1, 1, 5, 5)",
    ),
    "another mask in each layer": (
        lambda layer, s: s.update(mask=one_key(layer)),
        "layer 1 looks at [[(0, 1)], [(1, 2)], [(2, 3)], [(3, 4)], [(4, 5)]], the layers before it at "
        "[[(0, 1)], [(0, 1)], ",
    ),
    "rows that were not appended": (in_layer_1(append=lambda a: []), "layer 1 appended 0 rows; expected 5"),
    "rows appended twice": (in_layer_1(append=lambda a: [5, 5]), "layer 1 appended 10 rows; expected 5"),
    "attention twice": (in_layer_1(times=lambda n: 2), "layer 2 appended 0 rows; expected 5"),
    "no attention": (in_layer_1(times=lambda n: 0), "attention came from 1 layers; expected each of 2 once"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    change, says = REFUSED[name]
    recorder = begun()
    with pytest.raises(TraceError, match=re.escape(says)):
        a_pass(recorder, range(5), Rows(), change=change)
    assert recorder.trace.run("cached").passes == []  # nothing of the pass was written


@pytest.mark.parametrize("advance", [0, 10, 4])
def test_refuses_a_cache_that_was_not_advanced_once(advance: int) -> None:
    says = f"the cache keeps {advance} rows, 5 were recorded; expected some of these, the newest among them"
    with pytest.raises(TraceError, match=says):
        a_pass(begun(), range(5), Rows(), advance=advance)


def test_refuses_a_cache_that_was_not_reset() -> None:
    with pytest.raises(TraceError, match="the cache keeps 3 rows, 0 were recorded"):
        a_pass(begun(), range(5), Rows(n_kept=3))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (in_layer_1(q=lambda q: q * 2), "token 1, layer 1, head 0: run again, it got other weights"),
        (in_layer_1(q=lambda q: q / 2, k=lambda k: k * 2), "layer 1: a row of K is not as an earlier pass"),
        (in_layer_1(v=lambda v: v * 2), "layer 1: a row of V is not as an earlier pass made it"),
    ],
    ids=["weights", "K", "V"],
)
def test_refuses_a_second_run_that_does_not_repeat_the_first(change: Change, says: str) -> None:
    model = replace(GQA, n_kv_heads=1)
    recorder = begun(model, values=True)
    a_pass(recorder, range(5), Rows())
    recorder.begin_run("uncached", "none")
    with pytest.raises(TraceError, match=says):
        a_pass(recorder, range(5), None, change=change)
