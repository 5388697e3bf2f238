"""Prefill, decode steps, the loop: what it says, when it stops, and what it refuses."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from helpers.model import generate as module
from helpers.model.cache import Cache, GrowingCache, StaticCache
from helpers.model.generate import decode_step, generate, prefill
from helpers.model.transformer import Transformer
from helpers.sampling import Sampling, next_probabilities
from tests.tiny import tiny as small_model
from tests.tiny import tokens

torch.set_num_threads(1)

CACHES = [GrowingCache, StaticCache]
PROMPT = [3, 1, 4, 1, 5]
tiny = partial(small_model, seed=2)  # it says many words: one word again and again hides a mistake


def without_cache(model: Transformer, prompt: list[int], n: int) -> list[int]:
    """Greedy, running all tokens again for each: what the loop has to equal."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(n):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("kind", [None, *CACHES])
def test_greedy_equals_generation_without_cache(kind: type[Cache] | None) -> None:
    model = tiny()
    reply = generate(model, PROMPT, 20, cache=kind(model.config) if kind else None)
    assert list(reply) == reply.tokens == without_cache(model, PROMPT, 20)
    assert reply.stop_reason == "max_new_tokens"


def test_prefill_and_decode_step_by_hand() -> None:
    """The logits are tensors like any other: made in inference mode they would refuse the change."""
    model, cache, modes = tiny(), StaticCache(tiny().config), list[bool]()
    model.norm.register_forward_hook(lambda *_: modes.append(torch.is_inference_mode_enabled()))
    logits = prefill(model, PROMPT, cache)
    assert logits.shape == (1, 19)
    assert not logits.requires_grad
    assert not logits.is_inference()
    output = [int(logits.argmax())]
    logits[0, 3] = -math.inf
    for _ in range(7):
        output.append(int(decode_step(model, [output[-1]], cache).argmax()))
    with pytest.raises(ValueError, match=r"got 2 tokens; expected one for each sequence: \(B, 1\)"):
        decode_step(model, [1, 2], cache)
    assert prefill(model, np.array([PROMPT, PROMPT]), GrowingCache(model.config, 2)).shape == (2, 19)
    assert modes.pop()
    assert modes == [True] * 8
    assert output == without_cache(model, PROMPT, 8)
    assert cache.length == len(PROMPT) + len(output) - 1  # the newest has not been run


def test_prefill_computes_one_row_of_logits() -> None:
    """A prompt of P tokens must not become P rows at the LM head, which would be a P × V matrix."""
    model = tiny()
    seen: list[tuple[int, ...]] = []
    model.lm_head.register_forward_hook(lambda _, args, out: seen.extend([args[0].shape, out.shape]))
    cache = GrowingCache(model.config, 2)
    logits = prefill(model, tokens(2, 35), cache)
    assert cache.length == 35
    assert seen == [(2, 1, 30), (2, 1, 19)]  # 30 is the hidden size: one position each
    with torch.no_grad():
        everything = model(tokens(2, 35).int())
    torch.testing.assert_close(logits, everything[:, -1], rtol=0, atol=1e-5)


def test_config_eos_ends_a_reply_by_default() -> None:
    """Token 0 may be one."""
    model, output = tiny(eos_ids=(0,)), without_cache(tiny(), PROMPT, 20)
    assert list(generate(model, PROMPT, 20)) == output[: output.index(0) + 1]
    assert list(generate(model, PROMPT, 20, eos_ids=[])) == output
    for model in (tiny(), tiny(eos_ids=iter([4]))):
        assert list(generate(model, PROMPT, 20, eos_ids=iter([0]))) == output[: output.index(0) + 1]
    assert model.config.eos_ids == (4,)


@pytest.mark.parametrize(("max_new_tokens", "rows"), [(1, 5), (36, 40), (1000, 40)])
def test_default_cache_has_the_right_size(max_new_tokens: int, rows: int) -> None:
    model = tiny(dtype=torch.bfloat16)
    _, cache, _ = module.check_request(model, PROMPT, max_new_tokens, None, None)
    assert (type(cache), cache.max_len, cache.dtype, cache.batch) == (StaticCache, rows, torch.bfloat16, 1)
    assert len(list(generate(model, PROMPT, max_new_tokens))) == min(max_new_tokens, 36)


@pytest.mark.parametrize(
    ("max_new_tokens", "eos_at", "reason"),
    [(4, None, "max_new_tokens"), (5, None, "cache full"), (4, 3, "eos"), (5, 3, "eos")],
)
def test_stop_reason_priority(max_new_tokens: int, eos_at: int | None, reason: str) -> None:
    """Eight rows are full with the fourth token."""
    model = tiny()
    output = without_cache(model, PROMPT, 4)
    eos = [] if eos_at is None else [output[eos_at]]
    reply = generate(model, PROMPT, max_new_tokens, cache=StaticCache(model.config, max_len=8), eos_ids=eos)
    assert list(reply) == output[: output.index(eos[0]) + 1 if eos else None]
    assert reply.stop_reason == reason


def test_tokens_stream_with_the_seconds_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 13.0, 100.0, 101.0, 200.0, 202.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(now))
    model = tiny()
    runs: list[int] = []
    model.embed_tokens.register_forward_hook(lambda _, args, __: runs.append(args[0].shape[1]))
    reply = generate(model, PROMPT, 3)
    assert (runs, reply.stop_reason) == ([], None)
    next(reply)
    assert (runs, reply.stop_reason) == ([5], None)
    assert len(list(reply)) == 2
    assert (runs, reply.seconds) == ([5, 1, 1], [3.0, 1.0, 2.0])
    assert (reply.stop_reason, list(reply)) == ("max_new_tokens", [])


@pytest.mark.parametrize("refill", [[], [9] * 6, [7]], ids=["cut back", "refilled", "run on"])
def test_foreign_use_of_the_cache_is_noticed(refill: list[int]) -> None:
    """With as many tokens as the reply left, too. Of two replies, the first to run may have it."""
    model = tiny()
    cache = StaticCache(model.config)
    reply, other = generate(model, PROMPT, 4, cache=cache), generate(model, [7, 2], 4, cache=cache)
    output = [next(reply)]
    with pytest.raises(ValueError, match=r"now of 5 tokens, was used by .*make a cache for each reply"):
        next(other)
    output.append(next(reply))
    if len(refill) != 1:
        cache.truncate(0 if refill else 3)
    if refill:
        prefill(model, refill, cache)
    length = cache.length
    with pytest.raises(ValueError, match=f"now of {length} tokens, was used by something else"):
        next(reply)
    assert (cache.length, reply.stop_reason, reply.tokens) == (length, "error", output)


def test_generation_attributes() -> None:
    """Two layers that differ, two tokens that end it, sampling: against everything run again, by hand."""
    model = tiny(seed=5, n_layers=2, dtype=torch.float64)
    rng, ids = np.random.default_rng(11), list(PROMPT)
    with torch.no_grad():
        while len(ids) < 25:
            p = next_probabilities(model(torch.tensor([ids]))[0, -1].numpy(), 1.3, 9, 0.95)
            ids.append(int(rng.choice(19, p=p)))
        whole = GrowingCache(model.config, dtype=torch.float64)
        model(torch.tensor([ids]), whole)
    output = ids[len(PROMPT) :]
    assert len(set(output)) > 5, "one word again and again would agree with many a mistake"
    ends = {output[12], output[7]}
    expected = output[: min(map(output.index, ends)) + 1]
    sampling = Sampling(1.3, 9, 0.95, seed=11)
    for first in (ends, sorted(ends), sorted(ends, reverse=True)):
        cache = StaticCache(model.config, dtype=torch.float64)
        reply = generate(model, PROMPT, 20, cache=cache, eos_ids=first, sampling=sampling)
        assert list(reply) == reply.tokens == expected
        assert (reply.stop_reason, len(reply.seconds)) == ("eos", len(expected))
        assert (cache.length, cache.change_count) == (len(PROMPT) + len(expected) - 1, len(expected))
        for layer in range(2):
            for mine, theirs in ((cache.k, whole.k), (cache.v, whole.v)):
                seen = theirs[layer][:, :, : cache.length]
                torch.testing.assert_close(mine[layer, :, :, : cache.length], seen, rtol=0, atol=1e-12)


def test_numpy_ids_are_accepted() -> None:
    model, ids = tiny(), np.array(PROMPT, dtype=np.int32)
    for prompt in (ids, list(ids), ids.astype(np.uint8)):
        assert list(generate(model, prompt, 3, eos_ids=np.array([]))) == without_cache(model, PROMPT, 3)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": []}, "the prompt is empty; expected at least one token"),
    ({"prompt": "Today"}, "the prompt is 'Today'; expected ids.*tokenizer.encode"),
    ({"prompt": [1] * 41}, "41 new tokens after 0 make 41; expected at most 40"),
    ({"prompt": [True, False]}, r"the prompt is \[True, False\]; expected ids"),
    ({"prompt": torch.tensor([1.0])}, "expected ids, .* whole numbers"),
    ({"prompt": [[1, 2, 5], [3, 4, 5]]}, "got 2 sequences; expected one"),
    ({"prompt": [[1, 2], [3]]}, "inhomogeneous shape"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ({"sampling": Sampling(1.0, 20)}, "top_k is 20; expected at most 19"),
    ({"eos_ids": [True]}, "eos id True is out of range; expected 0 to 18"),
    ({"cache": StaticCache(tiny().config, batch=2)}, "batch 2, the pass has batch 1"),
    ({"cache": StaticCache(tiny().config, max_len=4)}, "5 new tokens after 0 make 5; expected at most 4"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_invalid_input_is_refused_immediately(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "prompt": PROMPT,
        "max_new_tokens": 4,
        "cache": StaticCache(tiny().config),
    } | changed
    with pytest.raises(ValueError, match=message):
        generate(tiny(), **given)
    assert (given["cache"].length, given["cache"].k.abs().sum()) == (0, 0), "nothing has been written"


def test_used_cache_is_refused_until_reset() -> None:
    model = tiny()
    cache = GrowingCache(model.config)
    list(generate(model, [9, 9, 9], 3, cache=cache))
    with pytest.raises(ValueError, match=r"the cache holds 5 tokens; expected an empty one: reset\(\) it"):
        generate(model, PROMPT, 8, cache=cache)
    cache.reset()
    assert list(generate(model, PROMPT, 8, cache=cache)) == without_cache(model, PROMPT, 8)


@pytest.mark.parametrize(
    ("weight", "message"), [(math.nan, "logits hold NaN"), (math.inf, "logits hold NaN"), (None, "Ctrl-C")]
)
def test_failed_token_leaves_cache_unchanged(
    weight: float | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalid numbers, or an interrupted choice."""
    model, chosen = tiny(), iter([True, True, False])
    cache = GrowingCache(model.config)

    def choose(logits: np.ndarray) -> int:
        if next(chosen):
            return int(logits.argmax())
        raise KeyboardInterrupt("Ctrl-C")

    monkeypatch.setattr(module, "make_chooser", lambda *_: choose)
    reply = generate(model, PROMPT, 8, cache=cache, eos_ids=())
    output = [next(reply), next(reply)]
    if weight:
        model.lm_head.weight.data[3] = weight
    with pytest.raises((ValueError, KeyboardInterrupt), match=message):
        next(reply)
    assert reply.tokens == output == without_cache(tiny(), PROMPT, 2)
    assert (cache.length, reply.stop_reason) == (6, "error")
    assert list(reply) == [], "it does not go on"


def test_stopping_early_is_not_an_error() -> None:
    reply = generate(tiny(), PROMPT, 4)
    next(reply)
    reply._stream.close()  # type: ignore[attr-defined]
    assert reply.stop_reason is None
