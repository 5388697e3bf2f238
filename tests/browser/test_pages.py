"""What is published, from disk in a browser: the page to send and the gallery, with scripts and without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from helpers.recording.diary import load_diary
from helpers.stepper import Live, Pool, Race, Stepper, WhatIf
from helpers.stepper.format import VIEW
from helpers.stepper.page import Section, build_page
from tests.machine import NOTEBOOKS
from tests.pool_cases import trace

pytestmark = pytest.mark.browser
VIEWS = ".wid-writer, .wid-stepper, .wid-what_if, .wid-pool, .wid-step_time"
SIZES = [(280, 740), (360, 740), (640, 400), (1280, 800), (1600, 900)]  # the third: a desk at 200% zoom


# Pages with a view, and others of the book; what is printed is in test_worksheet.py.
LIVE = {"index": 4, **dict.fromkeys(("diary", "pool", "smollm2", "step", "toy"), 1)}
PLAIN = "404 card film gallery museum search slides teaching ways".split()


@pytest.fixture(scope="module")
def folder(built: Path) -> Path:
    """The folder of the site."""
    return built


@pytest.fixture
def context_options() -> dict[str, Any]:
    return {"viewport": {"width": 360, "height": 740}, "offline": True}


def test_pages_come_to_life_and_never_scroll_sideways(folder: Path, page: Page, problems: list[str]) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in (*LIVE, *PLAIN):
        page.goto((folder / f"{name}.html").as_uri())
        expect(page.locator(VIEWS)).to_have_count(LIVE.get(name, 0))
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate("new Promise(requestAnimationFrame)")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
    assert problems == []
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_fit_a_phone_and_load_nothing(
    path: Path, folder: Path, page: Page, problems: list[str]
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((folder / f"notebooks/{path.stem}.html").as_uri())
    page.evaluate("window.MathJax?.startup.promise")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("mjx-container").count() >= page.locator(".math").count()
    expect(page.locator(".view:empty")).to_have_count(0)
    assert page.locator(".still:visible").count() == 0
    assert problems == []
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def test_theme_follows_the_system_and_the_button(folder: Path, page: Page, problems: list[str]) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="dark")
    page.goto((folder / "notebooks/04_kv_cache.html").as_uri())
    html, figure = page.locator("html"), page.locator(".wid-figure").first
    expect(html).to_have_attribute("data-theme", "dark")
    expect(page.locator(".wid-view").first).to_have_class(re.compile("wid-dark"))
    ink = "(one) => getComputedStyle(one).getPropertyValue('--wid-ink')"
    dark = figure.evaluate(ink)
    page.locator(".article-header-buttons .theme-switch-button").click()
    page.get_by_role("button", name="Light").click()
    expect(html).to_have_attribute("data-theme", "light")
    assert figure.evaluate(ink) != dark
    expect(page.locator(".wid-view").first).not_to_have_class(re.compile("wid-dark"))
    page.locator(".cell_input").first.hover()
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    expect(page.locator(".cell_input .copybtn").first).to_be_visible()
    assert problems == []


@pytest.mark.parametrize("size", [(390, 844), (844, 390)])
def test_the_letters_of_slides_are_read_on_any_screen(
    folder: Path, page: Page, size: tuple[int, int]
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto((folder / "slides.html").as_uri())
    read = """(all) => all.filter((one) => one.getBoundingClientRect().width)
      .map((one) => one.getScreenCTM().a * one.getAttribute("font-size"))"""
    seen = page.locator(".slide svg text").evaluate_all(read)
    assert len(seen) > 100
    assert min(seen) > 10.9
    fits = "(all) => all.every((one) => one.scrollHeight <= one.clientHeight + 1)"
    assert page.locator(".slide").evaluate_all(fits)
    begins = "(n) => Math.abs(slides.at(n).getBoundingClientRect().top) < innerHeight / 2"
    for key, n in (("End", -1), ("ArrowUp", -2), ("Home", 0), (" ", 1)):
        page.keyboard.press(key)
        page.wait_for_function(begins, arg=n)


def test_nothing_of_a_view_goes_on_when_it_is_taken_away(page: Page, tmp_path: Path) -> None:
    """It plays no more, its Worker ends, and whatever happens to the page draws it no more."""
    diary = load_diary()
    views = [Stepper(diary), Race(diary), WhatIf(), Pool(trace("six")), Live()]
    text = build_page("All", [Section(view=view) for view in views])
    (tmp_path / "all.html").write_text(
        text.replace("= mountView(", "= ends[ends.length] = mountView("), "utf-8"
    )
    page.add_init_script("window.ends = []")
    page.goto((tmp_path / "all.html").as_uri())
    expect(page.locator(".wid-live")).to_have_count(len(views))
    page.clock.install()
    page.get_by_role("button", name="Play").evaluate_all("(all) => all.forEach((one) => one.click())")
    with page.expect_worker() as worker:
        page.locator(".wid-writer textarea").focus()
    roots = page.evaluate_handle("[...document.querySelectorAll('.wid-live')]")
    with worker.value.expect_event("close"):
        page.evaluate("ends.forEach((end) => end())")
    page.clock.run_for(3000)
    page.evaluate("location.hash = '#pass=3&race=7&step=2&numbers=7&seed=2'")
    page.emulate_media(color_scheme="dark")
    page.evaluate("document.body.className = 'changed'")
    page.set_viewport_size({"width": 800, "height": 740})
    page.clock.run_for(300)
    assert roots.evaluate("(all) => all.map((root) => root.isConnected || root.childElementCount)") == [0] * 5


def test_one_address_holds_the_state_of_each_view(folder: Path, page: Page, problems: list[str]) -> None:
    page.goto(f"{(folder / 'index.html').as_uri()}#pass=3&diary=Ada+writes&words=Today,weather&numbers=10,3")
    assert page.locator(".wid-stepper .wid-rail [aria-current]").inner_text() == "Decode 1"
    assert page.locator(".wid-writer textarea").input_value() == "Ada writes"
    assert page.locator(".wid-what_if input").evaluate_all("all => all.map(i => i.value)").count("3") == 1
    page.locator(".wid-stepper .wid-go").click()
    page.wait_for_url("**pass=4**")
    for kept in ("diary=Ada+writes", "numbers=10,3", "words=Today,weather"):
        assert kept in page.url
    assert problems == []


@pytest.mark.parametrize("state", ["", "panels=lab&", "words=Today,weather&numbers=10,3&pass=4&"])
def test_an_address_leads_to_its_place_and_stays_as_it_is(folder: Path, page: Page, state: str) -> None:
    """A view that reads an address is not where a reader acts: it does not put itself in its place."""
    page.goto(f"{(folder / 'index.html').as_uri()}#{state}at=view1")
    expect(page.locator(".wid-stepper")).to_be_focused()
    page.wait_for_timeout(300)
    assert page.url.endswith(f"#{state}at=view1")
    page.locator(".wid-what_if .wid-number").first.fill("3")
    page.wait_for_url(re.compile("at=view[^1]"))


def test_a_link_that_follows_another_at_once_keeps_its_place(folder: Path, page: Page) -> None:
    """What the views have read they write when it rests: that is no act of the reader's."""
    page.goto((folder / "index.html").as_uri())
    wanted = page.evaluate(
        """async () => {
            const hashes = [...document.querySelectorAll(".moments a")].map((link) => link.hash);
            for (const hash of [hashes[1], hashes.at(-3)]) {
                const read = new Promise((done) => addEventListener("hashchange", done, { once: true }));
                location.hash = hash;
                await read;
            }
            return location.hash;
        }"""
    )
    assert "at=view4" in wanted
    page.wait_for_timeout(600)
    assert page.url.endswith(wanted)


def test_moments_lead_to_what_they_say(folder: Path, page: Page, problems: list[str]) -> None:
    page.goto((folder / "index.html").as_uri())
    view = page.locator(".wid-stepper")
    current = view.locator(".wid-rail [aria-current]")
    chosen, cache = view.locator(".wid-said.chosen"), view.get_by_role("group", name="KV cache")
    page.get_by_role("link", name="The first step of decode").click()
    expect(current).to_have_text("Decode 1")
    page.get_by_role("link", name="finds the name").click()
    expect(chosen).to_have_text("by")
    assert view.get_attribute("data-head") == "2"
    page.get_by_role("link", name="The same without the cache").click()
    expect(cache.get_by_role("button", name="off")).to_have_attribute("aria-pressed", "true")
    expect(chosen).to_have_text("by")
    page.wait_for_timeout(300)  # the address is written at once where it has rested
    # A step that ends while a link is followed does not take the address back.
    page.get_by_role("link", name="The lab").evaluate(
        """(link) => {
            location.hash = link.hash;
            const key = new KeyboardEvent("keydown", { key: "ArrowLeft", bubbles: true });
            document.querySelector(".wid-stepper").dispatchEvent(key);
        }"""
    )
    expect(current).to_have_text("Training")
    expect(view.locator(".wid-counts")).to_be_visible()
    assert problems == []


def test_the_keyboard_skips_to_a_section_and_a_moment_is_copied(page: Page, tmp_path: Path) -> None:
    views = {"race": Race(load_diary()), "toy": WhatIf()}  # and a second toy
    sections = [
        Section(view=view, after="What it shows.", heading=name.upper(), name=name)
        for name, view in views.items()
    ]
    sections.append(Section(view=WhatIf(), after="What it shows."))
    (tmp_path / "page.html").write_text(build_page("Two", sections), "utf-8")
    page.add_init_script("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.goto((tmp_path / "page.html").as_uri())
    copy = page.get_by_role("button", name=VIEW["page"]["copy"][0])
    expect(page.locator(".view ~ p + .copy"), "a view is explained first").to_have_count(3)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    skip = page.locator("a:focus")
    expect(skip).to_have_text("TOY")
    expect(skip).to_be_in_viewport()
    skip.press("Enter")
    expect(page.locator("#toy h2")).to_be_in_viewport()
    expect(page.locator("#toy .wid-what_if")).to_be_focused()
    page.locator("#view1 .wid-number").first.fill("3")
    page.locator("#view2 .wid-number").first.fill("4")
    page.locator(".wid-race").press("ArrowRight")  # acted on last
    copy.nth(1).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("copied")
    assert copied.endswith("&at=view1"), "not where a reader acted last"
    assert "view1.numbers=3," in copied
    assert "race=" not in copied
    assert "view2" not in copied
    page.goto("about:blank")
    page.goto(copied)
    expect(page.locator("#view1 .wid-number").first).to_have_value("3")
    expect(page.locator("#view2 .wid-number").first).not_to_have_value("4")


def test_without_scripts_the_static_forms_stand_there(folder: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto((folder / "index.html").as_uri())
    text = page.locator("body").inner_text()
    for output in ("23 of your text", "Stepper(", "4 tokens must run again", "StepTime("):
        assert output in text
    pictures = page.locator("noscript img").all()
    shown = [picture.evaluate("(image) => image.naturalWidth / image.width") for picture in pictures]
    assert len(shown) == 2
    assert min(shown) > 2, "drawn, and no wider than the page"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
