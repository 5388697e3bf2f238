"""The recorder counts what ran, works the attention weights out itself, and refuses what does not fit."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from helpers.recording.recorder import Recorder, attention_weights
from helpers.recording.toy import ToyDecoder, record_toy
from helpers.sampling import greedy
from helpers.trace import Model, Token, Trace, TraceError, spread

# All sizes distinct: equal ones hide transposes. Two layers, 6 query heads, 3 KV heads, widths 8 and 4.
GQA = Model("test", 2, 6, 3, 8, 4, 8**-0.5, None, 4)


class Rows:
    """A cache that only counts."""

    def __init__(self) -> None:
        self.n_kept = 0


def tensors(layer: int, tokens: Sequence[int], model: Model) -> tuple[np.ndarray, ...]:
    """Queries, keys and values in float32, the same whenever a token runs again."""
    sizes = [(model.n_heads, model.k_dim), (model.n_kv_heads, model.k_dim), (model.n_kv_heads, model.v_dim)]
    made = []
    for kind, (heads, width) in enumerate(sizes):
        rows = [np.random.default_rng((7, layer, kind, t)).normal(size=(heads, width or 0)) for t in tokens]
        made.append(np.stack(rows, axis=1)[None].astype(np.float32))  # (1, heads, T, width)
    return tuple(made)


def by_loops(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, scale: float, sink: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and outputs in float64, head by head and query by query."""
    (_, H, T, _), (_, Hkv, S, _) = q.shape, k.shape
    weights, out = np.zeros((1, H, T, S)), np.zeros((1, H, T, v.shape[-1]))
    for head in range(H):
        shared = head * Hkv // H  # heads 0 and 1 use KV head 0, and so on
        for query in range(T):
            scores = [float(np.dot(q[0, head, query].astype(float), row)) * scale for row in k[0, shared]]
            exps = [np.exp(s) if seen else 0.0 for s, seen in zip(scores, mask[query], strict=True)]
            total = sum(exps) + (0 if sink is None else np.exp(sink[head]))
            weights[0, head, query] = [e / total if total else 0 for e in exps]
            out[0, head, query] = sum(
                w * row for w, row in zip(weights[0, head, query], v[0, shared], strict=True)
            )
    return weights, out


def causal(n_new: int, n_rows: int) -> np.ndarray:
    """Row i is the i-th new query: it may look at all earlier rows and at itself."""
    return np.arange(n_rows) <= np.arange(n_rows - n_new, n_rows)[:, None]


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
    close: Token | None = None,
) -> None:
    """Run a pass of the stand-in model; `change` may spoil what a layer hands over."""
    model, rows = recorder.trace.model, list(range(cache.n_kept)) if cache else []
    recorder.open_pass(phase, tokens, cache)
    for layer in range(model.n_layers):
        q, k_new, v_new = tensors(layer, tokens, model)
        _, k, v = tensors(layer, [*rows, *tokens], model)
        seen: dict[str, Any] = {"layer": layer, "q": q, "k": k, "v": v, "scale": model.scale, "sink": sink}
        seen |= {"mask": causal(len(tokens), k.shape[2]), "append": [(k_new, v_new)]}
        change(layer, seen)
        for pair in seen.pop("append"):
            recorder.append(layer, *pair)
        if "output" not in seen:
            known = (seen[name] for name in ("q", "k", "v", "mask", "scale", "sink"))
            seen["output"] = by_loops(*known)[1].astype(np.float32)
        for _ in range(seen.pop("times", 1)):
            recorder.attention(**seen)
    if cache:
        cache.n_kept += len(tokens) if advance is None else advance
    top = None if close is None else [(close.text, 1.0, 0.9), ("other", 0.0, 0.1)]
    recorder.close_pass(top, close)


def begun(model: Model = GQA, prompt: int = 5, **settings: Any) -> Recorder:
    recorder = Recorder(model, [Token(f"t{i}", i, i, "prompt") for i in range(prompt)], **settings)
    recorder.begin_run("cached", "growing")
    return recorder


def said(text: str, position: int) -> Token:
    return Token(text, 9, position, "generated")


@pytest.mark.parametrize("eos", [True, False])
def test_the_ledger(eos: bool) -> None:
    """After prefill and every decode step: cached = P + emitted - 1. `<eos>` is emitted and never run."""
    trace = record_toy(max_new=5, ban_eos=not eos)
    run, emitted = [p for p in trace.run("cached").passes if p.phase != "training"], 0
    for one in run:
        emitted += len(one.parts[0].out)
        assert one.parts[0].kept[1] == 4 + emitted - 1
    assert emitted == (2 if eos else 5)
    assert {t.origin for t in trace.sequences[0].tokens[4:]} == {"generated"}
    queries = {q for r in trace.runs for p in r.passes for q in p.parts[0].queries}
    assert queries == set(range(4 + emitted - 1))


def test_contents_and_contexts_of_the_toy() -> None:
    trace = record_toy(n_layers=2, max_new=2, ban_eos=True)
    assert trace.values is not None
    assert trace.values[0].k == [[0, 1], [1, 2], [0, 3], [1, 4], [0, 5]]
    assert trace.values[0].v == [[10], [20], [1], [5], [14]]
    np.testing.assert_allclose(trace.values[1].v[:2], [[7.5], [16.25]], atol=1e-7)
    decode = trace.run("uncached").passes[2].parts[0]
    assert [len(rows) for rows in decode.contexts.values()] == [1] * 8  # of the new row only
    np.testing.assert_allclose(decode.contexts["0.3"], [[10]])


# --- grouped heads through the hooks, against attention in float64 ---


@pytest.mark.parametrize("with_sink", [False, True])
def test_grouped_heads(with_sink: bool) -> None:
    sink = np.linspace(-1, 1, 6).astype(np.float32) if with_sink else None
    recorder, cache = begun(), Rows()
    a_pass(recorder, range(5), cache, sink=sink, close=said("a", 5))
    a_pass(recorder, [5], cache, "decode", sink=sink, close=said("b", 6))
    a_pass(recorder, [6, 7], cache, "verify", sink=sink)  # several new tokens after stored ones
    trace = recorder.finish()
    for layer in range(2):
        q, k, v = tensors(layer, range(8), GQA)
        expected = by_loops(q, k, v, causal(8, 8), 8**-0.5, sink)[0]
        for token in range(8):
            for head in range(6):
                got = trace.attention_weights(token, layer, head)
                # rounded to 16 bits, from scores in float32
                np.testing.assert_allclose(got, expected[0, head, token, : token + 1], atol=1e-5)
    passes = trace.run("cached").passes
    assert passes[2].shapes[1] == {
        "layer": 1,
        "q": [1, 6, 2, 8],
        "k": [1, 3, 8, 8],
        "v": [1, 3, 8, 4],
        "scores": [1, 6, 2, 8],
    }
    assert [p.counts["pairs"] for p in passes] == [15, 6, 7 + 8]
    assert [p.counts["products"] for p in passes] == [25, 6, 16]
    assert passes[2].parts[0].visible == [[(0, 7)], [(0, 8)]]
    assert [p.parts[0].kept for p in passes] == [(0, 5), (5, 6), (6, 8)]


def test_a_window_leaves_a_gap() -> None:
    """The first token and the last two: visible has two ranges, the weights only what is visible."""

    def window(layer: int, seen: dict[str, Any]) -> None:
        seen["mask"] = seen["mask"] & ((np.arange(5) == 0) | (np.arange(5) > np.arange(5)[:, None] - 2))

    recorder = begun()
    a_pass(recorder, range(5), Rows(), change=window)
    done = recorder.finish().run("cached").passes[0]
    assert done.parts[0].visible[4] == [(0, 1), (3, 5)]
    assert done.counts["pairs"] == 1 + 2 + 3 + 3 + 3
    assert len(recorder.trace.attention_weights(4, 1, 5)) == 3


def test_recorded_heads_only() -> None:
    recorder = begun(recorded=[(1, 5)])
    a_pass(recorder, range(5), Rows())
    assert set(recorder.finish().weights) == {f"0.{token}.1.5" for token in range(5)}
    assert recorder.trace.run("cached").passes[0].parts[0].contexts == {}  # values=False


def test_a_gqa_trace_is_valid_json() -> None:
    recorder, cache = begun(), Rows()
    a_pass(recorder, range(5), cache, close=said("a", 5))
    a_pass(recorder, [5], cache, "decode", close=said("b", 6))
    trace = recorder.finish()
    assert Trace.from_json(trace.to_json()).to_dict() == trace.to_dict()


def test_a_prefill_in_chunks_is_valid_json() -> None:
    recorder, cache = begun(), Rows()
    a_pass(recorder, [0, 1], cache)
    a_pass(recorder, [2, 3, 4], cache, close=said("a", 5))
    trace = recorder.finish()
    assert [p.phase for p in Trace.from_json(trace.to_json()).run("cached").passes] == ["prefill", "prefill"]


def test_a_thousand_equal_weights_sum_to_1() -> None:
    """Rounded one by one to 16 bits they would sum to 1.0071."""
    prompt = [Token("so", None, n, "prompt") for n in range(1, 1001)]
    recorder = Recorder(record_toy().model, prompt, recorded=[(0, 3)])
    recorder.begin_run("uncached", "none")
    recorder.open_pass("prefill", range(1000))
    decoder = ToyDecoder(recorder, np.ones(1000), False, False, greedy, "greedy")
    decoder.run(prompt, None)
    recorder.close_pass()
    sums = [row.sum() / 65535 for row in recorder.finish().weights.values()]
    assert max(abs(total - 1) for total in sums) <= 0.005


def test_weights_of_a_row_with_nothing_to_pick() -> None:
    scores = np.array([[[[-np.inf, 3.0]], [[1.0, 2.0]]]])
    mask = np.array([[True, False]])
    assert attention_weights(scores, mask).tolist() == [[[[0, 0]], [[1, 0]]]]
    assert attention_weights(scores, mask, np.array([0.0, -np.inf])).tolist() == [[[[0, 0]], [[1, 0]]]]
    assert attention_weights(scores, np.array([[False, False]])).tolist() == [[[[0, 0]], [[0, 0]]]]


def test_a_sink_of_the_same_score_takes_half_and_is_dropped() -> None:
    scores = np.full((1, 2, 1, 1), 5.0)
    weights = attention_weights(scores, np.array([[True]]), np.array([5.0, -np.inf]))
    assert weights.tolist() == [[[[0.5]], [[1.0]]]]


# --- the tolerance: a share of the largest |v|, by the element's bytes ---


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Round to bfloat16, 8 bits of significand, and back to float32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


ROUNDED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    8: lambda x: x,
    4: lambda x: np.asarray(x, np.float32),
    2: bfloat16,
}


@pytest.mark.parametrize("size", [1e-3, 1, 1e3])
@pytest.mark.parametrize(("element_bytes", "lie"), [(8, 1e-8), (4, 1e-4), (2, 0.08)])
def test_rounding_passes_and_a_small_lie_does_not(element_bytes: int, lie: float, size: float) -> None:
    """The outputs of a run in each dtype pass; off by 10 (2 bytes: 2) times the tolerance they do not,
    however small or large V is."""
    model = copy.copy(GQA)
    model.element_bytes = element_bytes

    def in_dtype(off: float) -> Change:
        def change(layer: int, seen: dict[str, Any]) -> None:
            for name in ("q", "k", "v"):
                seen[name] = ROUNDED[element_bytes](seen[name]).astype(
                    np.float64 if element_bytes == 8 else np.float32
                )
            seen["v"] = seen["v"] * size
            weights, _ = by_loops(seen["q"], seen["k"], seen["v"], seen["mask"], 8**-0.5, None)
            exact = ROUNDED[element_bytes](weights) @ np.repeat(seen["v"].astype(float), 2, axis=1)
            seen["output"] = ROUNDED[element_bytes](exact)
            seen["output"][0, 3, 4, 2] += off * np.abs(seen["v"]).max()

        return change

    a_pass(begun(model), range(5), Rows(), change=in_dtype(0))
    with pytest.raises(TraceError, match="layer 0, head 3, query 4: attention weights times V differ"):
        a_pass(begun(model), range(5), Rows(), change=in_dtype(lie))


# --- what it refuses ---


def wrong_output(**spoiled: Callable[[dict[str, Any]], Any]) -> Change:
    """The run worked with something else than it handed over, in layer 1."""

    def change(layer: int, seen: dict[str, Any]) -> None:
        if layer == 1:
            real = seen | {name: spoil(seen) for name, spoil in spoiled.items()}
            known = (real[name] for name in ("q", "k", "v", "mask", "scale", "sink"))
            seen["output"] = by_loops(*known)[1].astype(np.float32)

    return change


def in_layer_1(**spoiled: Callable[[Any], Any]) -> Change:
    def change(layer: int, seen: dict[str, Any]) -> None:
        if layer == 1:
            seen.update({name: spoil(seen.get(name)) for name, spoil in spoiled.items()})

    return change


def one_key(layer: int) -> np.ndarray:
    """One visible key for each query: the first in layer 0, itself in layer 1; as many pairs in both."""
    return np.eye(5, dtype=bool) if layer else np.arange(5) == np.zeros((5, 1))


NOT_THE_RUNS = "the mask, scale or sink is not the run's"
REFUSED: dict[str, tuple[Change, str]] = {
    "another mask": (wrong_output(mask=lambda s: np.ones((5, 5), bool)), NOT_THE_RUNS),
    "a mask without offset": (wrong_output(mask=lambda s: np.tri(5, 5, -1, dtype=bool)), NOT_THE_RUNS),
    "another scale": (wrong_output(scale=lambda s: 1.0), NOT_THE_RUNS),
    "a sink it did not name": (wrong_output(sink=lambda s: np.zeros(6)), NOT_THE_RUNS),
    "heads grouped the other way": (wrong_output(k=lambda s: s["k"][:, [1, 2, 0]]), NOT_THE_RUNS),
    "rows of layer 0": (wrong_output(k=lambda s: tensors(0, range(5), GQA)[1]), NOT_THE_RUNS),
    "an output of NaN": (in_layer_1(output=lambda o: np.full((1, 6, 5, 4), np.nan)), NOT_THE_RUNS),
    "an output of another shape": (
        in_layer_1(output=lambda o: np.zeros((1, 1, 5, 4))),
        "output of shape (1, 1, 5, 4) came in; expected (1, 6, 5, 4)",
    ),
    "queries of too few heads": (
        in_layer_1(q=lambda q: q[:, :3], output=lambda o: np.zeros((1, 3, 5, 4))),
        "scores of shape (1, 3, 5, 5) came in; expected (1, 6, 5, 5)",
    ),
    "a mask in one layer only": (
        in_layer_1(mask=lambda m: np.ones((5, 5), bool)),
        "the layers of one pass differ in counts",
    ),
    "a shifted window in one layer": (
        lambda layer, s: s.update(mask=one_key(layer)),
        "the layers of one pass differ in visible",
    ),
    "a batch of two": (
        lambda layer, s: s.update(
            {n: np.repeat(s[n], 2, axis=0) for n in ("q", "k", "v")}, output=np.zeros(1)
        ),
        "scores of shape (2, 6, 5, 5) came in; expected (1, 6, 5, 5): 5 queries of one sequence",
    ),
    "rows that were not appended": (in_layer_1(append=lambda a: []), "layer 1 appended 0 rows for 5 tokens"),
    "rows appended twice": (in_layer_1(append=lambda a: a * 2), "layer 1 appended 10 rows for 5 tokens"),
    "attention twice": (
        in_layer_1(times=lambda n: 2),
        "attention came from layers [0, 1, 1]; expected each of 2",
    ),
    "another layer's name": (
        in_layer_1(layer=lambda n: 0),
        "token 1, layer 0, head 0: run again, it got other weights",
    ),
    "a mask for other rows": (
        in_layer_1(mask=lambda m: m[:, :4], output=lambda o: 0),
        "mask of shape (5, 4) came in; expected (5, 5)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    change, says = REFUSED[name]
    recorder = begun()
    with pytest.raises(TraceError, match=re.escape(says)):
        a_pass(recorder, range(5), Rows(), change=change)
    assert recorder.trace.run("cached").passes == []  # nothing of the pass was written


def test_the_stand_in_model_is_accepted_without_a_change() -> None:
    recorder = begun()
    a_pass(recorder, range(5), Rows())
    assert len(recorder.finish().run("cached").passes) == 1


@pytest.mark.parametrize(("advance", "went"), [(0, "from 0 to 0"), (10, "from 0 to 10"), (4, "from 0 to 4")])
def test_refuses_a_cache_that_was_not_advanced_once(advance: int, went: str) -> None:
    with pytest.raises(
        TraceError, match=f"5 rows were appended, the cache went {went} rows: was it advanced once"
    ):
        a_pass(begun(), range(5), Rows(), advance=advance)


def test_refuses_a_cache_that_was_not_reset() -> None:
    cache = Rows()
    cache.n_kept = 3
    with pytest.raises(
        TraceError, match=r"scores of shape \(1, 6, 5, 8\) came in; expected \(1, 6, 5, 5\): 5 queries"
    ):
        a_pass(begun(), range(5), cache)


def test_refuses_a_second_run_that_chooses_another_word() -> None:
    recorder = begun()
    a_pass(recorder, range(5), Rows(), close=said("nice", 5))
    recorder.begin_run("uncached", "none")
    with pytest.raises(TraceError, match="the first run chose 'nice', this one 'warm'; replay the first"):
        a_pass(recorder, range(5), None, close=said("warm", 5))


def test_refuses_other_weights_when_a_token_runs_again() -> None:
    recorder = begun()
    a_pass(recorder, range(5), Rows())
    recorder.begin_run("uncached", "none")
    with pytest.raises(TraceError, match="token 1, layer 1, head 0: run again, it got other weights"):
        a_pass(recorder, range(5), None, change=in_layer_1(q=lambda q: q * 2))


@pytest.mark.parametrize("which", ["K", "V"])
def test_refuses_other_contents_when_a_token_runs_again(which: str) -> None:
    model = Model("test", 1, 6, 1, 8, 4, 8**-0.5, None, 4)
    recorder = begun(model, values=True)
    a_pass(recorder, range(5), Rows())

    def change(layer: int, seen: dict[str, Any]) -> None:
        k, v = seen["append"][0]
        seen["append"] = [(k * 2, v) if which == "K" else (k, v * 2)]

    recorder.begin_run("uncached", "none")
    with pytest.raises(TraceError, match=f"token 0 ran again and got another row of {which}"):
        a_pass(recorder, range(5), None, change=change)


def test_a_pass_without_attention_is_refused() -> None:
    recorder = begun()
    recorder.open_pass("prefill", range(5))
    with pytest.raises(TraceError, match=re.escape("attention came from layers []; expected each of 2")):
        recorder.close_pass()


def test_weights_are_stored_once_for_both_runs() -> None:
    trace = record_toy(max_new=8, ban_eos=True)
    rows = {key: len(row) for key, row in trace.weights.items()}
    assert rows == {f"0.{token}.0.{head}": token + 1 for token in range(11) for head in range(4)}
    assert spread([(0, 2), (5, 6)]) == [0, 1, 5]
