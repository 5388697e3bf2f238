"""The cost strip under the stepper in a Chromium: what it says at each pass is what Python works out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from helpers.cost.models import CARDS, MODELS, Card, PublishedModel
from helpers.cost.step import step_time
from helpers.recording.diary import load_diary
from helpers.stepper import Stepper
from tests.work_cases import bound_of

pytestmark = pytest.mark.browser

LLAMA, H100 = MODELS["Llama-3.1-8B"], CARDS["H100"]
BOUNDS = {"weights": "reading the weights", "rows": "reading rows of K and V", "arithmetic": "arithmetic"}


@pytest.fixture
def strip(page: Page, tmp_path: Path, problems: list[str]) -> Locator:
    Stepper(load_diary(), start="prefill").save_html(tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    return page.locator(".wid-cost")


def says(strip: Locator, model: PublishedModel, card: Card, new: int, before: int, users: int = 1) -> None:
    """Hold the folded line to Python: the least time in milliseconds to three digits, and the bound."""
    step = step_time(model, card, before, users, new_tokens=new)
    bound = strip.locator("summary [data-bound]")
    expect(bound).to_have_attribute("data-bound", bound_of(step))
    expect(bound).to_have_text(BOUNDS[bound_of(step)])
    message = re.search(r"As (.*) on (.*): at least ([\d.]+) ms", strip.locator("summary").inner_text())
    assert message is not None
    assert message.groups()[:2] == (model.name, card.name)
    assert float(message[3]) == pytest.approx(1000 * step.total, rel=5e-3)


def test_each_pass_is_bound_as_python_says(strip: Locator, page: Page, problems: list[str]) -> None:
    events = load_diary().runs[0].passes
    passes = [event for event in events if event.phase != "training"]
    for event in passes[:4]:
        says(strip, LLAMA, H100, event.counts["positions"], event.counts["rows_read"])
        page.get_by_role("button", name="Next").click()
    assert problems == []


def test_the_choices_move_the_bound_and_the_address_keeps_them(strip: Locator, page: Page) -> None:
    page.get_by_role("button", name="Next").click()
    strip.locator("summary").click()
    terms = ["Q1 × 32", "Kᵀ32 × 24", "mask1 × 24", "V24 × 32", "contexts1 × 32"]
    assert strip.locator(".wid-term").all_text_contents() == terms
    expect(strip.locator(".wid-formula")).to_have_attribute(
        "aria-label", re.compile("Q 1 by 32, .* 32 by 24, V 24")
    )
    fills = strip.locator("circle").evaluate_all("all => all.map(dot => getComputedStyle(dot).fill)")
    assert fills == ["rgb(255, 255, 255)", "rgb(0, 114, 178)"], "prefill hollow beside this pass"
    for key in ("End", "Home", "ArrowRight", "ArrowRight", "ArrowRight"):
        strip.get_by_role("slider", name="text").press(key)
    for _ in range(6):
        strip.get_by_role("slider", name="users at once").press("ArrowRight")
    says(strip, LLAMA, H100, 1, 10_000, users=64)
    expect(strip).to_contain_text("64 users with 10,001 tokens each do not fit on H100: 53 do.")
    strip.get_by_role("combobox", name="on").select_option("A100")
    says(strip, LLAMA, CARDS["A100"], 1, 10_000, users=64)
    page.wait_for_url(re.compile("on=A100.*users=64|users=64.*on=A100"))
    page.reload()
    says(strip, LLAMA, CARDS["A100"], 1, 10_000, users=64)


@pytest.mark.parametrize("context_options", [{"viewport": {"width": 360, "height": 740}}])
def test_nothing_sticks_out_on_a_phone(strip: Locator, page: Page) -> None:
    strip.locator("summary").click()
    strip.get_by_role("combobox", name="as if").select_option("gpt-oss-120b")
    expect(strip).to_contain_text("A token uses 4 of 128 experts")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    left = strip.evaluate(
        "box => [...box.querySelectorAll('*')].filter(x => x.getBoundingClientRect().right > "
        "box.getBoundingClientRect().right + 1).map(x => x.outerHTML.slice(0, 80))"
    )
    assert left == []
