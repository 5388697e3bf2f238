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
from helpers.stepper.format import VIEW

pytestmark = pytest.mark.browser

LLAMA, H100 = MODELS["Llama-3.1-8B"], CARDS["H100"]


@pytest.fixture
def strip(page: Page, tmp_path: Path, problems: list[str]) -> Locator:
    Stepper(load_diary(), start="prefill").save_html(tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    return page.locator(".wid-cost")


def says(strip: Locator, model: PublishedModel, card: Card, new: int, before: int, users: int = 1) -> None:
    """Hold the folded line to Python: the least time in milliseconds to three digits, the bound, its term."""
    step = step_time(model, card, before, users, new_tokens=new)
    line = strip.locator("> summary")
    expect(line).to_contain_text(f"{step.bound}: {VIEW['step_time']['terms'][step.longest]}")
    message = re.search(r"\? (.*) on (.*), at least ([\d.]+) ms", line.inner_text())
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
    strip.locator("> summary").click()
    terms = ["Q1 × 32", "Kᵀ32 × 24", "mask1 × 24", "V24 × 32", "contexts1 × 32"]
    assert strip.locator(".wid-term").all_text_contents() == terms
    expect(strip.locator(".wid-formula")).to_have_attribute(
        "aria-label", re.compile("Q 1 by 32, .* 32 by 24, V 24")
    )
    tokens = strip.get_by_role("slider", name="tokens each")
    expect(tokens).to_have_attribute("aria-valuetext", "as recorded")
    tokens.press("End")
    says(strip, LLAMA, H100, 1, 1_000_000)
    tokens.press("Home")
    says(strip, LLAMA, H100, 1, 23)
    strip.get_by_role("textbox", name="tokens each").fill("10,000")
    strip.get_by_role("textbox", name="users").fill("64")
    says(strip, LLAMA, H100, 1, 10_000, users=64)
    expect(strip).to_contain_text(
        "64 users with 10,001 tokens each, the newest included, do not fit on H100: 53 do."
    )
    strip.get_by_role("combobox", name="card").select_option("A100")
    says(strip, LLAMA, CARDS["A100"], 1, 10_000, users=64)
    page.wait_for_url(re.compile("on=A100.*users=64|users=64.*on=A100"))
    page.reload()
    says(strip, LLAMA, CARDS["A100"], 1, 10_000, users=64)
