"""The stepper in a Chromium, on the saved page: from disk, with the network off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, expect

from helpers.stepper import Stepper
from helpers.stepper.format import VIEW, number, percent
from helpers.trace import Pass, Trace
from tests.expected import expected, expected_marks
from tests.made_traces import DROP, HOSTILE, SWAP, UNEQUAL, record_toy, with_event, with_fewer_passes

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
SIGNS = {"now": "●", "earlier": "○", "masked": "×"}

READ = """() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
  const marks = {};
  for (const node of document.querySelectorAll('[data-key]'))
    marks[node.dataset.key] = [node.className, node.textContent, node.offsetLeft + node.offsetWidth / 2];
  const root = document.querySelector('.wid-stepper');
  return {
    event: Number(root.dataset.event), cache: root.dataset.cache, layer: Number(root.dataset.layer),
    sentence: document.querySelector('.wid-sentence').textContent,
    marks,
    live: [...document.querySelectorAll('.wid-head')].map((node) => node.classList.contains('live')),
    heads: texts('.wid-head .wid-word'),
    candidates: texts('.wid-candidate .wid-word'),
    percents: texts('.wid-candidate .wid-percent'),
    bars: [...document.querySelectorAll(".wid-candidate .wid-bar i")].map((i) => parseFloat(i.style.width)),
    chosen: texts('.wid-candidate.chosen .wid-word'),
    work: texts('[data-work]'),
    hatched: [...document.querySelectorAll('.wid-work')].map(
      (bar) => [...bar.children].map((part) => parseFloat(part.style.width))),
    ledger: texts('.wid-text.ledger'),
    numbers: texts('.wid-text.number'),
    targets: texts('.wid-text.target'),
    table: [...document.querySelectorAll('.wid-contexts tr')].map(
      (row) => [...row.children].map((cell) => cell.textContent)),
    sums: texts('.wid-sums li'),
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
        kind, text, _ = shown["marks"].get(key, ("", "", 0))
        state = kind.replace("wid-cell", "").strip()
        return text if state == "again" else SIGNS.get(state, "")

    return [[mark(f"c{i}.{j}") for j in range(size)] for i in range(size)]


def text_at(shown: dict[str, Any], key: str) -> str | None:
    return shown["marks"][key][1] if key in shown["marks"] else None


def check_pass(page: Page, trace: Trace, name: str, index: int, layer: int) -> None:
    """What the page shows at a pass is what the trace holds: the first heads and the last live row."""
    shown, want = read(page), expected(trace, name, index, layer)
    size, query = len(want["marks"]), want["live"][-1]
    assert (shown["event"], shown["layer"]) == (index, layer)
    assert grid(shown, size) == want["marks"]
    assert [j for j, live in enumerate(shown["live"]) if live] == want["live"]
    kept = next(kept for kept in trace.values or [] if kept.layer == layer)
    for j, state in enumerate(want["rows"][:size]):
        assert {shown["marks"][f"{kind}{j}"][0].split()[2] for kind in "kv"} == {state}
        if state != "empty":
            assert text_at(shown, f"v{j}") == number(kept.v[j][0])
            numbers = [] if trace.model.name == "toy" or not kept.k else map(number, kept.k[j])
            assert " · ".join(numbers) in (text_at(shown, f"k{j}") or "").replace("\n", " · ")
    check_heads(shown, want, query)
    for j, last in want["untouched"].items():
        assert text_at(shown, f"old{j}") == f"{last}'s, untouched"
    check_work(shown, want)
    assert shown["ledger"] == [want["ledger"]]
    assert text_at(shown, "noteK") == want["note"]
    check_next(shown, want, query)
    assert shown["targets"] == [f"→ {word}" for word in want["targets"]]


def check_heads(shown: dict[str, Any], want: dict[str, Any], query: int, first: int = 0) -> None:
    """The weights of one row, by head and column, what they sum up to, and the contexts of all live rows."""
    some = slice(first, first + 4)
    for h, name in enumerate(want["names"][some]):
        assert text_at(shown, f"w{h}") == name
        looks, total = want["weights"][str(query)][some][h], want["sums"][str(query)][some][h]
        assert text_at(shown, f"sum{h}") == total
        assert text_at(shown, f"w{h}none") == ("not recorded" if looks is None else None)
        for j, w in looks or []:
            drawn = w * len(looks) >= 0.05
            key = f"w{h}.{j}s" if drawn else f"w{h}.{j}"
            assert abs(shown["marks"][key][2] - shown["marks"][f"h{j}"][2]) <= 13, "under its column"
            digits = number(w) if drawn and len(shown["live"]) <= 8 else None
            assert text_at(shown, f"w{h}.{j}d") == digits
    for q in want["live"]:
        found = {h: shown["marks"].get(f"ctx{q}.{h}", ("", None, 0)) for h in range(len(want["names"][some]))}
        assert [text for _, text, _ in found.values()] == [*map(number, want["contexts"][str(q)][some])]
        assert [x for *_, x in found.values()] == sorted(x for *_, x in found.values())


def check_work(shown: dict[str, Any], want: dict[str, Any]) -> None:
    work = want["work"]
    for said, hatched, name in zip(shown["work"], shown["hatched"], ("positions", "pairs"), strict=True):
        done, total = work["counts"][name], work["plain"][name]
        assert said == f"{done} of {total}" + (f", {total - done} avoided" if total > done else "")
        assert len(hatched) == 1 or hatched[1] / hatched[0] == pytest.approx((total - done) / done, rel=0.01)
    so_far, without = work["so far"], work["without"]
    more = f" with the cache, {without} without" if without and without > so_far else ""
    assert shown["foot"].endswith(f"positions run so far: {so_far}{more}")
    kept = f"rows stored {work['kept']} · rows read in this pass {work['counts']['rows_read']}"
    assert kept in shown["foot"]


def check_next(shown: dict[str, Any], want: dict[str, Any], query: int) -> None:
    """The candidates, at most eight, the chosen one among them."""
    out = next((o for o in want["out"] if o["query"] == query), (want["out"] or [None])[-1])
    if out is None:
        assert shown["candidates"] == []
        return
    top = out["top"][:8]
    if out["chosen"] not in [word for word, _, _ in top]:
        top = [*top[:7], *(entry for entry in out["top"] if entry[0] == out["chosen"])]
    assert list(zip(shown["candidates"], shown["percents"], strict=True)) == [
        (w, percent(p)) for w, _, p in top
    ]
    assert shown["bars"] == pytest.approx([max(1, 100 * p) for _, _, p in top], abs=0.01)
    assert shown["chosen"] == [out["chosen"]]
    beside = "" if out["how"] == "greedy" else f" ({out['how']}; percentages of the logits alone)"
    said = "; ".join(filter(None, (text_at(shown, f"how{n}") for n in range(2))))
    assert said == beside[2:-1] or beside in shown["foot"]


def pages_of(trace: Trace) -> list[tuple[str, int, int]]:
    """Each pass in each layer of each run."""
    return [
        (run.name, index, layer)
        for run in trace.runs
        for index, event in enumerate(run.events)
        if isinstance(event, Pass)
        for layer in sorted({layer for layer, _ in trace.recorded})
    ]


WALKED = {
    "toy": record_toy,
    "two": lambda: record_toy(n_layers=2),
    **{name: UNEQUAL[name] for name in ("layers", "heads", "window", "drafts")},
}


@pytest.mark.parametrize("name", WALKED)
def test_every_pass_shows_the_trace(open_page: Open, name: str) -> None:
    trace = WALKED[name]()
    layers = sorted({layer for layer, _ in trace.recorded})
    page = open_page(trace, width=1500, start=0, layer=layers[0])
    for run, index, layer in pages_of(trace):
        page.get_by_label("KV cache").get_by_role("button").nth(int(run != "cached")).click()
        page.get_by_role("slider", name="Pass").fill(str(index))
        if len(layers) > 1:
            page.get_by_role("group", name="Layer").get_by_role("button", name=str(layer + 1)).click()
        check_pass(page, trace, run, index, layer)


def test_pickers_of_heads_and_rows_and_a_narrow_board(open_page: Open) -> None:
    trace = UNEQUAL["heads"]()
    page = open_page(trace, width=1500, start=0)
    want = expected(trace, "cached", 0, 0)
    picker = page.locator(".wid-picker select").first
    assert picker.locator("option").all_text_contents() == ["1 to 4", "5 to 8", "9 to 10"]
    for group in (1, 2, 0):
        picker.select_option(str(group))
        check_heads(read(page), want, 4, 4 * group)
    page.get_by_role("button", name=trace.sequences[0].tokens[2].text, exact=True).click()
    check_heads(read(page), want, 2)
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_selector(".wid-contexts")
    shown = read(page)
    assert shown["table"][0] == ["", *want["names"][:4]]
    texts = [token.text for token in trace.sequences[0].tokens]
    assert shown["table"][1:] == [
        [texts[q], *map(number, want["contexts"][str(q)][:4])] for q in want["live"]
    ]
    assert shown["sums"] == [
        f"{name}{total}" for name, total in zip(want["names"][:4], want["sums"]["2"], strict=False)
    ]


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
    box = page.locator('[data-key="c2.1"]').bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    assert page.locator(".wid-caption .wid-word").text_content() == "is"
    page.get_by_role("button", name="Next").click()
    box = page.locator('[data-key="c1.0"]').bounding_box()
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
    assert [text_at(shown, f"v{j}") for j in range(4)] == ["7.5", "16.25", "10.33", "9.13"]


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
    drawn = sum(mark != "" for row in expected_marks(trace, "cached", 3) for mark in row)
    assert page.locator(".wid-cell:not(.wid-key)").count() == drawn


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
    assert text_at(shown, "v1") == ("written" if level == "passes" else "20")
    assert text_at(shown, "k1") == ("yes · 2" if level == "everything" else "written")
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
        """() => [...document.querySelectorAll('.wid-row.v:not(.wid-key)')].filter((cell) => {
          const range = document.createRange();
          range.selectNodeContents(cell);
          return range.getBoundingClientRect().width > cell.clientWidth;
        }).map((cell) => cell.textContent)"""
    )
    assert cut == []
    assert "9.13" in page.locator('[data-key="v3"]').inner_text()


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
    assert shown["heads"][:4] == [*HOSTILE[:2], "U+202Eשלום", "U+200B"]
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
    assert page.locator(".wid-cell:not(.wid-key)").count() == 0
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
    assert "\u2068Today\u2069 (1) looks at \u2068Today\u2069 (1): scored for time 61" == (
        page.locator(".wid-canvas").get_attribute("title") or ""
    )


def test_shapes_of_a_long_run_are_not_cut(open_page: Open) -> None:
    page = open_page(record_toy(ban_eos=True, max_new=61))
    root(page).press("End")
    root(page).press("c")
    shape = page.locator(".wid-text.shape", has_text="scores 4 × 64 × 64")
    assert shape.evaluate("(node) => node.scrollWidth <= node.clientWidth")


INKED = """(colour) => {
  const canvas = document.querySelector('.wid-canvas');
  const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const rgb = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  const found = new Set();
  for (let i = 0; i < data.length; i += 4)
    if (rgb.every((c, k) => data[i + k] === c)) found.add((i / 4) % width);
  return [Math.min(...found), Math.max(...found)];
}"""


def test_past_128_tokens_a_window(open_page: Open) -> None:
    """Columns 35 to 162 of 162: what is drawn, clicked and pointed at is theirs, in every layer and head."""
    trace = UNEQUAL["long"]()
    texts = [token.text for token in trace.sequences[0].tokens]
    page = open_page(trace, start=2)
    assert "35 to 162 of 162" in page.locator(".wid-pickers").inner_text()
    box = page.locator(".wid-canvas").bounding_box()
    strip = page.evaluate(INKED, VIEW["palette"]["light"]["k"])
    assert box is not None
    assert strip[0] > strip[1] - 6, "one row is written"
    assert strip[1] > box["width"] - 8, "and it is the newest"
    page.mouse.move(box["x"] + strip[0] + 2, box["y"] + 34)
    assert f"{texts[161]}\u2069 (161)" in (page.locator(".wid-canvas").get_attribute("title") or "")
    page.get_by_role("slider", name="First column shown").fill("0")
    assert "1 to 128 of 162" in page.locator(".wid-pickers").inner_text()
    root(page).press("Home")
    assert "34 to 161 of 162" in page.locator(".wid-pickers").inner_text(), "the next word's column too"
    want = expected(trace, "cached", 0, 0)
    page.locator(".wid-picker select").last.select_option("150")
    shown = read(page)
    assert page.locator(".wid-caption .wid-word").text_content() == texts[150]
    assert [text_at(shown, f"sum{h}") for h in range(4)] == want["sums"]["150"][:4]
    page.mouse.click(box["x"] + 150, page.locator(".wid-canvas").bounding_box()["y"] + 40)  # type: ignore[index]
    assert page.locator(".wid-caption .wid-word").text_content() in texts[24:40], "a row of the window"


def test_targets_where_there_is_no_room_beside_the_grid(open_page: Open) -> None:
    trace = UNEQUAL["layers"]()
    page = open_page(trace, start=0, width=660)
    texts = [token.text for token in trace.sequences[0].tokens]
    pairs = ", ".join(f"{texts[i]} → {texts[i + 1]}" for i in range(4))
    assert page.locator(".wid-targets").text_content() == f"targets {pairs}"


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
    assert [shown["marks"][f"k{j}"][0].split()[2] for j in range(5)] == ["dropped"] * 2 + ["rest"] * 3
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
    assert read(page)["sentence"] == SWAP.say
    assert {mark for row in grid(read(page), 5) for mark in row} == {"○", ""}
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
