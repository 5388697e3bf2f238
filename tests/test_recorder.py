"""The recorder counts what ran, computes attention weights itself, and raises for what does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.recording import recorder as module
from helpers.recording.recorder import Recorder, attention_weights
from helpers.recording.toy import record_toy
from helpers.sampling import softmax
from helpers.trace import Model, Token, TraceError
from tests import oracle

# All sizes distinct: equal ones hide transposes. Two layers, 6 query heads, 3 KV heads, widths 8 and 4.
GQA = Model("test", 2, 6, 3, 8, 4, 8**-0.5, None, 4)


def tensors(layer: int, tokens: Sequence[int], model: Model = GQA) -> list[np.ndarray]:
    """Queries, keys and values in float32, the same whenever a token is processed again."""
    sizes = [(model.n_heads, model.k_dim), (model.n_kv_heads, model.k_dim), (model.n_kv_heads, model.v_dim)]
    result = []
    for n, (heads, width) in enumerate(sizes):
        per_token = [np.random.default_rng((7, layer, n, t)).normal(size=(heads, width or 0)) for t in tokens]
        result.append(np.stack(per_token, axis=1)[None].astype(np.float32))  # (1, heads, T, width)
    return result


def reference(args: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and outputs in float64, given the arguments of `record_attention`."""
    q, k, v = (np.asarray(args[name], dtype=float) for name in "qkv")
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.where(args["mask"], q @ k.swapaxes(2, 3) * args["scale"], -np.inf)
    sink = np.full(q.shape[1], -np.inf) if args["sink"] is None else np.asarray(args["sink"])
    extra = np.broadcast_to(sink[:, None, None], (*scores.shape[:3], 1))
    weights = softmax(np.concatenate([scores, extra], axis=-1))[..., :-1]
    return weights, weights @ v


Change = Callable[[int, dict[str, Any]], Any]


def run_pass(
    recorder: Recorder,
    tokens: Sequence[int],
    use_cache: bool = True,
    phase: str = "prefill",
    *,
    sink: np.ndarray | None = None,
    change: Change = lambda layer, args: None,
    word: str | None = None,
) -> None:
    """Run a pass of the stand-in model; `change` may change what the recorder gets from a layer."""
    model, cached, T = recorder.trace.model, recorder._cached if use_cache else [], len(tokens)
    recorder.open_pass(phase, tokens, use_cache)
    for layer in range(model.n_layers):
        _, k, v = tensors(layer, [*cached, *tokens], model)
        S = k.shape[2]
        args: dict[str, Any] = {"q": tensors(layer, tokens, model)[0], "k": k, "v": v, "scale": model.scale}
        args |= {"mask": np.arange(S) <= np.arange(S - T, S)[:, None], "sink": sink}
        change(layer, args)
        if "output" not in args:
            args["output"] = reference(args)[1].astype(np.float32)
        for _ in range(args.pop("times", 1)):
            recorder.record_attention(**args)
    recorder.close_pass()
    if word is not None:
        recorder.record_output([(word, 1.0, 1.0)], Token(word, 9, tokens[-1] + 1, "generated"))


def new_recorder(model: Model = GQA, **settings: Any) -> Recorder:
    recorder = Recorder(model, [Token(f"t{i}", i, i, "prompt") for i in range(5)], **settings)
    recorder.begin_run("cached", "growing")
    return recorder


def test_the_toys_trace_has_values_and_contexts() -> None:
    trace = record_toy(n_layers=2, max_new_tokens=2, ban_eos=True)
    assert trace.model == Model("toy", 2, 4, 1, 2, 1, 1.0, ["even", "newest", "first", "all"], 8)
    assert trace.values is not None
    assert trace.values[0].k == [[0, 1], [1, 2], [0, 3], [1, 4], [0, 5]]
    assert trace.values[0].v == [[10], [20], [1], [5], [14]]
    np.testing.assert_allclose(trace.values[1].v[:2], [[7.5], [16.25]], atol=1e-7)
    decode = trace.run("uncached").passes[2].parts[0]
    assert [len(rows) for rows in decode.contexts.values()] == [1] * 8  # of the new token only
    np.testing.assert_allclose(decode.contexts["0.3"], [[10]])


@pytest.mark.parametrize("with_sink", [False, True])
def test_weights_of_grouped_heads_equal_attention_in_float64(with_sink: bool) -> None:
    """A prompt in two chunks, then new tokens after cached ones."""
    sink = np.linspace(-1, 1, 6).astype(np.float32) if with_sink else None
    recorder = new_recorder()
    run_pass(recorder, [0, 1], sink=sink)
    run_pass(recorder, [2, 3, 4], sink=sink, word="a")
    run_pass(recorder, [5], phase="decode", sink=sink, word="b")
    run_pass(recorder, [6], phase="decode", sink=sink, word="c")
    trace = recorder.trace
    for layer in range(2):
        q, k, v = tensors(layer, range(7))
        args = {"q": q, "k": k, "v": v, "mask": np.tri(7, dtype=bool), "scale": 8**-0.5, "sink": sink}
        expected = reference(args)[0]
        for token in range(7):
            for head in range(6):
                got = trace.attention_weights(token, layer, head)
                # rounded to 16 bits, from scores in float32
                np.testing.assert_allclose(got, expected[0, head, token, : token + 1], atol=1e-5)
    if sink is None:
        oracle.check(trace)
    passes = trace.run("cached").passes
    assert [(out.query, out.chosen) for p in passes for out in p.parts[0].out] == [(4, 5), (5, 6), (6, 7)]
    assert [token.text for token in trace.sequences[0].tokens[5:]] == ["a", "b", "c"]


def test_equal_weights_stay_equal_while_their_sum_allows() -> None:
    """A thousand weights, each rounded to 16 bits, would sum to 1.0071."""
    few, many = (module._in_16_bits(np.full(n, 1 / n)) for n in (300, 1000))
    assert set(few) == {round(65535 / 300)}
    assert set(many) == {65, 66}
    assert abs(many.sum() - 65535) <= 1


def test_weights_without_visible_tokens_and_with_a_sink() -> None:
    scores = np.array([[[[-np.inf, 3.0]], [[1.0, 2.0]]]])
    mask = np.array([[True, False]])
    assert attention_weights(scores, mask).tolist() == [[[[0, 0]], [[1, 0]]]]
    assert attention_weights(scores, mask, np.array([0.0, -np.inf])).tolist() == [[[[0, 0]], [[1, 0]]]]
    assert attention_weights(scores, ~mask & mask).tolist() == [[[[0, 0]], [[0, 0]]]]
    even = attention_weights(np.full((1, 2, 1, 1), 5.0), np.array([[True]]), np.array([5.0, -np.inf]))
    assert even.tolist() == [[[[0.5]], [[1.0]]]]  # a sink of the same score takes half and is dropped


@pytest.mark.parametrize("size", [1e-3, 1, 1e3])
@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float64, 1e-8), (torch.float32, 1e-4), (torch.bfloat16, 0.08)]
)
def test_rounding_passes_and_a_small_error_raises(dtype: torch.dtype, error: float, size: float) -> None:
    """Outputs of a run in each dtype pass; an error of 10 (2 bytes: 2) times the tolerance raises.

    This is so however small or large V is.
    """

    def rounded(x: np.ndarray) -> np.ndarray:
        return torch.tensor(x).to(dtype).to(torch.promote_types(dtype, torch.float32)).numpy()

    def in_dtype(error: float) -> Change:
        def change(layer: int, args: dict[str, Any]) -> None:
            args.update({name: rounded(args[name]) for name in ("q", "k", "v")})
            args["v"] = args["v"] * size
            weights, _ = reference(args)
            args["output"] = rounded(rounded(weights) @ np.repeat(args["v"].astype(float), 2, axis=1))
            args["output"][0, 3, 4, 2] += error * np.abs(args["v"]).max()

        return change

    model = replace(GQA, element_bytes=dtype.itemsize)
    run_pass(new_recorder(model), range(5), change=in_dtype(0))
    with pytest.raises(TraceError, match="layer 0, head 3, query 4: attention weights times V differ"):
        run_pass(new_recorder(model), range(5), change=in_dtype(error))


def in_layer_1(**changes: Callable[[Any], Any]) -> Change:
    def change(layer: int, args: dict[str, Any]) -> None:
        if layer == 1:
            args.update({name: changed(args.get(name)) for name, changed in changes.items()})

    return change


def output_of_other_inputs(**changes: Callable[[Any], Any]) -> Change:
    """In layer 1, the run used other inputs than those that the recorder gets."""

    def change(layer: int, args: dict[str, Any]) -> None:
        used = dict(args)
        in_layer_1(**changes)(layer, used)
        args["output"] = reference(used)[1].astype(np.float32)

    return change


NOT_THE_RUNS = "the mask, scale or sink is not the run's"
ERRORS: dict[str, tuple[Change, str]] = {
    "another mask": (output_of_other_inputs(mask=lambda m: np.ones((5, 5), bool)), NOT_THE_RUNS),
    "a sink that was not recorded": (output_of_other_inputs(sink=lambda s: np.zeros(6)), NOT_THE_RUNS),
    "heads in other groups": (output_of_other_inputs(k=lambda k: k[:, [1, 2, 0]]), NOT_THE_RUNS),
    "an output of NaN": (in_layer_1(output=lambda o: np.full((1, 6, 5, 4), np.nan)), NOT_THE_RUNS),
    "queries of too few heads": (
        in_layer_1(q=lambda q: q[:, :3]),
        "got scores of shape (1, 3, 5, 5); expected (1, H, T, S), (1, 6, 5, 5)",
    ),
    "attention twice": (
        in_layer_1(times=lambda n: 2),
        "attention was recorded 3 times; expected once for each of 2 layers",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_pass_that_does_not_fit_raises(name: str) -> None:
    change, message = ERRORS[name]
    recorder = new_recorder()
    with pytest.raises(TraceError, match=re.escape(message)):
        run_pass(recorder, range(5), change=change)
    assert recorder.trace.run("cached").passes == []  # nothing of the pass was written


def test_a_second_run_with_other_weights_raises() -> None:
    recorder = new_recorder()
    run_pass(recorder, range(5))
    recorder.begin_run("uncached", "none")
    with pytest.raises(TraceError, match="token 1, layer 1, head 0: its attention weights differ"):
        run_pass(recorder, range(5), False, change=in_layer_1(q=lambda q: q * 2))
    two = np.tri(5) > np.tri(5, k=-2)  # each query sees two tokens
    with pytest.raises(TraceError, match="token 2, layer 0, head 0: its attention weights differ"):
        run_pass(recorder, range(5), False, change=lambda layer, args: args.update(mask=two))
