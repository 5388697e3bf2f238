"""axe-core looks at every view, in what it can show, and at every page, light and dark; no rule is off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from helpers.recording.diary import load_diary
from helpers.recording.toy import record_toy
from helpers.stepper import Live, Pool, Race, Stepper, StepTime, WhatIf
from helpers.stepper.format import VIEW
from helpers.stepper.view import View
from tests.browser.conftest import page_of
from tests.machine import ROOT, lacking
from tests.pool_cases import trace

pytestmark = pytest.mark.browser
AXE = ROOT / "node_modules/axe-core/axe.min.js"
FOUND = """async () => (await axe.run({ resultTypes: ["violations"] })).violations
  .flatMap(({ id, impact, nodes }) =>
  ["serious", "critical"].includes(impact) ? nodes.map(({ target }) => `${id}: ${target.join(" ")}`) : [])"""
# Colours do not depend on the size, nor what overlaps or is small on the theme.
LOOKS = [("light", 390, 844), ("dark", 1280, 800)]
PAGES = "index ways museum card teaching slides film gallery search".split()
PAGES += [
    "memory-answers",
    "slots-answers",
    "worksheet-answers",
    "notebooks/17_pages",
    "notebooks/04_kv_cache",
]
# Each view, and the addresses of what it can show.
VIEWS: dict[str, tuple[Callable[[], View], list[str]]] = {
    "toy": (
        lambda: Stepper(record_toy(n_layers=2), panels="lab"),
        ["", "#pass=3&cache=off&layer=2&head=first"],
    ),
    "board": (
        lambda: Stepper(load_diary()),
        ["", "#pass=24&layer=1&head=3", "#panels=lab", "#panels=lab&pass=3&cache=off"],
    ),
    "race": (lambda: Race(load_diary()), ["", "#race=60", "#race=1022"]),
    "what_if": (WhatIf, ["", "#words=Oslo,Today,so&numbers=8,10,3"]),
    "pool": (lambda: Pool(trace("six")), ["", "#step=7&request=B"]),
    "many": (lambda: Pool(trace("many")), ["#step=18&request=B"]),
    "step_time": (StepTime, ["", "#case-cards=4&case-collective=20&case-as=gpt-oss-120b&case-users=90000"]),
}


def check(page: Page, turn: int = 0) -> None:
    """Nothing serious or critical is on the page, in both themes and at both sizes; later by turns in one."""
    page.add_script_tag(path=AXE)
    for scheme, width, height in LOOKS[turn % 2 :][:1] if turn else LOOKS:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("new Promise(requestAnimationFrame)")
        page.wait_for_timeout(500 if page.locator(".bd-sidebar").count() else 0)  # its menus come or go
        assert page.evaluate(FOUND) == [], (scheme, width)


@pytest.fixture(autouse=True)
def axe() -> None:
    """Where it is missing these tests are skipped."""
    if not AXE.exists():
        lacking("no axe-core here: run `npm ci`")


def test_each_view_is_among_them() -> None:
    assert {type(make()) for make, _ in VIEWS.values()} | {Live} == set(View.__subclasses__())


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, page: Page, tmp_path: Path) -> None:
    make, addresses = VIEWS[name]
    (tmp_path / "view.html").write_text(page_of(make()), encoding="utf-8")
    for turn, address in enumerate(addresses):
        page.goto("about:blank")
        page.goto(f"{(tmp_path / 'view.html').as_uri()}{address}")
        check(page, turn)


def test_the_live_view_and_its_acts(page: Page, tmp_path: Path) -> None:
    (tmp_path / "view.html").write_text(page_of(Live()), encoding="utf-8")
    page.goto((tmp_path / "view.html").as_uri())
    check(page)
    box = page.locator("textarea")
    box.fill("Mia writes from Osla.")  # whose last word is not known
    page.locator(".wid-offer").first.wait_for(timeout=60_000)
    check(page, 1)
    box.fill("Mia writes from Oslo.")
    box.press("Enter")
    page.locator(".wid-acts").wait_for(timeout=60_000)
    check(page, 1)
    for turn, act in enumerate(("twice", "again", "look", "change", "draws"), 1):
        page.get_by_role("button", name=VIEW["live"]["acts"][act][0]).click()
        page.locator(".wid-act").first.wait_for(timeout=60_000)
        check(page, turn)


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, built: Path, page: Page) -> None:
    page.goto((built / f"{name}.html").as_uri())
    if name == "search":
        page.locator("#query").fill("key")
    check(page)
