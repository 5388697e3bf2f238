"""The pool in a Chromium, on the saved page: from disk, with the network off."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from helpers.stepper import Pool
from helpers.stepper.format import VIEW
from tests.browser.conftest import Show
from tests.pool_cases import MADE, trace

pytestmark = pytest.mark.browser
POOL = VIEW["pool"]
READ = """() => ({
  step: Number(document.querySelector(".wid-pool").dataset.step),
  height: document.querySelector(".wid-pool").offsetHeight,
  sentence: document.querySelector(".wid-sentence").textContent,
  spoken: document.querySelector("input[type=range]").getAttribute("aria-valuetext"),
  slider: document.querySelector("input[type=range]").valueAsNumber,
  counts: [...document.querySelectorAll(".wid-counter b")].map((b) => b.textContent),
  soFar: [...document.querySelectorAll(".wid-counter i")].map((i) => i.textContent),
  waiting: [...document.querySelectorAll(".wid-chip")].map((chip) => chip.textContent),
  words: document.querySelector(".wid-unseen").children.length,
  now: document.querySelector(".wid-now").offsetLeft / document.querySelector(".wid-slots").offsetWidth,
  pages: [...document.querySelectorAll(".wid-pages > .wid-page")].map((page) => ({
    letters: page.querySelector("b").textContent.replaceAll("\\u200b", ""),
    state: page.className.split(" ")[1],
    filled: parseFloat(page.querySelector(".wid-filled")?.style.width ?? "0"),
    taken: page.querySelector(".wid-taken") !== null,
  })),
})"""
LIT = """() => [".wid-page.lit", ".wid-stay.lit"].map((lit) => [...document.querySelectorAll(lit)]
  .map((node) => [Number(node.dataset.page ?? node.dataset.request),
    node.querySelector("small")?.textContent]))"""


@pytest.fixture
def pool(show: Show) -> Show:
    """Open a run's pool by its name, at an address, with a theme or without motion."""

    def opened(name: str, address: str = "", **media: Any) -> Page:
        page = show(Pool(trace(name)), address, **media)
        page.locator(".wid-pool").focus()
        return page

    return opened


@pytest.mark.parametrize("name", ["idle", "hostile"])
def test_a_step_is_the_traces(pool: Show, name: str) -> None:
    """By the arrow key and back; tests/js/pool.test.mjs holds every step to the scheduler's books."""
    run, books = MADE[name]()
    page, n = pool(name), 8
    first = page.evaluate(READ)
    for _ in range(n):
        page.keyboard.press("ArrowRight")
    shown, step, book = page.evaluate(READ), run.steps[n], books[n]
    assert (shown["step"], shown["slider"], shown["height"]) == (n + 1, n, first["height"])
    assert shown["spoken"] == f"step {n + 1} of {len(run.steps)}"
    assert shown["sentence"].startswith(f"Step {n + 1}: ")
    assert [text.split()[0] for text in shown["counts"]] == [str(book["counts"][x]) for x in POOL["counts"]]
    owners = ["".join(chr(65 + one.request) for one in step.running if p in one.table) for p in range(12)]
    assert [one["letters"] for one in shown["pages"] if one["state"] == "owned"] == [*filter(None, owners)]
    filled = [100 * rows / run.page_size for rows, own in zip(book["filled"], owners, strict=True) if own]
    assert [one["filled"] for one in shown["pages"] if one["state"] == "owned"] == pytest.approx(filled)
    waiting = [chr(65 + one) for one in step.waiting]
    assert [chip.removeprefix("↩") for chip in shown["waiting"]] == waiting[: len(shown["waiting"])]
    assert shown["now"] == pytest.approx(n / len(run.steps), abs=0.01)
    page.keyboard.press("End")
    end = page.evaluate(READ)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(READ) == end, "the last step"
    page.keyboard.press("Home")
    assert page.evaluate(READ) == first


def test_who_is_pointed_at_lights_up(pool: Show) -> None:
    page = pool("six", "#step=6")
    view = Pool(trace("six"))
    shares = {share.request: share for share in view.trace.steps[5].running}
    readout = page.locator(".wid-readout")
    assert readout.inner_text() == POOL["point"]
    page.locator('[data-request="1"]').first.hover()
    lit, stays = page.evaluate(LIT)
    assert lit == sorted([number, str(n + 1)] for n, number in enumerate(shares[1].table))
    assert {one for one, _ in stays} == {1}
    assert readout.inner_text().startswith(f"B: {shares[1].stop} KV entries in {len(shares[1].table)} pages")
    shared = next(number for number in shares[0].table if number in shares[1].table)
    page.locator(f'[data-page="{shared}"]').hover()
    lit, stays = page.evaluate(LIT)
    assert [one for one, _ in lit] == [shared]
    assert {one for one, _ in stays} == {0, 1}
    assert f"Page {shared} of A, B: 4 of 4 KV entries" in readout.inner_text()
    page.mouse.move(0, 0)
    assert page.evaluate(LIT) == [[], []]
    page.locator(".wid-pool").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert {one for one, _ in page.evaluate(LIT)[1]} == {1}
    expect(page).to_have_url(re.compile("#step=6&request=B$"))
    page.get_by_role("button", name="none", exact=True).click()
    assert page.evaluate(LIT) == [[], []]
    box: Any = page.locator(".wid-slots").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 2.5 / len(view.trace.steps), box["y"] + 2)
    assert page.evaluate(READ)["step"] == 3


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_and_the_flash_of_a_page_taken_anew(pool: Show, motion: str) -> None:
    page = pool("six", reduced_motion=motion)
    moving = "document.getAnimations().filter((one) => one.animationName === 'wid-taken').length"
    flashed = page.get_by_role("button", name="Next").evaluate(
        f"(next) => {{ next.click(); return {moving}; }}"
    )
    taken = sum(one["taken"] for one in page.evaluate(READ)["pages"])
    assert taken > 0
    assert flashed == (taken if motion == "no-preference" else 0)
    page.wait_for_function(f"() => {moving} === 0")  # once
    page.get_by_role("slider").fill("16")
    page.locator(".wid-pool").focus()
    page.keyboard.press(" ")
    expect(page.get_by_role("button", name="Play")).to_be_visible(timeout=10_000)
    assert page.evaluate(READ)["step"] == 20
    expect(page).to_have_url(re.compile("#step=20$"))


def test_an_address_is_a_step_and_a_request_or_the_nearest(pool: Show) -> None:
    page = pool("six", "#step=2")
    for address, step, wrong in (
        ("", 1, ""),
        ("#step=7&request=C", 7, ""),
        ("#step=99", 20, "step"),
        ("#step=x&request=Z", 1, "step, request"),
    ):
        page.evaluate("(hash) => { location.hash = hash; }", address)
        assert page.evaluate(READ)["step"] == step, address
        sentence = VIEW["labels"]["no such"].replace("{names}", wrong) if wrong else ""
        assert page.locator(".wid-advice").text_content() == sentence


def test_the_picker_chooses_its_request_and_the_line_has_room_for_how_many_more(pool: Show) -> None:
    page = pool("numbers", "#step=30")
    page.get_by_role("combobox").select_option("B")
    expect(page).to_have_url(re.compile("#step=30&request=B$"))
    expect(page.locator(".wid-stay.lit").first).to_have_attribute("data-request", "1")
    line = page.locator(".wid-queue")
    waiting = len(trace("numbers").steps[29].waiting)
    chips = line.locator(".wid-chip").count()
    expect(line.locator("span").last).to_have_text(f"+{waiting - chips}")
    rest, lanes = line.locator("span").last.bounding_box(), page.locator(".wid-slots").bounding_box()
    assert rest
    assert lanes
    assert rest["y"] + rest["height"] <= lanes["y"] + lanes["height"] + 1


@pytest.mark.parametrize("name", ["six", "many"])
def test_every_width_and_both_themes(pool: Show, name: str) -> None:
    page = pool(name, "#step=18", color_scheme="light")
    for width, scheme in ((280, "light"), (400, "dark"), (1200, "light"), (280, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(page.locator(".wid-view.wid-dark")).to_have_count(int(scheme == "dark"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        cut = "(all) => all.filter((b) => b.scrollWidth > b.parentElement.clientWidth).length"
        assert page.locator(".wid-pages b").evaluate_all(cut) == 0
        page.wait_for_function(  # once the view has its new width, what is cut off is said
            """() => {
                const box = document.querySelector(".wid-lanes");
                const goesOn = box.scrollWidth > box.clientWidth + 1;
                return document.querySelector(".wid-further").checkVisibility() === goesOn;
            }"""
        )
        goes_on = page.locator(".wid-further").is_visible()
        assert (page.locator(".wid-lanes").get_attribute("tabindex") == "0") == goes_on
        page.keyboard.press("Home")
        page.keyboard.press("End")
        edges: list[Any] = [page.locator(one).bounding_box() or {} for one in (".wid-now", ".wid-lanes")]
        now, box = (edge["x"] + edge["width"] for edge in edges)
        assert now <= box + 1, "what is now is in sight"
