"""The stepper in a Chromium, on the saved page: from disk, with the network off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, expect

from helpers.recording.toy import record_toy
from helpers.stepper import Stepper
from helpers.trace import Pass, Trace, spread
from tests.expected import expected_marks
from tests.test_stepper import DROP, HOSTILE, SWAP, with_event, with_fewer_passes

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
SIGNS = {"now": "●", "earlier": "○", "masked": "×"}

READ = """() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
  const cells = {};
  for (const node of document.querySelectorAll('[data-cell]'))
    cells[node.dataset.cell] = [node.className.replace('wid-cell', '').trim(), node.textContent];
  const rows = {};
  for (const node of document.querySelectorAll('[data-row]'))
    rows[node.dataset.row] =
      [node.className.replace(/wid-row|\\b(k|v|said)\\b/g, '').trim(), node.textContent];
  const root = document.querySelector('.wid-stepper');
  return {
    event: Number(root.dataset.event), cache: root.dataset.cache, layer: Number(root.dataset.layer),
    sentence: document.querySelector('.wid-sentence').textContent,
    cells, rows,
    live: [...document.querySelectorAll('.wid-head')].map((node) => node.classList.contains('live')),
    heads: texts('.wid-head .wid-word'),
    names: texts('.wid-rowname .wid-word'),
    candidates: texts('.wid-candidate .wid-word'),
    percents: texts('.wid-candidate .wid-percent'),
    chosen: texts('.wid-candidate.chosen .wid-word'),
    work: texts('[data-work]'),
    ledger: texts('.wid-text.ledger'),
    numbers: texts('.wid-text.number'),
    targets: texts('.wid-text.target'),
    foot: document.querySelector('.wid-foot').textContent,
    words: document.querySelector('.wid-unseen').textContent,
    current: texts('.wid-rail [aria-current]'),
  };
}"""


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Save a stepper's page and open it from disk, offline; every console message is a failure."""
    contexts: list[BrowserContext] = []
    messages: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if "getImageData" not in message.text:  # a hint at the tests' own way of looking at the canvas
            messages.append(message.text)

    def dismiss(dialog: Dialog) -> None:
        messages.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def opened(
        trace: Trace, *, width: int = 940, dark: bool = False, motion: str = "no-preference", **options: Any
    ) -> Page:
        path = tmp_path / f"{len(contexts)}.html"
        Stepper(trace, **options).save_html(path, before="Before.", after="After.")
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            offline=True,
            color_scheme="dark" if dark else "light",
            reduced_motion=motion,  # type: ignore[arg-type]
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", dismiss)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert messages == []


def read(page: Page) -> dict[str, Any]:
    return page.evaluate(READ)


def root(page: Page) -> Any:
    return page.locator(".wid-stepper")


def grid(shown: dict[str, Any], size: int) -> list[list[str]]:
    """The grid on the page in the static form's symbols."""

    def mark(key: str) -> str:
        state, text = shown["cells"].get(key, ("", ""))
        return text if state == "again" else SIGNS.get(state, "")

    return [[mark(f"{i},{j}") for j in range(size)] for i in range(size)]


def check_pass(page: Page, trace: Trace, index: int, name: str) -> None:
    """What the page shows at a pass is what the trace holds."""
    shown = read(page)
    event = trace.run(name).events[index]
    assert isinstance(event, Pass)
    part = event.parts[0]
    size = max(part.queries) + 1
    assert shown["event"] == index
    assert grid(shown, size) == expected_marks(trace, name, index)
    assert [j for j, live in enumerate(shown["live"]) if live] == part.queries
    states = {"written": part.written, "read": part.read}
    for state, ranges in states.items():
        for kind in "kv":
            rows = [
                int(key[1:]) for key, (found, _) in shown["rows"].items() if found == state and key[0] == kind
            ]
            assert rows == spread(ranges)
    plain = trace.run("uncached").passes[index].counts
    for said, count in zip(shown["work"], ("positions", "pairs"), strict=True):
        avoided = plain[count] - event.counts[count]
        assert said == f"{event.counts[count]} of {plain[count]}" + (
            f", {avoided} avoided" if avoided else ""
        )
    assert f"rows stored {part.kept[1]} · rows read in this pass {event.counts['rows_read']}" in shown["foot"]
    if part.out:
        out = part.out[0]
        assert shown["candidates"] == [word for word, _, _ in out.top]
        assert shown["percents"] == [f"{100 * p:.1f}%" for _, _, p in out.top]
        assert shown["chosen"] == [trace.sequences[0].tokens[out.chosen].text]
    if part.target:
        words = [trace.sequences[0].tokens[target].text for target in part.target]
        assert shown["targets"] == [f"→ {word}" for word in words]


@pytest.mark.parametrize("make", [record_toy, lambda: record_toy(n_layers=2)], ids=["toy", "two layers"])
@pytest.mark.parametrize("name", ["cached", "uncached"])
def test_every_pass_shows_the_trace(open_page: Open, make: Callable[[], Trace], name: str) -> None:
    trace = make()
    page = open_page(trace, start=0, cache=name == "cached")
    for index in range(len(trace.runs[0].events)):
        check_pass(page, trace, index, name)
        page.locator(".wid-go").evaluate("(button) => button.click()")


def test_the_long_run_step_by_step(open_page: Open) -> None:
    trace = record_toy(ban_eos=True)
    page = open_page(trace, start=1, cache=False, width=1240)
    for index in range(1, len(trace.runs[0].events)):
        shown = read(page)
        assert grid(shown, 3 + index) == expected_marks(trace, "uncached", index)
        root(page).press("ArrowRight")
    assert "positions run so far: 60" in read(page)["foot"]
    root(page).press("c")
    shown = read(page)
    assert shown["ledger"] == ["11 cached = 4 prompt + 8 emitted − 1"]
    assert "positions run so far: 11 with the cache, 60 without" in shown["foot"]


def test_numbers_of_the_decode_step(open_page: Open) -> None:
    shown = read(open_page(record_toy(), start=2))
    numbers = shown["numbers"]
    for text in ("0.5 × 20 + 0.5 × 5 = 12.5", "1 × 14 = 14", "1 × 10 = 10", "average of 5 = 10"):
        assert text in numbers
    assert [n for n in numbers if n in ("12.5", "14", "10")] == ["12.5", "14", "10", "10"]
    assert [n for n in numbers if n in ("0.5", "1", "0.2")] == ["0.5", "0.5", "1", "1", *["0.2"] * 5]
    assert [shown["rows"][f"v{j}"][1] for j in range(5)] == ["10", "20", "1", "5", "14"]
    assert [shown["rows"][f"k{j}"][1] for j in range(5)] == [
        "no · 1",
        "yes · 2",
        "no · 3",
        "yes · 4",
        "no · 5",
    ]
    assert shown["ledger"] == ["5 cached = 4 prompt + 2 emitted − 1"]


def test_the_keyboard_does_everything(open_page: Open) -> None:
    page = open_page(record_toy(n_layers=2), start=1)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "wid-stepper wid-live"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key, event in (("ArrowRight", 2), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0), ("End", 2)):
        page.keyboard.press(key)
        assert read(page)["event"] == event
    page.keyboard.press("c")
    assert read(page)["cache"] == "off"
    page.keyboard.press("Control+c")
    assert read(page)["cache"] == "off"
    stops = []
    for _ in range(16):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
            )
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", stops[-1]
    wanted = ["Training", "Prefill", "Decode 1", "1", "2", "on", "off", "Back", "Next", "Play", "Pass"]
    assert stops == [*wanted, "Today", "weather", "is", "so", "nice"]


def test_enter_on_a_row_shows_its_weights(open_page: Open) -> None:
    page = open_page(record_toy(), start=1)
    row = page.get_by_role("button", name="weather")
    row.focus()
    page.keyboard.press("Enter")
    assert row.get_attribute("aria-pressed") == "true"
    assert page.locator(".wid-caption .wid-word").text_content() == "weather"
    assert "average of 2" not in read(page)["numbers"]
    assert "0.5 × 10 + 0.5 × 20 = 15" in read(page)["numbers"]
    page.keyboard.press("ArrowRight")
    assert page.locator(".wid-caption .wid-word").text_content() == "nice"
    page.keyboard.press("ArrowLeft")
    assert page.locator(".wid-caption .wid-word").text_content() == "so", (
        "a step chooses the last live row again"
    )


def test_a_click_on_a_live_cell_chooses_its_row(open_page: Open) -> None:
    page = open_page(record_toy(), start=1)
    box = page.locator('[data-cell="2,1"]').bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    assert page.locator(".wid-caption .wid-word").text_content() == "is"
    page.get_by_role("button", name="Next").click()
    box = page.locator('[data-cell="1,0"]').bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    assert page.locator(".wid-caption .wid-word").text_content() == "nice", (
        "an untouched row has no weights left"
    )


def test_rail_slider_switches_and_layer(open_page: Open) -> None:
    page = open_page(record_toy(n_layers=2))
    page.get_by_role("button", name="Decode 1").click()
    assert read(page)["current"] == ["Decode 1"]
    page.get_by_role("slider", name="Pass").fill("0")
    assert read(page)["current"] == ["Training"]
    page.get_by_role("button", name="off").click()
    assert read(page)["cache"] == "off"
    page.get_by_role("button", name="2", exact=True).click()
    assert page.get_by_text("next word, after layer 2").count() == 0
    page.get_by_role("button", name="1", exact=True).click()
    assert page.get_by_text("next word, after layer 2").count() == 0, "training gives no word"
    root(page).press("End")
    assert page.get_by_text("next word, after layer 2").count() == 1
    root(page).press("Home")
    page.get_by_role("button", name="2", exact=True).click()
    shown = read(page)
    assert shown["layer"] == 1
    assert [shown["rows"][f"v{j}"][1] for j in range(4)] == ["7.5", "16.25", "10.33", "9.13"]


def test_play_walks_to_the_end_and_stops(open_page: Open) -> None:
    page = open_page(record_toy(), start=0)
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.clock.run_for(3000)
    assert read(page)["event"] == 2
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    root(page).press("Home")
    root(page).press("Space")
    page.clock.run_for(1500)
    assert read(page)["event"] == 1
    root(page).press("Space")
    page.clock.run_for(5000)
    assert read(page)["event"] == 1


def test_a_burst_of_clicks_leaves_no_stale_state(open_page: Open) -> None:
    trace = record_toy(ban_eos=True)
    page = open_page(trace, start=0)
    page.evaluate(
        """() => {
          const [back, next] = document.querySelectorAll('.wid-buttons button');
          const cache = document.querySelectorAll('.wid-segments button');
          for (let i = 0; i < 200; i++) [next, next, cache[i % 2], back][i % 4].click();
          document.querySelector('.wid-rail [data-event="3"]').click();
          cache[0].click();
        }"""
    )
    shown = read(page)
    assert grid(shown, 6) == expected_marks(trace, "cached", 3)
    assert shown["current"] == ["2"]
    assert len(shown["cells"]) == sum(
        mark != "" for row in expected_marks(trace, "cached", 3) for mark in row
    )


LEVEL_SIGNS = {
    ".wid-caption": "attention",
    ".wid-text.target, .wid-candidate": "prediction",
    ".wid-workwords": "work",
    ".wid-text.ledger, .wid-text.shape": "everything",
}


@pytest.mark.parametrize("level", ["passes", "attention", "prediction", "work", "everything"])
def test_levels_show_what_the_reader_has_met(open_page: Open, level: str) -> None:
    page = open_page(record_toy(), panels=level, start=1)
    order = ["passes", "attention", "prediction", "work", "everything"]
    for selector, first in LEVEL_SIGNS.items():
        assert (page.locator(selector).count() > 0) == (order.index(level) >= order.index(first)), selector
    shown = read(page)
    assert shown["rows"]["v1"][1] == ("written" if level == "passes" else "20")
    assert shown["rows"]["k1"][1] == ("yes · 2" if level == "everything" else "written")
    assert ("rows read" in shown["foot"]) == (level == "everything")


NARROW_TO_WIDE = (296, 400, 620, 940, 1240)


@pytest.mark.parametrize(
    "make",
    [record_toy, lambda: record_toy(ban_eos=True), lambda: record_toy(HOSTILE, numbers=list(range(8)))],
    ids=["toy", "long run", "hostile"],
)
def test_the_page_never_scrolls_sideways(open_page: Open, make: Callable[[], Trace]) -> None:
    trace = make()
    page = open_page(trace, width=NARROW_TO_WIDE[0])
    for width in NARROW_TO_WIDE:
        page.set_viewport_size({"width": width, "height": 900})
        for index in {0, 1, len(trace.runs[0].events) - 1}:
            page.get_by_role("slider", name="Pass").fill(str(index))
            root(page).press("c")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, index)
            inner = page.evaluate(
                """() => [...document.querySelectorAll('.wid-stepper > :not(.wid-board, .wid-unseen)')]
                  .filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.className)"""
            )
            assert inner == [], (width, index)


@pytest.mark.parametrize("width", NARROW_TO_WIDE)
def test_numbers_fit_into_their_cells(open_page: Open, width: int) -> None:
    page = open_page(record_toy(n_layers=2), width=width, layer=1, start=2)
    cut = page.evaluate(
        """() => [...document.querySelectorAll('[data-row^="v"]')].filter((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return range.getBoundingClientRect().width > cell.clientWidth;
        }).map((cell) => cell.textContent)"""
    )
    assert cut == []
    assert "9.13" in page.locator('[data-row="v3"]').inner_text()


@pytest.mark.parametrize("width", NARROW_TO_WIDE)
@pytest.mark.parametrize("words", [1, 2, 3, 8])
def test_words_fit_where_they_stand(open_page: Open, words: int, width: int) -> None:
    """What happens to a row, whose an untouched row is, and the percentages, 100.0% among them."""
    trace = record_toy(ban_eos=True, max_new=words)
    for run in trace.runs:
        for event in run.passes:
            for out in event.parts[0].out:
                out.top = [(word, x, float(word == "nice")) for word, x, _ in out.top]
    page = open_page(trace, width=width, start=0, panels="work")
    for _ in trace.runs[0].events:
        for _ in range(2):
            cut = page.evaluate(
                """() => [...document.querySelectorAll('.wid-row, .wid-rowname *, .wid-percent')]
                .filter((node) => {
                  const range = document.createRange();
                  range.selectNodeContents(node);
                  const [text, box] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
                  const room = node.closest('.wid-rowname')?.getBoundingClientRect() ?? box;
                  const most = node.matches('.wid-row') ? node.clientWidth - 1 : box.width + 0.5;
                  return text.width > 0 && (text.width > most || text.left < room.left - 0.5);
                }).map((node) => node.textContent)"""
            )
            assert cut == []
            root(page).press("c")
        root(page).press("ArrowRight")


@pytest.mark.parametrize("width", [340, 360, 380, 400, 420])
def test_a_board_that_scrolls_ends_with_a_whole_column_at_its_left_edge(open_page: Open, width: int) -> None:
    page = open_page(record_toy(ban_eos=True), width=width, start=0)
    root(page).press("End")
    hidden, lefts = page.evaluate(
        """() => {
          const strip = document.querySelector('.wid-strip').getBoundingClientRect().right;
          const heads = [...document.querySelectorAll('.wid-head')].map((n) => n.getBoundingClientRect());
          return [heads.filter((b) => b.right <= strip).length, heads.filter((b) => b.left >= strip).length];
        }"""
    )
    assert hidden > 0
    assert hidden + lefts == 11


def test_size_of_five_tokens(open_page: Open) -> None:
    box = root(open_page(record_toy())).bounding_box()
    assert box is not None
    assert box["height"] <= 740


@pytest.mark.parametrize("width", [400, 620, 940])
def test_nothing_moves_unless_the_reader_moves_it(open_page: Open, width: int) -> None:
    """The controls and the board stay where they are, however long the sentence is."""
    page = open_page(record_toy(), width=width, start=0)
    tops = set()
    for _ in range(3):
        for _ in range(2):
            tops.add(
                page.evaluate("document.querySelector('.wid-board').getBoundingClientRect().top + scrollY")
            )
            root(page).press("c")
        root(page).press("ArrowRight")
    assert len(tops) == 1


CONTRAST = """() => {
  const parse = (text) => {
    const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a ?? 1];
  };
  const over = (top, bottom) => top.slice(0, 3).map((c, i) => c * top[3] + bottom[i] * (1 - top[3]));
  const light = (rgb) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    const layers = [];
    for (; node; node = node.parentElement) layers.push(parse(getComputedStyle(node).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const found = [];
  const walk = document.createTreeWalker(document.querySelector('.wid-stepper'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    const box = node.getBoundingClientRect();
    const hidden = getComputedStyle(node).visibility === 'hidden';
    if (!walk.currentNode.data.trim() || !box.width || hidden) continue;
    const back = ground(node);
    const [a, b] = [light(over(parse(getComputedStyle(node).color), back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.className} ${walk.currentNode.data}`);
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (size < 11) found.push(`${size}px ${node.className}`);
  }
  return found;
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(open_page: Open, dark: bool) -> None:
    trace = record_toy(n_layers=2, ban_eos=True, max_new=3)
    page = open_page(trace, start=0, dark=dark)
    assert ("wid-dark" in (root(page).get_attribute("class") or "")) == dark
    for _ in trace.runs[0].events:
        for _ in range(2):
            assert page.evaluate(CONTRAST) == []
            root(page).press("c")
        root(page).press("ArrowRight")


def test_the_theme_follows_the_page(open_page: Open) -> None:
    page = open_page(record_toy())
    page.emulate_media(color_scheme="dark")
    expect(page.locator(".wid-stepper.wid-dark")).to_be_visible()
    page.emulate_media(color_scheme="light")
    expect(page.locator(".wid-stepper:not(.wid-dark)")).to_be_visible()


def test_hostile_text_is_text(open_page: Open) -> None:
    page = open_page(record_toy(HOSTILE, numbers=list(range(8)), ban_eos=True, max_new=2), start=2)
    shown = read(page)
    assert shown["heads"][:3] == HOSTILE[:3]
    assert shown["heads"][3] == "U+200B"
    assert shown["heads"][5] == "x" * 200
    assert page.locator(".wid-head").nth(5).get_attribute("title") == "x" * 200
    assert page.locator(".wid-stepper img, .wid-stepper script").count() == 0
    assert page.evaluate("document.querySelectorAll('.wid-head bdi').length") == 9
    wide = page.evaluate(
        """() => [...document.querySelectorAll('.wid-head')]
          .filter((node) => node.scrollWidth > node.clientWidth + 1).length"""
    )
    assert wide == 0


def test_the_pass_can_be_heard(open_page: Open) -> None:
    page = open_page(record_toy(), start=2)
    assert page.locator(".wid-sentence").get_attribute("aria-live") == "polite"
    words = read(page)["words"]
    assert "Not run in this pass:" in words
    assert "weather" in words
    tree = root(page).aria_snapshot()
    for heard in (
        'group "KV cache"',
        'button "on" [pressed]',
        'slider "Pass"',
        'list "Passes"',
        "Only",
        "rows stored",
    ):
        assert heard in tree
    assert "no · 1" not in tree, "cells are drawings; the words beside them say the same"
    page.get_by_role("button", name="off").click()
    assert "scored before" in read(page)["words"]


def test_nothing_moves_for_who_wants_no_motion(open_page: Open) -> None:
    page = open_page(record_toy(), motion="reduce", start=0)
    page.get_by_role("button", name="Next").click()
    assert page.evaluate("document.getAnimations().length") == 0


def painted(page: Page) -> int:
    """Pixels of the canvas that carry ink."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector('.wid-canvas');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          let n = 0;
          for (let i = 3; i < data.length; i += 4) n += data[i] > 40;
          return n;
        }"""
    )


def test_past_two_dozen_tokens_the_grid_is_a_canvas(open_page: Open) -> None:
    page = open_page(record_toy(ban_eos=True, max_new=61), start=2)
    assert page.locator("[data-cell]").count() == 0
    early = painted(page)
    root(page).press("End")
    late = painted(page)
    assert late > early > 1000
    root(page).press("c")
    assert painted(page) > 2 * late, "without the cache the whole triangle is scored again"
    assert "2,080 of 2,080" in read(page)["work"]
    page.get_by_label("attention weights of row").select_option("9")
    assert page.locator(".wid-rowname .wid-word").all_text_contents() == ["nice"]
    assert "average of 10 = " in " ".join(read(page)["numbers"])
    box = page.locator(".wid-canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 118, box["y"] + 34)
    assert "Today (1) looks at Today (1): scored for time 61" in (
        page.locator(".wid-canvas").get_attribute("title") or ""
    )


def test_shapes_of_a_long_run_are_not_cut(open_page: Open) -> None:
    page = open_page(record_toy(ban_eos=True, max_new=61))
    root(page).press("End")
    root(page).press("c")
    shape = page.locator(".wid-text.shape", has_text="scores 4 × 64 × 64")
    assert shape.evaluate("(node) => node.scrollWidth <= node.clientWidth")


def test_past_128_tokens_a_window(open_page: Open) -> None:
    trace = record_toy([f"w{i}" for i in range(200)], numbers=[0] * 200, ban_eos=True, max_new=3)
    page = open_page(trace, start=2)
    assert "75 to 202 of 202" in page.locator(".wid-pickers").inner_text()
    page.get_by_role("slider", name="First column shown").fill("0")
    assert "1 to 128 of 202" in page.locator(".wid-pickers").inner_text()
    root(page).press("ArrowLeft")
    assert "of 202" in page.locator(".wid-pickers").inner_text()
    assert read(page)["event"] == 1


def test_each_step_leaves_its_time_for_the_benchmark(open_page: Open) -> None:
    page = open_page(record_toy(ban_eos=True, max_new=61), start=1)
    took = page.evaluate(
        """() => {
          const next = document.querySelector('.wid-go');
          for (let i = 0; i < 60; i++) next.click();
          return performance.getEntriesByName('wid-step').map((entry) => entry.duration);
        }"""
    )
    assert len(took) == 60
    assert all(milliseconds >= 0 for milliseconds in took)


def test_events_of_a_later_kind_are_their_sentence(open_page: Open) -> None:
    data = record_toy().to_dict()
    for run in data["runs"]:
        run["events"].insert(2, {"op": "swap", "say": "The rows <b>move</b> to another memory."})
    page = open_page(Trace.from_dict(data), start="swap")
    shown = read(page)
    assert shown["sentence"] == "The rows <b>move</b> to another memory."
    assert {state for state, _ in shown["cells"].values()} == {"earlier"}
    root(page).press("ArrowRight")
    assert read(page)["sentence"].startswith("Only nice runs.")


@pytest.mark.parametrize("panels", ["passes", "everything"])
def test_a_drop_in_one_run_only(open_page: Open, panels: str) -> None:
    """Rail, slider, keys and the cache's switch, where the runs have not the same events."""
    page = open_page(with_event(DROP, 3), start=0, panels=panels)
    stops = page.locator(".wid-rail button")
    slider = page.get_by_role("slider", name="Pass")
    expect(stops).to_have_text(["Training", "Prefill", "Decode 1", "Drop"])
    for _ in range(5):
        root(page).press("ArrowRight")
    shown = read(page)
    assert (shown["event"], shown["sentence"], shown["current"]) == (3, "Two rows leave.", ["Drop"])
    assert [shown["rows"][f"k{j}"][0] for j in range(5)] == ["dropped"] * 2 + ["rest"] * 3
    assert slider.get_attribute("aria-valuetext") == "Drop, 4 of 4"
    if panels == "everything":
        assert page.locator(".wid-caption").inner_text() == "attention weights · no token runs"
    root(page).press("c")
    shown = read(page)
    assert (shown["event"], shown["cache"], shown["current"]) == (2, "off", ["Decode 1"])
    expect(stops).to_have_text(["Training", "Prefill", "Decode 1"])
    assert [slider.get_attribute("max"), slider.input_value()] == ["2", "2"]
    assert page.get_by_role("button", name="Next").get_attribute("aria-disabled") == "true"
    root(page).press("End")
    assert read(page)["event"] == 2
    page.get_by_role("button", name="on", exact=True).click()
    assert read(page)["current"] == ["Drop"], "who did not step is back where he was"
    slider.fill("1")
    root(page).press("c")
    root(page).press("c")
    assert read(page)["current"] == ["Prefill"]
    root(page).press("End")
    assert read(page)["current"] == ["Drop"]
    stops.nth(2).click()
    assert read(page)["sentence"].startswith("Only nice runs.")
    assert "5 pairs instead of 15" in read(page)["sentence"]


def test_a_step_between_two_passes_of_one_run(open_page: Open) -> None:
    trace = with_event(SWAP, 2)
    page = open_page(trace, start="decode")
    assert read(page)["current"] == ["Decode 1"]
    assert read(page)["work"] == ["1 of 5, 4 avoided", "5 of 15, 10 avoided"]
    root(page).press("c")
    shown = read(page)
    assert (shown["event"], shown["current"]) == (2, ["Decode 1"])
    assert grid(shown, 5) == expected_marks(trace, "uncached", 2)
    root(page).press("c")
    assert read(page)["event"] == 3
    page.get_by_role("button", name="Swap").click()
    assert read(page)["sentence"] == SWAP["say"]
    page.get_by_role("button", name="off").click()
    assert read(page)["current"] == ["Prefill"]
    root(page).press("ArrowRight")
    page.get_by_role("button", name="on", exact=True).click()
    assert read(page)["current"] == ["Decode 1"], "who stepped on is at the pass he stepped to"


def test_a_start_is_found_in_the_run_that_is_shown(open_page: Open) -> None:
    page = open_page(with_event(SWAP, 2), start="decode", cache=False)
    assert (read(page)["event"], read(page)["current"]) == (2, ["Decode 1"])


def test_a_run_with_fewer_passes(open_page: Open) -> None:
    page = open_page(with_fewer_passes(), start=0)
    root(page).press("End")
    shown = read(page)
    assert (shown["event"], shown["work"]) == (5, ["1", "8"])
    assert "without" not in shown["foot"]
    root(page).press("c")
    assert (read(page)["event"], page.locator(".wid-rail button").count()) == (3, 4)
    root(page).press("c")
    assert read(page)["event"] == 5
    root(page).press("c")
    root(page).press("ArrowLeft")
    root(page).press("c")
    assert read(page)["event"] == 2
