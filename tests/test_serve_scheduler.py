"""The scheduler and its pages, without a model: every reply is the reply to that request alone.

A stand-in for the model reads its text from the pages, token by token, and returns a token that depends on
all of them: an entry of another request, a missing entry or a stale one changes the reply.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from zlib import crc32

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.serve import pages
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler, StaticBatching
from helpers.serve.sequence import Request, Sequence
from helpers.serve.simulation import simulate, slots_by_step
from tests.planted import Bug, Planted

planted = Planted()
END, WORDS = 0, 5
ASKED = [(0.0, Request(0, [0] * 3, 2))]


def next_token(text: list[Any]) -> int:
    """Depends on every token and its position; END now and then."""
    return crc32(repr(text).encode()) % WORDS


def alone(request: Request) -> list[int]:
    text = list(request.prompt)
    for _ in range(request.max_new_tokens):
        text.append(next_token(text))
        if text[-1] == END:
            break
    return text[len(request.prompt) :]


class TokenPool:
    """A pool whose pages hold tokens instead of KV entries."""

    def __init__(self, pages: PageManager) -> None:
        self.pages, self.entries = pages, {}  # type: ignore[var-annotated]

    def run(self, plan: Plan) -> dict[Sequence, int]:
        size, output = self.pages.page_size, {}
        for sequence, n in plan:
            start, table = sequence.num_computed_tokens, sequence.page_table
            for position in range(start, start + n):
                self.entries[table[position // size], position % size] = sequence.tokens[position]
        for sequence, n in plan:  # all write before any reads: the order must not matter
            end, table = sequence.num_computed_tokens + n, sequence.page_table
            text = [self.entries.get((table[i // size], i % size)) for i in range(end)]
            if end == len(sequence.tokens):
                output[sequence] = next_token(text)
        return output

    def poison(self) -> None:
        """Delete the content of pages that are free and not cached."""
        lost = {*self.pages.free} - {*self.pages.contents}
        self.entries = {place: token for place, token in self.entries.items() if place[0] not in lost}


def check_state(scheduler: Scheduler, plan: Plan) -> None:
    """Check what has to be true after every step."""
    pages, sequences = scheduler.pages, [*scheduler.running, *scheduler.waiting]
    tables = [page for sequence in sequences for page in sequence.page_table]
    assert [tables.count(page) for page in range(pages.n_pages)] == pages.ref_counts
    assert {*pages.free} == {page for page, n in enumerate(pages.ref_counts) if n == 0}
    assert {page: key for key, equal in pages.cached_pages.items() for page in equal} == {
        page: key for page, (key, _) in pages.contents.items()
    }
    ids: list[Any] = [sequence.request.id for sequence in sequences]
    assert ids == sorted(ids), "a request overtook another"
    slots = [sequence.slot for sequence in scheduler.running]
    assert len({*slots}) == len(slots) <= scheduler.slots
    assert not any(sequence.page_table for sequence in scheduler.waiting)
    assert sum(n for _, n in plan) <= scheduler.token_budget
    assert bool(plan) == bool(sequences)
    shared: dict[tuple[int, int], list[int]] = {}
    for sequence in scheduler.running:
        for i, page in enumerate(sequence.page_table):
            held = sequence.tokens[: (i + 1) * pages.page_size]
            assert shared.setdefault((page, i), held)[: len(held)] == held, "a shared page has other tokens"


def plans(scheduler: Scheduler, n_steps: int) -> list[list[tuple[Any, int]]]:
    """Run steps; return for each the ids of the requests that ran, with their numbers of tokens."""
    seen = []
    for _ in range(n_steps):
        plan = scheduler.schedule()
        seen.append([(sequence.request.id, n) for sequence, n in plan])
        done = [sequence for sequence, n in plan if n == sequence.num_uncomputed_tokens]
        scheduler.postprocess(plan, dict.fromkeys(done, 1))
    return seen


def test_static_batching_takes_13_steps_and_continuous_8() -> None:
    requests = [Request(n, [1], reply) for n, reply in enumerate([2, 8, 3, 7, 5, 1])]
    static, continuous = StaticBatching(PageManager(100), 4), Scheduler(PageManager(100), 4)
    classes = StaticBatching, Scheduler
    assert [len(slots_by_step(each, [2, 8, 3, 7, 5, 1], 4)) for each in classes] == [13, 8]
    assert slots_by_step(Scheduler, [1, 2, 1], 2) == [{0: "A", 1: "B"}, {0: "C", 1: "B"}]
    for request in requests:
        continuous.add(request)
    plans(continuous, 3)
    slots = {sequence.request.id: sequence.slot for sequence in continuous.running}
    assert slots == {1: 1, 3: 3, 4: 0}  # request 4 has the slot that request 0 had
    static.add(Request("a", [1], 2))
    plans(static, 1)
    static.add(Request("b", [1], 1))
    assert plans(static, 2) == [[("a", 1)], [("b", 1)]]  # b has to wait, though slots are free


def test_running_requests_get_their_token_before_any_chunk() -> None:
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


def test_the_youngest_is_preempted_and_keeps_its_tokens() -> None:
    scheduler = Scheduler(PageManager(4, 2, prefix_caching=False), 2)
    scheduler.add(Request("old", [1, 2], 7))
    young = scheduler.add(Request("young", [3, 4], 4))
    assert plans(scheduler, 1) == [[("old", 2), ("young", 2)]]
    assert plans(scheduler, 2) == [[("old", 1), ("young", 1)]] * 2
    assert plans(scheduler, 1) == [[("old", 1)]]  # its third page was young's
    assert (young.tokens, young.num_computed_tokens, young.page_table) == ([3, 4, 1, 1, 1], 0, [])
    assert scheduler.preemptions == 1
    assert plans(scheduler, 3) == [[("old", 1)]] * 3
    assert plans(scheduler, 2) == [[("young", 5)], []]  # prompt and reply as a prompt, and its last token


def test_pages_are_found_when_full_and_written() -> None:
    pages = PageManager(9, 2)
    scheduler = Scheduler(pages, 3)
    text = [1, 2, 3, 4, 5]
    first, same = (scheduler.add(Request(id, text, 5)) for id in "ab")
    plan = scheduler.schedule()
    assert [n for _, n in plan] == [5, 5]  # nothing is written yet
    scheduler.postprocess(plan, dict.fromkeys((first, same), 9))
    cases = [(text, 2), (text[:4], 1), ([1, 2, 3], 1), ([1, 9, 3], 0), ([1, 2, 3, 9, 5], 1), ([*text, 6], 2)]
    for tokens, found in cases:
        assert (
            pages.match_prefix(tokens) == first.page_table[:found]
        )  # a full hit leaves its last page to run
    third = scheduler.add(Request("c", text, 5))
    plan = scheduler.schedule()
    assert (dict(plan)[third], third.num_computed_tokens) == (1, 4)
    scheduler.postprocess(plan, dict.fromkeys((first, same, third), 8))
    assert pages.match_prefix([*text, 9, 8]) == first.page_table[:3]  # a token of the reply has filled it


def test_admission_counts_cached_pages_with_the_same_key() -> None:
    """Three of five pages are in use: an equal text needs one more page, with another extra key three."""
    scheduler, seen = Scheduler(PageManager(5, 2), 3), []
    for id, extra_key in (("a", 1), ("b", 1), ("c", 2)):
        scheduler.add(Request(id, [1, 2, 3, 4, 5], 4)).extra_key = extra_key
        seen += plans(scheduler, 1)
    assert seen == [[("a", 5)], [("a", 1), ("b", 1)], [("a", 1), ("b", 1)]]


def test_the_page_free_longest_is_allocated_first() -> None:
    pages = PageManager(4, 2)
    old, new = [pages.allocate()], [pages.allocate(), pages.allocate()]
    pages.cache_full_pages(old, [1, 2], 0, 2)
    pages.cache_full_pages(new, [3, 4, 5, 6], 0, 4)
    pages.release(old)
    pages.release(new)
    assert [pages.allocate() for _ in range(3)] == [3, 0, 2]  # the end of a text before its beginning
    assert [pages.match_prefix(text) for text in ([1, 2, 0], [3, 4, 5, 6, 0])] == [[], [1]]


def test_pages_are_found_only_after_the_same_prefix() -> None:
    """Of equal pages the first is found, and once it is lost, the next."""
    pages = PageManager(5, 2)
    first, second = ([pages.allocate() for _ in range(n)] for n in (2, 3))
    pages.cache_full_pages(first, [1, 2, 7, 7], 0, 4)
    pages.cache_full_pages(second, [1, 2, 7, 7, 8, 8], 0, 6)
    assert pages.match_prefix([1, 2, 7, 7, 8, 8, 0]) == [0, 1, 4]
    assert pages.match_prefix([7, 7, 8, 8, 0]) == []
    pages.release(first)
    first = [pages.allocate(), pages.allocate()]
    assert first == [1, 0]
    assert pages.match_prefix([1, 2, 7, 7, 8, 8, 0]) == [2, 3, 4]
    pages.cache_full_pages(first, [1, 2, 7, 7], 0, 4)
    pages.release(second)
    assert [pages.allocate() for _ in range(3)] == [4, 3, 2]
    assert pages.match_prefix([1, 2, 7, 7, 8, 8, 0]) == first  # which are found again
    pages.release(first)
    assert [pages.allocate() for _ in range(2)] == [0, 1]
    assert (pages.cached_pages, pages.contents) == ({}, {})


def test_invalid_arguments_raise_and_change_nothing() -> None:
    scheduler, small = (Scheduler(PageManager(4, 5), 2, max_len=max_len) for max_len in (18, None))
    scheduler.add(Request("a", [1, 2], 3))
    calls: list[tuple[Any, str]] = [
        (lambda: scheduler.add(Request("a", [1], 1)), "id 'a' is in use"),
        (lambda: scheduler.add(Request("b", [], 1)), "the prompt of 'b' is empty"),
        (lambda: scheduler.add(Request("b", [1], 0)), "max_new_tokens is 0; expected a whole number"),
        (
            lambda: scheduler.add(Request("b", [1] * 9, 11)),
            "may run 19 tokens; the model can process at most 18",
        ),
        (lambda: small.add(Request("b", [1] * 11, 11)), "21 tokens, which need 5 pages of 5; the pool has 4"),
        (lambda: scheduler.cancel("z"), "id 'z' is unknown; expected the id of a request"),
        (lambda: Scheduler(PageManager(4), 2, 1), "token_budget is 1; expected 2 or more"),
        (lambda: PageManager(0, 4), "n_pages is 0; expected a whole number"),
        (lambda: PageManager(4, 0), "page_size is 0; expected a whole number"),
        (lambda: PageManager(4).release([2, 1]), "pages .1, 2. are free already"),
        (
            lambda: simulate(Scheduler(PageManager(4), 1), [(math.nan, ASKED[0][1])], len),
            "the arrival of 0 is nan seconds",
        ),
        (lambda: simulate(Scheduler(PageManager(4), 1), ASKED, lambda plan: math.nan), "a step is nan"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert plans(scheduler, 4) == [[("a", 2)], [("a", 1)], [("a", 1)], []]
    scheduler.add(Request("a", [1] * 9, 10))  # the id can be used again, and 18 tokens are allowed


def test_a_simulation_adds_up_the_seconds_of_steps() -> None:
    """Two requests arrive at 0 and 1.5 s; a step takes 1 s plus 0.1 s for each of its tokens."""
    scheduler = Scheduler(PageManager(9), 1)
    asked = [(0.0, Request("a", [1] * 4, 2)), (1.5, Request("b", [1], 1))]
    times = simulate(scheduler, asked, lambda plan: 1 + sum(n for _, n in plan) / 10)
    assert times["a"].token_times == pytest.approx([1.4, 2.5])
    assert times["a"].ttft == pytest.approx(1.4)
    assert times["b"].ttft == pytest.approx(2.1)


assert hash(-1) == hash(-2), "prompts of these tokens must have colliding hashes"
prompts = st.lists(st.integers(-2, -1), min_size=1, max_size=9)


def drawn(examples: int, *request: Any) -> Callable[[Any], Any]:
    """Run a test with random requests, made of these parts with a prompt first, and random scheduler sizes.

    The cases are small; shrinking them further would take half a minute for each planted bug.
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
    """Add requests at random times and cancel a few by id; yield before each step, until all are done."""
    while coming or scheduler.running or scheduler.waiting:
        while coming and rng.random() < 0.6:
            coming.pop(0)()
        sequences = [*scheduler.running, *scheduler.waiting]
        if sequences and rng.random() < 0.05:
            cancel(rng.choice(sequences).request.id)
        yield


@drawn(1000, prompts, st.integers(1, 7))
def test_every_reply_equals_the_reply_alone(
    asked: Any, size: int, extra: int, slots: int, spare: int | None, seed: int
) -> None:
    """Random arrivals, lengths, budgets, pages, pools and cancellations; at the end every page is free."""
    scheduler_class = Scheduler if seed % 3 else StaticBatching
    requests = [Request(n, *parts) for n, parts in enumerate(asked)]
    n_pages = extra + max(-(-(len(p) + n - 1) // size) for p, n in asked)
    pages = PageManager(n_pages, size, prefix_caching=seed % 4 > 0)
    budget = None if spare is None else slots + spare
    scheduler = scheduler_class(pages, slots, budget, eos_ids=[END])
    rng, output = random.Random(seed), dict[Any, list[int]]()
    pool, coming = TokenPool(pages), [partial(scheduler.add, request) for request in requests]
    not_cancelled = {request.id: request for request in requests}

    def cancel(id: int) -> None:
        scheduler.cancel(id)
        del not_cancelled[id]
        output.pop(id, None)

    for _ in come_and_go(scheduler, rng, coming, cancel):
        plan = scheduler.schedule()
        check_state(scheduler, plan)
        if rng.random() < 0.1:
            continue  # the pass failed: nothing of this step counts
        next_tokens = pool.run(plan)
        scheduler.postprocess(plan, next_tokens)
        output |= {sequence.request.id: sequence.reply for sequence in next_tokens}
        pool.poison()
    assert output == {id: alone(request) for id, request in not_cancelled.items()}
    assert pages.ref_counts == [0] * n_pages
    assert len(pages.free) == n_pages


REPLIES, FOUND = test_every_reply_equals_the_reply_alone, test_pages_are_found_when_full_and_written


@planted("a page is found before it is written", [FOUND], "nano-vllm #208", of=Scheduler.admit)
def _(old: Any, self: Scheduler) -> Sequence:
    sequence: Sequence = old(self)
    self.pages.cache_full_pages(sequence.page_table, sequence.tokens, 0, len(sequence.tokens))
    return sequence


planted("pages with equal hashes count as equal", [REPLIES], "openvino.genai #3722")(
    lambda patch: patch.setattr(pages, "tuple", lambda tokens: hash((*tokens,)), raising=False)
)
planted("a full hit leaves nothing to run", [FOUND], "nano-vllm #144", of=PageManager.match_prefix)(
    lambda old, self, tokens, *key: old(self, [*tokens, 0], *key)
)


@planted("whole length used inside a chunk", [REPLIES], "nano-vllm #212", of=Scheduler.postprocess)
def _(old: Any, self: Scheduler, plan: Any, next_tokens: Any) -> None:
    old(self, plan, next_tokens)
    for sequence, _ in plan:
        sequence.num_computed_tokens = len(sequence.tokens) - (sequence in next_tokens)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_planted_bugs_are_caught_by_their_tests(bug: Bug) -> None:
    assert bug.missed_by() == []
