"""Story and lab in a Chromium: what they say at each pass is what Python counts, and an address holds it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from helpers.recording.diary import load_diary
from helpers.stepper import Stepper
from tests.browser.conftest import page_of

pytestmark = pytest.mark.browser

Shown = Callable[..., Locator]


@pytest.fixture
def show(page: Page, tmp_path: Path) -> Shown:
    """Open the diary's stepper, with a face, at an address."""

    def opened(face: Any = "story", address: str = "") -> Locator:
        path = tmp_path / f"{face}.html"
        path.write_text(page_of(Stepper(load_diary(), face)), encoding="utf-8")
        page.goto(path.as_uri() + address)
        return page.locator(".wid-stepper")

    return opened


# Of passes behind 1,000 tokens: time and bound, and of each count what this pass adds and what has added up.
PASSES = [
    ("15.4 ms", "compute-bound", "1,000 0 500,500 0 0 0 0 0 0 0 0 0"),
    ("14.4 ms", "compute-bound", "1,000 1,000 500,500 500,500 1,000 1,000 0 0 0 0 0 0"),
    ("4.52 ms", "memory-bound", "1 1,001 1,001 501,501 1 1,001 1,000 1,000 1,000 1,000 500,500 500,500"),
    ("4.52 ms", "memory-bound", "1 1,002 1,002 502,503 1 1,002 1,001 2,001 1,001 2,001 501,501 1,002,001"),
    ("4.52 ms", "memory-bound", "1 1,003 1,003 503,506 1 1,003 1,002 3,003 1,002 3,003 502,503 1,504,504"),
]
AGAIN = ("14.4 ms", "compute-bound", "1,001 2,001 501,501 1,002,001 0 0 0 0 1,000 1,000 500,500 500,500")
MISTRAL = "1 10,001 4,096 32,577,536 1 10,001 4,095 4,095 10,000 10,000 32,573,440 32,573,440"


def says_lab(view: Locator, time: str, bound: str, counts: str) -> None:
    """Time, bound and counts at a pass; that they are right is proved in tests/js."""
    answer = view.locator(".wid-panel .wid-sentence")
    expect(answer).to_contain_text(f"at least {time}")
    expect(answer).to_contain_text(bound)
    expect(view.locator(".wid-counts tbody td")).to_have_text(counts.split())


def test_the_story_says_the_bound_and_one_press_leads_to_the_lab(
    show: Shown, page: Page, problems: list[str]
) -> None:
    view = show()
    line = "Llama-3.1-8B on H100, at least 4.48 ms, memory-bound: "
    expect(view.locator(".wid-cost")).to_contain_text(line)
    view.get_by_role("button", name="Next").click()
    view.press("Home")
    view.press("ArrowRight")
    view.get_by_role("button", name="in the lab, as if the prompt had 1,000 tokens").click()
    expect(view.get_by_role("button", name="Lab")).to_have_attribute("aria-pressed", "true")
    expect(view.locator(".wid-rail [aria-current]")).to_have_text("Training")
    for shown in PASSES[:4]:
        says_lab(view, *shown)
        view.get_by_role("button", name="Next").click()
    expect(page).to_have_url(re.compile("#(?=.*panels=lab)(?=.*pass=5)"))  # in either order
    page.reload()
    says_lab(view, *PASSES[4])
    view.press("l")
    expect(view.locator(".wid-rail [aria-current]"), "the pass stays").to_have_text("3")
    assert problems == []


def test_the_lab_shows_at_once_what_it_counts(show: Shown, page: Page) -> None:
    view = show("lab")
    expect(view.locator(".wid-top")).to_contain_text("for a prompt of 1,000 tokens")
    expect(view.locator(".wid-top")).to_contain_text("has a prompt of 23.")
    for name in (".wid-panel", ".wid-formula", ".wid-counts", ".wid-shapes", ".wid-drawer", ".wid-canvas"):
        assert view.locator(f"{name}:visible").count() == 1, name
        assert view.locator(f"details {name}").count() == 0, "in no fold"
    view.get_by_role("button", name="Decode 1", exact=True).click()
    terms = ["Q1 × 128", "Kᵀ128 × 1,001", "mask1 × 1,001", "V1,001 × 128", "contexts1 × 128"]
    assert view.locator(".wid-term").all_text_contents() == terms
    described = view.locator(".wid-formula").get_attribute("aria-label")
    assert described is not None
    assert "Q, 1 by 128, times K transposed, 128 by 1,001, plus the mask, 1 by 1,001" in described
    shapes = view.locator(".wid-shapes td").all_text_contents()
    assert shapes[3:5] == ["8 × 1,001 × 128", "32 × 1 × 1,001"]
    expect(view.locator(".wid-insight")).to_contain_text("which in prefill 1,000 tokens shared")
    view.press("c")
    says_lab(view, *AGAIN)
    expect(view.locator(".wid-counts")).to_contain_text("tokens processed again")


def test_the_choices_move_the_bound_and_the_address_keeps_them(show: Shown, page: Page) -> None:
    view = show("lab", "#pass=3")
    view.get_by_role("textbox", name="prompt tokens").fill("10,000")
    view.get_by_role("textbox", name="users").fill("64")
    view.get_by_role("combobox", name="card").select_option("A100")
    view.get_by_role("combobox", name="model").select_option("Mistral-7B v0.1")
    says_lab(view, "23.8 ms", "memory-bound", MISTRAL)
    expect(view.locator(".wid-counts caption")).to_contain_text("with a window of 4,096 tokens")
    page.wait_for_url(re.compile("as=Mistral"))  # chosen last
    address = page.evaluate("location.hash")
    assert dict(pair.split("=") for pair in address[1:].split("&")) == {
        **{"pass": "3", "as": "Mistral-7B+v0.1", "on": "A100", "text": "10000", "users": "64"}
    }
    view = show("story", f"{address}&panels=lab")
    says_lab(view, "23.8 ms", "memory-bound", MISTRAL)
    view.get_by_role("button", name="Story").click()
    expect(view.locator(".wid-cost")).to_contain_text("Mistral-7B v0.1 on A100")
    view = show("story", "#panels=lab&text=recorded&pass=2")
    says_lab(view, "4.48 ms", "memory-bound", "23 23 276 276 23 23 0 0 0 0 0 0")
    expect(view.locator(".wid-top")).to_contain_text("for the recorded run, which has a prompt of 23 tokens")
    assert view.locator(".wid-advice").is_hidden()
    view = show("story", "#panels=tale&text=0")
    expect(view.locator(".wid-advice")).to_contain_text("no such panels, text here")
    expect(view.locator(".wid-cost")).to_be_visible()


CROSSES = """(canvas) => {
  const strokes = [];
  const { stroke } = CanvasRenderingContext2D.prototype;
  const { moveTo } = Path2D.prototype;
  const many = new WeakMap();
  Path2D.prototype.moveTo = function (...at) {
    many.set(this, (many.get(this) ?? 0) + 1);
    moveTo.apply(this, at);
  };
  CanvasRenderingContext2D.prototype.stroke = function (path) {
    if (path) strokes.push(many.get(path) ?? 0);
    path ? stroke.call(this, path) : stroke.call(this);
  };
  window.crosses = () => strokes.at(-1);
}"""


def test_each_hidden_cell_has_its_cross_on_the_canvas_too(show: Shown, page: Page) -> None:
    view = show("lab", "#pass=2")
    page.evaluate(CROSSES)
    for key, hidden in (("Home", 23 * 22 // 2), ("ArrowRight", 23 * 22 // 2), ("ArrowRight", 0)):
        view.press(key)
        assert page.evaluate("window.crosses()") == 2 * hidden, "two strokes each"
    view.press("c")
    assert page.evaluate("window.crosses()") == 2 * (24 * 23 // 2), "without the cache all lines run"
    expect(view.locator(".wid-legend .masked").first).to_be_visible()
    view.press("l")
    view.press("ArrowLeft")
    assert view.locator(".wid-legend .masked").count() == 0, "none in the story, at this size"


def test_a_touch_beside_a_full_stop_chooses_it(show: Shown, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 740})
    view = show()
    stops = view.locator(".wid-said", has_text=re.compile(r"^\.$"))
    for n in range(3):  # behind the fourth stands a word as short
        stop = stops.nth(n)
        token = stop.get_attribute("data-token")
        x, y, narrow = stop.evaluate(
            "(one) => { one.scrollIntoView({ block: 'center' }); const box = one.getBoundingClientRect();"
            " return [box.left + box.width / 2, box.top + box.height / 2, box.width]; }"
        )
        assert narrow < 24
        for dx, dy in ((0, 0), (-11, 0), (11, 0), (0, -11), (0, 11)):
            found = page.evaluate(
                "([x, y]) => document.elementFromPoint(x, y)?.closest('[data-token]')?.dataset.token",
                [x + dx, y + dy],
            )
            assert found == token, (n, dx, dy)


TOO_SMALL = """(view) => [...view.querySelectorAll('button, select, input')]
  .filter((one) => one.checkVisibility() && !one.matches('.wid-said') && one.offsetHeight < 40)
  .map((one) => `${one.className} ${one.textContent}`)"""


@pytest.mark.parametrize("size", [(390, 844), (844, 390)])
def test_on_a_phone_the_controls_and_the_cache_stay_in_sight(
    show: Shown, page: Page, size: tuple[int, int]
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    view = show()
    view.locator(".wid-foot").evaluate("(one) => one.scrollIntoView({ block: 'end' })")
    forward, held = view.get_by_role("button", name="Next"), view.locator(".wid-held")
    for written, read in ((23, 0), (1, 23), (1, 24)):
        expect(held).to_contain_text(f"{read} entries read" if read else f"{written} entries written")
        assert (held.locator(".written").count(), held.locator(".read").count()) == (written, read)
        expect(forward).to_be_in_viewport(ratio=1)
        expect(held).to_be_in_viewport(ratio=1)
        next_box, held_box = forward.bounding_box(), held.bounding_box()
        assert next_box
        assert held_box
        assert held_box["y"] - (next_box["y"] + next_box["height"]) < 40
        forward.click()
    assert view.evaluate(TOO_SMALL) == []
