"""StepTime in a Chromium: by keys, typed, pasted, by its address; what it says is what Python says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from helpers.cost.layers import GIB
from helpers.cost.models import MODELS, Card
from helpers.cost.step import step_time
from helpers.stepper import StepTime
from tests.browser.conftest import page_of
from tests.work_cases import bound_of
from tests.written import unit

pytestmark = pytest.mark.browser
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
}


def says(page: Page, **case: Any) -> None:
    """Hold the spoken sentence to Python's numbers."""
    view = StepTime(**case)
    cards = view.settings["cards"]
    on = f" on {f'{cards} × ' if cards > 1 else ''}{view.card.name}: "
    expect(page.locator(".wid-sentence")).to_contain_text(on)
    expect(page.locator(".wid-sentence")).to_contain_text(f" {unit(view.step.total, 's')}, or ")
    expect(page.locator(".wid-sentence")).to_contain_text(f"It is {bound_of(view.step)}")
    if view.settings["users"] > 1:
        expect(page.locator(".wid-sentence")).to_contain_text(f"each of {view.settings['users']:,} users")


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> str:
    (tmp_path / "step.html").write_text(page_of(StepTime()), encoding="utf-8")
    address = (tmp_path / "step.html").as_uri()
    page.goto(address)
    return address


def test_a_walk_by_keys_and_back_by_its_address(page: Page, opened: str, problems: list[str]) -> None:
    says(page)
    expect(page.locator(".wid-sentence")).to_have_attribute("aria-live", "polite")
    page.locator(".wid-step_time").focus()
    for name in ("model", "card", "tokens each"):
        page.keyboard.press("Tab")
        expect(page.locator("select:focus, input:focus")).to_have_attribute("aria-label", name)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    says(page, tokens=1000)
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("8,192")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("9")
    expect(page.get_by_role("textbox", name="users")).to_have_attribute(
        "aria-label", "users at once, type a number"
    )
    says(page, tokens=8192, users=9)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="4", exact=True).first.press("Enter")
    says(page, tokens=8192, users=9, weight_bits=4)
    page.get_by_role("slider", name="cards").press("ArrowRight")
    page.get_by_role("textbox", name="µs per collective").fill("12.5")
    page.get_by_role("textbox", name="tokens per verification").fill("5")
    page.get_by_role("textbox", name="of the bandwidth reached").fill("80")
    page.get_by_role("button", name="yes").click()
    page.get_by_role("combobox", name="model").select_option("gpt-oss-120b")
    case: dict[str, Any] = {
        "model": "gpt-oss-120b",
        "tokens": 8192,
        "users": 9,
        "weight_bits": 4,
        "cards": 2,
    }
    case |= {"collective": 12.5e-6, "new_tokens": 5, "bandwidth_reached": 0.8, "overlap": True}
    says(page, **case)
    page.wait_for_url("**case-as=gpt-oss-120b**")
    page.goto("about:blank")
    page.go_back()
    says(page, **case)
    expect(page.get_by_role("slider", name="cards")).to_be_visible()
    assert problems == []


def test_a_pasted_config_and_what_is_none(page: Page, opened: str, problems: list[str]) -> None:
    page.locator(".wid-more > summary").click()
    paste = page.locator("textarea")
    paste.fill("{")
    expect(page.locator(".wid-paste em")).to_contain_text("This is not valid JSON")
    paste.fill("null")
    expect(page.locator(".wid-paste em")).to_contain_text("expected")
    says(page)
    paste.fill(json.dumps(LLAMA))
    expect(page.locator(".wid-paste em")).to_be_empty()
    says(page)
    chosen = page.get_by_role("combobox", name="model")
    name = chosen.input_value()
    assert name != "Llama-3.1-8B"
    page.wait_for_url("**case-sizes=**")
    page.reload()
    says(page)
    assert chosen.input_value() == name
    chosen.select_option("gpt-oss-20b")
    says(page, model="gpt-oss-20b")
    chosen.select_option(name)
    says(page)
    tokens = page.get_by_role("textbox", name="tokens each")
    tokens.fill("0")
    expect(page.get_by_role("alert").first).to_contain_text("got 0; expected a number from 1 to 10,000,000")
    says(page)
    tokens.blur()
    expect(tokens).to_have_value("500")
    page.evaluate("location.hash = '#case-as=Llama-9'")
    expect(page.locator(".wid-advice")).to_contain_text("no such case-as here")
    assert problems == []


def test_a_card_of_ones_own_and_no_speed_where_a_model_does_not_fit(
    page: Page, opened: str, problems: list[str]
) -> None:
    page.locator(".wid-more > summary").click()
    for name, number in (("memory, GiB", "24"), ("bandwidth, GB/s", "1,008"), ("compute, TFLOP/s", "165")):
        page.get_by_role("textbox", name=name).fill(number)
    card = Card("your card", 24 * GIB, 165e12, 1008e9, "")
    took = unit(step_time(MODELS["Llama-3.1-8B"], card, 500, 64).total, "s")
    sentence = page.locator(".wid-sentence")
    expect(sentence).to_contain_text(f"Llama-3.1-8B on your card: a step takes at least {took}, or ")
    page.wait_for_url("**case-card=24,1008,165**")
    page.reload()
    expect(sentence).to_contain_text(took)
    page.get_by_role("textbox", name="memory").fill("none")
    expect(page.get_by_role("alert").first).to_contain_text("memory, GiB: got none; expected a number")
    page.get_by_role("textbox", name="memory").fill("12")
    expect(sentence).to_have_text("The weights of Llama-3.1-8B alone do not fit on your card.")
    expect(page.locator(".wid-panel")).not_to_contain_text("tokens a second")
    assert page.locator(".wid-span.step").count() == 0
    assert problems == []


@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}, "has_touch": True}])
def test_on_a_phone_nothing_sticks_out_and_a_finger_finds_all(page: Page, opened: str) -> None:
    page.locator(".wid-more > summary").click()
    page.locator("textarea").scroll_into_view_if_needed()
    expect(page.locator(".wid-sentence"), "it stays in sight").to_be_in_viewport(ratio=1)
    touched = page.locator(".wid-step_time :is(input, select, summary, .wid-fields button)")
    sizes = touched.evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(r => [r.width, r.height])"
    )
    assert min(high for _, high in sizes) >= 44
    assert min(wide for wide, _ in sizes) >= 44
    for width in (280, 390, 1200):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        out = page.locator(".wid-step_time").evaluate(
            "box => [...box.querySelectorAll('*')].filter(x => x.getBoundingClientRect().right > "
            "box.getBoundingClientRect().right + 1).map(x => x.outerHTML.slice(0, 80))"
        )
        assert out == [], width
