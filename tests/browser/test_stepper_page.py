"""The stepper in a Chromium, on the saved page: from disk, with the network off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from helpers.drawing.palette import THEMES
from helpers.stepper import Stepper
from helpers.trace import Trace
from tests.browser.conftest import Show
from tests.browser.stepper_page import grid, read, walk
from tests.expected import expected_marks
from tests.made_traces import (
    HOSTILE,
    SIZES,
    UNEQUAL,
    WALKED,
    every_look,
    kinds,
    record_toy,
)

pytestmark = pytest.mark.browser

NARROW_TO_WIDE = (280, 400, 940)
PALETTE = THEMES


@pytest.fixture
def open_page(show: Show) -> Show:
    """Open a trace's stepper where it begins, without motion."""

    def opened(trace: Trace, address: str = "", face: Any = "story", layer: int = 0, **options: Any) -> Page:
        hint = "getImageData"  # at the tests' own way of looking at the canvas
        options = {"reduced_motion": "reduce", "allowed": hint, **options}
        return show(Stepper(trace, face, layer=layer), address, **options)

    return opened


def root(page: Page) -> Any:
    return page.locator(".wid-stepper")


def at(page: Page, name: str = "event") -> Any:
    value = root(page).get_attribute(f"data-{name}")
    return int(value) if name == "event" else value


def chosen(page: Page) -> list[str]:
    """The word whose line is shown, above the lines of weights and in the ribbon."""
    return page.locator(".wid-caption .wid-word, .wid-said.chosen").all_text_contents()


def resize(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def at_each_pass(page: Page, check: str) -> list[Any]:
    """What a function of the page finds at every pass, with and without the cache."""
    found: list[Any] = page.evaluate(
        f"""() => {{
          const root = document.querySelector('.wid-stepper'), found = [];
          const press = (key) => root.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true }}));
          press('Home');
          for (let before = null; before !== root.dataset.event; press('ArrowRight')) {{
            before = root.dataset.event;
            for (const key of 'cc') {{
              press(key);
              found.push(...({check})());
            }}
          }}
          return found;
        }}"""
    )
    assert at(page) > 0
    return found


# Of so many looks one; what each of them has to show is proved in tests/js/walk.test.mjs.
WALKS: dict[str, tuple[int, dict[str, Any]]] = {
    "toy": (1, {"width": 1500}),
    "two": (1, {"width": 1500, "face": "lab"}),
    "layers": (7, {"width": 400, "face": "lab", "color_scheme": "dark"}),
    "heads": (3, {"width": 1500}),
    "n25": (3, {"width": 1500}),
    "n129": (2, {"width": 1500}),
}


@pytest.mark.parametrize("name", WALKS)
def test_states_show_the_trace(open_page: Show, name: str) -> None:
    trace, (every, options) = WALKED[name](), WALKS[name]
    theme = options.get("color_scheme", "light")
    walk(open_page(trace, **options), trace, every_look(trace)[::every], theme, "face" in options)


PAINTED = """([x, y, w, h]) => {
  const canvas = document.querySelector('.wid-canvas');
  const scale = canvas.width / canvas.clientWidth;
  const box = [x, y, w, h].map((n) => Math.round(n * scale));
  const { data } = canvas.getContext('2d').getImageData(...box);
  const hex = (i) => '#' + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, '0')).join('');
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add(hex(i));
  return [...found];
}"""


# How many pixels of a column of the canvas are painted as weights are, from a point down.
BAR = """([x, y, height]) => {
  const canvas = document.querySelector('.wid-canvas');
  const scale = canvas.width / canvas.clientWidth;
  const { data } = canvas.getContext('2d').getImageData(Math.round(x * scale), Math.round(y * scale), 1,
    Math.round(height * scale));
  return [...data.keys()].filter((i) => i % 4 === 3 && data[i] > 127).length / scale;
}"""
# Where a node of the board stands in the canvas's pixels.
BOX = """(([a, b]) => new DOMRect(a.x - b.x, a.y - b.y, a.width, a.height))(
  [node, node.closest('.wid-sheet')].map((one) => one.getBoundingClientRect()))"""
DRAWER = "[data-key=drawer]"


@pytest.mark.parametrize(("n", "theme"), [(25, "dark"), (300, "light")])
def test_regions_of_the_canvas(open_page: Show, n: int, theme: str) -> None:
    """Live rows are filled, those of earlier passes pale, those to come dots; K and V where they are kept."""
    # an edge of 1 px has a pixel of its own colour at two pixels a point
    page = open_page(SIZES[f"n{n}"](), width=1240, device_scale_factor=2, color_scheme=theme)
    size, first = min(n, 128), max(0, n - 128)  # the window ends with the newest
    row_h = max(3, min(14, 6720 // size / 16))
    names = {value: key for key, value in PALETTE[theme].items()}
    assert len(names) == len(PALETTE[theme]), "each colour is its own"
    left, right, top = page.locator(DRAWER).evaluate(f"(node) => [{BOX}.left, {BOX}.right, {BOX}.top]")
    left, width = left + 7, (right - left - 14) / size

    def found(box: list[float]) -> set[str]:
        return {names[colour] for colour in page.evaluate(PAINTED, box) if colour in names}

    def paints(i: int, j: int) -> set[str]:
        return found([left + (j - first) * width + 0.5, 32 + (i - first) * row_h, width - 1, row_h])

    def row_of(kind: str, j: int) -> set[str]:
        y = {"k": top + 11, "v": top + 40, "head": 15}[kind]
        return found([left + (j - first) * width, y, width, 8])

    root(page).press("End")
    last = n - 1
    if n == 25:
        rows = [sorted(row_of(kind, 3)) for kind in ("k", "v", "head")]
        assert rows == [["kf", "line"], ["line", "vf"], ["line"]]
        assert "gf" in row_of("head", last)
    assert "qf" in paints(last, last)
    assert paints(last - 1, last - 1) <= {"qp"}
    assert paints(last - 1, last) == set(), "nobody looks ahead"
    assert ("k" in row_of("k", last), "v" in row_of("v", last)) == (True, True)
    assert {"v", "vf"} & row_of("k", last - 1) == {"k", "kf"} & row_of("v", last - 1) == set(), "K is not V"
    if n == 25:  # columns of 4 px have no pixel of one colour alone
        assert "kf" in row_of("k", last - 1)
        assert "vf" in row_of("v", last - 1)
    root(page).press("c")
    assert "qf" not in paints(last - 1, last - 1), "again: hatched"
    assert {"q", "panel"} & paints(last - 1, last - 1)
    assert "kf" not in row_of("k", last - 1), "used and dropped"
    root(page).press("c")
    root(page).press("ArrowLeft")
    root(page).press("ArrowLeft")
    first = max(0, n - 1 - 128)  # the next word's column too
    assert "qf" in paints(last - 2, last - 2)
    assert paints(last - 1, first + 3) <= {"ring"}


def test_bars_and_ticks_stand_on_their_lines_and_columns(open_page: Show) -> None:
    trace = SIZES["n25"]()
    page = open_page(trace, width=1240)
    page.evaluate(
        """() => {
          window.ticks = [];
          CanvasRenderingContext2D.prototype.fillText = (text, x) => window.ticks.push([text, x]);
        }"""
    )
    root(page).press("End")
    left, right = page.locator(DRAWER).evaluate(f"(node) => [{BOX}.left + 7, {BOX}.right - 7]")
    label = page.locator(".wid-rowname").evaluate(f"(node) => {BOX}.top + node.offsetHeight / 2")
    assert label == pytest.approx(32 + 24.5 * 14, abs=1), "the chosen line's name stands beside it"
    ticks = page.evaluate("window.ticks")
    assert len(ticks) > 10
    for text, x in ticks:
        assert int(text) == 1 + (x - left) * 25 // (right - left)
    for head in (0, 1):
        weights = trace.weights[f"0.24.0.{head}"] / 65535
        middle = page.locator(f"[data-key=w{head}]").evaluate(f"(node) => {BOX}.top + node.offsetHeight / 2")
        for j, weight in enumerate(weights):
            x = left + (j + 0.5) * (right - left) / 25 - 1
            high = max(1.5, weight * 18) if weight * 25 >= 0.05 else 0
            assert page.evaluate(BAR, [x, middle - 12, 20]) == pytest.approx(high, abs=1), (head, j)


def test_past_128_tokens_a_window(open_page: Show) -> None:
    """Columns 173 to 300 of 300: what is drawn, clicked and pointed at is theirs."""
    trace = SIZES["n300"]()
    texts = [token.text for token in trace.sequences[0].tokens]
    page = open_page(trace, "#pass=3", width=1240)
    assert "173 to 300 of 300" in page.locator(".wid-pickers").inner_text()
    canvas = page.locator(".wid-canvas")
    left, right = page.locator(DRAWER).evaluate(f"(node) => [{BOX}.left + 7, {BOX}.right - 7]")

    def point(x: float, y: float) -> str:
        canvas.hover(position={"x": x, "y": y})
        return page.locator(".wid-readout").inner_text().replace("\u2068", "").replace("\u2069", "")

    itself = f"{texts[299]} attends to {texts[299]} with weight"
    assert point(right - 2, 32 + 127 * 3.25 + 1).startswith(itself)
    assert page.locator(".wid-said.lit").text_content() == texts[299]
    band = page.locator(".wid-lit-column").evaluate(f"(node) => {BOX}.left")
    assert band == pytest.approx(right - (right - left) / 128, abs=0.5)
    assert point(left + 2, 32 + 20 * 3.25 + 1).startswith(f"{texts[192]} attends to {texts[172]} with")
    canvas.click(position={"x": left + 2, "y": 32 + 20 * 3.25 + 1})
    assert chosen(page) == [texts[192]] * 2
    page.get_by_role("slider", name="First column shown").fill("0")
    assert "1 to 128 of 300" in page.locator(".wid-pickers").inner_text()
    assert point(left + 2, 1).startswith(f"{texts[192]} attends to {texts[0]} with")
    root(page).press("Home")
    assert "172 to 299 of 300" in page.locator(".wid-pickers").inner_text(), "the next word's column too"
    page.locator('[data-token="5"]').click()
    assert chosen(page) == [texts[5]] * 2


def test_the_keyboard_does_everything(open_page: Show) -> None:
    page = open_page(record_toy(n_layers=2))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "wid-view wid-stepper wid-live"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key, event in (("ArrowRight", 2), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0), ("End", 2)):
        page.keyboard.press(key)
        assert at(page) == event
    ups_and_downs = {"ArrowUp": ["so", "is"], "ArrowDown": ["so", "nice", "nice"]}
    for key, word in ((key, word) for key, words in ups_and_downs.items() for word in words):
        page.keyboard.press(key)
        assert chosen(page) == [word] * 2
    page.keyboard.press("c")
    assert at(page, "cache") == "off"
    page.keyboard.press("Control+c")
    assert at(page, "cache") == "off"
    stops = []
    for _ in range(23):
        page.keyboard.press("Tab")
        found, outline = page.evaluate(
            """() => [document.activeElement.getAttribute('aria-label') || document.activeElement.textContent,
              getComputedStyle(document.activeElement).outlineStyle]"""
        )
        stops.append(found)
        assert outline == "solid", stops[-1]
    wanted = ["Story", "Lab", "Decode 1", "Back", "Next", "Play", "Pass", "1", "2", "mean"]
    names = ["even", "newest", "first", "all", "on", "off"]
    assert stops[:-1] == [*wanted, *names, "nice", "Today", "weather", "is", "so", "nice"]
    assert stops[-1].startswith("Step through it in the lab")
    page.locator(".wid-rail [aria-current]").focus()
    for key, name in (("ArrowLeft", "Prefill"), ("Home", "Training"), ("End", "Decode 1")):
        page.keyboard.press(key)  # one stop: arrows go along it, and the focus with them
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == name
        assert page.locator(".wid-rail [tabindex='0']").all_text_contents() == [name]
    page.locator('[data-token="4"]').focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.token") == "3", "the focus goes with the line"
    page.keyboard.press("ArrowLeft")
    assert (at(page), chosen(page)) == (1, ["so"] * 2)


def test_lines_are_chosen_on_the_board_and_in_the_ribbon(open_page: Show) -> None:
    page = open_page(record_toy())
    row = page.locator(".wid-labels").get_by_role("button", name="weather")
    row.focus()
    page.keyboard.press("Enter")
    assert row.get_attribute("aria-pressed") == "true"
    assert chosen(page) == ["weather"] * 2
    page.keyboard.press("ArrowRight")
    assert chosen(page) == ["nice"] * 2, "a step chooses the last live row again"
    for key, word in (("c2.1", "is"), ("c1.0", "weather")):
        page.locator(f'[data-key="{key}"]').click(position={"x": 5, "y": 5})
        assert chosen(page) == [word] * 2, "an untouched row's weights are in the record"
    assert "thrown away after prefill" in page.locator(".wid-caption").inner_text()
    page.locator(".wid-ribbon").get_by_role("button", name="so").focus()
    page.keyboard.press("Enter")
    assert chosen(page) == ["so"] * 2
    page.get_by_role("button", name="Back").click()
    assert page.locator(".wid-ribbon").get_by_role("button", name="nice").is_disabled(), "it has not run yet"
    assert page.locator(".wid-said.emitted").all_text_contents() == ["nice"]
    resize(page, 400)
    expect(page.locator(".wid-contexts .chosen .wid-word")).to_have_text("so")


def test_a_window_a_state_and_a_layer_that_keeps_nothing(open_page: Show) -> None:
    """Rows that left a window are a line; a state is one block where rows would be; its grid is empty."""
    page = open_page(kinds(), "#pass=3")
    layer, drawer = page.get_by_role("group", name="Layer"), page.locator(".wid-drawername")
    for number, name, rows, block in (
        ("1", "KV cache · full attention", 2 * 8, None),
        ("2", "KV cache · sliding attention", 2 * 8, None),
        ("3", "no KV entries · linear attention", 0, "state 2 × 3 × 4, convolution 6 × 3 numbers: rewritten"),
        ("4", "no KV entries · mlp", 0, "nothing is kept"),
    ):
        layer.get_by_role("button", name=number).click()
        expect(drawer).to_have_text(name)
        expect(page.locator(".wid-row[data-key]")).to_have_count(rows)
        expect(page.locator(".wid-row.evicted[data-key]")).to_have_count(2 * 4 if number == "2" else 0)
        expect(page.locator(".wid-cell.now[data-key]")).to_have_count({"1": 7, "2": 3}.get(number, 0))
        if block:
            expect(page.locator(".wid-state")).to_contain_text(block)
            over, cut = page.locator(".wid-state").bounding_box(), page.locator(".wid-drawer").bounding_box()
            assert over is not None
            assert cut is not None
            assert cut["y"] < over["y"]
            assert over["y"] + over["height"] < cut["y"] + cut["height"]


def test_a_head_that_a_layer_has_not_cannot_be_chosen(open_page: Show) -> None:
    page = open_page(UNEQUAL["layers"]())
    head, layer = (page.get_by_role("group", name=name) for name in ("Head", "Layer"))
    head.get_by_role("button", name="newest").click()
    for number, pressed, can in (("3", "newest", True), ("4", "mean", False), ("1", "newest", True)):
        layer.get_by_role("button", name=number).click()
        assert read(page)["pressed"][1:3] == [number, pressed]
        assert head.get_by_role("button", name="newest").is_enabled() == can


def test_what_belongs_together_lights_up(open_page: Show) -> None:
    page = open_page(record_toy(n_layers=2), "#pass=3", width=1240)
    lit = "() => [...document.querySelectorAll('.lit')].map((n) => n.dataset.key ?? n.dataset.token).sort()"
    readout = page.locator(".wid-readout")
    idle = readout.inner_text()
    page.locator('[data-key="w0.1s"]').hover()
    both = ["1", "c4.1", "ctx4.0", "h1", "k1", "v1", "t0.1", "w0", "w0.1d", "w0.1s", "b4"]
    assert page.evaluate(lit) == sorted(both)
    soft = page.locator(".wid-contextrow span.soft")
    expect(soft, "those of the chosen line").to_have_count(0)
    assert "with weight 0.5 (even); it adds 0.5 × 20 = 10 to the context" in readout.inner_text()
    page.locator('[data-token="3"]').focus()
    words = page.evaluate(lit)
    assert {"3", "h3", "k3", "v3", "c4.3", "w0.3s", "w3.3d"} <= set(words)
    assert "1" not in words
    page.mouse.move(2, 2)
    page.locator(".wid-ribbon").dispatch_event("pointerleave")
    page.evaluate("document.activeElement.blur()")
    assert (page.evaluate(lit), readout.inner_text()) == ([], idle)


def test_without_the_mask_what_stands_to_the_right_would_be_seen(open_page: Show) -> None:
    """Outlined squares without a weight, and a sentence that says what would go wrong."""
    page = open_page(record_toy(), face="lab")
    sentence, cells = page.locator(".wid-ahead"), page.locator(".wid-cell.ahead:not(.wid-key)")
    before = read(page)
    expect(sentence).to_be_hidden()
    page.get_by_role("group", name="Left only").get_by_role("button", name="off").click()
    right = [[f"c{i}.{j}", "", False, "dashed"] for i in range(4) for j in range(i + 1, 4)]
    shown = """(nodes) => nodes.map((node) => [node.dataset.key, node.textContent,
      node.style.cssText.includes('side'), getComputedStyle(node).borderTopStyle])"""
    assert cells.evaluate_all(shown) == right
    expect(sentence).to_contain_text("Without the mask, 6 more pairs")
    assert sentence.get_attribute("role") == "status"
    expect(page.locator(".wid-recorded .wid-legend")).to_contain_text("seen without the mask")
    assert "would also see" in read(page)["words"][1]
    for key, many in (("End", 0), ("c", 10)):
        root(page).press(key)
        expect(cells).to_have_count(many)
    for key in ("c", "Home", "m"):
        root(page).press(key)
    assert read(page) == before
    few = open_page(record_toy(), "#mask=off")
    expect(few.locator(".wid-advice")).to_contain_text("no such mask here")
    root(few).press("m")
    expect(few.locator(".wid-cell.ahead")).to_have_count(0)


BURST = """() => {
  const [back, next] = document.querySelectorAll('.wid-buttons button');
  const cache = document.querySelectorAll('[aria-label="KV cache"] button');
  for (let i = 0; i < 200; i++) [next, next, cache[i % 2], back][i % 4].click();
  document.querySelector('.wid-rail [data-event="3"]').click();
  cache[0].click();
}"""


COUNT_MOTIONS = """() => {
  const { animate } = Element.prototype;
  Element.prototype.animate = function (...how) {
    window.motions += 1;
    window.emptied += how[0].some((frame) => frame.offset > 0);
    if (this.matches('.wid-said')) window.flown = this.dataset.token;
    return animate.apply(this, how);
  };
}"""


def test_motion_ends_where_no_motion_ends(open_page: Show) -> None:
    """A step moves for half a second; a burst of 200 clicks leaves nothing; no motion ends the same."""
    trace = record_toy(ban_eos=True)
    still, moving = (open_page(trace, reduced_motion=motion) for motion in ("reduce", "no-preference"))
    for page in (still, moving):
        page.evaluate(COUNT_MOTIONS)
    for cached in (True, False):
        for page in (still, moving):
            page.evaluate("window.motions = window.emptied = 0")
            root(page).press("Home")
            root(page).press("ArrowRight")
        moving.wait_for_timeout(700)
        for page in (still, moving):
            root(page).press("ArrowRight")
        assert [page.evaluate("window.motions > 0") for page in (still, moving)] == [False, True], cached
        assert moving.evaluate("window.emptied > 0") != cached, "without the cache it is emptied first"
        assert moving.evaluate("window.flown") == "5", "the word that comes out"
        moving.wait_for_function("() => document.getAnimations().length === 0")
        assert read(moving) == read(still)
        root(moving).press("c")
        root(still).press("c")
    marks = [[m.replace("×", "") for m in row] for row in expected_marks(trace, "cached", 3)]
    for page in (still, moving):
        page.evaluate(BURST)
        shown = read(page)
        assert (grid(shown, 6), shown["rail"]) == (marks, ["Decode 2"])
    moving.wait_for_function("() => document.getAnimations().length === 0")
    assert read(moving) == read(still)


def test_every_state_has_an_address(open_page: Show) -> None:
    """Each field joins the address in its turn, on whichever page it is opened."""
    trace = UNEQUAL["layers"]()
    page, other = (open_page(trace, face="lab") for _ in range(2))
    page.clock.install()
    address = ""
    changes: dict[str, Callable[[], None]] = {
        "layer": page.locator('[aria-label="Layer"] button').nth(1).click,
        "head": page.locator('[aria-label="Head"] button:enabled').nth(1).click,
        "cache": lambda: root(page).press("c"),
        "pass": lambda: root(page).press("ArrowRight"),
        "line": lambda: root(page).press("ArrowUp"),
        "mask": lambda: root(page).press("m"),
    }
    for name, change in changes.items():
        change()
        page.clock.run_for(320)  # browsers refuse an address that changes all the time
        assert f"{name}=" not in address
        address = page.evaluate("location.hash")
        assert f"{name}=" in address
        other.evaluate("(hash) => { location.hash = hash; }", address)
        assert read(other) == read(page), address
        assert other.locator(".wid-advice").is_hidden()
    assert read(open_page(trace, address, face="lab")) == read(page)
    for _ in range(2):
        root(page).press("m")
        root(page).press("c")
    page.evaluate("() => { location.hash = ''; }")
    assert read(page) == read(open_page(trace, face="lab")), "none: as at first"


ADDRESSES = {
    "#pass=9&layer=9": (["4", "on", "3"], "pass, layer"),
    "#pass=0": (["0", "on", "0"], "pass"),
    "#layer=2": (["1", "on", "0"], "layer"),
    "#pass=x&cache=maybe": (["1", "on", "0"], "cache, pass"),
    "#cache=off&pass": (["1", "off", "0"], "pass"),
    "#head=9&line=99": (["1", "on", "0"], "head, line"),
    "#head=<img src=x>&pass=%E0%A4%A": (["1", "on", "0"], "pass, head"),
    "#unknown=1&pass=3": (["2", "on", "0"], ""),
}


def test_addresses_made_by_hand(open_page: Show) -> None:
    page = open_page(UNEQUAL["layers"](), next(iter(ADDRESSES)))
    advice = page.locator(".wid-advice")
    for address, (state, wrong) in ADDRESSES.items():
        page.evaluate("(hash) => { location.hash = hash; }", address)
        assert read(page)["at"][:3] == state
        assert advice.is_visible() == bool(wrong)
        assert f" no such {wrong} here" in (advice.text_content() or "") or not wrong


# What does not fit: a page or a part of the stepper that scrolls sideways, words and numbers that are cut.
UNFIT = """() => {
  const parts = '.wid-stepper > :not(.wid-board, .wid-unseen), .wid-head';
  const all = (selector, bad) => [...document.querySelectorAll(selector)].filter(bad)
    .map((node) => `${node.className}: ${node.textContent}`);
  const cut = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const [text, box] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
    const room = node.closest('.wid-rowname')?.getBoundingClientRect() ?? box;
    const most = node.matches('.wid-row') ? node.clientWidth - 1 : box.width + 0.5;
    return text.width > 0 && (text.width > most || text.left < room.left - 0.5);
  };
  return [
    ...(document.documentElement.scrollWidth > innerWidth ? ['the page'] : []),
    ...all(parts, (node) => node.scrollWidth > node.clientWidth + 1),
    ...all('.wid-row:not(.wid-key)', (node) => node.scrollWidth > node.clientWidth),
    ...all('.wid-row:not(.wid-key), .wid-rowname *, .wid-percent, .wid-said', cut),
  ];
}"""


def sure_of(trace: Trace) -> Trace:
    """The trace with a word at 100.0%: the widest there is."""
    for event in (event for run in trace.runs for event in run.passes):
        for out in event.parts[0].out:
            out.top = [(word, x, float(word == "nice")) for word, x, _ in out.top]
    return trace


FITTED: dict[str, tuple[Callable[[], Trace], str]] = {
    "1 word": (lambda: sure_of(record_toy(ban_eos=True, max_new_tokens=1)), "story"),
    "8 words": (lambda: sure_of(record_toy(ban_eos=True, max_new_tokens=8)), "story"),
    "hostile": (lambda: record_toy(HOSTILE, numbers=list(range(8))), "lab"),
    **{name: (WALKED[name], "lab") for name in ("layers", "n300")},
}


@pytest.mark.parametrize("name", FITTED)
def test_all_fits_at_every_width(open_page: Show, name: str) -> None:
    make, face = FITTED[name]
    check = UNFIT if face == "story" else UNFIT.replace(", .wid-rowname *", "")  # longer words are cut
    page = open_page(make(), width=NARROW_TO_WIDE[0], face=face)
    page.locator(".wid-more").evaluate_all("(all) => all.forEach((fold) => { fold.open = true; })")
    for width in NARROW_TO_WIDE:
        resize(page, width)
        assert at_each_pass(page, check) == [], width


# Where buttons, pickers, ribbon and board stand, in every layer.
PLACES = """() => {
  const still = '.wid-live > .wid-controls :is(button, input, select), .wid-board, .wid-ribbon, .wid-say';
  return [...document.querySelectorAll('[aria-label=Layer] button')].map((layer) => {
    layer.click();
    return [...document.querySelectorAll(still)].map((node) => {
      const { left, top, width } = node.getBoundingClientRect();
      return [left + scrollX, top + scrollY, width].map(Math.round).join();
    }).join(' ');
  });
}"""


def test_controls_stay_where_they_are(open_page: Show) -> None:
    page = open_page(WALKED["layers"]())
    for width in (400, 940):
        resize(page, width)
        assert len(set(at_each_pass(page, PLACES))) == 1


def test_hostile_text_is_text(open_page: Show) -> None:
    page = open_page(record_toy(HOSTILE, numbers=list(range(8)), ban_eos=True, max_new_tokens=2), "#pass=3")
    shown = read(page)
    for words in ([head[0] for head in shown["heads"]], [word[0] for word in shown["ribbon"]]):
        assert words[:4] == [*HOSTILE[:2], "U+202Eשלום", "U+200B"]
        assert words[5] == "x" * 200
    assert page.locator(".wid-head").nth(5).get_attribute("title") == "x" * 200
    assert page.locator(".wid-stepper img, .wid-stepper script").count() == 0
    assert page.locator(".wid-head bdi").count() == 9
    assert page.locator(".wid-said bdi").count() == len(shown["ribbon"])


def test_legend_titles_and_what_is_heard(open_page: Show) -> None:
    page = open_page(record_toy())
    found = "(nodes) => nodes.map((node) => [node.firstChild.className ?? '', node.lastChild.textContent])"
    cells = {"now": "this pass", "earlier": "an earlier pass", "masked": "masked", "again": "again"}
    rows = {"written": "written", "read": "read", "made": "dropped"}
    assert page.locator(".wid-legend li").evaluate_all(found) == [
        *([f"wid-cell {kind} share wid-key", word] for kind, word in cells.items()),
        *([f"wid-row v {state} wid-key", word] for state, word in rows.items()),
        ["", "area of a square: attention weight"],
    ]
    for kind in "kv":
        title = page.locator(f'[data-key="{kind}1"]').get_attribute("title")
        assert title == f"{kind.upper()} of \u2068weather\u2069: written"
    titles = page.locator(".wid-head").evaluate_all("(nodes) => nodes.map((node) => node.title)")
    assert titles == ["Today", "weather", "is", "so", "nice"]
    back, forth = (page.get_by_role("button", name=name, exact=True) for name in ("Back", "Next"))
    for key, ends in (("Home", ["true", "false"]), ("ArrowRight", ["false"] * 2), ("End", ["false", "true"])):
        root(page).press(key)
        assert [one.get_attribute("aria-disabled") for one in (back, forth)] == ends
    assert page.locator(".wid-sentence").get_attribute("aria-live") == "polite"
    tree = root(page).aria_snapshot()
    switches = ('group "KV cache"', 'button "on" [pressed]', 'group "Head"', 'button "mean" [pressed]')
    places = ('slider "Pass"', 'list "Passes"', 'group "The text so far')
    for heard in (*switches, *places, "Only", "KV entries stored", "Attention weights of"):
        assert heard in tree
    assert "0 · 1" not in tree, "cells are drawings; the words beside them say the same"
