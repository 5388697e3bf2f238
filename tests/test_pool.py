"""The pool: what it says of each step against the scheduler's own books, its picture, bad arguments."""

from __future__ import annotations

import json

import pytest

from helpers.drawing.canvas import png
from helpers.stepper import Pool, pool
from helpers.stepper.format import VIEW
from helpers.trace import EngineTrace
from tests.pictures import boxes, misplaced, words
from tests.planted import Bug, Planted
from tests.pool_cases import MADE, trace

planted = Planted()


@pytest.mark.parametrize("name", MADE)
def test_every_step_is_as_the_scheduler_has_it_in_its_books(name: str) -> None:
    run, books = MADE[name]()
    view = Pool(run)
    assert len(run.steps) == len(books)
    sums = {"run": 0, "found": 0}
    had: set[int] = set()
    for n, book in enumerate(books):
        pages = view.pages(n)
        assert [len(page["owners"]) for page in pages] == book["owners"]
        assert view.counts[n] == book["counts"]
        assert [page["filled"] for page in pages if not page["findable"]] == [
            rows for page, rows in zip(pages, book["filled"], strict=True) if not page["findable"]
        ]
        found = {number: page for number, page in enumerate(pages) if page["findable"]}
        texts = {}
        for number, page in found.items():
            first = page["place"] * run.page_size
            texts[number] = run.requests[page["holder"]].tokens[first : first + run.page_size]
        assert texts == book["findable"], "the text that can be found is the one that is shown"
        owned = {number for number, page in enumerate(pages) if page["owners"]}
        for number in owned - had:
            page, place = pages[number], pages[number]["place"]
            again = [s for s in run.steps[n].running if s.table[place : place + 1] == [number] and s.found]
            assert page["taken"] == (not any(place < s.found // run.page_size for s in again))
        had = owned
        for what in sums:
            sums[what] += book["counts"][what]
            assert view.count(n, what) == (book["counts"][what], sums[what])
        assert view.count(n, "used")[1] == max(b["counts"]["used"] for b in books[: n + 1])


def test_the_bands_are_the_steps() -> None:
    """Each share of each step lies in one block; who was preempted ends with a mark, and runs again."""
    met = set()
    for name in MADE:
        run = trace(name)
        stays = Pool(run).stays()
        cells = [
            (n, stay["slot"], stay["request"], block["kind"])
            for stay in stays
            for block in stay["blocks"]
            for n in range(block["from"], block["to"])
        ]
        shares = [(n, s.slot, s.request) for n, step in enumerate(run.steps) for s in step.running]
        assert sorted(cell[:3] for cell in cells) == sorted(shares)
        back = sorted((stay["to"], stay["request"]) for stay in stays if stay["back"])
        assert back == [(n, one) for n, step in enumerate(run.steps) for one in sorted(step.preempted)]
        ran: dict[int, int] = {}
        for n, _, request, kind in sorted(cells):
            (share,) = [s for s in run.steps[n].running if s.request == request]
            before = ran.get(request, 0)
            prompt = "prompt" if share.start < run.requests[request].prompt else "fresh"
            assert kind == (
                "idle" if share.start == share.stop else "again" if share.start < before else prompt
            )
            ran[request] = max(before, share.stop)
            met.add(kind)
    assert met == {"prompt", "fresh", "again", "idle"}


def test_what_is_said() -> None:
    view = Pool(trace("six"))
    assert [view.sentence(n) for n in (0, 1, 11, 19)] == [
        "Step 1: A runs; 6 of 12 pages in use.",
        "Step 2: A, B run; 10 of 12 pages in use, 2 shared. B begins in pages that were there: "
        "8 tokens used again.",
        "Step 12: B, C run; D, E, F wait; 11 of 12 pages in use. D was preempted: no page was free. "
        "Then B leaves.",
        "Step 20: F runs; 3 of 12 pages in use. Then F leaves.",
    ]
    assert "B runs nothing" in Pool(trace("idle")).sentence(2)
    assert " and 2 more run;" in Pool(trace("many")).sentence(9)


@pytest.mark.parametrize("name", MADE)
def test_the_picture_has_the_numbers_and_the_letters(name: str) -> None:
    view = Pool(trace(name))
    still = view.still()
    figure = still.figure()
    assert misplaced(figure) == []
    output = words(figure)
    assert f"step {view.drawn + 1} of {len(view.trace.steps)}" in output
    pages = view.pages(view.drawn)
    if len(pages) < 50:
        letters = [view.owners(page) for page in pages if view.owners(page)]
        assert [text for text in output if text in letters][-len(letters) :] == letters
        assert f"Pages: 0 {letters[0]}" in still.alt
    filled = [page["filled"] for page in pages if page["owners"]]
    widths = [
        box.get_width()
        for box in boxes(figure, "key fill")
        if box.get_boxstyle().__class__.__name__ == "Square"
    ]
    assert len(widths) == len(filled)
    one = max(widths)
    assert widths == pytest.approx([one * rows / view.trace.page_size for rows in filled])
    for what, label in VIEW["pool"]["counts"].items():
        now, so_far = view.count(view.drawn, what)
        most = {"used": len(pages), "run": view.trace.budget}.get(what)
        shown = f"{now} of {most}" if most else f"{now:,}"
        until = f"{so_far:,} so far" if what in ("run", "found") else f"at most {so_far:,}"
        cells = "".join(f'<td style="text-align:right">{cell}</td>' for cell in (shown, until))
        assert f">{label}</th>{cells}" in still.numbers
    assert view.sentence(view.drawn) in still.alt
    assert len(png(figure)) < 60_000


def test_the_step_that_is_shown() -> None:
    run = trace("six")
    assert [Pool(run, step=n).options["step"] for n in (1, 9)] == [0, 8]
    assert Pool(run).options == {"step": 0, "pages": True}
    assert "step 9 of" in " ".join(words(Pool(run, step=9).still().figure()))
    for step in (0, 1.5, len(run.steps) + 1):
        with pytest.raises(ValueError, match=f"got step={step}, expected 1 to {len(run.steps)}"):
            Pool(run, step)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got pages='no', expected one of"):
        Pool(run, pages="no")  # type: ignore[arg-type]
    assert repr(Pool(run)) == f"Pool(made: 6 requests, 12 pages, {len(run.steps)} steps)"


def test_who_is_preempted_and_comes_back_in_the_same_step_takes_all_of_its_pages_anew() -> None:
    run = json.loads(trace("six").to_json())
    before, now = run["steps"][:2]
    (share,) = (one for one in now["running"] if one["request"] == before["running"][0]["request"])
    taken = [Pool(EngineTrace.from_json(json.dumps(run))).pages(1)]
    now["preempted"] = [share["request"]]
    share["found"] = 0
    taken.append(Pool(EngineTrace.from_json(json.dumps(run))).pages(1))
    kept = len(before["running"][0]["table"])
    assert [[pages[page]["taken"] for page in share["table"]][:kept] for pages in taken] == [
        [False] * kept,
        [True] * kept,
    ]


def test_without_pages_nothing_is_said_of_them() -> None:
    view = Pool(trace("six"), step=2, pages=False)
    still = view.still()
    assert view.options == {"step": 1, "pages": False}
    assert still.alt.startswith("Step 2: A, B run. B begins")
    assert "Pages" not in still.alt
    assert len(view.counts_table(1)) == 2
    assert "rows wasted" not in still.numbers
    assert not boxes(still.figure(), "key fill")


def test_letters_are_short_and_all_different() -> None:
    assert pool._marks(["A", "b2"]) == ["A", "b2"]
    for ids in (["A", "A"], ["A", "12"], ["A", "long"]):
        assert pool._marks(ids) == ["A", "B"]
    many = pool._marks([str(n) for n in range(64)])
    assert len({*many}) == 64
    assert {len(mark) for mark in many} == {1, 2}


BOOKS = test_every_step_is_as_the_scheduler_has_it_in_its_books
planted("a shared page is counted for each of its owners", [BOOKS], of=pool._counts)(
    lambda old, running, size, waiting: (
        old(running, size, waiting) | {"used": sum(len(share.table) for share in running)}
    )
)
planted("rows as they were before the step", [BOOKS], of=Pool.pages)(
    lambda old, self, n: [page | {"filled": page["before"]} for page in old(self, n)]
)
planted("who was preempted leaves for good", [test_the_bands_are_the_steps], of=Pool.stays)(
    lambda old, self: [stay | {"back": False} for stay in old(self)]
)
planted("what ran before counts as new", [test_the_bands_are_the_steps], of=Pool._kind)(
    lambda old, self, share, reached: old(self, share, 0)
)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_a_planted_bug_is_caught(bug: Bug) -> None:
    assert bug.missed_by() == []
