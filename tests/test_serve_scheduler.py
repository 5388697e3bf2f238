"""The scheduler and its pages, without a model: what each request says is what it would say alone.

A stand-in for the model reads its text back from the pages, token by token, and says a token that follows
from all of them: a row of somebody else's, one that is missing or one that is stale changes what is said.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast
from zlib import crc32

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.cost.layers import cache_nbytes
from helpers.cost.models import CARDS, MODELS
from helpers.cost.service import Service
from helpers.serve import pages
from helpers.serve.fleet import Machine, Turn, disaggregated, slowest, together, turns
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler, Static
from helpers.serve.sequence import Request, Sequence
from helpers.serve.simulation import Times, fill, poisson, simulate, who_runs
from tests.planted import Bug, Planted

planted = Planted()
END, WORDS = 0, 5
MACHINE = Machine(MODELS["Llama-3.1-8B"], CARDS["H100"], speed=0.5, link=1e9, slots=4, budget=100)
ROW = 131_072  # bytes of one token
ASKED = [(0.0, Request(0, [0] * 3, 2))]


def next_token(text: list[Any]) -> int:
    """Follows from every token and its place; END once in a while."""
    return crc32(repr(text).encode()) % WORDS


def alone(request: Request) -> list[int]:
    text = list(request.prompt)
    for _ in range(request.max_new_tokens):
        text.append(next_token(text))
        if text[-1] == END:
            break
    return text[len(request.prompt) :]


class Rows:
    """Pages that hold tokens in place of keys and values."""

    def __init__(self, pages: PageManager) -> None:
        self.pages, self.rows = pages, {}  # type: ignore[var-annotated]

    def run(self, plan: Plan) -> dict[Sequence, int]:
        size, output = self.pages.page_size, {}
        for one, n in plan:
            for at in range(one.n_computed, one.n_computed + n):
                self.rows[one.table[at // size], at % size] = one.tokens[at]
        for one, n in plan:  # all have written before anybody reads, or the other way round: nobody may tell
            text = [self.rows.get((one.table[at // size], at % size)) for at in range(one.n_computed + n)]
            if one.n_computed + n == len(one.tokens):
                output[one] = next_token(text)
        return output

    def poison(self) -> None:
        """Forget what lies in pages that are free and cannot be found."""
        lost = {*self.pages.free} - {*self.pages.holds}
        self.rows = {place: token for place, token in self.rows.items() if place[0] not in lost}


def check(scheduler: Scheduler, plan: Plan) -> None:
    """What holds after every step."""
    pages, everyone = scheduler.pages, [*scheduler.running, *scheduler.waiting]
    tables = [page for one in everyone for page in one.table]
    assert [tables.count(page) for page in range(pages.n_pages)] == pages.owners
    assert {*pages.free} == {page for page, n in enumerate(pages.owners) if n == 0}
    assert {page: key for key, equal in pages.found.items() for page in equal} == {
        page: key for page, (key, _) in pages.holds.items()
    }
    ids: list[Any] = [one.request.id for one in everyone]
    assert ids == sorted(ids), "somebody was overtaken"
    slots = [one.slot for one in scheduler.running]
    assert len({*slots}) == len(slots) <= scheduler.slots
    assert not any(one.table for one in scheduler.waiting)
    assert sum(n for _, n in plan) <= scheduler.budget
    assert bool(plan) == bool(everyone)
    shared: dict[tuple[int, int], list[int]] = {}
    for one in scheduler.running:
        for i, page in enumerate(one.table):
            held = one.tokens[: (i + 1) * pages.page_size]
            assert shared.setdefault((page, i), held)[: len(held)] == held, "owners differ in a token"


def plans(scheduler: Scheduler, n: int) -> list[list[tuple[Any, int]]]:
    """Run n steps; id and tokens of each."""
    seen = []
    for _ in range(n):
        plan = scheduler.schedule()
        seen.append([(one.request.id, count) for one, count in plan])
        scheduler.ran(plan, {one: 1 for one, count in plan if count == one.n_left})
    return seen


def test_static_takes_13_steps_and_continuous_8() -> None:
    requests = [Request(n, [1], reply) for n, reply in enumerate([2, 8, 3, 7, 5, 1])]
    static, continuous = Static(PageManager(100), 4), Scheduler(PageManager(100), 4)
    assert [fill(kind, requests)["steps"] for kind in (static, continuous)] == [13, 8]
    assert [len(who_runs(kind, [2, 8, 3, 7, 5, 1], 4)) for kind in (Static, Scheduler)] == [13, 8]
    assert who_runs(Scheduler, [1, 2, 1], 2) == [{0: "A", 1: "B"}, {0: "C", 1: "B"}]
    for request in requests:
        continuous.add(request)
    plans(continuous, 3)
    assert {one.request.id: one.slot for one in continuous.running} == {1: 1, 3: 3, 4: 0}  # which 0 has left
    static.add(Request("a", [1], 2))
    plans(static, 1)
    static.add(Request("b", [1], 1))
    assert plans(static, 2) == [[("a", 1)], [("b", 1)]]  # nobody joins, though slots are free


def test_a_budget_gives_the_running_their_token_and_the_rest_to_chunks() -> None:
    scheduler = Scheduler(PageManager(20, 4), 3, 6)
    scheduler.add(Request("a", [1] * 5, 9))
    scheduler.add(Request("long", [1] * 12, 9))
    scheduler.add(Request("c", [1] * 3, 9))
    assert plans(scheduler, 5) == [
        [("a", 5), ("long", 1)],
        [("a", 1), ("long", 5)],
        [("a", 1), ("long", 5)],
        [("a", 1), ("long", 1), ("c", 3)],
        [("a", 1), ("long", 1), ("c", 1)],
    ]


def test_the_youngest_gives_up_its_pages_and_keeps_its_tokens() -> None:
    scheduler = Scheduler(PageManager(4, 2, sharing=False), 2)
    scheduler.add(Request("old", [1, 2], 7))
    young = scheduler.add(Request("young", [3, 4], 4))
    assert plans(scheduler, 1) == [[("old", 2), ("young", 2)]]
    assert plans(scheduler, 2) == [[("old", 1), ("young", 1)]] * 2
    assert plans(scheduler, 1) == [[("old", 1)]]  # its third page was young's
    assert (young.tokens, young.n_computed, young.table, scheduler.preemptions) == ([3, 4, 1, 1, 1], 0, [], 1)
    assert plans(scheduler, 3) == [[("old", 1)]] * 3
    assert plans(scheduler, 2) == [[("young", 5)], []]  # prompt and reply as a prompt, and its last token


def test_pages_are_found_when_full_and_written() -> None:
    pages = PageManager(9, 2)
    scheduler = Scheduler(pages, 3)
    text = [1, 2, 3, 4, 5]
    first, same = (scheduler.add(Request(id, text, 5)) for id in "ab")
    plan = scheduler.schedule()
    assert [n for _, n in plan] == [5, 5]  # nothing is written yet
    scheduler.ran(plan, dict.fromkeys((first, same), 9))
    cases = [(text, 2), (text[:4], 1), ([1, 2, 3], 1), ([1, 9, 3], 0), ([1, 2, 3, 9, 5], 1), ([*text, 6], 2)]
    for tokens, found in cases:
        assert pages.match_prefix(tokens) == first.table[:found]  # a full hit leaves its last page to run
    third = scheduler.add(Request("c", text, 5))
    plan = scheduler.schedule()
    assert (dict(plan)[third], third.n_computed) == (1, 4)
    scheduler.ran(plan, dict.fromkeys((first, same, third), 8))
    assert pages.match_prefix([*text, 9, 8]) == first.table[:3]  # a token of the reply has filled it


def test_a_prefix_with_the_same_rows_decides_who_is_admitted() -> None:
    """Of five pages three are taken: an equal text needs one of its own, with other weights three."""
    scheduler, seen = Scheduler(PageManager(5, 2), 3), []
    for id, rows_of in (("a", 1), ("b", 1), ("c", 2)):
        scheduler.add(Request(id, [1, 2, 3, 4, 5], 4)).rows_of = rows_of
        seen += plans(scheduler, 1)
    assert seen == [[("a", 5)], [("a", 1), ("b", 1)], [("a", 1), ("b", 1)]]


def test_the_page_that_was_free_longest_goes_first_and_its_content_is_lost() -> None:
    pages = PageManager(4, 2)
    old, new = [pages.take()], [pages.take(), pages.take()]
    pages.publish(old, [1, 2], 0, 2)
    pages.publish(new, [3, 4, 5, 6], 0, 4)
    pages.release(old)
    pages.release(new)
    assert [pages.take() for _ in range(3)] == [3, 0, 2]  # of a text the end before the beginning
    assert [pages.match_prefix(text) for text in ([1, 2, 0], [3, 4, 5, 6, 0])] == [[], [1]]


def test_equal_pages_of_two_texts_are_found_after_what_stands_before_them() -> None:
    """Of equal pages the first is found, and once it is lost the next."""
    pages = PageManager(5, 2)
    one, two = [pages.take(), pages.take()], [pages.take(), pages.take(), pages.take()]
    pages.publish(one, [1, 2, 7, 7], 0, 4)
    pages.publish(two, [1, 2, 7, 7, 8, 8], 0, 6)
    assert pages.match_prefix([1, 2, 7, 7, 8, 8, 0]) == [0, 1, 4]
    assert pages.match_prefix([7, 7, 8, 8, 0]) == []
    pages.release(one)
    one = [pages.take(), pages.take()]
    assert one == [1, 0]
    assert pages.match_prefix([1, 2, 7, 7, 8, 8, 0]) == [2, 3, 4]
    pages.publish(one, [1, 2, 7, 7], 0, 4)
    pages.release(two)
    assert [pages.take() for _ in range(3)] == [4, 3, 2]
    assert pages.match_prefix([1, 2, 7, 7, 8, 8, 0]) == one  # and those of the first are found again
    pages.release(one)
    assert [pages.take() for _ in range(2)] == [0, 1]
    assert (pages.found, pages.holds) == ({}, {})


def test_what_is_wrong_is_refused_at_once_and_harms_nobody() -> None:
    scheduler, small = (Scheduler(PageManager(4, 5), 2, max_len=longest) for longest in (18, None))
    scheduler.add(Request("a", [1, 2], 3))
    calls: list[tuple[Any, str]] = [
        (lambda: scheduler.add(Request("a", [1], 1)), "id 'a' is taken"),
        (lambda: scheduler.add(Request("b", [], 1)), "the prompt of 'b' is empty"),
        (
            lambda: scheduler.add(Request("b", [1], 0)),
            "max_new_tokens is 0; expected a whole number, 1 or more",
        ),
        (lambda: scheduler.add(Request("b", [1] * 9, 11)), "may run 19 tokens; the model reads 18 at most"),
        (lambda: small.add(Request("b", [1] * 11, 11)), "21 tokens, which take 5 pages of 5; the pool has 4"),
        (lambda: scheduler.cancel("z"), "nobody with id 'z' waits or runs"),
        (lambda: Scheduler(PageManager(4), 2, 1), "budget is 1; expected 2 or more"),
        (lambda: PageManager(0, 4), "n_pages is 0; expected a whole number"),
        (lambda: PageManager(4, 0), "page_size is 0; expected a whole number"),
        (lambda: PageManager(4).release([2, 1]), "pages .1, 2. have no owner"),
        (lambda: turns(Service(), 1, 0, 0), "rate is 0; expected requests a second"),
        (lambda: turns(Service(), 1, 0, math.nan), "rate is nan"),
        (lambda: together(MACHINE, ASKED, 0), "machines is 0"),
        (lambda: disaggregated(MACHINE, ASKED, -1, 1), "machines is -1"),
        (lambda: replace(MACHINE, link=-1.0), "link is -1.0; expected a finite number, over 0"),
        (lambda: replace(MACHINE, slots=0), "slots is 0"),
        (lambda: together(MACHINE, [(math.nan, ASKED[0][1])], 1), "the arrival of 0 is nan seconds"),
        (lambda: simulate(Scheduler(PageManager(4), 1), ASKED, lambda plan: math.nan), "a step is nan"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert plans(scheduler, 4) == [[("a", 2)], [("a", 1)], [("a", 1)], []]
    scheduler.add(Request("a", [1] * 9, 10))  # its id is free again, and 18 tokens are not too many


def test_a_simulation_keeps_time() -> None:
    """Two arrive, at 0 and 1.5 s; a step takes a second and a tenth for each token of it."""
    scheduler = Scheduler(PageManager(9), 1)
    asked = [(0.0, Request("a", [1] * 4, 2)), (1.5, Request("b", [1], 1))]
    times = simulate(scheduler, asked, lambda plan: 1 + sum(n for _, n in plan) / 10)
    assert times["a"].tokens == pytest.approx([1.4, 2.5])
    assert (times["a"].ttft, times["a"].longest_gap) == pytest.approx((1.4, 1.1))
    assert (times["b"].ttft, times["b"].longest_gap) == pytest.approx((2.1, 0))
    arrivals = poisson(400, 2.0, 0, lambda n: Request(n, [1], 1))
    assert arrivals == poisson(400, 2.0, 0, lambda n: Request(n, [1], 1))
    assert 160 < arrivals[-1][0] < 240
    assert {at for at, _ in poisson(9, math.inf, 0, lambda n: Request(n, [1], 1))} == {0}  # all at once


def test_how_full_the_pages_were() -> None:
    """Two texts of 5 rows and pages of 2, 8 rows in all: the second is preempted and runs 4 tokens again."""
    crowd = [Request(name, [1] * 3, 3) for name in "ab"]
    names = ["requests at a time", "% of rows in use", "times preempted"]
    names += ["processed again, % of those needed", "steps"]
    pages = fill(Scheduler(PageManager(4, 2, sharing=False), 2), crowd, lambda plan: len(plan) / 4)
    assert [*pages] == [*names, "seconds in all"]
    assert [*pages.values()] == pytest.approx([1.5, 500 / 8, 1, 40, 4, 6 / 4])
    reserved = fill(Scheduler(PageManager(1, 8, sharing=False), 2), crowd)
    assert [*reserved.values()] == pytest.approx([1, 1200 / 24, 0, 0, 6, 6])


def test_a_step_of_a_fleet_is_step_time_at_its_speed() -> None:
    read = 2 * (8_030_261_248 - 128_256 * 4096) + 3 * ROW  # the weights but for the embedding, and three rows
    assert MACHINE.seconds([(1, 1), (1, 2)]) == pytest.approx(2 * read / 3.35e12, rel=1e-9)
    table = 128_256 * 4096  # the LM head runs for the last token of a prompt alone
    operations = 2 * (4000 * (8_030_261_248 - 2 * table) + table) + 4 * 32 * 32 * 128 * 4000 * 4001 // 2
    assert MACHINE.seconds([(4000, 4000)]) == pytest.approx(2 * operations / 989.4e12, rel=1e-9)


def test_a_fleet_serves_everybody_in_the_time_that_the_steps_take() -> None:
    asked = [(0.5 * n, Request(n, [0] * (50 + 60 * n), 2 + n % 5)) for n in range(9)]
    for times in (together(MACHINE, asked, 2), disaggregated(MACHINE, asked, 2, 3)):
        assert sorted(len(one.tokens) for one in times) == sorted(
            request.max_new_tokens for _, request in asked
        )
        assert all(sorted([one.arrived, *one.tokens]) == [one.arrived, *one.tokens] for one in times)
    # A prompt of 530: one step, rows that are sent, one more.
    (alone,) = disaggregated(MACHINE, asked[-1:], 1, 1)
    whole, word = MACHINE.seconds([(530, 530)]), MACHINE.seconds([(1, 530)])
    assert alone.ttft == pytest.approx(whole + 530 * ROW / 1e9 + word, rel=1e-9)
    assert alone.longest_gap == pytest.approx(word, rel=1e-3)


def test_rows_that_are_found_are_read_and_not_processed() -> None:
    (one,) = together(MACHINE, [(0.0, Turn(0, [0] * 50, 2, found=1000))], 1)
    assert one.ttft == pytest.approx(MACHINE.seconds([(50, 1050)]))
    assert one.longest_gap == pytest.approx(MACHINE.seconds([(1, 1051)]))


def test_requests_are_dealt_out_in_turn_and_go_on_as_their_rows_come() -> None:
    asked = [(at, Request(at, [0] * 50, 2)) for at in (0.0, 0.001, 9.0, 9.001)]
    times = together(replace(MACHINE, slots=1), asked, 2)
    assert [one.ttft for one in times] == pytest.approx([MACHINE.seconds([(50, 50)])] * 4)
    asked = [(n / 10, Request(n, [0] * length, 2)) for n, length in enumerate((9000, 9))]
    long, short = disaggregated(MACHINE, asked, 2, 1)
    assert short.tokens[1] < long.tokens[0]


@pytest.mark.parametrize("name", ["gpt-oss-20b", "Qwen3.5-27B"])
def test_what_travels_is_what_the_layers_keep(name: str) -> None:
    """Windows and states have no number of bytes a token."""
    machine = replace(MACHINE, model=MODELS[name])
    asked = [(0.0, Request(0, [0] * 530, 2))]
    (slow,), (fast,) = (disaggregated(replace(machine, link=link), asked, 1, 1) for link in (1e9, 1e30))
    assert slow.ttft - fast.ttft == pytest.approx(cache_nbytes(machine.model.layers, 530) / 1e9)


def test_the_slowest_waits_of_a_fleet() -> None:
    some = [Times(0.0, [n / 1000, n / 500, n / 200]) for n in range(1, 101)]
    assert slowest(some) == pytest.approx((99, 297))


def test_the_turns_of_a_service() -> None:
    service = Service(tools=40, system=20, turns=3, message=8, reply=6)
    warm, cold = ([cast(Turn, one) for _, one in turns(service, 500, 0, 9.0, hits)] for hits in (True, False))
    assert {len(one.prompt) for one in warm} == {*range(4, 13)}
    assert {one.max_new_tokens for one in warm} == {*range(3, 10)}
    assert {one.found for one in warm} == {60, 74, 88}
    assert [one.found + len(one.prompt) for one in warm] == [len(one.prompt) for one in cold]
    assert not any(one.found for one in cold)


assert hash(-1) == hash(-2), "so that hashes of pages collide"
prompts = st.lists(st.integers(-2, -1), min_size=1, max_size=9)


def drawn(examples: int, *request: Any) -> Callable[[Any], Any]:
    """Run a test with requests of these parts, a prompt first, and sizes of what serves them.

    The cases are small. Making them smaller still would take half a minute for each planted bug.
    """
    cases = given(
        asked=st.lists(st.tuples(*request), min_size=1, max_size=7),
        size=st.integers(1, 4),
        extra=st.integers(0, 12),
        slots=st.integers(1, 4),
        spare=st.none() | st.integers(0, 5),
        seed=st.integers(0, 10**6),
    )
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return lambda test: settings(max_examples=examples, deadline=None, phases=phases)(cases(test))


def come_and_go(scheduler: Scheduler, rng: random.Random, coming: list[Any], cancel: Any) -> Iterator[None]:
    """Let requests come, and a few be cancelled by their ids; yield for each step, until all are done."""
    while coming or scheduler.running or scheduler.waiting:
        while coming and rng.random() < 0.6:
            coming.pop(0)()
        everyone = [*scheduler.running, *scheduler.waiting]
        if everyone and rng.random() < 0.05:
            cancel(rng.choice(everyone).request.id)
        yield


@drawn(1000, prompts, st.integers(1, 7))
def test_each_says_what_it_says_alone(
    asked: Any, size: int, extra: int, slots: int, spare: int | None, seed: int
) -> None:
    """Random arrivals, lengths, budgets, pages, pools, cancellations; at the end every page is free."""
    kind = Scheduler if seed % 3 else Static
    requests = [Request(n, *each) for n, each in enumerate(asked)]
    n_pages = extra + max(-(-(len(p) + n - 1) // size) for p, n in asked)
    pages = PageManager(n_pages, size, sharing=seed % 4 > 0)
    budget = None if spare is None else slots + spare
    scheduler, rng, output = (
        kind(pages, slots, budget, eos_ids=[END]),
        random.Random(seed),
        dict[Any, list[int]](),
    )
    rows, coming = Rows(pages), [partial(scheduler.add, request) for request in requests]
    left = {request.id: request for request in requests}

    def cancel(id: int) -> None:
        scheduler.cancel(id)
        del left[id]
        output.pop(id, None)

    for _ in come_and_go(scheduler, rng, coming, cancel):
        plan = scheduler.schedule()
        check(scheduler, plan)
        if rng.random() < 0.1:
            continue  # the pass has failed: nothing of the step counts
        chosen = rows.run(plan)
        scheduler.ran(plan, chosen)
        output |= {one.request.id: one.reply for one in chosen}
        rows.poison()
    assert output == {id: alone(request) for id, request in left.items()}
    assert pages.owners == [0] * n_pages
    assert len(pages.free) == n_pages


EACH, FOUND = test_each_says_what_it_says_alone, test_pages_are_found_when_full_and_written


@planted("a page is found before it is written", [FOUND], "nano-vllm #208", of=Scheduler.admit)
def _(old: Any, self: Scheduler) -> Sequence:
    one: Sequence = old(self)
    self.pages.publish(one.table, one.tokens, 0, len(one.tokens))
    return one


planted("a hash is taken for a proof", [EACH], "openvino.genai #3722")(
    lambda patch: patch.setattr(pages, "tuple", lambda tokens: hash((*tokens,)), raising=False)
)
planted("a full hit leaves nothing to run", [FOUND], "nano-vllm #144", of=PageManager.match_prefix)(
    lambda old, self, tokens, *adapter: old(self, [*tokens, 0], *adapter)
)


@planted("whole length used inside a chunk", [EACH], "nano-vllm #212", of=Scheduler.ran)
def _(old: Any, self: Scheduler, plan: Any, chosen: Any) -> None:
    old(self, plan, chosen)
    for one, _ in plan:
        one.n_computed = len(one.tokens) - (one in chosen)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
