"""The engine with a real model: every reply is, token for token, what `generate` returns for its prompt."""

from __future__ import annotations

import math
import random
import sys
import time
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from helpers.model.cache import PagedCache
from helpers.model.config import StateConfig
from helpers.model.generate import generate
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.sampling import Sampling
from helpers.serve.engine import Engine
from helpers.serve.pages import PageManager
from tests.planted import Bug, Planted, instead
from tests.test_serve_scheduler import come_and_go, drawn
from tests.tiny import SIZES, failing, tiny

torch.set_num_threads(1)
planted = Planted()

MODEL = tiny(dtype=torch.float64, eos_ids=(3, 15)).requires_grad_(False)
SAMPLED = [Sampling(), Sampling(0.8, seed=5), Sampling(1.5, 7, 0.9, seed=6)]


class Disturbed(Engine):
    """Ctrl-C at random lines, after which the engine continues; NaN in all KV entries that must not be read.

    A KV entry must not be read before it is written, or when its page is free and not cached.
    """

    rng = random.Random(0)
    stop = 1 / 500  # the probability that a line is interrupted
    tries = 0

    def step(self) -> Any:
        old = sys.gettrace()
        while self.tries < 2000:
            self.tries += 1
            self.poison()
            sys.settrace(self.trace if self.stop else old)
            try:
                return super().step()
            except KeyboardInterrupt:
                continue
            finally:
                sys.settrace(old)
        raise AssertionError("the step never completes")

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        if "helpers/serve" not in frame.f_code.co_filename:
            return None
        if event == "line" and self.rng.random() < self.stop:
            raise KeyboardInterrupt
        return self.trace

    def poison(self) -> None:
        size, used = self.pool.page_size, torch.zeros(self.pool.k.shape[1], self.pool.page_size)
        used[[*self.scheduler.pages.contents]] = 1
        for sequence in self.scheduler.running:
            for position in range(sequence.num_computed_tokens):
                used[sequence.page_table[position // size], position % size] = 1
        for x in (self.pool.k, self.pool.v):
            x.transpose(1, 2).transpose(0, 1)[:, :, used == 0] = math.nan


def engine_of(model: Transformer = MODEL, **changed: Any) -> Engine:
    return Engine(model, 2, **({"n_pages": 12, "page_size": 4} | changed))


STATE = StateTransformer(StateConfig(**SIZES, state_layers=(1, 2)))
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n_pages": 10**10}, r"10000000000 pages of 4 entries take [\d,.]+ GiB"),
    ({"page_size": 10**12}, "GiB"),
    ({"eos_ids": [19]}, "eos id 19 is out of range"),
    ({"model": STATE}, r"layers \(1, 2\) of the model keep a recurrent state"),
    ({"id": "a"}, "id 'a' is in use"),
    ({"id": ["c"]}, "unhashable"),
    ({"prompt": [1, 19]}, "token id 19 is out of range"),
    ({"prompt": []}, "the prompt is empty"),
    ({"prompt": [[1], [2]]}, "got 2 sequences; expected one"),
    ({"prompt": [1] * 30, "max_new_tokens": 12}, "may run 41 tokens; the model can process at most 40"),
    ({"sampling": Sampling(1.0, 20)}, "top_k is 20"),
]
REQUEST: dict[str, Any] = {"id": "c", "prompt": [1], "max_new_tokens": 1}
REQUEST_FIELDS = {*REQUEST, "sampling"}


def test_eos_ids_may_be_a_generator() -> None:
    assert engine_of(eos_ids=iter([3, 15])).scheduler.eos_ids == {3, 15}


def test_pages_are_on_the_models_device_in_its_dtype() -> None:
    pool = engine_of(tiny(dtype=torch.bfloat16).to("meta")).pool
    assert {(x.device.type, x.dtype) for x in (pool.k, pool.v)} == {("meta", torch.bfloat16)}


def test_invalid_requests_and_engines_raise_and_change_nothing() -> None:
    engine = engine_of(eos_ids=())
    engine.add("a", [5, 6, 7], 8)
    engine.step()
    with pytest.raises(ValueError, match="id 'b' is unknown"):
        engine.cancel("b")
    for changed, message in REFUSED:
        with pytest.raises((ValueError, TypeError), match=message):
            engine.add(**(REQUEST | changed)) if {*changed} & REQUEST_FIELDS else engine_of(**changed)
    assert engine.run_all() == {"a": list(generate(MODEL, [5, 6, 7], 8, eos_ids=()))}
    assert engine.step() == {}


def failed(engine: Engine) -> list[Any]:
    return [id for id, sequence in engine.sequences.items() if sequence.error]


def test_nan_logits_stop_only_their_own_request() -> None:
    """One token's embedding is NaN. It occurs in a prompt that runs in chunks, and in a reply."""
    model = tiny()
    reply = list(generate(model, [5, 6, 7], 3))
    model.embed_tokens.weight.data[reply[1]] = math.nan
    engine, bad, chance = Engine(model, 3, 9, page_size=4), [7, reply[1], 5, 6, 7], Sampling(1.0, seed=3)
    engine.add("late", [5, 6, 7], 9)
    engine.add("good", [5, 6], 7, chance)
    engine.add("bad", bad, 3)
    output_ids = engine.run_all()
    good = list(generate(model, [5, 6], 7, sampling=chance))  # which does not contain it
    assert output_ids == {"late": reply[:2], "good": good, "bad": []}
    assert failed(engine) == ["late", "bad"]
    assert "the logits of 'bad' contain NaN or infinity" in str(engine.sequences["bad"].error)
    assert (engine.scheduler.pages.match_prefix(bad), any(engine.scheduler.pages.ref_counts)) == ([], False)
    engine.add("bad", [5], 1)  # its id is free again
    assert (engine.run_all()["bad"], failed(engine)) == (list(generate(model, [5], 1)), ["late"])
    model.lm_head.weight.data[0, 0] = math.inf
    engine.add("infinite", [5], 1)
    assert (engine.run_all()["infinite"], failed(engine)) == ([], ["late", "infinite"])


def test_the_engine_keeps_to_its_budget_and_slots() -> None:
    """Three equal requests, two slots, five tokens per step; no page is shared, and no reply ends early."""
    engine, passes = engine_of(token_budget=5, prefix_caching=False, eos_ids=()), []
    begun = time.perf_counter()
    hook = MODEL.register_forward_pre_hook(lambda _, given: passes.append(tuple(given[0].shape)))
    for id in "abc":
        engine.add(id, [5, 6, 7, 5, 6, 7], 3)
    engine.run_all()
    hook.remove()
    tokens_per_step = [sequence.tokens_per_step for sequence in engine.sequences.values()]
    assert tokens_per_step == [[5, 1, 1, 1], [4, 2, 1, 1], [4, 2, 1, 1]]
    assert passes == [
        *[(1, 5), (1, 1), (1, 4), (1, 1), (1, 2)],
        *[(2, 1), (1, 1), (1, 4), (1, 2), (1, 1), (1, 1)],  # requests with one token to run share a pass
    ]
    for times in (sequence.times for sequence in engine.sequences.values()):
        assert begun < times.arrived < times.token_times[0] < times.token_times[1] < time.perf_counter()


@pytest.mark.parametrize("seed", range(8))
def test_ctrl_c_changes_neither_replies_nor_steps(seed: int) -> None:
    """Tokens are sampled, and there are so few pages that a request is preempted."""
    output = []
    for stop in (0, 1 / 150):
        engine = Disturbed(MODEL, 2, 6, n_pages=5, page_size=4, eos_ids=())
        engine.rng, engine.stop = random.Random(seed), stop
        for id, chance in enumerate([*SAMPLED[:2]] * 2):
            engine.add(id, [5, 6, 7] * 3 if id % 2 else [5, 6, 7, 5, 6], 6, chance)
        replies = engine.run_all()
        sequences = engine.sequences.values()
        output.append((replies, [(one.tokens_per_step, one.num_cached_tokens) for one in sequences]))
        assert (engine.scheduler.pages.ref_counts, engine.scheduler.preemptions > 0) == ([0] * 5, True)
    assert output[0] == output[1]


def test_pages_of_an_interrupted_step_are_not_read() -> None:
    """Young is preempted, old writes to its page and is cancelled: young runs again from its tokens."""
    engine = engine_of(n_pages=4, page_size=2, prefix_caching=False, eos_ids=())
    for id, prompt in (("old", [5, 6]), ("young", [7, 6])):
        engine.add(id, prompt, 7)
    while len(engine.sequences["old"].reply) < 3:
        engine.step()
    with failing(MODEL, "layers.2"), pytest.raises(KeyboardInterrupt):
        engine.step()
    engine.cancel("old")
    assert engine.run_all()["young"] == list(generate(MODEL, [7, 6], 7, eos_ids=()))


def test_entries_of_old_weights_are_not_found() -> None:
    model, prompt = tiny(), [5, 6, 7] * 4
    engine = engine_of(model)
    for id in "abc":
        if id == "b":
            with torch.no_grad():
                model.layers[0].self_attn.k_proj.weight.neg_()  # type: ignore[operator, union-attr]
        engine.add(id, prompt, 4)
        assert engine.run_all()[id] == list(generate(model, prompt, 4))
    assert [sequence.num_cached_tokens for sequence in engine.sequences.values()] == [0, 0, 8]


def test_unused_slots_cost_no_memory() -> None:
    engine = Engine(MODEL, 10**9)
    engine.add("a", [5, 6, 7], 3)
    assert engine.run_all() == {"a": list(generate(MODEL, [5, 6, 7], 3))}


prompts = st.lists(st.integers(5, 7), min_size=1, max_size=12)


@drawn(60, prompts, st.integers(1, 9), st.sampled_from(SAMPLED))
def test_every_reply_equals_generate(
    asked: Any, size: int, extra: int, slots: int, spare: int | None, seed: int
) -> None:
    """Random arrivals, lengths, budgets, pages, pools, cancellations and Ctrl-C; greedy and sampled."""
    n_pages = extra + max(-(-(len(p) + n - 1) // size) for p, n, _ in asked)
    budget = None if spare is None else slots + spare
    ends = None if seed % 3 else ()
    pool: dict[str, Any] = {"n_pages": n_pages, "page_size": size, "prefix_caching": seed % 4 > 0}
    engine = Disturbed(MODEL, slots, budget, eos_ids=ends, **pool)
    engine.rng = random.Random(seed)
    coming = [partial(engine.add, id, *request) for id, request in enumerate(asked)]
    cancelled: list[Any] = []

    def cancel(id: int) -> None:
        engine.cancel(id)
        cancelled.append(id)

    for _ in come_and_go(engine.scheduler, random.Random(seed), coming, cancel):
        engine.step()
    for id, (prompt, max_new_tokens, chance) in enumerate(asked):
        alone = list(generate(MODEL, prompt, max_new_tokens, eos_ids=ends, sampling=chance))
        output = engine.sequences[id].reply
        assert output == (alone[: len(output)] if id in cancelled else alone)
        assert len(engine.sequences[id].times.token_times) == len(output)
    assert engine.scheduler.pages.ref_counts == [0] * n_pages


REPLIES, WEIGHTS = test_every_reply_equals_generate, test_entries_of_old_weights_are_not_found


@planted("the longest text's length for all texts", [REPLIES], "unsloth #3699", of=PagedCache.__init__)
def _(old: Any, *args: Any, lengths: Any = None, **kwargs: Any) -> None:
    old(*args, lengths=lengths and [max(lengths)] * len(lengths), **kwargs)


planted("pages are cached by their tokens alone", [WEIGHTS], "vllm #44701")(
    instead(PageManager.match_prefix, lambda old, self, tokens, *_: old(self, tokens)),
    instead(PageManager.cache_full_pages, lambda old, *args: old(*args[:5])),
)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_planted_bugs_are_caught_by_their_tests(bug: Bug) -> None:
    assert bug.missed_by() == []
