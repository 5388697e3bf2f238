"""The scheduler and its pages, without a model: what each request says is what it would say alone.

A stand-in for the model reads its text back from the pages, token by token, and says a token that follows
from all of them: a row of somebody else's, one that is missing or one that is stale changes what is said.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.cost.models import CARDS, MODELS
from helpers.serve.blocks import Blocks
from helpers.serve.fleet import Machine, against_first, apart, random_arrivals, slowest, together
from helpers.serve.scheduler import Plan, Scheduler, Static
from helpers.serve.sequence import Request, Running
from helpers.serve.simulation import Times, fill, poisson, simulate
from tests.planted import Bug, Planted, edit

planted = Planted()
END, WORDS = 0, 5


def next_token(text: list[Any]) -> int:
    """Follows from every token and its place; END once in a while."""
    return hash(tuple(text)) % WORDS


def alone(request: Request) -> list[int]:
    text = list(request.prompt)
    for _ in range(request.max_new):
        text.append(next_token(text))
        if text[-1] == END:
            break
    return text[len(request.prompt) :]


class Rows:
    """Pages that hold tokens in place of keys and values."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.rows = blocks, {}  # type: ignore[var-annotated]

    def run(self, plan: Plan) -> dict[Running, int]:
        size, said = self.blocks.size, {}
        for one, n in plan:
            for at in range(one.n_run, one.n_run + n):
                self.rows[one.table[at // size], at % size] = one.tokens[at]
        for one, n in plan:  # all have written before anybody reads, or the other way round: nobody may tell
            text = [self.rows.get((one.table[at // size], at % size)) for at in range(one.n_run + n)]
            if one.n_run + n == len(one.tokens):
                said[one] = next_token(text)
        return said

    def poison(self) -> None:
        """Forget what lies in pages that are free and cannot be found."""
        lost = [block for block in self.blocks.free if block not in self.blocks.holds]
        self.rows = {place: token for place, token in self.rows.items() if place[0] not in lost}


def check(scheduler: Scheduler, plan: Plan) -> None:
    """What holds after every step."""
    blocks, everyone = scheduler.blocks, [*scheduler.running, *scheduler.waiting]
    tables = [block for one in everyone for block in one.table]
    assert [tables.count(block) for block in range(blocks.n_blocks)] == blocks.owners
    assert {*blocks.free} == {block for block, n in enumerate(blocks.owners) if n == 0}
    assert {blocks.holds[block][0]: block for block in blocks.holds} == blocks.found
    slots = [one.slot for one in scheduler.running]
    assert len({*slots}) == len(slots) <= scheduler.slots
    assert not any(one.table for one in scheduler.waiting)
    assert sum(n for _, n in plan) <= scheduler.budget
    assert bool(plan) == bool(everyone)
    shared: dict[tuple[int, int], list[int]] = {}
    for one in scheduler.running:
        for i, block in enumerate(one.table):
            held = one.tokens[: (i + 1) * blocks.size]
            assert shared.setdefault((block, i), held)[: len(held)] == held, "owners differ in a token"


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=9)
digests: dict[str, Any] = {"hash": hash, "all alike": lambda _: 7, "short": lambda x: hash(x) % 3}
CASE: dict[str, Any] = {
    "asked": st.lists(st.tuples(prompts, st.integers(1, 7)), min_size=1, max_size=7),
    "size": st.integers(1, 4),
    "extra": st.integers(0, 12),
    "slots": st.integers(1, 4),
    "spare": st.none() | st.integers(0, 5),
    "digest": st.sampled_from([*digests]),
    "kind": st.sampled_from([Scheduler, Scheduler, Static]),
    "seed": st.integers(0, 10**6),
}


@given(**CASE)
@settings(max_examples=1500, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_each_says_what_it_says_alone(
    asked: Any, size: int, extra: int, slots: int, spare: int | None, digest: str, kind: Any, seed: int
) -> None:
    """Random arrivals, lengths, budgets, pages and pools, and cancellations; at the end every page is free.

    The cases are small. Making them smaller still would take half a minute for each bug planted below.
    """
    requests = [Request(n, *each) for n, each in enumerate(asked)]
    n_blocks = extra + max(-(-(len(p) + n - 1) // size) for p, n in asked)
    blocks = Blocks(n_blocks, size, sharing=seed % 4 > 0, digest=digests[digest])
    budget = None if spare is None else slots + spare
    scheduler, rng, said = kind(blocks, slots, budget, ends=[END]), random.Random(seed), {}
    rows, coming = Rows(blocks), [*requests]
    while coming or scheduler.running or scheduler.waiting:
        while coming and rng.random() < 0.6:
            scheduler.add(coming.pop(0))
        everyone = [*scheduler.running, *scheduler.waiting]
        if everyone and rng.random() < 0.05:
            scheduler.cancel(rng.choice(everyone).request.id)
        plan = scheduler.step()
        check(scheduler, plan)
        if rng.random() < 0.1:
            continue  # the pass has failed: nothing of the step counts
        for one in scheduler.ran(plan, rows.run(plan)):
            said[one.request.id] = one.reply
        rows.poison()
    assert said == {request.id: alone(request) for request in requests if request.id in said}
    assert blocks.owners == [0] * n_blocks
    assert len(blocks.free) == n_blocks


def steps(kind: type[Scheduler], replies: list[int], slots: int = 4, prompt: int = 1) -> list[list[Any]]:
    """Who runs in each step, for requests that are all there at the start."""
    scheduler, seen = kind(Blocks(100), slots), []

    def step(plan: Plan) -> float:
        seen.append(sorted((one.slot, one.request.id) for one, _ in plan))
        return 1.0

    arrivals = [(0.0, Request(n, [1] * prompt, reply)) for n, reply in enumerate(replies)]
    times = simulate(scheduler, arrivals, step)
    assert [len(times[n].tokens) for n in range(len(replies))] == replies
    return seen


def test_static_takes_13_steps_and_continuous_8() -> None:
    replies = [2, 8, 3, 7, 5, 1]
    assert (len(steps(Static, replies)), len(steps(Scheduler, replies))) == (13, 8)
    assert steps(Scheduler, replies)[2] == [(0, 4), (1, 1), (2, 2), (3, 3)]  # 4 has the slot that 0 left


def plans(scheduler: Scheduler, n: int) -> list[list[tuple[Any, int]]]:
    """Run n steps; id and tokens of each."""
    seen = []
    for _ in range(n):
        plan = scheduler.step()
        seen.append([(one.request.id, count) for one, count in plan])
        scheduler.ran(plan, {one: 1 for one, count in plan if count == one.n_left})
    return seen


def test_a_budget_gives_the_running_their_token_and_the_rest_to_chunks() -> None:
    scheduler = Scheduler(Blocks(20, 4), 3, 6)
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
    scheduler = Scheduler(Blocks(4, 2, sharing=False), 2)
    scheduler.add(Request("old", [1, 2], 7))
    young = scheduler.add(Request("young", [3, 4], 4))
    assert plans(scheduler, 1) == [[("old", 2), ("young", 2)]]
    assert plans(scheduler, 2) == [[("old", 1), ("young", 1)]] * 2
    assert plans(scheduler, 1) == [[("old", 1)]]  # its third page was young's
    assert (young.tokens, young.n_run, young.table, scheduler.sent_back) == ([3, 4, 1, 1, 1], 0, [], 1)
    assert plans(scheduler, 3) == [[("old", 1)]] * 3
    assert plans(scheduler, 2) == [[("young", 5)], []]  # prompt and reply as a prompt, and its last token


def test_pages_are_found_when_full_and_written() -> None:
    blocks = Blocks(9, 2)
    scheduler = Scheduler(blocks, 3)
    text = [1, 2, 3, 4, 5]
    first, same = (scheduler.add(Request(id, text, 5)) for id in "ab")
    plan = scheduler.step()
    assert [n for _, n in plan] == [5, 5]  # nothing is written yet
    scheduler.ran(plan, dict.fromkeys((first, same), 9))
    cases = [(text, 2), (text[:4], 1), ([1, 2, 3], 1), ([1, 9, 3], 0), ([1, 2, 3, 9, 5], 1), ([*text, 6], 2)]
    for tokens, found in cases:
        table = blocks.share(tokens)
        assert table == first.table[:found]  # a full hit leaves its last page to run
        blocks.release(table)
    third = scheduler.add(Request("c", text, 5))
    assert (dict(scheduler.step())[third], third.n_run) == (1, 4)


def test_the_page_that_was_free_longest_goes_first_and_its_content_is_lost() -> None:
    blocks = Blocks(3, 2)
    old, new = [blocks.take()], [blocks.take(), blocks.take()]
    blocks.written(old, [1, 2])
    blocks.written(new, [3, 4, 5, 6])
    blocks.release(old)
    blocks.release(new)
    assert blocks.share([3, 4, 0]) == [1]  # free, and found again
    assert [blocks.take(), blocks.take()] == [0, 2]  # the end of a text before its beginning
    assert blocks.share([1, 2, 0]) == []


def test_wrong_requests_are_refused_at_once_and_harm_nobody() -> None:
    scheduler = Scheduler(Blocks(4, 5), 2, max_len=18)
    scheduler.add(Request("a", [1, 2], 3))
    for request, told in [
        (Request("a", [1], 1), "id 'a' is taken"),
        (Request("b", [], 1), "the prompt of 'b' is empty"),
        (Request("b", [1], 0), "max_new is 0; expected a whole number, 1 or more"),
        (Request("b", [1] * 9, 11), "may run 19 tokens; the model reads 18 at most"),
    ]:
        with pytest.raises(ValueError, match=told):
            scheduler.add(request)
    with pytest.raises(ValueError, match="21 tokens, which take 5 pages of 5; the pool has 4"):
        Scheduler(Blocks(4, 5), 2).add(Request("b", [1] * 11, 11))
    with pytest.raises(ValueError, match="nobody with id 'z' waits or runs"):
        scheduler.cancel("z")
    with pytest.raises(ValueError, match="budget is 1; expected 2 or more"):
        Scheduler(Blocks(4), 2, 1)
    for sizes in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="is 0; expected a whole number"):
            Blocks(*sizes)
    assert plans(scheduler, 4) == [[("a", 2)], [("a", 1)], [("a", 1)], []]
    scheduler.add(Request("a", [1], 1))  # its id is free again


def test_a_simulation_keeps_time() -> None:
    """Two arrive, at 0 and 1.5 s; a step takes a second and a tenth for each token of it."""
    scheduler = Scheduler(Blocks(9), 1)
    asked = [(0.0, Request("a", [1] * 4, 2)), (1.5, Request("b", [1], 1))]
    times = simulate(scheduler, asked, lambda plan: 1 + sum(n for _, n in plan) / 10)
    assert times["a"].tokens == pytest.approx([1.4, 2.5])
    assert (times["a"].ttft, times["a"].tpot, times["a"].longest_gap) == pytest.approx((1.4, 1.1, 1.1))
    assert (times["b"].ttft, times["b"].tpot, times["b"].longest_gap) == pytest.approx((2.1, 0, 0))
    arrivals = poisson(400, 2.0, 0, lambda n: Request(n, [1], 1))
    assert arrivals == poisson(400, 2.0, 0, lambda n: Request(n, [1], 1))
    assert 160 < arrivals[-1][0] < 240


def test_how_full_the_pages_were() -> None:
    """Two texts of 5 rows and pages of 2, 8 rows in all: the second is sent back and runs 4 tokens again."""
    crowd = [Request(name, [1] * 3, 3) for name in "ab"]
    names = ["run at a time", "share of rows in use", "steps", "times sent back", "share run again"]
    pages = fill(Scheduler(Blocks(4, 2, sharing=False), 2), crowd)
    assert [*pages] == names
    assert [*pages.values()] == pytest.approx([1.5, 5 / 8, 4, 1, 4 / 10])
    reserved = fill(Scheduler(Blocks(1, 8, sharing=False), 2), crowd)
    assert [*reserved.values()] == pytest.approx([1, (3 + 4 + 5) / 24, 6, 0, 0])


def test_a_fleet_serves_everybody_in_the_time_that_the_steps_take() -> None:
    machine = Machine(MODELS["Llama-3.1-8B"], CARDS["H100"], speed=0.5, link=1e9, slots=4, budget=100)
    asked = [(0.5 * n, Request(n, [0] * (50 + 30 * n), 2 + n % 5)) for n in range(9)]
    for times in (together(machine, asked, 2), apart(machine, asked, 2, 3)):
        assert sorted(len(one.tokens) for one in times) == sorted(request.max_new for _, request in asked)
        assert all(sorted([one.arrived, *one.tokens]) == [one.arrived, *one.tokens] for one in times)
    (alone,) = apart(machine, asked[:1], 1, 1)  # 50 tokens, a reply of 2
    sent = 50 * 131_072 / 1e9
    steps = machine.seconds([(50, 50)]) + machine.seconds([(1, 51)])
    assert alone.tokens[-1] == pytest.approx(steps + sent)
    read = 15.01e9 + 2 * 131_072  # bytes of the weights and of two rows
    assert machine.seconds([(1, 2)]) == pytest.approx(2 * read / 3.35e12, rel=1e-3)  # at half the speed
    pairs = 1000 * 1001 // 2 * 4 * 4096 * 32  # operations of attention, in all layers
    assert machine.seconds([(1000, 1000)]) == pytest.approx(2 * (15.01e12 + pairs) / 989.4e12, rel=1e-3)
    some = [Times(0.0, [n / 1000, n / 500, n / 200]) for n in range(1, 101)]
    assert slowest(some) == pytest.approx([99, 198, 297])
    for _, request in random_arrivals(50, 9.0, 40, 10, 0):
        assert 20 <= len(request.prompt) <= 60
        assert 5 <= request.max_new <= 15
    ways = [[[1, 5, 9], [2, 6, 9]], [[2, 4, 9], [1, 5, 8]]]  # at two seeds
    assert against_first(ways) == [
        ["1 to 2", "5 to 6", "9 to 9", ""],
        ["1 to 2", "4 to 5", "8 to 9", "1, 2, 1"],
    ]


EACH, FOUND = test_each_says_what_it_says_alone, test_pages_are_found_when_full_and_written

planted("a page is found before it is written", [EACH, FOUND], "nano-vllm #208")(
    edit(Scheduler.begin, "self.running.append", "blocks.written(one.table, one.tokens); self.running.append")
)
planted("a page that is not full is shared", [EACH, FOUND])(
    edit(Blocks.keys, "len(tokens) + 1, self.size)", "len(tokens) + self.size, self.size)")
)
planted("a hash is taken for a proof", [EACH], "openvino.genai #3722")(
    edit(Blocks.share, "block is None or self.holds[block][1] != before", "block is None")
)
planted("a full hit leaves nothing to run", [EACH, FOUND], "nano-vllm #144")(
    edit(Blocks.share, "tokens[:-1]", "tokens")
)
planted("whole length used inside a chunk", [EACH], "nano-vllm #212")(
    edit(Scheduler.ran, "one.n_run += n", "one.n_run = len(one.tokens)")
)
planted("a page is taken and its content still found", [EACH])(
    edit(Blocks.take, "if block in self.holds", "if False")
)
planted("pages of who leaves are not freed", [EACH])(
    edit(Scheduler.leave, "self.blocks.release(one.table)", "one.table = []")
)
planted("a page is freed while others own it", [EACH])(
    edit(Blocks.release, "if not self.owners[block]", "if True")
)
planted("who gives up pages loses its reply", [test_the_youngest_gives_up_its_pages_and_keeps_its_tokens])(
    edit(Scheduler.send_back, "self.leave(one)", "self.leave(one); del one.tokens[len(one.request.prompt) :]")
)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
