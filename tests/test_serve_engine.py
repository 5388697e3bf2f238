"""The engine with a real model: every reply is, token for token, what `generate` says alone."""

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
from helpers.model.speculate import PromptLookup, speculate
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.sampling import Sampling
from helpers.serve.engine import Engine
from tests.planted import Bug, Planted
from tests.test_serve_scheduler import come_and_go, drawn
from tests.tiny import SIZES, failing, tiny

torch.set_num_threads(1)
planted = Planted()

MODEL = tiny(dtype=torch.float64, eos_ids=(4,)).requires_grad_(False)
SPOKEN = (4,)
SAMPLED = [Sampling(), Sampling(0.8, seed=5), Sampling(1.5, 7, 0.9, seed=6)]


class Poisoned(Engine):
    """Puts NaN into every row that nobody may read: not written yet, or of a page that is free and lost."""

    def step(self) -> Any:
        size, used = self.pool.page_size, torch.zeros(self.pool.k.shape[1], self.pool.page_size)
        used[[*self.scheduler.pages.found.values()]] = 1
        for one in self.scheduler.running:
            for at in range(one.n_computed):
                used[one.table[at // size], at % size] = 1
        for x in (self.pool.k, self.pool.v):
            x.transpose(1, 2).transpose(0, 1)[:, :, used == 0] = math.nan
        return super().step()


def engine_of(model: Transformer = MODEL, **changed: Any) -> Engine:
    return Engine(model, 2, **({"n_pages": 12, "page_size": 4} | changed))


def test_a_request_harms_no_other() -> None:
    """A pass that fails, a wrong request, one that is cancelled: the other says what it says alone."""
    engine, alone = engine_of(), list(generate(MODEL, [5, 6, 7], 8))
    engine.add("a", [5, 6, 7], 8)
    engine.add("b", [7, 7, 6, 5, 5], 8, Sampling(1.0))
    engine.step()
    with failing(MODEL, "layers.2"), pytest.raises(KeyboardInterrupt):
        engine.step()
    refused: list[tuple[Any, str]] = [
        (("b", [1], 1), "id 'b' is taken"),
        ((["c"], [1], 1), "unhashable"),
        (("c", [1, 19], 1), "token id 19 is out of range"),
        (("c", [], 1), "the prompt is empty"),
        (("c", [[1], [2]], 1), "2 sequences came in; expected one"),
        (("c", [1] * 30, 12), "may run 41 tokens; the model reads 40"),
    ]
    for wrong, message in refused:
        with pytest.raises((ValueError, TypeError), match=message):
            engine.add(*wrong)
    with pytest.raises(ValueError, match="top_k is 20"):
        engine.add("c", [1], 1, Sampling(1.0, 20))
    engine.step()
    engine.cancel("b")
    with pytest.raises(ValueError, match="nobody with id 'b'"):
        engine.cancel("b")
    assert engine.run_all()["a"] == alone
    assert engine.step() == {}


def failed(engine: Engine) -> list[Any]:
    return [id for id, one in engine.sequences.items() if one.error]


def test_a_request_whose_logits_are_no_numbers_ends_alone() -> None:
    """One token gives NaN. It stands in a prompt that runs in chunks, and in a reply."""
    model = tiny()
    reply = list(generate(model, [5, 6, 7], 3))
    model.embed_tokens.weight.data[reply[1]] = math.nan
    engine, bad, chance = Engine(model, 3, 9, page_size=4), [7, reply[1], 5, 6, 7], Sampling(1.0, seed=3)
    engine.add("late", [5, 6, 7], 9)
    engine.add("good", [5, 6], 7, chance)
    engine.add("bad", bad, 3)
    output_ids = engine.run_all()
    good = list(generate(model, [5, 6], 7, sampling=chance))  # which does not say it
    assert output_ids == {"late": reply[:2], "good": good, "bad": []}
    assert failed(engine) == ["late", "bad"]
    assert "the logits of 'bad' hold NaN or infinity; expected numbers" in str(engine.sequences["bad"].error)
    assert (engine.scheduler.pages.match_prefix(bad), any(engine.scheduler.pages.owners)) == ([], False)
    engine.add("bad", [5], 1)  # its id is free again
    assert (engine.run_all()["bad"], failed(engine)) == (list(generate(model, [5], 1)), ["late"])
    model.lm_head.weight.data[0, 0] = math.inf
    engine.add("infinite", [5], 1)
    assert (engine.run_all()["infinite"], failed(engine)) == ([], ["late", "infinite"])


def test_it_keeps_to_what_it_was_told() -> None:
    """Three like requests, two slots, five tokens a step; no page is shared, and nothing ends early."""
    engine, passes = engine_of(budget=5, sharing=False, eos_ids=()), []
    begun = time.perf_counter()
    hook = MODEL.register_forward_pre_hook(lambda _, given: passes.append(tuple(given[0].shape)))
    for id in "abc":
        engine.add(id, [5, 6, 7, 5, 6, 7], 3)
    engine.run_all()
    hook.remove()
    assert [one.steps for one in engine.sequences.values()] == [[5, 1, 1, 1], [4, 2, 1, 1], [4, 2, 1, 1]]
    assert passes == [
        *[(1, 5), (1, 1), (1, 4), (1, 1), (1, 2)],
        *[(2, 1), (1, 1), (1, 4), (1, 2), (1, 1), (1, 1)],  # who has one token to run shares a pass
    ]
    for times in (one.times for one in engine.sequences.values()):
        assert begun < times.arrived < times.tokens[0] < times.tokens[1] < time.perf_counter()


def interrupted_at(stop: int) -> tuple[Engine, int]:
    """Serve four requests, raise KeyboardInterrupt at a line that `step` reaches, and go on."""
    engine, lines = engine_of(n_pages=5, drafter=PromptLookup(), k=2, budget=6, eos_ids=()), 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if not any(part in frame.f_code.co_filename for part in ("helpers/serve", "helpers/model")):
            return None
        lines += event == "line"
        if event == "line" and lines == stop:
            raise KeyboardInterrupt
        return trace

    for id, (prompt, chance) in enumerate([([5, 6, 7] * 3, SAMPLED[0]), ([5, 6, 7, 5, 6], SAMPLED[1])] * 2):
        engine.add(id, prompt, 6, chance)
    old = sys.gettrace()
    for _ in range(200):
        sys.settrace(trace)
        try:
            engine.step()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(old)
        if not engine.busy:
            break
    return engine, lines


def test_a_step_that_is_interrupted_has_not_happened() -> None:
    """At a sample of all lines; pages are few, so that somebody is preempted and drafts are cut.

    `python -m tests.benchmarks.stress --kind interrupted` draws lines as long as you like.
    """
    whole, lines = interrupted_at(0)
    assert whole.scheduler.preemptions
    for stop in random.Random(0).sample(range(1, lines), 20):
        engine, _ = interrupted_at(stop)
        assert (stop, engine.run_all()) == (stop, whole.run_all())
        pages = engine.scheduler.pages
        assert (pages.owners, {*pages.free}, engine.busy) == ([0] * 5, {*range(5)}, False)


def test_pages_that_an_interrupted_step_has_written_to_are_nobodys() -> None:
    """Young is preempted, old writes into its page and is cancelled: young runs again from its tokens."""
    engine = engine_of(n_pages=4, page_size=2, sharing=False, eos_ids=())
    engine.add("old", [5, 6], 7)
    engine.add("young", [7, 6], 7)
    while len(engine.sequences["old"].reply) < 3:
        engine.step()
    with failing(MODEL, "layers.2"), pytest.raises(KeyboardInterrupt):
        engine.step()
    engine.cancel("old")
    assert engine.run_all()["young"] == list(generate(MODEL, [7, 6], 7, eos_ids=()))


def test_rows_of_old_weights_are_not_found() -> None:
    model, prompt = tiny(), [5, 6, 7] * 4
    engine = engine_of(model)
    for id in "abc":
        if id == "b":
            with torch.no_grad():
                model.layers[0].self_attn.k_proj.weight.neg_()  # type: ignore[operator, union-attr]
        engine.add(id, prompt, 4)
        assert engine.run_all()[id] == list(generate(model, prompt, 4))
    assert [one.n_cached for one in engine.sequences.values()] == [0, 0, 8]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_pages": 10**10}, r"10000000000 pages of 4 rows take [\d,.]+ GiB"),
        ({"page_size": 10**12}, "GiB"),
        ({"drafter": "text"}, r"the drafter is 'text'; expected PromptLookup\(\)"),
        ({"eos_ids": [19]}, "eos id 19 is out of range"),
        (
            {"model": StateTransformer(StateConfig(**SIZES, state_layers=(1, 2)))},
            r"layers \(1, 2\) of the model keep a recurrent state",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_of(**given)


def test_any_number_of_slots_costs_nothing() -> None:
    engine = Engine(MODEL, 10**9)
    engine.add("a", [5, 6, 7], 3)
    assert engine.run_all() == {"a": list(generate(MODEL, [5, 6, 7], 3))}


prompts = st.lists(st.integers(5, 7), min_size=1, max_size=12)


@drawn(60, prompts, st.integers(1, 9), st.sampled_from(SAMPLED))
def test_each_says_what_it_says_alone(
    asked: Any, size: int, extra: int, slots: int, spare: int | None, kind: Any, seed: int
) -> None:
    """Random arrivals, lengths, budgets, pages, pools, cancellations; greedy and sampled; nothing is left.

    Half of the greedy ones with drafts: of drawn ones the draws depend on what there is room for.
    """
    n_pages = extra + max(-(-(len(p) + n - 1) // size) for p, n, _ in asked)
    budget = None if spare is None else slots + spare
    ends = None if seed % 3 else ()
    pool: dict[str, Any] = {"n_pages": n_pages, "page_size": size, "sharing": seed % 4 > 0}
    if seed % 2 and not any(chance.temperature for _, _, chance in asked):
        pool |= {"drafter": PromptLookup(), "k": 1 + seed % 5}
    engine = Poisoned(MODEL, slots, budget, kind=kind, eos_ids=ends, **pool)
    coming = [partial(engine.add, id, *request) for id, request in enumerate(asked)]
    cancelled: list[Any] = []

    def cancel(id: int) -> None:
        engine.cancel(id)
        cancelled.append(id)

    for _ in come_and_go(engine.scheduler, random.Random(seed), coming, cancel):
        engine.step()
    for id, (prompt, max_new, chance) in enumerate(asked):
        alone = list(generate(MODEL, prompt, max_new, eos_ids=ends, sampling=chance))
        output = engine.sequences[id].reply
        assert output == (alone[: len(output)] if id in cancelled else alone)
        assert len(engine.sequences[id].times.tokens) == len(output)
    assert engine.scheduler.pages.owners == [0] * n_pages


@pytest.mark.parametrize("spare", [None, 0, 3])
@pytest.mark.parametrize("n_pages", [40, 14])
def test_with_drafts_each_says_what_it_says_alone(n_pages: int, spare: int | None) -> None:
    """Several at once, each with its own number of drafts and of those taken; with too few pages, too."""
    texts = [[5, 6, 7] * 3 + [5], [7, 7], [6, 5, 6, 5, 6], [5] * 9, [7, 6, 5, 7, 6], [6, 7, 7]]
    budget = None if spare is None else 3 + spare
    engine = Poisoned(
        MODEL, 3, budget, n_pages=n_pages, page_size=3, drafter=PromptLookup(), k=3, eos_ids=SPOKEN
    )
    for id, text in enumerate(texts):
        engine.add(id, text, 18)
    output_ids = engine.run_all()
    for id, text in enumerate(texts):
        assert output_ids[id] == list(generate(MODEL, text, 18, eos_ids=SPOKEN))
        assert len(engine.sequences[id].times.tokens) == len(output_ids[id])
    assert engine.scheduler.pages.owners == [0] * n_pages
    steps = [n for one in engine.sequences.values() for n in one.steps]
    words = sum(map(len, output_ids.values()))
    assert (len(steps) < words) == (spare != 0)  # all of a budget without room goes to the newest tokens
    if budget:
        assert max(steps) <= budget


def test_drawn_drafts_are_those_of_one_alone() -> None:
    engine = engine_of(n_pages=40, drafter=PromptLookup(), k=3, eos_ids=())
    asked = {"a": ([5, 6, 7, 5, 6], Sampling(0.7, seed=3)), "b": ([7, 7, 7], Sampling(0.5, seed=4))}
    for id, (prompt, chance) in asked.items():
        engine.add(id, prompt, 20, chance)
    output_ids = engine.run_all()
    for id, (prompt, chance) in asked.items():
        alone = speculate(MODEL, prompt, 20, PromptLookup(), 3, eos_ids=(), sampling=chance)
        assert output_ids[id] == list(alone)
        assert len(engine.sequences[id].steps) == len(alone.rounds)


EACH = test_each_says_what_it_says_alone


@planted("everybody stands where the longest does", [EACH], "unsloth #3699", of=PagedCache.__init__)
def _(old: Any, *given: Any, lengths: Any = None, **named: Any) -> None:
    old(*given, lengths=lengths and [max(lengths)] * len(lengths), **named)


DRAFTED = test_with_drafts_each_says_what_it_says_alone


@planted("drafts of one request are judged by another's logits", [DRAFTED], of=Engine.run)
def _(old: Any, self: Any, part: Any) -> Any:
    rows = old(self, part)
    if any(one.draft_tokens for one in rows):
        alike = [one for one in rows if len(one.draft_tokens) == len(next(iter(rows)).draft_tokens)]
        return rows | {one: rows[other] for one, other in zip(alike, alike[1:] + alike[:1], strict=True)}
    return rows


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
